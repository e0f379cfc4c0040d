"""Text completions, whole and streamed."""

import pytest

TEXT = "/v1/completions"
ID = "expected a token id from 0 to 256, got"


async def test_whole_answer_has_the_openai_form(live):
    """The answer is a text_completion with the counts; a text prompt gets the model's BOS."""
    status, got, _ = await live.post(TEXT, {"prompt": "Say"})
    assert status == 200
    assert (got["object"], got["id"][:5]) == ("text_completion", "cmpl-")
    [choice] = got["choices"]
    assert (choice["text"], choice["finish_reason"], choice["logprobs"]) == (
        "Hello, wörld 🙂.", "stop", None,
    )  # fmt: skip
    assert live.engine.requests[0].prompt_ids == (256, *b"Say")
    assert got["usage"]["prompt_tokens"] == 4


async def test_four_kinds_of_prompt(live):
    """A string, strings, token ids and lists of ids; choices are numbered prompt by prompt."""
    for prompt, expected in [
        ("a", [(256, 97)]),
        (["a", "b"], [(256, 97), (256, 98)]),
        ([97, 98], [(97, 98)]),
        ([[97], [98, 99]], [(97,), (98, 99)]),
    ]:
        live.engine.requests.clear()
        status, got, _ = await live.post(TEXT, {"prompt": prompt})
        assert status == 200
        assert sorted(r.prompt_ids for r in live.engine.requests) == expected
        assert [c["index"] for c in got["choices"]] == list(range(len(expected)))
    _, got, _ = await live.post(TEXT, {"prompt": ["a", "bb"], "n": 2, "echo": True})
    assert [c["text"][:2] for c in got["choices"]] == ["aH", "aH", "bb", "bb"]
    assert got["usage"]["prompt_tokens"] == 2 + 3
    assert got["usage"]["completion_tokens"] == 20


@pytest.mark.parametrize(
    ("prompt", "param", "words"),
    [
        ([], "prompt", "expected text or token ids, got an empty list"),
        ([1, "a"], "prompt[1]", f"{ID} 'a'"),
        ([257], "prompt[0]", f"{ID} 257"),
        ([-1], "prompt[0]", f"{ID} -1"),
        ([True], "prompt[0]", f"{ID} True"),
        ([[1], [2**63]], "prompt[1][0]", f"{ID} 9223372036854775808"),
        ([1.0], "prompt[0]", f"{ID} 1.0"),
        ([[]], "prompt[0]", "at least one token, got none"),
        (5, "prompt", "got int"),
        ({}, "prompt", "got object"),
        ([[1], "a"], "prompt[0]", f"{ID} [1]"),
        (["x"] * 129, "prompt", "129"),
    ],
)
async def test_bad_prompts_are_named(live, prompt, param, words):
    """A prompt of the wrong kind, or with an id outside the vocabulary, is a 400 at its path."""
    status, got, _ = await live.post(TEXT, {"prompt": prompt})
    assert (status, got["error"]["param"]) == (400, param)
    assert got["error"]["message"].startswith(f"{param}: ")
    assert words in got["error"]["message"]
    assert live.engine.requests == []


async def test_stream_with_echo(live):
    """The stream begins with the prompt, has no roles, and ends with reason, counts and DONE."""
    body = {"prompt": "Say ", "echo": True, "seed": 1, "stream_options": {"include_usage": True}}
    status, _, events = await live.stream(TEXT, body)
    assert status == 200
    *chunks, counts, done = events
    assert done == "[DONE]"
    assert counts["choices"] == []
    assert counts["usage"]["completion_tokens"] == 5
    assert all(c["object"] == "text_completion" for c in chunks)
    assert "".join(c["choices"][0]["text"] for c in chunks) == "Say Hello, wörld 🙂."
    assert chunks[-1]["choices"][0]["finish_reason"] == "stop"
    assert [c["choices"][0]["finish_reason"] for c in chunks[:-1]] == [None] * (len(chunks) - 1)


async def test_echo_of_ids_without_generation(live):
    """max_tokens 0 with echo gives back the prompt's text alone."""
    _, got, _ = await live.post(TEXT, {"prompt": list(b"hey"), "echo": True, "max_tokens": 0})
    assert got["choices"][0]["text"] == "hey"
    assert got["usage"]["completion_tokens"] == 0


async def test_prompt_at_the_edge_of_the_context(live):
    """The longest prompt that leaves a token is served; one more is not; all of it with 0."""
    room = live.model.max_context
    assert (await live.post(TEXT, {"prompt": [1] * (room - 1)}))[0] == 200
    assert live.engine.requests[-1].sampling.max_tokens == 1
    status, got, _ = await live.post(TEXT, {"prompt": [1] * room})
    assert (status, got["error"]["code"]) == (400, "context_length_exceeded")
    assert (await live.post(TEXT, {"prompt": [1] * room, "max_tokens": 0}))[0] == 200


async def test_more_ids_than_the_context_holds(live):
    """Too many ids are refused by their number, before each one is looked at."""
    for prompt, param in (([5] * 600, "prompt"), ([[5], [5] * 599 + ["x"]], "prompt[1]")):
        status, got, _ = await live.post(TEXT, {"prompt": prompt})
        error = got["error"]
        assert (status, error["code"], error["param"]) == (400, "context_length_exceeded", param)
        assert (error["n_prompt_tokens"], error["n_ctx"]) == (600, 512)
        assert (
            "at most 511 tokens in this model's context of 512 tokens, got 600"
            in (error["message"])
        )
    _, got, _ = await live.post(TEXT, {"prompt": [5] * 600, "max_tokens": 0})
    assert got["error"]["n_ctx"] == 512
    assert "at most 512 tokens" in got["error"]["message"]
