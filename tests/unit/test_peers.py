"""benchmarks/peers.py: what is made, what is missing and why; nothing is built."""

import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))

import peers
from peers import BEFORE_SOURCES, LLAMA, LLAMA_VERSION, Making, said, the_one


def test_peers_that_were_not_made_are_missing_with_the_reason(tmp_path: Path) -> None:
    """Each step says whether it was done; a failure's last line is kept for the table."""
    making = Making(tmp_path)
    assert set(making.find().missing) == {
        "environment", "llama.cpp", "openvino-genai", "llama-server"
    }  # fmt: skip
    home = tmp_path / "peers"
    home.mkdir()
    (home / "llama.cpp.done").write_text(making.steps["llama.cpp"].pin)
    (home / "openvino-genai.failed").write_text("no wheel for this Python")
    missing = making.find().missing
    assert "llama.cpp" not in missing
    assert missing["openvino-genai"] == "no wheel for this Python"
    assert missing["llama-server"] == "run benchmarks/peers.py first"
    assert said(OSError("cannot write")) == "cannot write"


def replaced(making: Making, **jobs: Callable[[], None]) -> list[str]:
    """Let every step note its name instead of what it does, or do a job of the test's."""
    made: list[str] = []
    for name, step in making.steps.items():
        job = jobs.get(name.replace("-", "_").replace(".", "_"), lambda: None)

        def make(name: str = name, job: Callable[[], None] = job) -> None:
            made.append(name)
            job()

        making.steps[name] = replace(step, make=make)
    return made


def test_peers_are_made_once_and_anew_for_another_pin(tmp_path: Path) -> None:
    """What is there as pinned is left; another pin makes it anew, with what is built upon it."""
    making = Making(tmp_path)
    made = replaced(making)
    making.make()
    assert made == ["environment", "llama.cpp", "openvino-genai", "llama-server"]
    assert making.find().missing == {}
    making.make()
    assert len(made) == 4
    making.steps["llama.cpp"] = replace(making.steps["llama.cpp"], pin="another")
    assert set(making.find().missing) == {"llama.cpp"}
    making.make()
    assert made[4:] == ["llama.cpp", "llama-server"]
    making.steps["environment"] = replace(making.steps["environment"], pin="another")
    making.make()
    assert made[6:] == ["environment", "llama.cpp", "openvino-genai", "llama-server"]


def test_whatever_hinders_one_peer_the_others_are_made(tmp_path: Path) -> None:
    """Any error is kept as the reason, and of what is built upon it that it cannot be."""
    making = Making(tmp_path)

    def fail() -> None:
        raise StopIteration

    made = replaced(making, llama_cpp=fail)
    making.make()
    assert made == ["environment", "llama.cpp", "openvino-genai"]
    assert making.find().missing == {
        "llama.cpp": "StopIteration", "llama-server": "llama.cpp could not be made"
    }  # fmt: skip
    with pytest.raises(FileNotFoundError, match=r"expected \*/vendor, which is not there"):
        the_one(tmp_path, "*/vendor")


def test_a_server_without_its_library_is_missing_with_what_is_not_there(tmp_path: Path) -> None:
    """llama-server stands on what llama.cpp's build left; where that is gone, its name is told."""
    making, home = Making(tmp_path), tmp_path / "peers"
    (home / "source" / LLAMA.replace("-", "_").replace("==", "-") / "vendor" / "llama.cpp").mkdir(
        parents=True
    )
    for name in ("environment", "llama.cpp", "openvino-genai"):
        (home / f"{name}.done").write_text(making.steps[name].pin)
    making.make()
    assert making.find().missing == {
        "llama-server": f"{home}/env: expected lib/python*/site-packages/lib, which is not there"
    }


def test_llama_is_compiled_after_its_header_and_once_for_each(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The compiler gets the header besides what the user gives it; a wheel is not used for another.

    What is run is looked at, not done: a build takes minutes.
    """
    ran: list[tuple[tuple[str, ...], dict[str, str]]] = []

    def run(*command: str, **environment: str) -> None:
        ran.append((command, environment))
        if "wheel" in command:
            folder = Path(command[command.index("-w") + 1])
            folder.mkdir(parents=True)
            (folder / f"llama_cpp_python-{LLAMA_VERSION}-py3-none-any.whl").touch()

    monkeypatch.setattr(peers, "run", run)
    monkeypatch.setenv("CFLAGS", "-O2")
    monkeypatch.delenv("CXXFLAGS", raising=False)
    Making(tmp_path)._llama()
    [(command, environment)] = [one for one in ran if "wheel" in one[0]]
    assert "--no-cache-dir" in command, "pip's own wheel may be one of another build"
    assert environment["CFLAGS"] == f'-O2 -include "{BEFORE_SOURCES}"'
    assert environment["CXXFLAGS"] == f'-include "{BEFORE_SOURCES}"'
    ran.clear()
    Making(tmp_path)._llama()
    assert not [one for one in ran if "wheel" in one[0]], "it is there"
    header = tmp_path / "tiles.h"
    header.write_text("/* another */")
    before = Making(tmp_path).steps["llama.cpp"].pin
    monkeypatch.setattr(peers, "BEFORE_SOURCES", header)
    assert Making(tmp_path).steps["llama.cpp"].pin != before
    Making(tmp_path)._llama()
    assert [one for one in ran if "wheel" in one[0]]
