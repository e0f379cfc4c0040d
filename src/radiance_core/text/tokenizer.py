"""The tokenizer: text to ids and ids to bytes, the same for every source of vocabulary.

One file, because the directions, to ids and to bytes, have to agree on one vocabulary.
"""

import codecs
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

from tokenizers import AddedToken, Encoding
from tokenizers import Tokenizer as Backend

from radiance_core.text.byte_alphabet import spelled_bytes
from radiance_core.text.errors import TokenizerError
from radiance_core.text.special_texts import first_letter_of

SPACE_MARK = "\u2581"
TEXT_MARK = "\ufdd0"
"""A code point that Unicode leaves to a program's own use; no vocabulary has merges for it."""


@dataclass(frozen=True, slots=True)
class Spelling:
    """How the text of a token stands for bytes.

    Args:
        kind: ``byte_level`` (the byte alphabet) or ``space_mark`` (SentencePiece pieces).
        byte_ids: id to byte of the byte-fallback tokens.
        literal_ids: ids whose text is meant as it stands (special and added tokens).
        drop_first_space: whether a text's first space was put there by the encoder.
        each_bad_byte: whether every undecodable byte gives its own U+FFFD (SentencePiece) or
            every maximal ill-formed run gives one (Unicode's recommendation).
    """

    kind: str
    byte_ids: Mapping[int, int] = field(default_factory=dict)
    literal_ids: frozenset[int] = frozenset()
    drop_first_space: bool = False
    each_bad_byte: bool = False


@dataclass(frozen=True, slots=True)
class SpecialTokens:
    """Ids with a role, and what a prompt is wrapped in.

    Args:
        bos_id, unk_id, pad_id: ``None`` where there is none.
        eos_id: the one end token that templates call ``eos_token``.
        eos_ids: every id that ends a turn.
        special_ids: ids that a reader of text does not see.
        prefix, suffix: ids that ``encode(add_special_tokens=True)`` puts around a text.
    """

    bos_id: int | None
    eos_id: int | None
    unk_id: int | None
    pad_id: int | None
    eos_ids: frozenset[int]
    special_ids: frozenset[int]
    prefix: tuple[int, ...] = ()
    suffix: tuple[int, ...] = ()


