"""Fields: ranges, types, unknown names, and what is known but not served."""

import json
import math
from functools import partial

import pytest
from processor_time import least_async

from radiance_core.server import fields
from radiance_core.server.fields import RANGES, UNSERVED, near_miss
from radiance_core.server.requests import Message

CHAT = "/v1/chat/completions"
TEXT = "/v1/completions"
FLOATS = {"temperature", "top_p", "min_p", "typical_p", "repetition_penalty",
          "frequency_penalty", "presence_penalty", "xtc_probability", "xtc_threshold",
          "dry_multiplier", "dry_base"}  # fmt: skip
VALUES = [-(2**63) - 1, -(2**63), -1, 0, 1e30, 10**30, "x", None, True, [], {}, 0.5]


def expected(name, value):
    """Say by the documented type and range alone whether a value is to be served."""
    if value is None:
        return True
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return False
    if name not in FLOATS and not isinstance(value, int):
        return False
    return RANGES[name].holds(value) and len(str(value)) <= 21


@pytest.mark.parametrize("route", [CHAT, TEXT])
@pytest.mark.parametrize("name", sorted(RANGES))
async def test_every_number_at_its_edges(live, hi, name, route):
    """Each numeric field takes its range and nothing else, and a refusal names the field."""
    base = hi if route == CHAT else {"prompt": "x"}
    rule = RANGES[name]
    edges = [rule.low, rule.high, rule.low - 1, rule.high + 1, math.nextafter(rule.high, math.inf)]
    served = set()
    for value in [*VALUES, *edges]:
        if name == "n" and value == rule.high:
            continue  # 128 answers are tried elsewhere
        if name == "min_tokens" and value == rule.high:
            continue  # in range, but more than there is room for
        status, got, _ = await live.post(route, base | {name: value})
        assert status == (200 if expected(name, value) else 400), (name, value, got)
        served.add(status)
        if status == 400 and len(str(value)) <= 21:
            assert got["error"]["param"] == name, (value, got)
            assert got["error"]["message"].startswith(name)
            assert got["error"]["type"] == "invalid_request_error"
    assert served == {200, 400}


@pytest.mark.parametrize("name", sorted(RANGES))
@pytest.mark.parametrize("token", ["NaN", "Infinity", "-Infinity", "1e999", "-1e999"])
async def test_numbers_that_json_has_not(live, hi, name, token):
    """NaN and infinities are no JSON, and an overflowing number is not infinity."""
    raw = json.dumps(hi)[:-1] + f', "{name}": {token}}}'
    status, got, _ = await live.post(CHAT, raw=raw)
    assert (status, got["error"]["type"]) == (400, "invalid_request_error")


ODD = [[], ["text"], {}, {"a": 1}, [[]], "", "x", 0, -1, 0.5, True, [None], [{}]]


@pytest.mark.parametrize("name", sorted(fields.CHAT | fields.COMPLETION | UNSERVED.keys()))
async def test_no_value_of_a_field_is_the_servers_fault(live, hi, name):
    """Whatever JSON stands in a field, the answer is a 200 or a 400 with a text, never a 5xx."""
    for value in ODD:
        if name == "stream" and value is True:
            continue  # a stream is no single JSON, and is tried elsewhere
        for route, base in ((CHAT, hi), (TEXT, {"prompt": "x"})):
            status, got, _ = await live.post(route, base | {"max_tokens": 1, name: value})
            assert status in {200, 400, 404}, (route, value, got)


@pytest.mark.parametrize("name", sorted(Message.__struct_fields__))
async def test_no_value_in_a_message_is_the_servers_fault(live, name):
    """The same for the fields of a message, and for those of a part of its content."""
    said = {"role": "user", "content": "x"}
    for value in ODD:
        for role in ("user", "assistant"):
            messages = [said | {"role": role, name: value}]
            status, got, _ = await live.post(CHAT, {"messages": messages})
            assert status in {200, 400}, (value, got)
        for key in ("type", "text", "refusal"):
            part = {"type": "text", "text": "x", key: value}
            status, got, _ = await live.post(CHAT, {"messages": [said | {"content": [part]}]})
            assert status in {200, 400}, (part, got)


async def test_null_is_absent_for_every_field(live, hi):
    """Clients that spell out null get the same as those that leave a field out."""
    nulls = dict.fromkeys(fields.CHAT | fields.INERT | UNSERVED.keys())
    status, got, _ = await live.post(CHAT, nulls | hi)
    assert status == 200, got
    status, _, _ = await live.post(TEXT, dict.fromkeys(fields.COMPLETION) | {"prompt": "x"})
    assert status == 200


