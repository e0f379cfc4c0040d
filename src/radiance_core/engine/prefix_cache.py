"""What was computed before, found by content: a tree of blocks under a root for each salt."""

import hashlib
from array import array
from collections.abc import Mapping, Sequence

from radiance_core.engine.blocks import CachedBlock, PagePool

KEY_BYTES = 16


class Chain:
    """Keys of the whole blocks of one text, each made once and over all that comes before it.

    Args:
        salt: texts of different salts have no key in common.
        unit: tokens of a block.
        secret: of this process, so that nobody outside can work out a key.
    """

    __slots__ = ("_last", "_secret", "keys", "salt", "tokens", "unit")

    def __init__(self, salt: bytes, unit: int, secret: bytes) -> None:
        self.salt = salt
        self.unit = unit
        self._secret = secret
        self._last = self.root_key()
        self.keys: list[bytes] = []
        self.tokens: list[bytes] = []

    def root_key(self) -> bytes:
        """Return the key of the salt's root."""
        return hashlib.blake2b(
            self.salt, digest_size=KEY_BYTES, key=self._secret, person=b"root"
        ).digest()

    def reach(self, ids: Sequence[int], count: int) -> None:
        """Make the keys of the first ``count`` blocks of ``ids``, which only ever grow."""
        unit = self.unit
        for index in range(len(self.keys), count):
            tokens = array("i", ids[index * unit : (index + 1) * unit]).tobytes()
            made = hashlib.blake2b(self._last + tokens, digest_size=KEY_BYTES, key=self._secret)
            self._last = made.digest()
            self.keys.append(self._last)
            self.tokens.append(tokens)


class PrefixCache:
    """Finds and forgets blocks; which pages are whose is the pools' business.

    Args:
        pools: of all groups, by name.
    """

    def __init__(self, pools: Mapping[str, PagePool]) -> None:
        self._pools = pools
        self._blocks: dict[bytes, CachedBlock] = {}

    def __len__(self) -> int:
        return len(self._blocks)

    def root(self, chain: Chain) -> CachedBlock | None:
        """Return the root of a chain's salt, made where there is none."""
        return self._at(chain.root_key(), None, chain.salt)

    def add(self, chain: Chain, index: int, parent: CachedBlock) -> CachedBlock | None:
        """Return block ``index`` of a chain, made where there is none.

        Returns:
            ``None`` when another text has its key, or it or its parent is condemned: then the text
            cannot be cached from here on.
        """
        return self._at(chain.keys[index], parent, chain.tokens[index])

    def _at(self, key: bytes, parent: CachedBlock | None, tokens: bytes) -> CachedBlock | None:
        if parent is not None and parent.is_condemned:
            return None
        block = self._blocks.get(key)
        if block is not None and block.is_condemned:
            return None
        if block is None:
            block = self._blocks[key] = CachedBlock(key, parent, tokens)
            if parent is not None:
                parent.uses += 1
        return block if block.parent is parent and block.tokens == tokens else None

    def path(self, chain: Chain) -> list[CachedBlock]:
        """Return the blocks that a chain begins with, as far as they are known.

        Tokens are compared along the way, so that a key alone never hits.
        """
        found: list[CachedBlock] = []
        parent = self._blocks.get(chain.root_key())
        if parent is None or parent.tokens != chain.salt:
            return found
        for key, tokens in zip(chain.keys, chain.tokens, strict=True):
            block = self._blocks.get(key)
            if block is None or block.parent is not parent or block.tokens != tokens:
                break
            found.append(block)
            parent = block
        return found

    def forget(self, block: CachedBlock, group: str) -> None:
        """Forget the pages of one group that hold a block's state."""
        for page in block.pages.pop(group, ()):
            self._pools[group].forget(page)
        self._prune(block)

    def condemn(self, blocks: Sequence[CachedBlock]) -> None:
        """Forget blocks and all that was computed after them, by whomever."""
        for block in blocks:
            block.is_condemned = True
        # A block stays while others come after it, so parents stand before their children.
        for block in list(self._blocks.values()):
            if block.is_condemned or (block.parent is not None and block.parent.is_condemned):
                block.is_condemned = True
                for group in list(block.pages):
                    self.forget(block, group)

    def release(self, block: CachedBlock) -> None:
        """Note that one use of a block has ended."""
        block.uses -= 1
        assert block.uses >= 0, "a use ends once"
        self._prune(block)

    def _prune(self, block: CachedBlock) -> None:
        """Take out a block that neither holds nor leads to anything, and those before it."""
        at: CachedBlock | None = block
        while at is not None and not at.pages and not at.uses:
            if self._blocks.pop(at.key, None) is None:
                return
            at = at.parent
            if at is not None:
                at.uses -= 1
