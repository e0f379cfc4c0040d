"""Constraints that would take a server down: tried out in a process that may die instead."""

import asyncio
import json
import os
import signal
import threading
import time

import psutil
import pytest
from processor_time import slowness
from promptness import strain
from vocabulary import VOCABULARY, allowed, takes, walk

from radiance_core.constrain import compiler as compiling
from radiance_core.constrain.compiler import Compiler
from radiance_core.constrain.errors import ConstraintError
from radiance_core.constrain.native import TOO_HARD


@pytest.fixture
def own():
    made = Compiler(VOCABULARY)
    yield made
    made.close()


def chain(count, rule):
    return "\n".join(["start: " + rule.format("0"), *(
        f'{rule.format(n)}: "a" {rule.format(n + 1)}' for n in range(count)
    ), f'{rule.format(count)}: "b"'])  # fmt: skip


def doubling(keyword, depth):
    refs = {f"d{n}": {keyword: [{"$ref": f"#/$defs/d{n + 1}"}] * 2} for n in range(depth)}
    return json.dumps({"$defs": {**refs, f"d{depth}": {"type": "string"}}, "$ref": "#/$defs/d0"})


KILLERS = {
    # What crashes, or runs for minutes, in llguidance as it is.
    "stack": ("lark", chain(8000, "T{}")),
    "stack of rules": ("lark", chain(30_000, "t{}")),
    "patterns": ("json_schema", json.dumps({
        "type": "string", "allOf": [{"pattern": f".*{c}.*"} for c in "abcdefghijklmnopqrst"]})),
    "multiple": ("json_schema", '{"type": "integer", "multipleOf": 1000003}'),
}  # fmt: skip
EVIL = {
    "nested plus": ("regex", "(a+)+b"),
    "nested star": ("regex", "(a*)*" * 30),
    "doubled": ("regex", "(a|aa)" * 200 + "b"),
    "optional": ("regex", "a?" * 500 + "a" * 500),
    "counts": ("regex", "a{1,100000}"),
    "counted counts": ("regex", "((((((a{10}){10}){10}){10}){10}){10}){10}"),
    "bounds": ("regex", "(.{0,500}x){0,500}"),
    "letters": ("regex", r"\p{L}{1,1000}\p{N}{1,1000}"),
    "words": ("regex", "|".join(f"w{n}" for n in range(4000))),
    "memory": ("regex", "(a|b)*a(a|b){25}"),
    "both": ("lark", "start: T\nT: " + " & ".join(f"/.*{chr(97 + n)}.*/" for n in range(20))),
    "neither": ("lark", "start: T\nT: ~/.*(a|b)*a(a|b){15}.*/"),
    "doubled terminals": (
        "lark",
        "start: T0\n" + "\n".join(f"T{n}: T{n + 1} T{n + 1}" for n in range(30)) + '\nT30: "a"',
    ),
    "doubled rules": (
        "lark",
        "start: t0\n" + "\n".join(f"t{n}: t{n + 1} t{n + 1}" for n in range(30)) + '\nt30: "a"',
    ),
    "ambiguous": ("lark", 'start: e\ne: e e | e e e | "x" | ""'),
    "many words": ("lark", "start: " + " | ".join(f'"w{n}"' for n in range(20_000))),
    "all of all": ("json_schema", doubling("allOf", 30)),
    "any of any": ("json_schema", doubling("anyOf", 30)),
    "one of one": ("json_schema", doubling("oneOf", 30)),
    "products": ("json_schema", json.dumps({"allOf": [
        {"anyOf": [{"required": [f"a{n}"]}, {"required": [f"b{n}"]}]} for n in range(30)]})),
    "many keys": ("json_schema", json.dumps({
        "type": "object", "properties": {f"p{n}": {"type": "string"} for n in range(8000)}})),
    "long": ("json_schema", json.dumps({"const": "x" * 900_000})),
    "far": ("json_schema", '{"type": "array", "minItems": 2000000000}'),
    "digits": ("json_schema", '{"type": "number", "minimum": 1e-300, "maximum": 2e-300}'),
    "itself": ("json_schema", '{"allOf": [{"$ref": "#"}, {"$ref": "#"}]}'),
}  # fmt: skip


@pytest.mark.parametrize("name", KILLERS)
def test_what_would_end_the_server_is_refused(own, name):
    """The process that tries it dies of it; the next constraint is served by a new one."""
    with pytest.raises(ConstraintError) as caught:
        own.compile_now(*KILLERS[name])
    assert str(caught.value) == f"{KILLERS[name][0]}: {TOO_HARD}."
    assert takes(own.compile_now("regex", "ab"), "ab")


@pytest.mark.parametrize("name", EVIL)
def test_evil_patterns_compile_or_are_refused_within_a_limit(compiler, name):
    """Each is answered with a second of processor time, and masks of what compiles are fast."""
    own_start, start = time.process_time(), time.monotonic()
    try:
        source = compiler.compile_now(*EVIL[name])
    except ConstraintError as err:
        assert str(err).startswith(f"{EVIL[name][0]}: expected ")  # noqa: PT017 (either is right)
    else:
        walk(source, 1, limit=20)
    own, took = time.process_time() - own_start, time.monotonic() - start
    assert own < 3 * slowness()
    assert took < 60 * strain()


