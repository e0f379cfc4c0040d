"""A GGUF vocabulary rebuilt as a `tokenizers` tokenizer.

`gpt2` files carry their merges. `llama` files carry a score for each token instead: at every
step SentencePiece joins the neighbours whose joined text is the best-scored token. That is BPE
whose merges are all ways to cut a token into two tokens, ordered by the token's score. Where a
token can be cut in several ways the order among them is of no consequence: merges inside a span
do not depend on its surroundings, so a token is always formed from the same two parts.
"""

import gc
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from difflib import get_close_matches

from tokenizers import AddedToken, normalizers
from tokenizers import Tokenizer as Backend
from tokenizers.models import BPE

from radiance_core.text.errors import TokenizerError
from radiance_core.text.gguf_vocab import GgufVocab, TokenType, read_vocab, refuse_merges
from radiance_core.text.pretokenizers import PRE_TOKENIZERS, PreTokenizer
from radiance_core.text.score_merges import score_merges
from radiance_core.text.tokenizer import SPACE_MARK, SpecialTokens, Spelling, Tokenizer
from radiance_core.text.turn_ends import named_turn_ends

_BYTE_TOKEN = re.compile(r"<0x([0-9A-Fa-f]{2})>")
_HIDDEN = frozenset({TokenType.CONTROL, TokenType.UNKNOWN})


def build(metadata: Mapping[str, object]) -> Tokenizer:
    """Rebuild the tokenizer that a GGUF file's keys describe (see ``Tokenizer.from_gguf``)."""
    vocab = read_vocab(metadata)
    with _no_collection():
        return _byte_level(vocab) if vocab.model == "gpt2" else _sentencepiece(vocab)


@contextmanager
def _no_collection() -> Iterator[None]:
    """Hold the cyclic collector: scanning half a million new pairs costs a third of the build."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()


def _byte_level(vocab: GgufVocab) -> Tokenizer:
    pre = _pre_tokenizer(vocab.pre)
    backend = Backend(_merged(vocab, whole_words=pre.whole_words))
    backend.pre_tokenizer = pre.build()
    normalizer = pre.normalizer()
    if normalizer is not None:
        backend.normalizer = normalizer
    literal = _ids_of_type(vocab, TokenType.USER_DEFINED, *_HIDDEN)
    _add_tokens(backend, vocab, vocab.tokens, normalized=False)
    spelling = Spelling("byte_level", literal_ids=literal)
    special = _special_tokens(vocab, add_bos=pre.add_bos)
    return Tokenizer(backend, vocab.tokens, spelling, special, vocab.chat_template)


def _sentencepiece(vocab: GgufVocab) -> Tokenizer:
    prefixed = vocab.add_space_prefix is not False
    byte_ids = _byte_ids(vocab)
    # Converters write the blanks of user-defined tokens as blanks or as marks: read both.
    tokens = [
        text.replace(SPACE_MARK, " ") if type_ == TokenType.USER_DEFINED else text
        for text, type_ in zip(vocab.tokens, vocab.types, strict=True)
    ]
    unk = None if vocab.unk_id is None else tokens[vocab.unk_id]
    model = BPE(
        _ids(tokens),
        _merges_by_score(vocab),
        byte_fallback=bool(byte_ids),
        unk_token=unk,
        fuse_unk=True,
    )
    backend = Backend(model)
    marks = normalizers.Replace(" ", SPACE_MARK)
    # The prefix goes before every stretch between special tokens, as the model's own
    # reference code does by encoding each stretch by itself.
    backend.normalizer = (
        normalizers.Sequence([normalizers.Prepend(SPACE_MARK), marks]) if prefixed else marks
    )
    _add_tokens(backend, vocab, tokens, normalized=not prefixed)
    spelling = Spelling(
        "space_mark",
        byte_ids=byte_ids,
        literal_ids=_ids_of_type(vocab, *_HIDDEN),
        drop_first_space=prefixed,
        each_bad_byte=True,
    )
    special = _special_tokens(vocab, add_bos=True)
    return Tokenizer(backend, tokens, spelling, special, vocab.chat_template)


def _pre_tokenizer(name: str) -> PreTokenizer:
    known = PRE_TOKENIZERS.get(name)
    if known is None:
        near = get_close_matches(name, PRE_TOKENIZERS, n=1)
        hint = f" The nearest is {near[0]}." if near else ""
        raise TokenizerError(
            f"tokenizer.ggml.pre: expected one of {', '.join(sorted(PRE_TOKENIZERS))}, got "
            f"{name[:80]!r}; cutting text another way would give ids the model never saw, so it "
            f"is not guessed.{hint}"
        )
    return known


def _merged(vocab: GgufVocab, *, whole_words: bool) -> BPE:
    """Make the model of a vocabulary with merges; it looks up each merge's parts and their join."""
    try:
        return BPE(_ids(vocab.tokens), vocab.merges, ignore_merges=whole_words)
    except Exception:  # the extension has no class of its own for what it raises
        refuse_merges(vocab.tokens, vocab.merges)
        raise