async def test_inert_fields_are_accepted_unnamed(live, hi):
    """Fields that could not change the answer are neither refused nor reported."""
    body = hi | {"user": "u", "metadata": {"a": "b"}, "store": True, "service_tier": "auto",
                 "safety_identifier": "s", "prompt_cache_key": "k", "seed": 1}  # fmt: skip
    status, got, headers = await live.post(CHAT, body)
    assert status == 200
    assert "radiance" not in got
    assert "x-radiance-ignored" not in headers


@pytest.mark.parametrize("name", sorted(UNSERVED.keys() - (fields.CHAT & fields.COMPLETION)))
async def test_known_but_unserved_is_refused_with_a_reason(live, hi, name):
    """A field that is not served is a 400 saying why, unless its value asks for nothing."""
    route, base = (TEXT, {"prompt": "x"}) if name in fields.CHAT else (CHAT, hi)
    status, got, _ = await live.post(route, base | {name: {"anything": 1}})
    assert (status, got["error"]["code"]) == (400, "unsupported_parameter")
    assert got["error"]["param"] == name
    assert UNSERVED[name].why in got["error"]["message"]
    for value in UNSERVED[name].neutral:
        status, got, _ = await live.post(route, base | {name: value})
        assert status == 200, (name, value, got)


async def test_true_is_not_the_neutral_one(live, hi):
    """best_of true is not best_of 1."""
    assert (await live.post(CHAT, hi | {"best_of": True}))[0] == 400


async def test_slips_are_answered_with_the_right_name(live, hi):
    """A near miss is refused: ignoring it would give an answer that was not asked for."""
    for wrong, right in [
        ("max_token", "max_tokens"), ("temperatur", "temperature"), ("topp", "top_p"),
        ("Temperature", "temperature"), ("max-tokens", "max_tokens"), ("stopp", "stop"),
        ("max_new_tokens", "max_tokens"), ("n_predict", "max_tokens"), ("mesages", "messages"),
        ("response_formt", "response_format"),
    ]:  # fmt: skip
        status, got, _ = await live.post(CHAT, hi | {wrong: 1})
        assert (status, got["error"]["code"]) == (400, "unknown_parameter"), wrong
        assert f"did you mean {right!r}" in got["error"]["message"]
        assert got["error"]["param"] == wrong
    assert near_miss("x" * 100, fields.CHAT) is None


async def test_unknown_fields_are_ignored_by_name(live, hi):
    """An unknown field is named in a header and in the body, whatever its name holds."""
    body = hi | {"zebra": 1, "bad\r\nname": 2, "gamma_ray": [3]}
    status, got, headers = await live.post(CHAT, body)
    assert status == 200
    assert got["radiance"]["ignored"] == ["zebra", "bad\r\nname", "gamma_ray"]
    assert headers["x-radiance-ignored"] == "zebra,?,gamma_ray"
    _, headers, events = await live.stream(CHAT, body)
    assert headers["x-radiance-ignored"] == "zebra,?,gamma_ray"
    assert events[0]["radiance"]["ignored"][0] == "zebra"
    assert all("radiance" not in event for event in events[1:-1])
    names = [f"zzz{i}" for i in range(32)]
    _, got, headers = await live.post(CHAT, hi | dict.fromkeys(names, 1))
    assert got["radiance"]["ignored"] == names
    assert len(headers["x-radiance-ignored"]) < 4096


async def test_unknown_fields_without_number(live, hi):
    """More unknown fields than are named is a 400 at once: comparing each takes its time."""
    many = {f"q{i:05d}x{i * i:08d}": 1 for i in range(10_000)}
    said = hi["messages"][0]
    for body, number in (
        (hi | many, 10_000),
        (hi | {"messages": [said | many]}, 10_000),
        (hi | {"messages": [said | {name: 1} for name in many]}, 33),
    ):
        assert await least_async(partial(live.post, CHAT, body), 2) < 2
        status, got, _ = await live.post(CHAT, body)
        assert (status, got["error"]["code"]) == (400, "unknown_parameter")
        assert f"body: expected at most 32 unknown fields, got {number};" in got["error"]["message"]


async def test_one_unknown_key_in_every_message(live, hi):
    """A key on every message is one unknown field, named where it comes first."""
    talk = [{"role": "user", "content": "hi"}] + [
        {"role": "user", "content": "x", "turn_number": n} for n in range(40)
    ]
    status, _, headers = await live.post(CHAT, hi | {"messages": talk})
    assert (status, headers["x-radiance-ignored"]) == (200, "messages[1].turn_number")


