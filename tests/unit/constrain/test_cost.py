"""What texts under a constraint cost those beside them: processor time of masks is bounded."""

import json
import random
import time

import numpy as np
import pytest
from processor_time import ATTEMPTS, slowness
from vocabulary import VOCABULARY, WORDS, allowed

from radiance_core.constrain import matcher as matching
from radiance_core.constrain.errors import ConstraintError

EVIL = {
    "itself twice": 'start: s\ns: s s | /[a-z]+/ | " " | ""\n',
    "itself thrice": "start: s\ns: s s | s s s | /[a-z ]/\n",
    "expressions": 'start: e\ne: e "+" e | e "-" e | e e | "(" e ")" | /[0-9]+/ | /[a-z]+/ | " "\n',
    "optional": "start: " + " ".join(f"r{n}?" for n in range(400)) + "\n"
    + "\n".join(f'r{n}: "x{n} " | /[a-z]/' for n in range(400)),
}  # fmt: skip
ITEM = {"type": "object", "properties": {"name": {"type": "string"}, "tags": {"type": "array"}}}
HONEST = {
    "any JSON": ("json_object", ""),
    "records": ("json_schema", json.dumps({"type": "array", "items": ITEM})),
    "wide": ("json_schema", json.dumps({
        "type": "object", "properties": {f"p{n}": {"type": "string"} for n in range(300)}})),
    "either": ("json_schema", json.dumps({"anyOf": [
        {"type": "object", "properties": {f"k{n}": ITEM}, "required": [f"k{n}"]}
        for n in range(200)]})),
    "choices": ("choice", json.dumps([f"word{n}" for n in range(5000)])),
    "ambiguous": ("lark", 'start: e\ne: e "+" e | e "*" e | /[0-9]+/ | "(" e ")"\n'),
    "terms": ("lark", 'start: e\ne: t (("+"|"-") t)*\nt: /[0-9]+/ | "(" e ")" | "-" t\n'),
    "lines": ("gbnf", 'root ::= item+\nitem ::= "- " [^\\n]+ "\\n"'),
}  # fmt: skip


def go_on(matcher, dice, most):
    """Draw up to ``most`` tokens, never an end; return the longest mask in processor time."""
    longest, words = 0.0, np.zeros(WORDS, np.int32)
    for _ in range(most):
        start = time.thread_time()
        matcher.fill(words)
        longest = max(longest, time.thread_time() - start)
        ids = np.flatnonzero(np.unpackbits(words.view(np.uint8), bitorder="little"))
        ids = [id_ for id_ in ids.tolist() if id_ not in VOCABULARY.eos_ids]
        if not ids or not matcher.accept(dice.choice(ids)):
            break
    return longest


@pytest.mark.parametrize("name", EVIL)
@pytest.mark.parametrize("seed", range(3))
def test_a_costly_grammar_takes_little_of_the_time_of_others(compiler, name, seed):
    """All its steps hold up a neighbour for half a second in all and 2 ms each, or it ends.

    Counted in processor time, which a busy machine does not change.
    """
    most = 150
    start = 0.0
    try:
        matcher = compiler.compile_now("lark", EVIL[name]).start()
        start = time.thread_time()
        go_on(matcher, random.Random(seed), most)
    except ConstraintError as err:
        ways = "make the grammar unambiguous", "make the constraint simpler"
        assert any(way in str(err) for way in ways)  # noqa: PT017 (either is right)
    took = time.thread_time() - start if start else 0.0
    bound = matching.FREE_S + matching.TOKEN_S * most + matching.MASK_LIMIT_S
    assert took < bound + 0.2 * slowness()  # the draws of this test


def _take_words(matcher, most):
    words = np.zeros(WORDS, np.int32)
    for place in range(most):
        matcher.fill(words)
        assert matcher.accept(4 + ord("a "[place % 2]))


def test_a_text_that_costs_too_much_is_told_what_to_do(compiler):
    """The grammar that doubles itself ends its text, by its ways to read it or by their cost."""
    matcher = compiler.compile_now("lark", EVIL["itself twice"]).start()
    start = time.thread_time()
    with pytest.raises(ConstraintError, match=r"make the (grammar unamb|constraint simpl)"):
        _take_words(matcher, 400)
    took = time.thread_time() - start
    assert took < matching.FREE_S + 400 * matching.TOKEN_S + 0.2 * slowness()


@pytest.mark.parametrize("name", HONEST)
def test_an_honest_constraint_is_never_ended(compiler, name):
    """Hundreds of tokens use less than a tenth of what a text has, and of what a mask has."""
    source = compiler.compile_now(*HONEST[name])
    for seed in range(3):
        _honest(source, seed)


def _honest(source, seed):
    """Hold a text to its share, in seconds of the machine that the limits are for."""
    for _ in range(ATTEMPTS):
        matcher, slower = source.start(), slowness()
        longest = go_on(matcher, random.Random(seed), 300) / slower
        spent = matcher.spent_s / slower
        if longest < matching.MASK_LIMIT_S / 4 and spent < matching.FREE_S / 2:
            break
    assert longest < matching.MASK_LIMIT_S / 4
    assert spent < matching.FREE_S / 2


def test_the_sum_of_a_text_is_bounded(compiler, monkeypatch):
    """What masks and tokens took together ends a text; each token that came makes room."""
    monkeypatch.setattr(matching, "FREE_S", -1.0)
    monkeypatch.setattr(matching, "TOKEN_S", 2.0)
    matcher = compiler.compile_now("regex", "a+").start()
    words = np.zeros(WORDS, np.int32)
    with pytest.raises(ConstraintError) as caught:
        matcher.fill(words)
    assert str(caught.value) == (
        "constraint: expected 0 tokens to take at most -1.0 s of processor time to check, "
        "they took 0.0 s; make the constraint simpler."
    )
    monkeypatch.setattr(matching, "FREE_S", 0.0)
    monkeypatch.setattr(matching, "TOKEN_S", 10.0)
    matcher._num_accepted = 1
    matcher.fill(words)
    assert 4 + ord("a") in allowed(matcher)


def test_waiting_is_no_cost(compiler):
    """Time in which the thread did not run counts for nothing: a busy machine ends no text."""
    matcher = compiler.compile_now("regex", "a+").start()
    allowed(matcher)
    spent = matcher.spent_s
    time.sleep(0.3)
    allowed(matcher)
    assert matcher.spent_s - spent < 0.1