def _ids(tokens: Sequence[str]) -> dict[str, int]:
    """Map text to id; of tokens with one text the first is the one that encoding gives."""
    ids = dict(zip(reversed(tokens), range(len(tokens) - 1, -1, -1), strict=True))
    ids.pop("", None)
    return ids


def _ids_of_type(vocab: GgufVocab, *types: int) -> frozenset[int]:
    """Return the ids of some types; a search of bytes, since nearly all of many are normal."""
    found = re.finditer(b"[" + re.escape(bytes(types)) + b"]", vocab.types)
    return frozenset(match.start() for match in found)


def _byte_ids(vocab: GgufVocab) -> dict[int, int]:
    byte_ids = {}
    for id_ in _ids_of_type(vocab, TokenType.BYTE):
        spelt = _BYTE_TOKEN.fullmatch(vocab.tokens[id_])
        if spelt is None:
            raise TokenizerError(
                f"tokenizer.ggml.tokens[{id_}]: expected <0x00> to <0xFF> for a byte token, got "
                f"{vocab.tokens[id_][:80]!r}; the file is damaged."
            )
        byte_ids[id_] = int(spelt[1], 16)
    return byte_ids


def _merges_by_score(vocab: GgufVocab) -> list[tuple[str, str]]:
    """Return every cut of a normal token into two normal tokens, best-scored token first."""
    normal = TokenType.NORMAL
    ranked = sorted(
        (id_ for id_, type_ in enumerate(vocab.types) if type_ == normal and vocab.tokens[id_]),
        key=vocab.scores.__getitem__,
        reverse=True,
    )
    # Of tokens with one text the best-scored counts.
    return score_merges(list(dict.fromkeys(vocab.tokens[id_] for id_ in ranked)))


def _add_tokens(
    backend: Backend, vocab: GgufVocab, tokens: Sequence[str], *, normalized: bool
) -> None:
    """Make special and user-defined tokens matched in the text before anything else."""
    added = []
    for id_ in sorted(_ids_of_type(vocab, TokenType.USER_DEFINED, *_HIDDEN)):
        special = vocab.types[id_] in _HIDDEN
        if tokens[id_]:
            added.append(
                AddedToken(tokens[id_], normalized=normalized and not special, special=special)
            )
    backend.add_tokens(added)


def _special_tokens(vocab: GgufVocab, *, add_bos: bool) -> SpecialTokens:
    hidden = _ids_of_type(vocab, *_HIDDEN)
    add_bos = vocab.add_bos if vocab.add_bos is not None else add_bos
    ends = vocab.end_ids | named_turn_ends((id_, vocab.tokens[id_]) for id_ in hidden)
    return SpecialTokens(
        bos_id=vocab.bos_id,
        eos_id=vocab.eos_id,
        unk_id=vocab.unk_id,
        pad_id=vocab.pad_id,
        eos_ids=ends,
        special_ids=hidden | ends,
        prefix=(vocab.bos_id,) if add_bos and vocab.bos_id is not None else (),
        suffix=(vocab.eos_id,) if vocab.add_eos and vocab.eos_id is not None else (),
    )
