"""Settings on the command line: where they may stand, and what they do for each command."""

import os
import shlex
import signal
import subprocess
import sys
import time
import tomllib
from pathlib import Path

import pytest

from .terminal import RADIANCE
from .test_cli import ERROR, USAGE, model, radiance

__all__ = ["model"]
INTERRUPTED = 130


def test_a_setting_before_a_command_is_that_commands() -> None:
    """Wherever it stands, a setting counts; the command's own goes before what stands before it."""
    for arguments, port in (
        (["--port", "7", "config", "show"], "7"),
        (["--port", "7", "config", "show", "--port", "8"], "8"),
    ):
        status, out, _ = radiance(*arguments)
        assert status == 0
        assert f"\nport {port} command line\n" in "\n".join(
            " ".join(line.split()) for line in out.splitlines()
        )


def test_settings_before_run_and_doctor_count(model: str) -> None:
    """A model and its draws may stand before the command, and flags without a value too."""
    ask = ("--max-tokens", "6")
    one = radiance("--model", model, "--temp", "0", "run", "Hi", *ask)
    assert one == radiance("run", model, "Hi", "--temp", "0", *ask)
    assert one[0] == 0
    status, out, _ = radiance("--model", model, "--max-model-len", "256", "doctor")
    assert status == 0
    assert "ctx 256" in out
    assert radiance("doctor", model, "--max-model-len", "256")[1].count("ctx 256") == 1
    status, _, err = radiance("--debug-accept-reference-kernels", "--kernels", "libnone", "run",
                              model, "Hi")  # fmt: skip
    assert (status, "library 'libnone' is not installed" in err) == (ERROR, True)


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["--port", "8750", "chat", "m"], "--port: expected a setting that `radiance chat` takes, "
         "got one that it does not; serving takes it, and so do: config show."),
        (["--temp", "0", "plugins"], "--temp: expected a setting that `radiance plugins` takes"),
        (["--live", "run", "m", "x"], "--live: expected a setting that `radiance run` takes"),
        (["--port", "8732"], "--model is missing: expected a GGUF file, a safetensors folder"),
        (["--live"], "--model is missing"),
        (["run", "m", "x", "--raw", "--system", "s"], "--system: expected without --raw"),
        (["run"], "Missing argument 'MODEL'"),
    ],
)  # fmt: skip
def test_a_setting_that_would_change_nothing_stops(arguments: list[str], says: str) -> None:
    """What a command has no use for is a usage error that names what has."""
    status, out, err = radiance(*arguments, said="text")
    assert (status, out) == (USAGE, "")
    assert says in " ".join(err.split())


@pytest.mark.parametrize(
    ("setting", "value", "says"),
    [
        ("generation-config", "none.json", "expected a JSON file of sampling defaults, or none, "
         "got one that cannot be read: no such file or directory"),
        ("generation-config", ".", "got one that cannot be read: is a directory"),
        ("default-max-tokens", "ten", "expected a number of tokens or auto, got 'ten'"),
        ("dry-sequence-breakers", "[", "expected a JSON list of at most 16 texts"),
    ],
)  # fmt: skip
def test_sampling_settings_are_checked_before_the_model(
    setting: str, value: str, says: str
) -> None:
    """What is wrong with them is told at once, whatever there is to be loaded."""
    for command in ([], ["config", "show"], ["--model", "no-such.gguf"]):
        status, out, err = radiance(*command, f"--{setting}", value)
        assert (status, out) == (ERROR, "")
        assert says in err
        assert len(err.splitlines()) == 1


def test_a_level_may_be_written_in_capitals() -> None:
    """The words of a setting are the same in capitals, and are shown as they are listed."""
    out = radiance("config", "show", "--log-level", "WARNING", "--kv-cache-dtype", "FP8")[1]
    shown = {line.split()[0]: line.split()[1] for line in out.splitlines()}
    assert (shown["log-level"], shown["kv-cache-dtype"]) == ("warning", "fp8")


def test_a_prompt_from_a_pipe_is_one_message(model: str) -> None:
    """All lines of the input are one prompt, with or without -; a system message goes before."""
    ask = ("--temp", "0", "--max-tokens", "12")
    text = "Here are two lines.\nSay hello."
    one = radiance("run", model, text, *ask)
    assert one[0] == 0
    assert radiance("run", model, *ask, said=text + "\n") == one
    assert radiance("run", model, "-", *ask, said=text + "\n") == one
    assert radiance("--model", model, "run", *ask, said=text + "\n") == one
    assert radiance("run", model, text, *ask, "--system", "Answer in French.")[1] != one[1]
    bad = subprocess.run(
        [*RADIANCE, "run", model], input=b"\xff", capture_output=True, timeout=240, check=False
    )
    assert bad.returncode == ERROR
    assert b"prompt: expected UTF-8 on standard input, got a bad byte at offset 0" in bad.stderr


