"""Compiles constraints for one model, off the event loop, and keeps those asked for again."""

import asyncio
import hashlib
import threading
from collections import OrderedDict
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from radiance_core.constrain.errors import ConstraintError
from radiance_core.constrain.grammar import Grammar, translate
from radiance_core.constrain.matcher import Source
from radiance_core.constrain.native import PlainVocabulary, Tokens, build_matcher, error_of
from radiance_core.constrain.trial import TrialProcess

MAX_COMPILING = 2
MAX_KEPT = 128
MAX_KEPT_BYTES = 32 << 20
_BYTES_EACH = 64 << 10
_BYTES_PER_CHAR = 256
"""What a compiled constraint takes, measured from above over schemas and grammars (ADR 0008)."""

Key = tuple[str, bytes]


class Compiler:
    """Makes constraints of one model; nothing is built or started before the first.

    Args:
        tokenizer: of the model.
    """

    def __init__(self, tokenizer: Tokens) -> None:
        self._tokenizer = tokenizer
        self._kept: OrderedDict[Key, tuple[Source | ConstraintError, int]] = OrderedDict()
        self._kept_bytes = 0
        self._lock = threading.Lock()
        self._building = threading.Lock()
        self._threads = ThreadPoolExecutor(MAX_COMPILING, "constraint")
        self._built: tuple[TrialProcess, Any] | None = None

    async def compile(self, kind: str, text: str) -> Source:
        """Compile a constraint without holding up the event loop.

        Args:
            kind, text: as in ``engine.sampling.ConstraintSpec``.

        Raises:
            ConstraintError: it is malformed, too large, or says what no mask can enforce.
        """
        found = self._find(_key(kind, text))
        if found is not None:
            return _given(found)
        # Threads of its own: those who wait for a hard one must not hold up other requests' work.
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._threads, self.compile_now, kind, text)

    def compile_now(self, kind: str, text: str) -> Source:
        """Compile a constraint in this thread; see ``compile``."""
        key = _key(kind, text)
        found = self._find(key)
        if found is None:
            try:
                found = self._compile(kind, translate(kind, text))
            except ConstraintError as err:
                found = ConstraintError(str(err), err.path)  # without the frames that it came by
            self._keep(key, found, len(text))
        return _given(found)

    def close(self) -> None:
        """End the process that tries constraints out, if there is one."""
        with self._building:
            if self._built is not None:
                self._built[0].close()
        self._threads.shutdown(wait=False, cancel_futures=True)

    def _compile(self, kind: str, grammar: Grammar) -> Source:
        trial, vocabulary = self._build()
        trial.attempt(grammar.text, kind)
        matcher = build_matcher(vocabulary, grammar.text)
        if error := error_of(matcher):
            raise ConstraintError(f"{kind}: expected one that can be enforced, got: {error}.")
        tokenizer = self._tokenizer
        return Source(matcher, tokenizer.eos_ids, tokenizer.vocab_size, grammar.ignored)

    def _build(self) -> tuple[TrialProcess, Any]:
        """Return the trial process and llguidance's vocabulary, made by whoever asks first."""
        with self._building:
            if self._built is None:
                plain = PlainVocabulary.of(self._tokenizer)
                self._built = (TrialProcess(plain), plain.build())
            return self._built

    def _find(self, key: Key) -> Source | ConstraintError | None:
        with self._lock:
            found = self._kept.get(key)
            if found is None:
                return None
            self._kept.move_to_end(key)
            return found[0]

    def _keep(self, key: Key, found: Source | ConstraintError, chars: int) -> None:
        """Keep what was found, and let go of what has not been asked for the longest."""
        size = _BYTES_EACH + (0 if isinstance(found, ConstraintError) else chars * _BYTES_PER_CHAR)
        if size > MAX_KEPT_BYTES // 4:
            return
        with self._lock:
            _, old = self._kept.pop(key, (None, 0))
            self._kept[key] = (found, size)
            self._kept_bytes += size - old
            while len(self._kept) > MAX_KEPT or self._kept_bytes > MAX_KEPT_BYTES:
                _, (_, freed) = self._kept.popitem(last=False)
                self._kept_bytes -= freed


def _key(kind: str, text: str) -> Key:
    return kind, hashlib.sha256(text.encode("utf-8", "surrogatepass")).digest()


def _given(found: Source | ConstraintError) -> Source:
    if isinstance(found, ConstraintError):
        raise ConstraintError(str(found), found.path)
    return found
