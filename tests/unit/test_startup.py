"""What a start does without: threads, modules and passes that serving has no use for."""

import gc
import os
import subprocess
import sys
from collections.abc import Iterator

import pytest

from radiance_core.cli.loading import keep_what_is_loaded
from radiance_core.config import hold_back_matrix_threads


def modules_after(statement: str) -> set[str]:
    """Names of the modules that a new interpreter holds after a statement."""
    done = subprocess.run(
        [sys.executable, "-c", f"{statement}\nimport sys\nprint(*sys.modules)"],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return set(done.stdout.split())


def test_serving_imports_what_it_uses() -> None:
    """What the server imports before it listens holds none of what it starts elsewhere or later."""
    held = modules_after("import radiance_core.cli.serving")
    later = {
        "cffi", "ml_dtypes", "pycparser", "psutil", "rich", "jinja2", "llguidance",
        "prometheus_client", "huggingface_hub", "torch", "opentelemetry", "radiance_core.hub",
        "radiance_core.kbench", "radiance_core.constrain.compiler", "radiance_core.constrain.gbnf",
        "aiohttp.client", "radiance_core.cli.live", "radiance_core.server.tracing",
        "radiance_core.chat_format.grammar", "radiance_core.constrain.json_schema",
    }  # fmt: skip
    assert {"aiohttp", "structlog", "tokenizers", "radiance_core.server.app"} <= held
    assert held.isdisjoint(later)


def test_weights_begin_before_the_server_is_imported() -> None:
    """What a start needs to open its port and to lay weights out holds nothing of the server."""
    held = modules_after("import radiance_core.cli.serve, radiance_core.build")
    assert {"numpy", "radiance_core.load.loading", "radiance_core.server.ports"} <= held
    assert held.isdisjoint({"aiohttp", "tokenizers", "radiance_core.engine.loop"})
    other = {"radiance_core.model_files.safetensors", "radiance_core.execute.twin", "ml_dtypes"}
    assert held.isdisjoint(other)


def test_the_command_line_needs_no_numpy() -> None:
    """Settings, help and errors come without numpy, and so does the process of the template."""
    for module in ("radiance_core.cli.main", "radiance_core.text.template_process"):
        assert "numpy" not in modules_after(f"import {module}")
    held = modules_after("import radiance_core.text.template_worker")
    assert "jinja2" in held
    assert held.isdisjoint({"numpy", "tokenizers", "click", "aiohttp", "asyncio"})


def test_the_contract_gives_every_name_when_it_is_asked_for() -> None:
    """Importing the contract imports none of it; each name of it is there, and no other."""
    assert "numpy" not in modules_after("import radiance_abi")
    import radiance_abi

    for name in radiance_abi.__all__:
        assert getattr(radiance_abi, name) is not None
    assert {n for names in radiance_abi._HOMES.values() for n in names.split()} == set(
        radiance_abi.__all__
    )
    with pytest.raises(AttributeError, match=r"module 'radiance_abi' has no attribute 'Kernal'"):
        _ = radiance_abi.Kernal  # type: ignore[attr-defined]


@pytest.fixture
def collector() -> Iterator[None]:
    """Leave the garbage collector as it was."""
    yield
    gc.unfreeze()
    gc.enable()


@pytest.mark.usefixtures("collector")
def test_the_collector_passes_over_what_was_loaded() -> None:
    """After a start the collector is on, and what was there before is none of its business."""
    gc.disable()
    loaded: list[object] = []
    loaded.append(loaded)
    keep_what_is_loaded()
    assert gc.isenabled()
    assert gc.get_freeze_count() > 0
    assert not any(one is loaded for one in gc.get_objects())


def test_threads_are_the_users_to_set(monkeypatch: pytest.MonkeyPatch) -> None:
    """The matrix library gets one thread, or as many as the environment says."""
    monkeypatch.setenv("OPENBLAS_NUM_THREADS", "")
    monkeypatch.delenv("OPENBLAS_NUM_THREADS")
    hold_back_matrix_threads()
    assert os.environ["OPENBLAS_NUM_THREADS"] == "1"
    monkeypatch.setenv("OPENBLAS_NUM_THREADS", "7")
    hold_back_matrix_threads()
    assert os.environ["OPENBLAS_NUM_THREADS"] == "7"


@pytest.mark.parametrize("program", ["kbench main", "kbench schemas", "tune main"])
def test_programs_that_measure_start_no_threads_of_the_matrix_library(program: str) -> None:
    """It would start one a processor when numpy is imported, to spin beside what is measured."""
    package, entry = program.split()
    code = (
        f"import os, sys\nfrom radiance_core.{package}.__main__ import {entry} as begin\n"
        "sys.argv[1:] = ['--help']\n"
        "try:\n    begin()\n"
        "except SystemExit:\n    assert 'numpy' in sys.modules\n"
        "    print('threads:', len(os.listdir('/proc/self/task')))\n"
    )
    environment = {k: v for k, v in os.environ.items() if k != "OPENBLAS_NUM_THREADS"}
    done = subprocess.run(
        [sys.executable, "-c", code],
        env=environment,
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.endswith("threads: 1\n")