def test_a_dead_process_is_replaced(own):
    """Killed from outside, it is started again by the next constraint that is not kept."""
    assert takes(own.compile_now("regex", "a"), "a")
    trial = own._build()[0]
    first = trial.pid
    os.kill(first, 9)
    assert takes(own.compile_now("regex", "b"), "b")
    assert trial.pid != first


def test_nothing_runs_before_the_first_constraint_and_after_close():
    """No process is started by making a compiler; close ends it, and constraints fail by name."""
    me = psutil.Process()
    others = {child.pid for child in me.children()}

    def ours():
        return {child.pid for child in me.children()} - others

    made = Compiler(VOCABULARY)
    made.close()
    assert not ours()
    made.compile_now("regex", "a")
    assert len(ours()) == 1
    made.close()
    assert not ours()
    with pytest.raises(ConstraintError, match="regex: expected a server that goes on, it is stop"):
        made.compile_now("regex", "b")


def test_close_does_not_wait_for_what_is_tried(own):
    """A trial under way and those that wait for it end with the process, by name and at once."""
    own.compile_now("regex", "a")
    trial, said = own._build()[0], []
    os.kill(trial.pid, signal.SIGSTOP)  # nothing but its end comes of it from now on

    def ask(number):
        try:
            own.compile_now("json_schema", f'{{"type": "integer", "multipleOf": {number}}}')
        except ConstraintError as err:
            said.append(str(err))

    threads = [threading.Thread(target=ask, args=(number,)) for number in (999983, 999979, 999961)]
    for thread in threads:
        thread.start()
    while not trial._lock.locked():
        time.sleep(0.001)
    start = time.monotonic()
    own.close()
    took = time.monotonic() - start
    for thread in threads:
        thread.join()
    assert trial.pid is None
    assert said == ["json_schema: expected a server that goes on, it is stopping."] * 3
    assert took < 20, "it is given 30 s for an answer"


def test_what_is_asked_again_is_not_compiled_again(own):
    """The same text gives the same source, the same error, and no other kind's."""
    first = own.compile_now("regex", "yes|no")
    assert own.compile_now("regex", "yes|no") is first
    assert own.compile_now("lark", 'start: "yes"') is not first
    for _ in range(2):
        with pytest.raises(ConstraintError, match="expected an expression") as caught:
            own.compile_now("regex", "")
        assert caught.value.path == ""


def test_what_is_kept_is_bounded(own, monkeypatch):
    """The least recently asked goes first, by number and by size."""
    monkeypatch.setattr(compiling, "MAX_KEPT", 3)
    sources = {text: own.compile_now("regex", text) for text in "abc"}
    assert own.compile_now("regex", "a") is sources["a"]
    own.compile_now("regex", "d")
    assert own.compile_now("regex", "a") is sources["a"]
    assert own.compile_now("regex", "b") is not sources["b"]
    assert len(own._kept) == 3
    monkeypatch.setattr(compiling, "MAX_KEPT_BYTES", 1 << 19)
    own.compile_now("regex", "e" * 1000)
    assert sum(size for _, size in own._kept.values()) == own._kept_bytes <= 1 << 19
    kept = dict(own._kept)
    own.compile_now("regex", "f" * 20_000)  # larger than a quarter of all: not kept
    assert kept == own._kept


def test_many_schemas_leave_no_memory_behind(compiler):
    """Unique schemas beyond what is kept cost nothing: 64 MiB for 100,000 is 0.67 KiB each."""

    def compile_all(first, last):
        for n in range(first, last):
            schema = {"type": "object", "properties": {f"key{n}": {"type": "string"}}}
            compiler.compile_now("json_schema", json.dumps(schema))

    compile_all(0, 200)
    before = psutil.Process().memory_full_info().uss
    compile_all(200, 900)
    grown = psutil.Process().memory_full_info().uss - before
    assert grown < 3 << 20, f"{grown / 700:.0f} bytes each; one that is kept takes 20,000"


async def test_the_event_loop_goes_on(compiler):
    """While something hard is compiled, the loop turns, and constraints come side by side."""

    async def count():
        turns = 0
        while not done.done():
            await asyncio.sleep(0.01)
            turns += 1
        return turns

    texts = [f"x{{1,{n}}}y" for n in range(2, 12)]
    done = asyncio.gather(
        compiler.compile("json_schema", json.dumps({"type": "integer", "multipleOf": 999983})),
        *(compiler.compile("regex", text) for text in texts),
        return_exceptions=True,
    )
    turns = await count()
    results = await done
    assert isinstance(results[0], ConstraintError)
    assert all(takes(source, "xy") for source in results[1:])
    assert turns > 5


def test_a_vocabulary_without_an_end_completes_its_texts():
    """A model that has no end token ends a text where nothing may follow, and only there."""

    class Endless(type(VOCABULARY)):
        def __init__(self):
            super().__init__()
            self.eos_ids = frozenset()

    made = Compiler(Endless())
    try:
        matcher = made.compile_now("regex", "ab?").start()
        assert matcher.accept(4 + ord("a"))
        assert not matcher.is_complete
        assert matcher.accept(4 + ord("b"))
        assert matcher.is_complete
        assert not allowed(matcher).size
    finally:
        made.close()
