"""What an answer must look like: by which fields it is asked, and how they are refused."""

import json

import numpy as np
import pytest

CHAT = "/v1/chat/completions"
TEXT = "/v1/completions"
PERSON = {
    "type": "object",
    "properties": {"age": {"type": "integer"}},
    "required": ["age"],
    "additionalProperties": False,
}
GOOD, BAD = '{"age":3}', '{"age":"3"}'


def takes(constraint, text):
    """Say whether the engine was given a constraint that a text satisfies; one id is one byte."""
    accepted = [constraint.accept(byte) for byte in text.encode()]
    words = np.zeros(9, np.int32)
    constraint.fill(words)
    constraint.rewind(sum(accepted))
    return all(accepted) and bool(words[0] & 1)


ASKED = {
    "json_object": ({"response_format": {"type": "json_object"}}, '{"x":[1]}', "[1]"),
    "json_schema": (
        {"response_format": {"type": "json_schema", "json_schema": {
            "name": "p", "description": "d", "strict": True, "schema": PERSON}}}, GOOD, BAD),
    "schema at the top": (
        {"response_format": {"type": "json_schema", "schema": PERSON}}, GOOD, BAD),
    "json_object with schema": (
        {"response_format": {"type": "json_object", "schema": PERSON}}, GOOD, BAD),
    "structured json": ({"structured_outputs": {"json": PERSON}}, GOOD, BAD),
    "structured json as text": ({"structured_outputs": {"json": json.dumps(PERSON)}}, GOOD, BAD),
    "structured regex": ({"structured_outputs": {"regex": "a+"}}, "aa", "ab"),
    "structured choice": ({"structured_outputs": {"choice": ["yes", "no"]}}, "no", "maybe"),
    "structured grammar": ({"structured_outputs": {"grammar": 'root ::= "x"'}}, "x", "y"),
    "structured object": ({"structured_outputs": {"json_object": True}}, '{"x":1}', "1"),
    "guided_json": ({"guided_json": PERSON}, GOOD, BAD),
    "guided_regex": ({"guided_regex": "[0-9]{2}"}, "12", "123"),
    "guided_choice": ({"guided_choice": ["a b", "c"]}, "a b", "a"),
    "guided_grammar": ({"guided_grammar": 'start: "x" /[0-9]/'}, "x1", "x"),
    "json_schema alone": ({"json_schema": PERSON}, GOOD, BAD),
    "GBNF": ({"grammar": 'root ::= "(" root ")" | "x"'}, "((x))", "(x"),
    "Lark": ({"grammar": 'start: "(" start ")" | "x"'}, "((x))", "(x"),
}  # fmt: skip


@pytest.mark.parametrize("name", ASKED)
@pytest.mark.parametrize("stream", [False, True])
async def test_the_engine_gets_what_was_asked(live, hi, name, stream):
    """Every spelling gives every choice a constraint of its own, on both routes."""
    fields, good, bad = ASKED[name]
    for route, base in ((CHAT, hi), (TEXT, {"prompt": "x"})):
        body = base | fields | {"n": 2, "stream": stream}
        if stream:
            status, _, events = await live.stream(route, body)
            assert (status, events[-1]) == (200, "[DONE]")
        else:
            status, got, _ = await live.post(route, body)
            assert status == 200, got
        first, second = (request.constraint for request in live.engine.requests[-2:])
        assert first is not second
        for constraint in (first, second):
            assert takes(constraint, good)
            assert not takes(constraint, bad)


@pytest.mark.parametrize(
    "fields",
    [
        {"response_format": {"type": "text"}},
        {"structured_outputs": {"json_object": False}},
        {"grammar": ""},
        {"grammar": " \n"},
        {"guided_json": None, "response_format": None},
        {"response_format": {"type": "text"}, "grammar": ""},
    ],
)
async def test_what_asks_for_nothing_leaves_the_text_free(live, hi, fields):
    """Values that mean no constraint are taken as absent."""
    status, got, _ = await live.post(CHAT, hi | fields)
    assert status == 200, got
    assert live.engine.requests[-1].constraint is None


