"""A real model, held to schemas, expressions, choices and grammars, greedy and sampled."""

import concurrent.futures
import json
import re
import threading
import time
from collections import Counter

import jsonschema
import openai
import psutil
import pytest
from live_server import running
from pydantic import BaseModel, ConfigDict, Field

MODEL = "smol"
ASK = [{"role": "user", "content": "Tell me about one person. Answer in JSON."}]
SCHEMAS = {
    "person": {
        "type": "object",
        "properties": {
            "name": {"type": "string", "minLength": 2, "maxLength": 12},
            "age": {"type": "integer", "minimum": 18, "maximum": 99},
            "kind": {"enum": ["friend", "foe", None]},
        },
        "required": ["name", "age", "kind"],
        "additionalProperties": False,
    },
    "list": {
        "type": "array",
        "items": {"type": "number", "exclusiveMinimum": 0, "maximum": 10},
        "minItems": 2,
        "maxItems": 4,
    },
    "tree": {
        "$ref": "#/$defs/node",
        "$defs": {
            "node": {
                "type": "object",
                "properties": {
                    "value": {"type": "string", "pattern": "^[a-zé🙂]{1,3}$"},
                    "next": {"anyOf": [{"$ref": "#/$defs/node"}, {"type": "null"}]},
                },
                "required": ["value", "next"],
                "additionalProperties": False,
            }
        },
    },
    "either": {
        "anyOf": [
            {"type": "string", "format": "date"},
            {
                "type": "object",
                "properties": {"ok": {"const": True}},
                "required": ["ok"],
                "additionalProperties": False,
            },
        ]
    },
}


@pytest.fixture(scope="module")
def server():
    with running("--served-model-name", MODEL) as live:
        yield live


@pytest.fixture
def client(server):
    with openai.OpenAI(base_url=f"{server.url}/v1", api_key="none", timeout=120) as made:
        yield made


def formatted(schema):
    return {
        "type": "json_schema",
        "json_schema": {"name": "answer", "strict": True, "schema": schema},
    }


def test_nothing_is_paid_before_the_first_constraint(server):
    """A server that was asked for no constraint has started no process for them."""
    processes = psutil.Process(server.process.pid).children()
    assert not [p for p in processes if "constrain" in " ".join(p.cmdline())]


@pytest.mark.parametrize("name", SCHEMAS)
@pytest.mark.parametrize("temperature", [0, 0.8, 1.7])
def test_answers_satisfy_their_schema(client, name, temperature):
    """Whole answers validate with jsonschema, whatever is drawn; cut ones say that they are."""
    whole = 0
    got = client.chat.completions.create(
        model=MODEL, messages=ASK, temperature=temperature, max_tokens=160, n=4, seed=11,
        response_format=formatted(SCHEMAS[name]),
    )  # fmt: skip
    for choice in got.choices:
        assert choice.finish_reason in {"stop", "length"}
        if choice.finish_reason == "stop":
            value = json.loads(choice.message.content)
            jsonschema.Draft202012Validator(
                SCHEMAS[name], format_checker=jsonschema.FormatChecker()
            ).validate(value)
            whole += 1
    # A small model may go on with digits, or with nodes, for as long as it is let.
    assert whole or name in {"list", "tree"}


def test_a_stream_is_the_same_json(client):
    """Greedy decoding gives the same text streamed and whole, and the helper parses it."""

    class Person(BaseModel):
        model_config = ConfigDict(extra="forbid")
        name: str = Field(max_length=12)
        age: int = Field(ge=18, le=99)

    whole = client.chat.completions.parse(
        model=MODEL, messages=ASK, temperature=0, max_tokens=160, response_format=Person
    )
    assert 18 <= whole.choices[0].message.parsed.age <= 99
    asked = {"model": MODEL, "messages": ASK, "temperature": 0, "max_tokens": 160}
    with client.chat.completions.stream(**asked, response_format=Person) as events:
        for _ in events:
            pass
        streamed = events.get_final_completion()
    assert streamed.choices[0].message.parsed == whole.choices[0].message.parsed


def test_a_cut_answer_says_so(client):
    """Where max_tokens cuts, finish_reason is length and the text a beginning of JSON."""
    got = client.chat.completions.create(
        model=MODEL, messages=ASK, temperature=0, max_tokens=4,
        response_format={"type": "json_object"},
    )  # fmt: skip
    assert got.choices[0].finish_reason == "length"
    assert got.choices[0].message.content.startswith("{")
    with pytest.raises(json.JSONDecodeError):
        json.loads(got.choices[0].message.content)


