"""Masks of tokens, going on by one, and taking back."""

import json
import random
import threading

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from vocabulary import EOS, UNUSED, VOCABULARY, WORDS, allowed, takes, walk

from radiance_core.constrain import matcher as matching
from radiance_core.constrain import native
from radiance_core.constrain.compiler import Compiler
from radiance_core.constrain.errors import ConstraintError

PERSON = json.dumps(
    {
        "type": "object",
        "properties": {"name": {"type": "string"}, "ids": {"type": "array", "items": {}}},
        "required": ["name"],
    }
)


@given(seed=st.integers(0, 2**32), cut=st.floats(0, 1))
@settings(max_examples=60, deadline=None)
def test_what_was_taken_back_was_never_there(compiler, seed, cut):
    """After rewind(n) masks are those of before, and the same tokens lead to the same masks."""
    dice, matcher = random.Random(seed), compiler.compile_now("json_schema", PERSON).start()
    taken, masks = [], [allowed(matcher).tolist()]
    while len(taken) < 40 and not matcher.is_complete:
        token = int(dice.choice(masks[-1]))
        assert matcher.accept(token)
        taken.append(token)
        masks.append(allowed(matcher).tolist())
    back = int(cut * len(taken))
    matcher.rewind(back)
    place = len(taken) - back
    assert allowed(matcher).tolist() == masks[place]
    for token, mask in zip(taken[place:], masks[place + 1 :], strict=True):
        assert matcher.accept(token)
        assert allowed(matcher).tolist() == mask


@given(seed=st.integers(0, 2**32))
@settings(max_examples=30, deadline=None)
def test_accepted_is_what_the_mask_allows(compiler, seed):
    """A token is accepted if and only if its bit is set, and a refused one changes nothing."""
    dice, matcher = random.Random(seed), compiler.compile_now("json_schema", PERSON).start()
    for _ in range(12):
        ids = set(allowed(matcher).tolist())
        for token in [*range(VOCABULARY.vocab_size + 40), -1, 2**31, 2**40]:
            took = matcher.accept(token)
            assert took == (token in ids), token
            if took:
                matcher.rewind(1)
        assert set(allowed(matcher).tolist()) == ids
        matcher.accept(dice.choice(sorted(ids)))


def test_ends_are_allowed_exactly_where_the_text_may_end(compiler):
    """Both end tokens come with the first whole text, and no mark that merely reads like one."""
    matcher = compiler.compile_now("regex", "a(bc)?").start()
    assert not set(allowed(matcher)) & set(EOS)
    assert matcher.accept(4 + ord("a"))
    assert set(EOS) < set(allowed(matcher))
    assert not matcher.is_complete
    assert matcher.accept(4 + ord("b"))
    assert not set(allowed(matcher)) & set(EOS)
    assert matcher.accept(4 + ord("c"))
    assert matcher.is_complete
    assert set(allowed(matcher)) == set(EOS)
    assert matcher.accept(1)
    assert matcher.is_complete
    assert set(allowed(matcher)) == set(EOS)
    matcher.rewind(3)
    assert matcher.accept(0)
    assert not matcher.accept(4 + ord("b"))


def test_no_special_token_is_text(compiler):
    """Where any text may come, special, unused and padding ids may not; plain look-alikes may."""
    ids = set(allowed(compiler.compile_now("regex", r"(?s:.*)").start()).tolist())
    assert not ids & {2, UNUSED}
    assert max(ids) < VOCABULARY.vocab_size
    assert VOCABULARY.vocab_size - 1 in ids
    same = {VOCABULARY.bytes.index(b"ab"), VOCABULARY.vocab_size - 2}
    assert same < set(allowed(compiler.compile_now("regex", "ab").start()).tolist())


def test_characters_may_be_split_over_tokens(compiler):
    """A character comes whole or byte by byte, and never ends half."""
    source = compiler.compile_now("choice", '["🙂é"]')
    data = "🙂é".encode()
    assert takes(source, data)
    for cut in range(1, len(data)):
        assert not takes(source, data[:cut])
    matcher = source.start()
    assert matcher.accept(VOCABULARY.bytes.index("🙂".encode()[:3]))
    assert allowed(matcher).tolist() == [4 + data[3]]
    for seed in range(20):
        text, whole = walk(compiler.compile_now("regex", "(é|日本|🙂){5}"), seed)
        assert whole
        assert set(text.decode()) <= set("é日本🙂")


def test_states_of_one_source_are_their_own(compiler):
    """Choices of one request do not see each other, and any thread may go on with one."""
    source = compiler.compile_now("regex", "a+b")
    first, second = source.start(), source.start()
    done = threading.Thread(target=lambda: first.accept(4 + ord("a")))
    done.start()
    done.join()
    assert 4 + ord("b") in allowed(first)
    assert 4 + ord("b") not in allowed(second)
    first.rewind(1)
    assert allowed(first).tolist() == allowed(second).tolist()


def test_a_text_that_leads_nowhere_ends_with_an_error(monkeypatch):
    """What the engine cannot go on with is an error of the text, told in words, and no crash."""
    monkeypatch.setattr(native, "MAX_LEXER_STATES", 2000)
    compiler = Compiler(VOCABULARY)
    try:
        source = compiler.compile_now("json_schema", '{"type":"string","pattern":"a.{1000}b"}')
        with pytest.raises(ConstraintError) as caught:
            _exhaust(source)
        assert str(caught.value).startswith("constraint: the text has led where it cannot go on: ")
        assert "0x" not in str(caught.value)
        assert "\n" not in str(caught.value)
    finally:
        compiler.close()


def _exhaust(source):
    """Write what gives the lexer a new state with each token."""
    dice, matcher = random.Random(5), source.start()
    assert matcher.accept(4 + ord('"'))
    words = np.zeros(WORDS, np.int32)
    for _ in range(4000):
        matcher.fill(words)
        assert matcher.accept(4 + ord(dice.choice("ab")))


def test_a_slow_mask_ends_its_text(compiler, monkeypatch):
    """A mask over the limit is told with both times."""
    monkeypatch.setattr(matching, "MASK_LIMIT_S", -1.0)
    matcher = compiler.compile_now("regex", "a+").start()
    with pytest.raises(
        ConstraintError, match=r"find the next tokens within -1.0 s, it took 0.0 s; make"
    ):
        matcher.fill(np.zeros(WORDS, np.int32))


def test_masks_of_any_width_are_written_whole(compiler):
    """Words past the vocabulary are cleared; fewer words than it has are all written."""
    matcher = compiler.compile_now("regex", r"(?s:.*)").start()
    wide = np.full(WORDS + 9, -1, np.int32)
    matcher.fill(wide)
    assert not wide[-(-VOCABULARY.vocab_size // 32) :].any()
    narrow = np.zeros(3, np.int32)
    matcher.fill(narrow)
    assert (narrow == wide[:3]).all()


def test_taking_back_too_much_is_a_fault_of_ours(compiler):
    """rewind() beyond the beginning is caught before anything native."""
    with pytest.raises(AssertionError, match="rewind: 1 of 0 accepted tokens"):
        compiler.compile_now("regex", "a").start().rewind(1)