REFUSED = [
    ({"response_format": {"type": "json"}}, "response_format.type",
     "response_format.type: expected text, json_object or json_schema, got 'json'."),
    ({"response_format": {}}, "response_format.type", "expected text, json_object or json_schema"),
    ({"response_format": {"type": "json_schema"}}, "response_format.json_schema.schema",
     "response_format.json_schema.schema: expected a schema, got none."),
    ({"response_format": {"type": "json_schema", "json_schema": {"name": "x"}}},
     "response_format.json_schema.schema", "expected a schema, got none."),
    ({"response_format": {"type": "json_schema", "json_schema": [1]}},
     "response_format.json_schema", "response_format.json_schema: expected an object."),
    ({"response_format": {"type": "json_schema", "json_schema": {"schema": {}, "strict": 1}}},
     "response_format.json_schema.strict", "expected true or false, got '1'."),
    ({"response_format": {"type": "json_schema", "schema": {}, "json_schema": {"schema": {}}}},
     "response_format.schema", "expected one schema, got response_format.json_schema.schema too."),
    ({"response_format": {"type": "json_object", "schema": 3}}, "response_format.schema",
     "response_format.schema: expected a JSON schema, got '3'."),
    ({"response_format": {"type": "text", "typ": 1}}, "response_format.typ", "did you mean 'type'"),
    ({"structured_outputs": {}}, "structured_outputs",
     "expected one of json, regex, choice, grammar, json_object, got none."),
    ({"structured_outputs": {"regex": "a", "choice": ["a"]}}, "structured_outputs",
     "got regex and choice."),
    ({"structured_outputs": {"structural_tag": "x"}}, "structured_outputs.structural_tag",
     "tags inside a text are not served; ask by grammar."),
    ({"structured_outputs": {"json": {}, "whitespace_pattern": " "}},
     "structured_outputs.whitespace_pattern", "blanks between parts of JSON are always allowed."),
    ({"structured_outputs": {"regex": 1}}, "structured_outputs.regex",
     "expected an expression as a string."),
    ({"structured_outputs": {"choice": "a"}}, "structured_outputs.choice",
     "expected a list of texts, got 'a'."),
    ({"structured_outputs": {"grammar": ["x"]}}, "structured_outputs.grammar",
     "expected a grammar as a string."),
    ({"structured_outputs": {"json_object": "yes"}}, "structured_outputs.json_object",
     "expected true or false, got 'yes'."),
    ({"guided_choice": []}, "guided_choice", "guided_choice: expected a list of 1 to 10000 texts."),
    ({"guided_regex": "(a"}, "guided_regex",
     "guided_regex: expected one that can be enforced, got: unclosed group."),
    ({"guided_json": {"items": {"not": {}}}}, "guided_json.items.not",
     "guided_json: items.not: what must not be cannot be enforced; say what may be."),
    ({"grammar": "root ::= (\n"}, "grammar", "grammar: line 2 column 1: expected ')'"),
    ({"guided_regex": "a", "ignore_eos": True}, "ignore_eos",
     "ignore_eos: expected false with guided_regex, whose text ends where it is whole, got true."),
    ({"grammar": "x: y", "guided_regex": "a"}, "grammar",
     "grammar: expected one field that says what the answer looks like, got guided_regex too"),
    ({"guided_decoding_backend": "xgrammar"}, "guided_decoding_backend",
     "there is one engine for constraints"),
]  # fmt: skip


@pytest.mark.parametrize(("fields", "param", "said"), REFUSED, ids=lambda v: str(v)[:50])
async def test_what_cannot_be_asked_is_refused_by_its_path(live, hi, fields, param, said):
    """A 400 names the place and what was expected there, before anything is generated."""
    for route, base in ((CHAT, hi), (TEXT, {"prompt": "x"})):
        before = len(live.engine.requests)
        status, got, _ = await live.post(route, base | fields)
        assert (status, got["error"]["param"]) == (400, param), got
        assert said in got["error"]["message"]
        assert len(live.engine.requests) == before


async def test_a_keyword_without_meaning_is_named(live, hi):
    """What nobody defines is ignored by name, in the header and in the body."""
    schema = {"type": "object", "properties": {"a": {"order": 1}}}
    format_ = {"type": "json_schema", "json_schema": {"schema": schema, "origin": "x"}}
    for route, base in ((CHAT, hi), (TEXT, {"prompt": "x"})):
        status, got, headers = await live.post(route, base | {"response_format": format_})
        assert status == 200
        named = [
            "response_format.json_schema.origin",
            "response_format.json_schema.schema.properties.a.order",
        ]
        assert got["radiance"]["ignored"] == [name[:64] for name in named]
        assert headers["x-radiance-ignored"].startswith(named[0])
