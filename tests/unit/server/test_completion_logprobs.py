"""The four lists of log probabilities of /v1/completions."""

import random

import pytest

from radiance_core.engine.interface import Delta
from radiance_core.engine.sampling import TokenLogprob

TEXT = "/v1/completions"
LETTERS = "abc äß 漢字 🙂é\n"


class ByteEngine:
    """Answers with the bytes of a text, one token each, in pieces of any size, as asked."""

    def __init__(self, text, finish="length", stop=None, extra=b""):
        self.text, self.finish, self.stop, self.extra = text, finish, stop, extra

    def told(self, id_, count):
        top = tuple((other, -2.0 - n) for n, other in enumerate((65, 0x80, id_)[:count]))
        return TokenLogprob(id_, -float(id_) / 100, 1, top)

    async def generate(self, request):
        s, prompt = request.sampling, request.prompt_ids
        if s.prompt_logprobs is not None:
            yield Delta("", 0, prompt_logprobs=tuple(
                self.told(i, s.prompt_logprobs) for i in prompt[1:]))  # fmt: skip
        ids = self.text.encode() + self.extra
        sent = at = 0
        while at < len(ids):
            piece = ids[at : at + random.randrange(1, 6)]
            at += len(piece)
            whole = ids[:at].decode("utf-8", "ignore")[: len(self.text)]
            told = tuple(self.told(i, s.logprobs) for i in piece) if s.logprobs is not None else ()
            yield Delta(whole[sent:], len(piece), token_ids=tuple(piece), logprobs=told)
            sent = len(whole)
        yield Delta("", 0, self.finish, self.stop, None, len(prompt), len(ids), 0)


def random_text():
    return "".join(random.choices(LETTERS, k=random.randrange(1, 40)))


def offsets(text):
    """Say where each byte's character begins: every byte up to a character's last waits for it."""
    return [place for place, char in enumerate(text) for _ in char.encode()]


def joined(events):
    """Add up the lists of a stream's events."""
    lists = {"tokens": [], "token_logprobs": [], "top_logprobs": [], "text_offset": []}
    shown = 0
    for event in events:
        if event == "[DONE]":
            continue
        [choice] = event["choices"]
        shown += len(choice["text"])
        if choice["logprobs"]:
            assert all(offset < shown for offset in choice["logprobs"]["text_offset"])
            for name, entries in lists.items():
                entries.extend(choice["logprobs"][name])
    return lists


@pytest.mark.parametrize("echo", [False, True])
async def test_lists_agree_with_the_text(live, echo):
    """Each token stands at its character, streamed or not, and the entries belong to it."""
    for _ in range(20):
        prompt, text = random_text(), random_text()
        live.engine.generate = ByteEngine(text).generate
        asked = {"prompt": prompt, "logprobs": 2, "echo": echo, "seed": 1}
        _, got, _ = await live.post(TEXT, asked)
        [choice] = got["choices"]
        shown = (prompt if echo else "") + text
        assert choice["text"] == shown
        lists = choice["logprobs"]
        ids = list(shown.encode())
        expected = offsets(shown)
        if echo:
            ids, expected = [256, *ids], [0, *expected]
            assert (lists["token_logprobs"].pop(0), lists["top_logprobs"].pop(0)) == (None, None)
            assert (lists["tokens"].pop(0), lists["text_offset"].pop(0)) == ("<s>", 0)
            del ids[0], expected[0]
        assert lists["text_offset"] == expected
        assert lists["token_logprobs"] == [-i / 100 for i in ids]
        names = [chr(i) if i < 128 else f"bytes:\\x{i:02x}" for i in ids]
        assert lists["tokens"] == names
        for name, id_, top in zip(names, ids, lists["top_logprobs"], strict=True):
            own = -2.0 if id_ == 65 else -3.0 if id_ == 128 else -id_ / 100
            assert top == {"A": -2.0, "bytes:\\x80": -3.0} | {name: own}
        _, _, events = await live.stream(TEXT, asked)
        streamed = joined(events)
        if echo:
            streamed = {name: entries[1:] for name, entries in streamed.items()}
        assert streamed == lists


async def test_what_ended_the_text_is_not_told(live):
    """Tokens of a stop string are no part of the lists; those of a text that was cut all are."""
    for _ in range(10):
        text = random_text()
        live.engine.generate = ByteEngine(text, "stop", "END", b"END").generate
        _, got, _ = await live.post(TEXT, {"prompt": "x", "logprobs": 0, "seed": 1})
        [choice] = got["choices"]
        assert len(choice["logprobs"]["tokens"]) == len(text.encode())
        assert all(len(top) == 1 for top in choice["logprobs"]["top_logprobs"])
        live.engine.generate = ByteEngine(text, "length", None, b"\xf0\x9f").generate
        _, got, _ = await live.post(TEXT, {"prompt": "x", "logprobs": 0, "seed": 1})
        lists = got["choices"][0]["logprobs"]
        assert lists["tokens"][-2:] == ["bytes:\\xf0", "bytes:\\x9f"]
        assert lists["text_offset"][-2:] == [len(text)] * 2


async def test_unlikely_tokens_have_a_number(live):
    """A probability of zero is -9999, since JSON has no infinity."""
    engine = ByteEngine("ab")
    engine.told = lambda id_, count: TokenLogprob(id_, float("-inf"), 9, ((66, float("-inf")),))
    live.engine.generate = engine.generate
    _, got, _ = await live.post(TEXT, {"prompt": "x", "logprobs": 1})
    assert got["choices"][0]["logprobs"]["token_logprobs"] == [-9999.0] * 2
    assert got["choices"][0]["logprobs"]["top_logprobs"][0] == {"B": -9999.0, "a": -9999.0}


async def test_the_number_of_alternatives_has_a_range(live):
    """Up to 20 alternatives are told, nothing else is taken, and none are told unasked."""
    for bad in (-1, 21, 1_000_000):
        status, got, _ = await live.post(TEXT, {"prompt": "x", "logprobs": bad})
        assert (status, got["error"]["param"]) == (400, "logprobs")
        assert f"expected a number from 0 to 20, got {bad}" in got["error"]["message"]
    for bad in (True, "3", 1.5, [1]):
        status, got, _ = await live.post(TEXT, {"prompt": "x", "logprobs": bad})
        assert (status, got["error"]["param"]) == (400, "logprobs")
    await live.post(TEXT, {"prompt": "x", "echo": True})
    sampling = live.engine.requests[-1].sampling
    assert (sampling.logprobs, sampling.prompt_logprobs) == (None, None)
    await live.post(TEXT, {"prompt": "x", "logprobs": 20})
    sampling = live.engine.requests[-1].sampling
    assert (sampling.logprobs, sampling.prompt_logprobs) == (20, None)
