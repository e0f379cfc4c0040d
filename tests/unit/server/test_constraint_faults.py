"""A constraint that leads a text where it cannot go on is the request's fault, in every dialect."""

import json

import pytest

SAID = "constraint: expected a token that may come after 2 generated ones, got none; loosen it"
TALK = {"messages": [{"role": "user", "content": "Hi"}], "max_tokens": 9}
ASKS = {
    "/v1/completions": {"prompt": "Hi", "max_tokens": 9},
    "/v1/chat/completions": TALK,
    "/v1/responses": {"input": "Hi"},
    "/v1/messages": TALK,
}


@pytest.mark.parametrize("path", ASKS)
async def test_before_an_answer_it_is_a_refusal(live, path):
    """The status is 400, which no client repeats, and the message is the constraint's own."""
    live.engine.fail_after, live.engine.at_fault, live.engine.said = 2, "constraint", SAID
    status, got, headers = await live.post(path, ASKS[path])
    assert status == 400
    assert got["error"]["message"] == SAID
    assert got["error"]["type"] == "invalid_request_error"
    if path != "/v1/messages":
        assert got["error"]["code"] == "unsupported_constraint"
    assert "retry-after" not in headers


@pytest.mark.parametrize("path", ASKS)
async def test_in_a_stream_it_is_an_error_event(live, path, capsys):
    """After the first token an event tells the same, and nothing looks like success."""
    live.engine.fail_after, live.engine.at_fault, live.engine.said = 2, "constraint", SAID
    live.engine.gap_s = 0.01
    data = json.dumps({**ASKS[path], "stream": True})
    sent = {"content-type": "application/json"}
    async with live.http.post(live.url + path, data=data, headers=sent) as got:
        assert got.status == 200
        text = await got.text()
    assert "Hello" in text
    last = json.loads(text.strip().rpartition("data: ")[2])
    assert last["error"]["message"] == SAID
    assert last["error"]["type"] == "invalid_request_error"
    assert "[DONE]" not in text
    logged = capsys.readouterr().out
    assert "[info     ] stream_failed" in logged