async def test_strict_requests_refuse_unknown_fields(start, hi):
    """--strict-requests refuses what would be ignored, at the top, in messages and in options."""
    live = await start(strict_requests=True)
    status, got, _ = await live.post(CHAT, hi | {"zebra": 1})
    assert (status, got["error"]["param"]) == (400, "zebra")
    assert "--strict-requests" in got["error"]["message"]
    hi["messages"][0]["zebra"] = 1
    status, got, _ = await live.post(CHAT, hi)
    assert (status, got["error"]["param"]) == (400, "messages[0].zebra")


async def test_stream_options(live, hi):
    """They need a stream; a slip inside is found; usage in every chunk is refused."""
    status, got, _ = await live.post(CHAT, hi | {"stream_options": {"include_usage": True}})
    assert (status, got["error"]["param"]) == (400, "stream_options")
    assert got["error"]["message"] == "stream_options: expected only with stream true."
    for options, param in [
        ({"include_usge": True}, "stream_options.include_usge"),
        ({"continuous_usage_stats": True}, "stream_options.continuous_usage_stats"),
        ({"include_usage": "yes"}, "stream_options.include_usage"),
        ("x", "stream_options"),
    ]:
        status, _, [got] = await live.stream(CHAT, hi | {"stream_options": options})
        assert (status, got["error"]["param"]) == (400, param)
    status, headers, _ = await live.stream(CHAT, hi | {"stream_options": {"zebra": 1}})
    assert (status, headers["x-radiance-ignored"]) == (200, "stream_options.zebra")


async def test_aliases(live, hi):
    """Both spellings of the repetition penalty work; two that differ are refused."""
    await live.post(CHAT, hi | {"repeat_penalty": 1.5, "repeat_last_n": 7})
    params = live.engine.requests[0].sampling
    assert (params.repetition_penalty, params.penalty_last_n) == (1.5, 7)
    body = hi | {"repeat_penalty": 1.5, "repetition_penalty": 1.25}
    status, got, _ = await live.post(CHAT, body)
    assert status == 400
    assert "two that differ" in got["error"]["message"]


async def test_sampling_reaches_the_engine_over_the_models_defaults(live, hi):
    """What is sent replaces the default, what is not sent keeps it."""
    await live.post(CHAT, hi | {
        "top_p": 0.5, "top_k": -1, "min_p": 0.25, "typical_p": 0.75, "frequency_penalty": -1,
        "presence_penalty": 1.5, "seed": 12, "stop": ["a", "", "b", "a"], "min_tokens": 2,
        "stop_token_ids": [7], "ignore_eos": True,
    })  # fmt: skip
    params = live.engine.requests[0].sampling
    assert params.temperature == 0.7
    assert (params.top_p, params.top_k, params.min_p, params.typical_p) == (0.5, 0, 0.25, 0.75)
    assert (params.frequency_penalty, params.presence_penalty) == (-1.0, 1.5)
    assert (params.seed, params.stop, params.stop_token_ids) == (12, ("a", "b"), (7,))
    assert (params.ignore_eos, params.min_tokens) == (True, 2)


async def test_stops(live, hi):
    """A string is one stop, empty ones stop nothing, and the engine's limits hold at the door."""
    await live.post(CHAT, hi | {"stop": "END"})
    assert live.engine.requests[-1].sampling.stop == ("END",)
    status, got, _ = await live.post(CHAT, hi | {"stop": [""]})
    assert got["choices"][0]["message"]["content"]
    for bad, param in [
        ([f"s{i}" for i in range(17)], "stop"), (["x" * 257], "stop"), ([1], "stop[0]"),
        (["a", None], "stop[1]"), (5, "stop"),
    ]:  # fmt: skip
        status, got, _ = await live.post(CHAT, hi | {"stop": bad})
        assert (status, got["error"]["param"]) == (400, param)
    for bad in ([257], [-1], ["x"], [True], 3):
        status, got, _ = await live.post(CHAT, hi | {"stop_token_ids": bad})
        assert (status, got["error"]["param"][:14]) == (400, "stop_token_ids")


async def test_more_tokens_must_come_than_may(live, hi):
    """min_tokens past max_tokens is a 400, also when max_tokens is only the context's end."""
    for extra in ({"max_tokens": 3, "min_tokens": 4}, {"min_tokens": 2**31 - 1}):
        status, got, _ = await live.post(CHAT, hi | extra)
        assert (status, got["error"]["param"]) == (400, "min_tokens")


async def test_as_many_choices_as_may_be(start, hi):
    """Choices up to the limit is served, and the operator's own limit is kept."""
    live = await start()
    status, got, _ = await live.post(CHAT, hi | {"n": 128})
    assert (status, len(got["choices"])) == (200, 128)
    live = await start(max_choices=4)
    status, got, _ = await live.post(CHAT, hi | {"n": 5})
    assert (status, got["error"]["param"]) == (400, "n")
