"""GGUF keys that describe no tokenizer are refused by name, and never crash."""

import contextlib
from typing import Any

import pytest

from radiance_core.text.errors import TokenizerError
from radiance_core.text.tokenizer import Tokenizer

PREFIX = "tokenizer.ggml."


MALFORMED: list[tuple[str, Any, str]] = [
    ("model", None, "tokenizer.ggml.model: expected a string, got no such key"),
    ("model", 5, "tokenizer.ggml.model: expected a string, got int"),
    ("model", "bert", "tokenizer.ggml.model: expected gpt2 or llama, got 'bert'"),
    ("pre", "smolm", "got 'smolm'; cutting text another way"),
    ("pre", "smolm", "The nearest is smollm."),
    ("pre", ["qwen2"], "tokenizer.ggml.pre: expected a string, got list"),
    ("tokens", None, "tokenizer.ggml.tokens: expected an array, got no such key"),
    ("tokens", [], "tokenizer.ggml.tokens: expected 1 to 2097152 strings, got 0"),
    ("tokens", ["a", 7], "tokenizer.ggml.tokens[1]: expected a string, got int"),
    ("tokens", ["a", "b" * 5000], "strings of at most 4096 bytes, got 5000 bytes"),
    (
        "tokens",
        ["a", "\ud800"],
        "tokenizer.ggml.tokens: expected UTF-8 text, got code point U+D800",
    ),
    ("token_type", [1], "tokenizer.ggml.token_type: expected 700 entries, one a token, got 1"),
    ("token_type", [True] * 700, "tokenizer.ggml.token_type[0]: expected an integer, got bool"),
    ("token_type", [9] * 700, "tokenizer.ggml.token_type: expected values from 1 to 6, got 9"),
    ("token_type", "11", "tokenizer.ggml.token_type: expected an array, got str"),
    ("merges", ["a"], "tokenizer.ggml.merges[0]: expected two parts with a blank between, got 'a'"),
    ("merges", ["a "], "tokenizer.ggml.merges[0]: expected two parts with a blank between"),
    ("merges", ["a \U0001f600"], "merges[0]: expected two tokens that join to a token"),
    ("merges", [b"a b"], "tokenizer.ggml.merges[0]: expected a string, got bytes"),
    ("bos_token_id", 700, "tokenizer.ggml.bos_token_id: expected a token id below 700, got 700"),
    ("eos_token_id", -1, "tokenizer.ggml.eos_token_id: expected a token id below 700, got -1"),
    ("eot_token_id", "x", "tokenizer.ggml.eot_token_id: expected a token id, got str"),
    ("add_bos_token", 1, "tokenizer.ggml.add_bos_token: expected true or false, got int"),
]


@pytest.mark.parametrize(("name", "value", "text"), MALFORMED)
def test_malformed_keys(bpe_metadata: dict[str, Any], name: str, value: Any, text: str) -> None:
    """Each bad value is refused by key, with what was expected and what was found."""
    changed = {**bpe_metadata, PREFIX + name: value}
    if value is None:
        del changed[PREFIX + name]
    with pytest.raises(TokenizerError) as raised:
        Tokenizer.from_gguf(changed)
    assert text in str(raised.value)


@pytest.mark.parametrize(
    ("name", "value", "text"),
    [
        ("scores", None, "tokenizer.ggml.scores: expected an array, got no such key"),
        ("scores", [1] * 900, "tokenizer.ggml.scores[0]: expected a float, got int"),
        ("scores", [0.5], "tokenizer.ggml.scores: expected 900 entries, one a token, got 1"),
        ("scores", [float("nan")] * 900, "tokenizer.ggml.scores: expected numbers, got NaN"),
        ("token_type", [6] * 900, "expected <0x00> to <0xFF> for a byte token, got"),
    ],
)
def test_malformed_scores(spm_metadata: dict[str, Any], name: str, value: Any, text: str) -> None:
    """Bad scores and byte tokens are refused by key and index."""
    changed = {**spm_metadata, PREFIX + name: value}
    if value is None:
        del changed[PREFIX + name]
    with pytest.raises(TokenizerError) as raised:
        Tokenizer.from_gguf(changed)
    assert text in str(raised.value)


def test_malformed_template(bpe_metadata: dict[str, Any]) -> None:
    """A chat template that is no string is refused."""
    with pytest.raises(TokenizerError, match="chat_template: expected a string, got int"):
        Tokenizer.from_gguf({**bpe_metadata, "tokenizer.chat_template": 5})


def test_wrong_types_never_crash(
    bpe_metadata: dict[str, Any], spm_metadata: dict[str, Any]
) -> None:
    """Whatever stands under a key, the outcome is a tokenizer or a ``TokenizerError``."""
    strange: list[Any] = [
        None,
        True,
        0,
        -1,
        1 << 70,
        1.5,
        "x",
        "",
        b"",
        [],
        [None],
        [[]],
        {},
        ["a"],
        [1],
        [1.0],
    ]
    for metadata in (bpe_metadata, spm_metadata):
        for key in metadata:
            for value in strange:
                with contextlib.suppress(TokenizerError):
                    Tokenizer.from_gguf({**metadata, key: value})


def test_duplicates_and_blanks(spm_metadata: dict[str, Any]) -> None:
    """Of two ids with one text the first is given, both decode, and an empty token is harmless."""
    tokens = [*spm_metadata[PREFIX + "tokens"], "\u2581", ""]
    first = tokens.index("\u2581")
    changed = {
        **spm_metadata,
        PREFIX + "tokens": tokens,
        PREFIX + "scores": [*spm_metadata[PREFIX + "scores"], -1.0, -2.0],
        PREFIX + "token_type": [*spm_metadata[PREFIX + "token_type"], 1, 1],
    }
    ours = Tokenizer.from_gguf(changed)
    assert ours.id_of("\u2581") == first
    assert ours.token_bytes(len(tokens) - 2) == b" "
    assert ours.token_bytes(len(tokens) - 1) == b""


def test_id_outside(bpe: Tokenizer) -> None:
    """An id that the vocabulary does not have is refused, negative ones too."""
    for id_ in (-1, bpe.vocab_size):
        with pytest.raises(TokenizerError, match=f"token id: expected 0 to 699, got {id_}"):
            bpe.decode([id_])
