"""``rad-tune`` as a process, and a server that reads what it wrote, or what someone wrote."""

import json
import os
import re
import subprocess
import sys
import urllib.request
from datetime import date, timedelta
from pathlib import Path
from typing import Any

import pytest
from live_server import running

from .test_cli import model, radiance

__all__ = ["model"]
TUNE = [sys.executable, "-m", "radiance_core.tune"]


def tune(*arguments: str, home: Path) -> tuple[int, str, str]:
    """Run rad-tune with settings of its own; return status, output and errors."""
    env = {k: v for k, v in os.environ.items() if not k.startswith("RADIANCE_")}
    done = subprocess.run(
        [*TUNE, *arguments], capture_output=True, text=True, timeout=1000, check=False,
        env={**env, "OMP_NUM_THREADS": "1", "XDG_CONFIG_HOME": str(home)}, cwd=home,
    )  # fmt: skip
    return done.returncode, done.stdout, done.stderr


def ask(url: str) -> Any:
    with urllib.request.urlopen(url, timeout=30) as answer:
        return json.load(answer)


@pytest.fixture(scope="module")
def measured(model: str, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """What rad-tune wrote where nobody said where to, and what it printed."""
    home = tmp_path_factory.mktemp("config")
    status, out, err = tune("--model", model, "--threads", "2", "--op", "logits", "--rounds", "10",
                            home=home)  # fmt: skip
    assert (status, err) == (0, "")
    [file] = home.rglob("*.txt")
    return file, out


@pytest.fixture(scope="module")
def chosen(measured: tuple[Path, str], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A file for this machine in which someone has chosen a value by hand, three days ago."""
    file, out = measured
    place = re.search(r"^(logits_gemm\w*) x1  (\S+)  M 1\.\. (.*)$", out, re.MULTILINE)
    axis = re.search(r"^    (\w+): (\d+) ", out, re.MULTILINE)
    assert place is not None
    assert axis is not None
    day = date.today() - timedelta(days=3)
    line = f"{place[1]} {place[2]} M=1.. {place[3]} -> {axis[1]}={axis[2]} | 1.05x {day}"
    heads = [one for one in file.read_text().splitlines() if re.match(r"\w+: ", one)]
    path = tmp_path_factory.mktemp("chosen") / "mine.txt"
    path.write_text("\n".join([*heads, "# by hand", line, ""]))
    return path


def test_what_is_printed_is_plain_lines(measured: tuple[Path, str]) -> None:
    """Redirected, there is no progress to redraw; values, times, the verdict and the file stand."""
    file, out = measured
    assert "\x1b" not in out
    assert "\r" not in out
    assert re.match(r".*, 2 threads, SmolLM2\S+\n", out)
    assert re.search(r"one node with the defaults: M=1 [0-9.]+ µs, M=8 [0-9.]+ µs", out)
    assert re.search(r"^    \w+: \d+ ([0-9.]+x ?)+; ", out, re.MULTILINE)
    assert re.search(r"^    kept: ", out, re.MULTILINE)
    assert re.search(r"^1 measured", out, re.MULTILINE)
    assert out.endswith(f"written to {file}\n")
    assert file.name.endswith("-2-threads.txt")
    assert "threads: 2\nabi: " in file.read_text()


def test_a_list_measures_nothing(model: str, tmp_path: Path) -> None:
    """Every place with its axes, the default in brackets; no file is written."""
    status, out, err = tune("--model", model, "--list", home=tmp_path)
    assert (status, err) == (0, "")
    assert re.search(r"^gemm_nt\w* x30  \S+  M 1\.\. .*K=576", out, re.MULTILINE)
    assert re.search(r"^    \w+: .*\[\d+\]", out, re.MULTILINE)
    assert not list(tmp_path.rglob("*.txt"))


def test_the_graph_shows_what_was_chosen(model: str, chosen: Path) -> None:
    """--debug-graph has the values and the age; without the file, the defaults."""
    arguments = ("--model", model, "--threads", "2", "--debug-graph")
    day = date.fromisoformat(chosen.read_text().split()[-1])
    ages = [(date.today() - day).days]
    status, out, _ = radiance(*arguments, "--tuning", str(chosen))
    ages.append((date.today() - day).days)  # another one if midnight was between
    assert status == 0
    [age] = re.findall(r"\(tuned (\d+) days ago, 1\.05x\)", out)
    assert int(age) in ages
    status, out, _ = radiance(*arguments, RADIANCE_TUNING="none")
    assert status == 0
    assert "tuned" not in out
    assert "(defaults)" in out


def test_a_server_says_what_it_read(chosen: Path) -> None:
    """The startup report names the file and how many choices apply; /graph has their values."""
    with running("--threads", "2", "--tuning", str(chosen), "--max-model-len", "256") as server:
        text = " ".join(server.output.split())
        info, graph = (ask(f"{server.url}/{name}") for name in ("server_info", "graph"))
    assert info["settings"]["tuning"] == chosen.name
    assert info["tuning"]["file"] == chosen.name
    [choice] = info["tuning"]["choices"]
    assert f"{choice['op']} {choice['library']}.{choice['kernel']} M=1.. " in chosen.read_text()
    assert str(chosen.parent) not in json.dumps(info)
    bands = [band for selection in graph["selections"] for band in selection["bands"]]
    assert [band["axes"] != {} for band in bands if band["tuned"]] == [True]
    assert f"tuning {chosen}: 1 choice applies to this model" in text
    # Such as that the system refuses huge pages; of tuning there is none.
    assert "tun" not in text.partition("warnings ")[2].casefold()


def test_this_machines_file_is_read_unasked(model: str, measured: tuple[Path, str]) -> None:
    """What rad-tune wrote where nobody said where to is what serving looks for."""
    file, _ = measured
    home = str(file.parents[2])
    _, out, _ = radiance("doctor", model, "--threads", "2", XDG_CONFIG_HOME=home)
    assert re.search(rf"tuning\s+{re.escape(str(file))}:\s+[01]\s+choice", out)
    _, out, _ = radiance("doctor", model, "--threads", "1", XDG_CONFIG_HOME=home)
    assert "defaults of all kernels (rad-tune measures)" in out


def test_choices_for_another_machine_are_named(model: str, chosen: Path) -> None:
    """With other threads than those it was made for, nothing of it is used, and that is said."""
    _, out, _ = radiance("doctor", model, "--threads", "1", "--tuning", str(chosen))
    text = " ".join(out.split())
    assert (
        f"{chosen}: made for threads 2, this is 1; its 1 choice is not used. Run rad-tune" in text
    )
    assert f"{chosen}: 0 choices apply to this model" in text


def test_answers_are_the_same_with_any_value(model: str, chosen: Path) -> None:
    """A choice is for speed: the text of a greedy answer is that of the defaults."""
    ask = (
        "run",
        model,
        "Name three rivers.",
        "--temp",
        "0",
        "--max-tokens",
        "24",
        "--threads",
        "2",
    )
    one = radiance(*ask, "--tuning", "none")
    assert one[0] == 0
    assert one == radiance(*ask, "--tuning", str(chosen))


def test_a_malformed_file_stops(model: str, chosen: Path, tmp_path: Path) -> None:
    """The error names file and line, what was expected and what was there; rad-tune keeps it."""
    path = tmp_path / "bad.txt"
    path.write_text(chosen.read_text().replace("| 1.05x", "| quick"))
    line = 1 + [" -> " in one for one in path.read_text().splitlines()].index(True)
    says = f"tuning {path}:{line}: expected GAINx YYYY-MM-DD at the end"
    status, _, err = radiance("--model", model, "--tuning", str(path))
    assert (status, says in err) == (1, True)
    before = path.read_text()
    status, _, err = tune("--model", model, "--threads", "2", "--output", str(path), home=tmp_path)
    assert (status, says in err, path.read_text()) == (1, True, before)


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ([], "--model is missing: expected a GGUF file, a safetensors folder or a hub id"),
        (["--op", "none"], "expected a kernel with axes whose op contains 'none' among those that"),
        (["--rounds", "9"], "Invalid value for '--rounds': 9 is not in the range x>=10."),
        (["--tunning"], "No such option '--tunning'"),
    ],
)
def test_what_cannot_be_tuned_is_said(
    model: str, tmp_path: Path, arguments: list[str], says: str
) -> None:
    """A missing model, an op without axes, too few rounds and an unknown option are errors."""
    named = ["--model", model] if arguments else []
    status, _, err = tune(*named, *arguments, home=tmp_path)
    assert status != 0
    assert says in err
    assert "Traceback" not in err


def test_what_cannot_be_written_is_told_first(model: str, tmp_path: Path) -> None:
    """Minutes of measuring are not lost to a folder that is a file."""
    (tmp_path / "x").write_text("")
    output = tmp_path / "x" / "t.txt"
    status, out, err = tune("--model", model, "--output", str(output), home=tmp_path)
    assert status == 1
    assert f"--output {output}: expected a file that can be written" in err
    assert "one node" not in out


def test_what_others_write_meanwhile_stays(model: str, chosen: Path, tmp_path: Path) -> None:
    """A line that comes while something is measured is there in the end."""
    output = tmp_path / "shared.txt"
    output.write_text(chosen.read_text())
    line = chosen.read_text().splitlines()[-1]
    other = re.sub(r"n_embd=\d+", "n_embd=577", line)
    assert other != line
    with subprocess.Popen(
        [*TUNE, "--model", model, "--threads", "2", "--op", "logits", "--rounds", "10",
         "--output", str(output)],
        stdout=subprocess.PIPE, text=True, cwd=tmp_path,
    ) as process:  # fmt: skip
        assert process.stdout is not None
        assert any(said.startswith("logits_gemm") for said in process.stdout)  # it measures
        with output.open("a") as file:
            file.write(f"{other}\n")
        process.stdout.read()
    assert process.returncode == 0
    assert any(" n_embd=577 " in found for found in output.read_text().splitlines())
