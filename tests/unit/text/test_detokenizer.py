"""Incremental decoding: deltas joined are the text of all ids, and never show half a character."""

import time

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from radiance_core.text.detokenizer import Detokenizer
from radiance_core.text.errors import TokenizerError
from radiance_core.text.tokenizer import Tokenizer

SETTINGS = settings(max_examples=600, deadline=None, suppress_health_check=list(HealthCheck))


@pytest.fixture(params=["bpe", "spm"])
def tokenizer(request: pytest.FixtureRequest) -> Tokenizer:
    found: Tokenizer = request.getfixturevalue(request.param)
    return found


def awkward_ids(tokenizer: Tokenizer) -> st.SearchStrategy[list[int]]:
    """Random ids, half of them single bytes that open, go on with, or break a character."""
    single = [
        id_
        for id_ in range(tokenizer.vocab_size)
        if len(raw := tokenizer.token_bytes(id_)) == 1 and raw[0] >= 0x80
    ]
    assert len(single) == 128, "both vocabularies have every byte"
    spaces = [id_ for id_ in range(tokenizer.vocab_size) if tokenizer.token_bytes(id_)[:1] == b" "]
    hidden = sorted(tokenizer.special_ids)
    anything = st.integers(0, tokenizer.vocab_size - 1)
    one = st.one_of(*(st.sampled_from(ids) for ids in (single, spaces, hidden)), anything)
    text = st.text(max_size=8).map(lambda text: tokenizer.encode(text, add_special_tokens=False))
    runs = st.lists(st.one_of(text, one.map(lambda id_: [id_])), max_size=12)
    return runs.map(lambda lists: [id_ for ids in lists for id_ in ids])


def test_deltas_join_to_decode(tokenizer: Tokenizer) -> None:
    """Deltas and the flush joined equal the one-shot decode, for any ids."""

    @SETTINGS
    @given(awkward_ids(tokenizer), st.booleans())
    def check(ids: list[int], skip: bool) -> None:
        stream = Detokenizer(tokenizer, skip_special_tokens=skip)
        deltas = [stream.push(id_) for id_ in ids]
        assert "".join(deltas) + stream.flush() == tokenizer.decode(ids, skip_special_tokens=skip)

    check()


def test_no_replacement_before_it_is_certain(tokenizer: Tokenizer) -> None:
    """While the ids of a valid text come in, no delta ever holds U+FFFD."""

    @SETTINGS
    @given(st.text(st.characters(exclude_categories=["Cs"]), max_size=20))
    def check(text: str) -> None:
        text = text.replace("\ufffd", "")
        stream = Detokenizer(tokenizer)
        ids = tokenizer.encode(text, add_special_tokens=False, parse_special=False)
        for id_ in ids:
            assert "\ufffd" not in stream.push(id_)
        assert stream.flush() == ""

    check()


def test_after_a_prompt(tokenizer: Tokenizer) -> None:
    """After any prompt the deltas are what the answer adds to the prompt's complete characters.

    Giving the whole prompt or its last eight visible ids makes no difference.
    """

    @SETTINGS
    @given(awkward_ids(tokenizer), awkward_ids(tokenizer))
    def check(prompt: list[int], answer: list[int]) -> None:
        shown = Detokenizer(tokenizer)
        before = "".join(shown.push(id_) for id_ in prompt)
        whole = tokenizer.decode([*prompt, *answer])
        stream = Detokenizer(tokenizer, prompt_ids_tail=prompt)
        deltas = "".join(map(stream.push, answer)) + stream.flush()
        assert before + deltas == whole
        visible = [id_ for id_ in prompt if id_ not in tokenizer.special_ids]
        tail = Detokenizer(tokenizer, prompt_ids_tail=visible[-8:])
        assert "".join(map(tail.push, answer)) + tail.flush() == deltas

    check()


def test_prompt_cut_inside_a_character(bpe: Tokenizer) -> None:
    """A character begun by the prompt comes out once, when complete, with nothing before it."""
    party = "🎉".encode()
    by_bytes = {bpe.token_bytes(id_): id_ for id_ in range(bpe.vocab_size)}
    ids = [by_bytes[bytes([byte])] for byte in party]
    prompt = [*bpe.encode("a long prompt ", add_special_tokens=False), *ids[:2]]
    stream = Detokenizer(bpe, prompt_ids_tail=prompt)
    assert [stream.push(id_) for id_ in ids[2:]] == ["", "🎉"]
    assert stream.flush() == ""


def test_space_at_the_start(spm: Tokenizer) -> None:
    """The space that encoding puts before a text is dropped once, and only at its very start."""
    ids = spm.encode("ta ta", add_special_tokens=False)
    first = Detokenizer(spm)
    assert "".join(map(first.push, ids)) == "ta ta"
    later = Detokenizer(spm, prompt_ids_tail=ids)
    assert "".join(map(later.push, ids)) == " ta ta"
    assert spm.bos_id is not None
    after_bos = Detokenizer(spm, prompt_ids_tail=[spm.bos_id])
    assert "".join(map(after_bos.push, ids)) == "ta ta"


def test_special_tokens_shown_or_not(bpe: Tokenizer) -> None:
    """Special tokens are left out, or shown as they are spelt."""
    end = bpe.id_of("<|im_end|>")
    assert end is not None
    assert Detokenizer(bpe).push(end) == ""
    assert Detokenizer(bpe, skip_special_tokens=False).push(end) == "<|im_end|>"


def test_id_outside_the_vocabulary(bpe: Tokenizer) -> None:
    """An id that the vocabulary does not have is refused by number."""
    with pytest.raises(TokenizerError, match="token id: expected 0 to 699, got 700"):
        Detokenizer(bpe).push(700)


def test_cost_does_not_grow(bpe: Tokenizer) -> None:
    """The last thousand of a hundred thousand tokens cost what the first thousand cost."""
    ids = bpe.encode("some text to repeat, with 🎉 ", add_special_tokens=False) * 9000
    stream = Detokenizer(bpe)

    def cost(part: list[int]) -> float:
        began = time.process_time()
        for id_ in part:
            stream.push(id_)
        return time.process_time() - began

    cost(ids[:1000])
    early = min(cost(ids[:1000]) for _ in range(5))
    cost(ids)
    assert min(cost(ids[:1000]) for _ in range(5)) < 3 * early + 1e-4
