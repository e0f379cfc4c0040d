"""benchmarks/peers.py: what is made, what is missing and why; nothing is built."""

import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))

from peers import LLAMA, Making, said, the_one


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
