"""Requests that are wrong, and must be refused as the client's mistake."""

import json
from collections.abc import Callable
from functools import partial
from typing import Any

from probes.exchange import CHAT, COMPLETIONS, Answer
from probes.table import Probe, Seen
from probes.target import Target

DEPTH = 50_000
PARENTHESES = 100_000
_LEAKS = ("Traceback", 'File "', "0x7f", "site-packages")


def refused(answer: Answer, *statuses: int, within_s: float = 2.0) -> Seen:
    """Judge a refusal: one of the statuses, the error object, no inside shown, in time."""
    faults = []
    if answer.status not in statuses:
        faults.append(f"expected {' or '.join(map(str, statuses))}")
    elif not {"message", "type", "param", "code"} <= set(answer.error):
        faults.append("the body is no error object with message, type, param and code")
    if leaks := [word for word in _LEAKS if word in str(answer.error)]:
        faults.append(f"the message shows {leaks[0]!r}")
    if answer.seconds > within_s:
        faults.append(f"took over {within_s} s")
    said = str(answer.error.get("message") or answer.text or "")[:90]
    text = f"{answer}: {said!r}" if said else str(answer)
    return Seen(not faults, "; ".join([text, *faults]))


def deep_schema(target: Target) -> Seen:
    """Ask for a JSON schema nested 50,000 deep."""
    schema = '{"type":"object","properties":{"a":' * DEPTH + "{}" + "}}" * DEPTH
    form = '{"type":"json_schema","json_schema":{"name":"deep","schema":' + schema + "}}"
    body = json.dumps(target.chat())[:-1] + ',"response_format":' + form + "}"
    return refused(target.client.post(CHAT, body.encode()), 400)


def deep_grammar(target: Target) -> Seen:
    """Ask for a GBNF grammar with 100,000 parentheses, by both names of the field."""
    grammar = "root ::= " + "(" * PARENTHESES + '"a"' + ")" * PARENTHESES
    fields: list[dict[str, Any]] = [
        {"grammar": grammar},
        {"structured_outputs": {"grammar": grammar}},
    ]
    seen = [refused(target.client.post(CHAT, target.chat(**f)), 400) for f in fields]
    return Seen(all(s.ok for s in seen), "; ".join(s.text for s in seen))


def raw(change: Callable[[str], bytes], target: Target) -> Seen:
    """Send a body that is no JSON of a request."""
    return refused(target.client.post(CHAT, change(json.dumps(target.chat("MARK")))), 400)


def field(target: Target, /, **fields: Any) -> Seen:
    """Send a chat with values out of range."""
    return refused(target.client.post(CHAT, target.chat(**fields)), 400)


def many_logprobs(target: Target) -> Seen:
    """Ask both routes for a million log probabilities a token."""
    legacy = {"model": target.model, "prompt": "Hi", "max_tokens": 2, "logprobs": 1_000_000}
    chat = target.chat(logprobs=True, top_logprobs=1_000_000)
    seen = [
        refused(target.client.post(CHAT, chat), 400),
        refused(target.client.post(COMPLETIONS, legacy), 400),
    ]
    return Seen(all(s.ok for s in seen), "; ".join(s.text for s in seen))


def empty_stop(target: Target) -> Seen:
    """Send an empty stop string: refused, or ignored, but never the end of every answer."""
    answer = target.client.post(CHAT, target.chat("Count from one to five.", stop=[""]))
    if answer.status == 200:
        same = answer.text == target.golden
        return Seen(same, f"{answer}, {'ignored' if same else f'text {answer.text!r}'}")
    return refused(answer, 400)


def _mark(text: bytes) -> Callable[[str], bytes]:
    return lambda body: body.encode().replace(b"MARK", text)


def _number(text: bytes) -> Callable[[str], bytes]:
    return lambda body: body.encode().replace(b'"temperature": 0', b'"temperature": ' + text)


_BODIES: dict[str, Callable[[str], bytes]] = {
    "malformed JSON": lambda body: body[:-1].encode(),
    "empty body": lambda _: b"",
    "a list for a body": lambda _: b"[]",
    "invalid UTF-8 in a message": _mark(b"\xff\xfe\xc3"),
    "lone surrogate escape in a message": _mark(rb"\ud800"),
    "number 1e999": _number(b"1e999"),
    "number NaN": _number(b"NaN"),
}
_FIELDS: dict[str, dict[str, Any]] = {
    "temperature -1": {"temperature": -1},
    "temperature 1e308": {"temperature": 1e308},
    "top_p 5": {"top_p": 5},
    "logit_bias for token 10⁹": {"logit_bias": {"1000000000": 5}},
    "max_tokens -1": {"max_tokens": -1},
    "n 10⁹": {"n": 1_000_000_000},
    "messages []": {"messages": []},
}

PROBES = [
    Probe("JSON schema nested 50,000 deep", "400 within 2 s", deep_schema),
    Probe("GBNF grammar with 100,000 parentheses", "400 within 2 s", deep_grammar),
    *(Probe(name, "400", partial(raw, change)) for name, change in _BODIES.items()),
    *(
        Probe(name, "400 that names the field", partial(field, **fields))
        for name, fields in _FIELDS.items()
    ),
    Probe("logprobs 1,000,000, chat and completions", "400", many_logprobs),
    Probe('stop [""]', "400, or ignored", empty_stop),
]
