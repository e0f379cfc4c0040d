"""What the tests of the conversing routes have in common: a model that thinks and calls."""

import json
import random
from dataclasses import replace
from types import SimpleNamespace

from radiance_core.chat_format.format import ChatFormat, ReasoningFormat, ToolFormat
from radiance_core.engine.interface import Delta
from radiance_core.engine.row_plan import plan_rows
from radiance_core.engine.sequence import Sequence
from radiance_core.text.detokenizer import Detokenizer
from radiance_core.text.stop import StopMatcher

FORMAT = ChatFormat(
    reasoning=ReasoningFormat("<think>\n", "\n</think>\n\n"),
    tools=ToolFormat(
        name="hermes",
        call_open="<tool_call>\n",
        name_end='", "arguments": ',
        call_close="\n</tool_call>",
        values="json_call",
        object_open='{"name": "',
        object_close="}",
        separator="\n",
    ),
)
ARGUMENTS = {"city": "Zürich 🙂", "days": [1, 2], "deep": {"a": None}}
CALL = json.dumps({"name": "weather", "arguments": ARGUMENTS}, ensure_ascii=False)
ANSWER = f"<think>\nThey ask äbout it.\n</think>\n\nI look.\n<tool_call>\n{CALL}\n</tool_call>"


def pieces(text, most=7):
    """Cut a text into random pieces."""
    cut = []
    while text:
        size = random.randrange(1, most)
        cut.append(text[:size])
        text = text[size:]
    return cut


def answering(live, text, form=FORMAT):
    """Let a fake engine answer with ``text`` in pieces."""
    live.model.chat_format = form
    live.engine.words = pieces(text)


def answering_bytes(live, text):
    """Let a fake engine answer with ``text`` in pieces, each byte a token."""
    live.model.chat_format = FORMAT

    async def generate(request):
        for piece in pieces(text):
            yield Delta(piece, len(piece.encode()), token_ids=tuple(piece.encode()))
        yield Delta("", 0, "stop", None, None, len(request.prompt_ids), len(text.encode()), 0)

    live.engine.generate = generate


def answering_drawn(live, text, form=FORMAT):
    """Let the engine's own sequence end an answer whose drawn tokens are the bytes of ``text``."""
    live.model.chat_format = form

    async def generate(request):
        live.engine.requests.append(request)
        for delta in drawn(request, live.model.tokenizer, text):
            yield delta

    live.engine.generate = generate


def drawn(request, tokenizer, text):
    """Return the deltas of a request for which the bytes of ``text`` and an end are drawn."""
    told = []
    request = replace(request, constraint=None)  # nothing is drawn here that it could steer
    params = request.sampling
    seq = Sequence(
        request=request,
        plan=plan_rows(request, 0, (), tokenizer.vocab_size, tokenizer.token_bytes),
        limit=params.max_tokens,
        stop_ids=frozenset({0, *params.stop_token_ids}),
        detokenizer=Detokenizer(tokenizer, shown_special_ids=request.shown_special_ids),
        matcher=StopMatcher(params.stop),
        emit=lambda delta: told.append(delta) is None,
        text=SimpleNamespace(ids=list(request.prompt_ids)),
    )
    for token in (*text.encode(), 0):
        if not seq.finished:
            seq.accept(token)
    assert seq.finished
    return told


async def named_events(live, path, body, **headers):
    """Return the events of a stream as pairs of name and object."""
    data = json.dumps({**body, "stream": True})
    kind = {"content-type": "application/json", **headers}
    async with live.http.post(live.url + path, data=data, headers=kind) as got:
        assert got.status == 200, await got.text()
        assert got.headers["content-type"].startswith("text/event-stream")
        text = (await got.read()).decode()
    events = []
    for block in text.removesuffix("\n\n").split("\n\n"):
        name, data = block.split("\n")
        events.append((name.removeprefix("event: "), json.loads(data.removeprefix("data: "))))
        assert events[-1][0] == events[-1][1]["type"]
    return events