class Tokenizer:
    """Text to token ids and back. Immutable once built, and safe to share between threads.

    Args:
        backend: the ``tokenizers`` object; owned by this one from now on.
        tokens: text of every id, ``None`` for an id that no token has.
        spelling: how token texts stand for bytes.
        special: ids with a role.
        chat_template: source of the model's own chat template, if it has one.
    """

    def __init__(
        self,
        backend: Backend,
        tokens: Sequence[str | None],
        spelling: Spelling,
        special: SpecialTokens,
        chat_template: str | None,
    ) -> None:
        self._backend = backend
        self._tokens = tokens
        self._bytes: list[bytes | None] = [None] * len(tokens)
        self.spelling = spelling
        self.special = special
        self.chat_template = chat_template

    @classmethod
    def from_tokenizer_json(
        cls,
        data: bytes,
        config: Mapping[str, object] | None = None,
        generation_config: Mapping[str, object] | None = None,
    ) -> "Tokenizer":
        """Build from the bytes of a ``tokenizer.json``.

        Args:
            data: the file's contents.
            config: contents of ``tokenizer_config.json`` (roles of special tokens, add_bos,
                chat template), if there is one.
            generation_config: contents of ``generation_config.json`` (end ids), if there is one.

        Raises:
            TokenizerError: not a tokenizer that ``tokenizers`` reads, or one whose tokens do not
                spell bytes in a known way.
        """
        from radiance_core.text.tokenizer_json import build

        return build(data, config or {}, generation_config or {})

    @classmethod
    def from_gguf(cls, metadata: Mapping[str, object]) -> "Tokenizer":
        """Rebuild from the key/value pairs of a GGUF file.

        Args:
            metadata: every key of the file; arrays as plain lists. Not trusted.

        Raises:
            TokenizerError: a key is missing or malformed, or names a vocabulary or a
                pre-tokenizer that is not known; the text names key, expected and got.
        """
        from radiance_core.text.gguf_tokenizer import build

        return build(metadata)

    @property
    def vocab_size(self) -> int:
        """Number of ids, counting ids of unused places."""
        return len(self._tokens)

    @property
    def bos_id(self) -> int | None:
        """Id that begins a text, or ``None``."""
        return self.special.bos_id

    @property
    def eos_ids(self) -> frozenset[int]:
        """Ids that end a turn."""
        return self.special.eos_ids

    @property
    def special_ids(self) -> frozenset[int]:
        """Ids that a reader of text does not see."""
        return self.special.special_ids

    @property
    def add_bos(self) -> bool:
        """Whether a plain text is encoded with BOS before it."""
        return self.bos_id is not None and self.bos_id in self.special.prefix

    @property
    def add_eos(self) -> bool:
        """Whether a plain text is encoded with an end token after it."""
        return bool(self.eos_ids.intersection(self.special.suffix))

    def encode(
        self, text: str, *, add_special_tokens: bool, parse_special: bool = True
    ) -> list[int]:
        """Return the ids of ``text``.

        Args:
            text: any string; lone surrogates count as U+FFFD.
            add_special_tokens: put the model's own BOS and so on around it.
            parse_special: read the text of a special token as that token; when false it is
                encoded letter by letter, as any other text.
        """
        backend = self._backend if parse_special else self._plain_backend
        try:
            ids: list[int] = _encoding(backend, text).ids
        except TypeError:
            # The extension takes no lone surrogates, which JSON can carry.
            clean = text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
            ids = _encoding(backend, clean).ids
        if add_special_tokens:
            return [*self.special.prefix, *ids, *self.special.suffix]
        return ids

    def encode_prompt(self, rendered: str) -> list[int]:
        """Return the ids of a rendered chat template, with exactly one BOS where one is due.

        A template that writes the BOS text itself does not get a second one; one that does not,
        for a model that wants BOS, gets it. Nothing is ever put behind the prompt. What
        ``as_text`` returned gives no special token.
        """
        if TEXT_MARK in rendered:
            ids = self._encode_marked(rendered)
        else:
            ids = self.encode(rendered, add_special_tokens=False)
        if self.add_bos and ids[:1] != [self.bos_id]:
            return [*self.special.prefix, *ids]
        return ids

    def as_text(self, text: str) -> str:
        """Return ``text`` for use in a chat template, so that nothing in it is a special token.

        Marks are put into what reads as a special token, and ``encode_prompt`` takes them out
        again as ids, when they have done their work. A mark that ``text`` brings along, which is
        no character of any script, becomes U+FFFD.
        """
        text = text.replace(TEXT_MARK, "\ufffd")
        if self._special_start is None:
            return text
        return self._special_start.sub(lambda first: first[0] + TEXT_MARK, text)

    def decode(self, ids: Iterable[int], *, skip_special_tokens: bool = True) -> str:
        """Return the text of ``ids``; bytes that are no UTF-8 become U+FFFD.

        Raises:
            TokenizerError: an id is outside the vocabulary.
        """
        hidden = self.special_ids if skip_special_tokens else frozenset()
        shown = [id_ for id_ in ids if id_ not in hidden]
        raw = b"".join(map(self.token_bytes, shown))
        if shown and self.starts_with_added_space(shown[0]):
            raw = raw[1:]
        return raw.decode("utf-8", self.error_mode)

    def token_bytes(self, id_: int) -> bytes:
        """Return exactly the bytes that a token stands for in the middle of a text.

        Raises:
            TokenizerError: ``id_`` is outside the vocabulary.
        """
        self._check(id_)
        known = self._bytes[id_]
        if known is None:
            known = self._bytes[id_] = self._spell(id_)
        return known

    def token_text(self, id_: int) -> str | None:
        """Return a token's text as the vocabulary spells it, ``None`` for an unused id.

        Raises:
            TokenizerError: ``id_`` is outside the vocabulary.
        """
        self._check(id_)
        return self._tokens[id_]

    def id_of(self, token: str) -> int | None:
        """Return the id of a token given as the vocabulary spells it, or ``None``."""
        found: int | None = self._backend.token_to_id(token)
        return found

    def starts_with_added_space(self, id_: int) -> bool:
        """Say whether ``id_`` as a text's first token begins with a space the encoder added."""
        spelling = self.spelling
        if not spelling.drop_first_space or id_ in spelling.literal_ids or id_ in spelling.byte_ids:
            return False
        return self.token_bytes(id_).startswith(b" ")

    @property
    def error_mode(self) -> str:
        """Name of the ``codecs`` error handler that this vocabulary's decoding uses."""
        return EACH_BAD_BYTE if self.spelling.each_bad_byte else "replace"

    def special_texts(self) -> dict[str, str]:
        """Return the texts that chat templates know as ``bos_token``, ``eos_token`` and so on."""
        roles = {
            "bos_token": self.special.bos_id,
            "eos_token": self.special.eos_id,
            "unk_token": self.special.unk_id,
            "pad_token": self.special.pad_id,
        }
        texts = {role: self._tokens[id_] for role, id_ in roles.items() if id_ is not None}
        return {role: text for role, text in texts.items() if text is not None}

    def _encode_marked(self, rendered: str) -> list[int]:
        """Encode a text with marks in it, and leave out the ids that stand for marks alone."""
        clean = rendered.encode("utf-8", "replace").decode()
        got = _encoding(self._backend, clean)
        doubtful = self._mark_ids
        return [
            id_
            for place, id_ in enumerate(got.ids)
            if id_ not in doubtful or not _is_mark(clean, got.token_to_chars(place))
        ]

    @cached_property
    def _mark_ids(self) -> frozenset[int]:
        """Every id that a mark can be encoded with."""
        return frozenset(self._backend.encode(TEXT_MARK, add_special_tokens=False).ids)

    @cached_property
    def _special_start(self) -> re.Pattern[str] | None:
        """A pattern for the first letter of every special token's text."""
        texts = (self._tokens[id_] for id_ in self.special_ids)
        return first_letter_of(text for text in texts if text)

    @cached_property
    def _plain_backend(self) -> Backend:
        """A second front on the same model to which special tokens are ordinary text."""
        plain = Backend(self._backend.model)
        if self._backend.normalizer is not None:
            plain.normalizer = self._backend.normalizer
        if self._backend.pre_tokenizer is not None:
            plain.pre_tokenizer = self._backend.pre_tokenizer
        added = self._backend.get_added_tokens_decoder()
        plain.add_tokens(
            [
                AddedToken(
                    token.content,
                    single_word=token.single_word,
                    lstrip=token.lstrip,
                    rstrip=token.rstrip,
                    normalized=token.normalized,
                    special=id_ in self.special_ids,
                )
                for id_, token in sorted(added.items())
            ]
        )
        plain.encode_special_tokens = True
        return plain

    def _check(self, id_: int) -> None:
        if not 0 <= id_ < len(self._tokens):
            raise TokenizerError(
                f"token id: expected 0 to {len(self._tokens) - 1}, got {id_}; "
                "the ids are of another model."
            )

    def _spell(self, id_: int) -> bytes:
        byte = self.spelling.byte_ids.get(id_)
        if byte is not None:
            return bytes([byte])
        text = self._tokens[id_]
        if text is None:
            return b""
        if id_ in self.spelling.literal_ids:
            return text.encode()
        if self.spelling.kind == "byte_level":
            return spelled_bytes(text)
        return text.replace(SPACE_MARK, " ").encode()