@pytest.mark.parametrize(
    ("asked", "pattern"),
    [
        ({"structured_outputs": {"regex": r"[0-9]{3}-[0-9]{4}( ext [0-9]{1,3})?"}},
         r"[0-9]{3}-[0-9]{4}( ext [0-9]{1,3})?"),
        ({"guided_choice": ["red", "green", "réséda", "🙂🙂"]}, "red|green|réséda|🙂🙂"),
        ({"grammar": 'root ::= "I am " [A-Z] [a-z]{2,5} ("." | "!")'}, "I am [A-Z][a-z]{2,5}[.!]"),
        ({"grammar": 'start: NAME (", " NAME){1,2}\nNAME: /[A-Z][a-z]{1,4}/'},
         r"[A-Z][a-z]{1,4}(, [A-Z][a-z]{1,4}){1,2}"),
    ],
    ids=["regex", "choice", "gbnf", "lark"],
)  # fmt: skip
def test_texts_match_their_expression(client, asked, pattern):
    """Completions match as a whole, greedy and sampled, in every choice."""
    for temperature in (0, 1.5):
        got = client.completions.create(
            model=MODEL, prompt="My name:", temperature=temperature, n=4, max_tokens=60,
            extra_body=asked,
        )  # fmt: skip
        for choice in got.choices:
            assert choice.finish_reason == "stop"
            assert re.fullmatch(pattern, choice.text), choice.text


def test_constraints_do_not_touch_neighbours(client):
    """Side by side with others, a constrained and a free text are what they are alone."""

    def ask(kind):
        extra = {"response_format": formatted(SCHEMAS["person"])} if kind else {}
        got = client.chat.completions.create(
            model=MODEL, messages=ASK, temperature=1.1, seed=5, max_tokens=60, **extra
        )
        return got.choices[0].message.content

    alone = [ask(False), ask(True)]
    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        together = list(pool.map(ask, [False, True] * 6))
    assert together == alone * 6


def test_what_is_hard_to_compile_holds_nobody_up(client):
    """While killers are refused, another stream goes on all the time, and the server lives.

    A killer takes a second of processor time. A stream that waits for that gets next to nothing,
    one that goes on beside it dozens of tokens in any third of the time, on any machine.
    """
    killer = {"type": "string", "allOf": [{"pattern": f".*{c}.*"} for c in "abcdefghijklmnopqrst"]}
    times, done = [], threading.Event()

    def stream():
        while not done.is_set():
            for _ in client.completions.create(
                model=MODEL, prompt="Once", max_tokens=400, stream=True, temperature=0,
                extra_body={"ignore_eos": True},
            ):  # fmt: skip
                times.append(time.monotonic())
                if done.is_set():
                    break

    beside = threading.Thread(target=stream)
    beside.start()
    try:
        while not times:
            assert beside.is_alive()
            time.sleep(0.01)
        for number in range(2):
            began = time.monotonic()
            with pytest.raises(openai.BadRequestError, match="within 1 s of processor time"):
                client.chat.completions.create(
                    model=MODEL, messages=ASK,
                    response_format=formatted({**killer, "minLength": number}),
                )  # fmt: skip
            third = (time.monotonic() - began) / 3
            came = Counter(int((t - began) / third) for t in list(times) if t >= began)
            assert came.total() >= 10, came
            assert {0, 1, 2} <= came.keys(), came
    finally:
        done.set()
        beside.join(240)
    assert client.completions.create(model=MODEL, prompt="a", max_tokens=1).choices


def test_bombs_are_refused_at_once(client, server):
    """Depth is seen before anything native, in a schema and in a grammar."""
    deep = {"type": "string"}
    for _ in range(50):
        deep = {"anyOf": [deep]}
    for body in (
        {"response_format": formatted(deep)},
        {"extra_body": {"grammar": "root ::= " + "(" * 100_000 + '"a"' + ")" * 100_000}},
    ):
        before = processor_time(server.process.pid)
        with pytest.raises(openai.BadRequestError, match="nesting of at most 64 levels"):
            client.chat.completions.create(model=MODEL, messages=ASK, **body)
        assert processor_time(server.process.pid) - before < 2


def processor_time(pid):
    """Return the seconds that a process and its children have had of processors."""
    process = psutil.Process(pid)
    family = [process, *process.children(recursive=True)]
    return sum(times.user + times.system for times in (each.cpu_times() for each in family))
