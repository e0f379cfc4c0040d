"""Each family of tokenizers in GGUF keys cuts text as its model's own one does, in linear time."""

import dataclasses
import time
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import AddedToken
from unit.text.text_oracles import (
    HARD,
    HARD_TEXTS,
    QUICK,
    inner_test,
)

from radiance_core.text.byte_alphabet import spelled_bytes
from radiance_core.text.pretokenizers import PRE_TOKENIZERS
from radiance_core.text.tokenizer import Tokenizer

PREFIX = "tokenizer.ggml."


def _pieces(pre: str, text: str) -> list[str]:
    cut = PRE_TOKENIZERS[pre].build().pre_tokenize_str(text)
    return [spelled_bytes(piece).decode() for piece, _ in cut]


SAMPLE = "it's 12345 x=1;\r\n\n  日本 aB\u0301c"


EXPECTED = {
    "gpt-2": "it|'s| 12345| x|=|1|;|\r\n\n | 日本| aB|\u0301|c",
    "olmo": "it|'s| 12345| x|=|1|;|\r\n\n | 日本| aB|\u0301|c",
    "smollm": "it|'s| |1|2|3|4|5| x|=|1|;|\r\n\n | 日本| aB|\u0301|c",
    "starcoder": "it|'s| |1|2|3|4|5| x|=|1|;|\r\n\n | 日本| aB|\u0301|c",
    "command-r": "it|'s| |1|2|3|4|5| x|=|1|;|\r\n\n | 日本| aB|\u0301|c",
    "refact": "it|'s| |1|2|3|4|5| x|=|1|;|\r\n\n | 日本| aB|\u0301|c",
    "llama-bpe": "it|'s| |123|45| x|=|1|;\r\n\n| | 日本| aB|\u0301c",
    "dbrx": "it|'s| |123|45| x|=|1|;\r\n\n| | 日本| aB|\u0301c",
    "qwen2": "it|'s| |1|2|3|4|5| x|=|1|;\r\n\n| | 日本| aB|\u0301c",
    "qwen35": "it|'s| |1|2|3|4|5| x|=|1|;\r\n\n| | 日本| aB\u0301c",
    "gpt-4o": "it's| |123|45| x|=|1|;\r\n\n| | 日本| a|B\u0301c",
    "tekken": "it|'s| |1|2|3|4|5| x|=|1|;\r\n\n| | 日本| a|B\u0301c",
    "falcon": "it|'|s| |123|45| x|=|1|;|\r\n\n | 日本| aB|\u0301|c",
    "deepseek-llm": "it|'|s| |1|2|3|4|5| x|=|1|;|\r|\n|\n|  |日本| aB|\u0301|c",
    "deepseek-coder": "it|'|s| |1|2|3|4|5| x|=|1|;|\r|\n|\n| | |日本| aB|\u0301|c",
    "deepseek-v3": "it|'s| |123|45| x|=|1|;\r\n\n|  |日本| aB\u0301c",
}


@pytest.mark.parametrize("pre", sorted(EXPECTED))
def test_cut_of_each_family(pre: str) -> None:
    """Digits, letters, marks, blanks and newlines group as the family's definition says."""
    assert _pieces(pre, SAMPLE) == EXPECTED[pre].split("|")


@pytest.mark.parametrize("pre", sorted(PRE_TOKENIZERS))
def test_cut_loses_nothing(pre: str) -> None:
    """The pieces of any text joined are the text."""
    cut = PRE_TOKENIZERS[pre].build()
    for text in HARD_TEXTS:
        pieces = [spelled_bytes(piece) for piece, _ in cut.pre_tokenize_str(text)]
        assert b"".join(pieces) == text.encode()


def test_deepseek_blanks_cut_as_defined() -> None:
    """Trying a run of blanks only at its beginning changes no cut."""
    quick = PRE_TOKENIZERS["deepseek-llm"]
    plain = dataclasses.replace(quick, cuts=tuple(c.replace(r"(?<!\s)", "") for c in quick.cuts))
    assert plain != quick

    @QUICK
    @given(st.text(st.sampled_from(" \n\r\t\u3000\u2028\x0ba1①!日"), max_size=30))
    def check(text: str) -> None:
        assert quick.build().pre_tokenize_str(text) == plain.build().pre_tokenize_str(text)

    check()


@pytest.mark.parametrize("pre", sorted(PRE_TOKENIZERS))
def test_cost_is_linear(bpe_metadata: dict[str, Any], pre: str) -> None:
    """Twice the text takes about twice the time, on texts that make expressions go back.

    The longer of two runs may take four times the shorter (eight would be a square's) plus noise.
    """
    ours = Tokenizer.from_gguf({**bpe_metadata, PREFIX + "pre": pre})

    def cost(text: str) -> float:
        took = []
        for _ in range(3):
            began = time.process_time()
            ours.encode(text, add_special_tokens=False)
            took.append(time.process_time() - began)
        return min(took)

    for shape in (" " * 8 + "\u2460", "\n ", "Aa", "'", "\u0301", "1", "\u65e5", "!"):
        size = 4000 // len(shape)
        texts = [shape[:-1] * size * scale + shape[-1] for scale in (1, 3)]
        assert cost(texts[1]) < 4 * cost(texts[0]) + 0.05


def test_families_that_normalise(bpe_metadata: dict[str, Any]) -> None:
    """Qwen's vocabulary puts text into form C first, Llama's takes it as it is."""
    for pre, expected in (("qwen2", "é"), ("llama-bpe", "e\u0301")):
        ours = Tokenizer.from_gguf({**bpe_metadata, PREFIX + "pre": pre})
        assert ours.decode(ours.encode("e\u0301", add_special_tokens=False)) == expected


@pytest.mark.parametrize("model", ["Qwen2", "GPT2", "Cohere", "Qwen3_5"])
def test_against_public_classes(bpe_metadata: dict[str, Any], model: str) -> None:
    """Ids equal those of the public class of the family, given the same vocabulary."""
    transformers = pytest.importorskip("transformers")
    made = getattr(transformers, f"{model}Tokenizer", None)
    if made is None:
        pytest.skip(f"this transformers has no {model}Tokenizer")
    tokens = bpe_metadata[PREFIX + "tokens"]
    vocab = {token: id_ for id_, token in enumerate(tokens)}
    merges = [tuple(merge.split(" ")) for merge in bpe_metadata[PREFIX + "merges"]]
    public = made(vocab=vocab, merges=merges).backend_tokenizer
    public.add_special_tokens([AddedToken(tokens[id_], normalized=False) for id_ in range(3)])
    pre = {"Qwen2": "qwen2", "GPT2": "gpt-2", "Cohere": "command-r", "Qwen3_5": "qwen35"}[model]
    ours = Tokenizer.from_gguf({**bpe_metadata, PREFIX + "pre": pre})

    @QUICK
    @given(HARD)
    def check(text: str) -> None:
        expected = public.encode(text, add_special_tokens=False).ids
        assert ours.encode(text, add_special_tokens=False) == expected

    for text in HARD_TEXTS:
        inner_test(check)(text)
    check()