def test_guesses_leave_the_answer_as_it_is(model: str) -> None:
    """Command run takes the settings that serving has, and an answer does not depend on guesses."""
    ask = ("run", model, "Count: one, two, three,", "--temp", "0", "--max-tokens", "24")
    assert radiance(*ask, "--num-speculative-tokens", "4") == radiance(*ask)
    assert radiance(*ask, "--repetition-penalty", "1.5")[1] != radiance(*ask)[1]


def test_a_full_disk_is_one_line() -> None:
    """Output that cannot be written is told in one line."""
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(
            [*RADIANCE, "config", "show"], stdout=full, stderr=subprocess.PIPE, text=True,
            timeout=240, check=False,
        )  # fmt: skip
    assert done.returncode == ERROR
    assert done.stderr == "radiance: standard output: No space left on device\n"


@pytest.mark.parametrize(
    ("command", "status"),
    [("config show >&-", 0), ("config show <&- >&- 2>&-", 0), ("run m <&-", USAGE)],
)
def test_streams_that_are_closed(command: str, status: int) -> None:
    """Without standard streams there is nothing to read or to be told, and no trace."""
    done = subprocess.run(
        ["bash", "-c", f"{shlex.join(RADIANCE)} {command}"],
        capture_output=True, text=True, timeout=240, check=False,
    )  # fmt: skip
    assert done.returncode == status
    assert "Traceback" not in done.stderr


# Before the program's own first line Python itself starts, and no program has a say in that.
BEGUN = """
import os
from radiance_core.cli import entry
entry.begin()
os.write(2, b"begun\\n")
entry.main()
"""


@pytest.mark.parametrize("after_s", [0.02, 0.1, 0.3, 0.7])
@pytest.mark.parametrize("command", ["serve", "run", "chat", "doctor"])
def test_ctrl_c_while_it_starts(model: str, command: str, after_s: float) -> None:
    """Whatever is imported or loaded at the moment, Ctrl-C ends it without a trace."""
    arguments = {
        "serve": ["--model", model, "--port", "0"],
        "run": ["run", model, "Hi", "--max-tokens", "4000"],
        "chat": ["chat", model],
        "doctor": ["doctor", model],
    }[command]
    with subprocess.Popen(
        [sys.executable, "-c", BEGUN, *arguments],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    ) as process:  # fmt: skip
        assert process.stderr is not None
        assert process.stderr.readline() == "begun\n"
        time.sleep(after_s)
        process.send_signal(signal.SIGINT)  # to nobody, if it has ended by then
        try:
            out, err = process.communicate(timeout=240)
        finally:
            process.kill()
    # A server that serves ends in order, a conversation ends with its input, and an answer may be
    # over as the signal comes: each has said something by then. Before that it is 130. After the
    # program's last line Python itself ends, and lets the signal end it, without a trace either.
    said = {"serve": "try: curl", "chat": "Ctrl-D ends", "run": "\n", "doctor": "no fault found"}
    over = process.returncode in (0, -signal.SIGINT) and said[command] in out
    assert over or process.returncode == INTERRUPTED, (process.returncode, out[-300:])
    assert "Traceback" not in err


SCRIPTS = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text())["project"]
INTERRUPTED_AT = """
import os, signal, sys

class Finder:
    def find_spec(self, name, *_):
        if name == {module!r}:
            os.kill(os.getpid(), signal.SIGINT)

from {place} import {function}
sys.meta_path.insert(0, Finder())
{function}()
"""


@pytest.mark.parametrize("module", ["click", "numpy"])
@pytest.mark.parametrize("program", SCRIPTS["scripts"])
def test_every_program_begins_by_one_door(program: str, module: str) -> None:
    """Ctrl-C while it imports what it needs ends any program of ours with 130 and no trace."""
    place, _, function = SCRIPTS["scripts"][program].partition(":")
    script = INTERRUPTED_AT.format(place=place, function=function, module=module)
    done = subprocess.run(
        [sys.executable, "-c", script, *(["doctor"] if program == "radiance" else [])],
        capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    assert (done.returncode, done.stdout, done.stderr) == (INTERRUPTED, "", "")