EACH_BAD_BYTE = "radiance_each_bad_byte"
_LOCKED_CHARS = 4096


def _encoding(backend: Backend, text: str) -> Encoding:
    """Encode a text; a long one as a batch of one, for which the extension lets other threads run.

    Alone it would hold Python's lock, and with it the engine and every request, for half a second
    a million characters.
    """
    if len(text) <= _LOCKED_CHARS:
        return backend.encode(text, add_special_tokens=False)
    return backend.encode_batch([text], add_special_tokens=False)[0]


def _is_mark(text: str, place: tuple[int, int] | None) -> bool:
    return place is not None and text[place[0] : place[1]] == TEXT_MARK


def _each_bad_byte(error: UnicodeError) -> tuple[str, int]:
    """Put one U+FFFD for each byte that is no UTF-8, as SentencePiece does."""
    assert isinstance(error, UnicodeDecodeError), "this handler is only named when decoding"
    return "\ufffd" * (error.end - error.start), error.end


codecs.register_error(EACH_BAD_BYTE, _each_bad_byte)


def parse_object(data: bytes, name: str) -> dict[str, object]:
    """Parse the JSON object in a model's side file.

    Raises:
        TokenizerError: not JSON, or not an object; names the file.
    """
    try:
        value = json.loads(data)
    except (ValueError, RecursionError) as err:
        raise TokenizerError(f"{name}: expected JSON, got {err}; the file is damaged.") from err
    if not isinstance(value, dict):
        raise TokenizerError(
            f"{name}: expected a JSON object, got {type(value).__name__}; the file is damaged."
        )
    return value
