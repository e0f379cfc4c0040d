"""Importing as if a module were not installed."""

import subprocess
import sys
from pathlib import Path

import pytest

import radiance_abi
import radiance_core
from radiance_core.without import held_back, package_alone, without


def fresh(code: str, *options: str) -> str:
    """What a new interpreter prints."""
    done = subprocess.run(
        [sys.executable, *options, "-c", code],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_a_module_is_absent_inside_and_back_outside() -> None:
    """An import inside fails as for a module that is not installed; outside nothing has changed."""
    import json

    with without("json"), pytest.raises(ModuleNotFoundError, match="json"):
        import json
    assert sys.modules["json"] is json
    with without("no_such_module_at_all"):
        pass
    assert "no_such_module_at_all" not in sys.modules


def test_an_error_inside_leaves_no_trace() -> None:
    """What is raised inside passes, and the module is there again."""
    with pytest.raises(ZeroDivisionError), without("json"):
        raise ZeroDivisionError
    assert sys.modules["json"] is not None


def test_what_is_held_back_is_empty_until_it_is_asked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Inside it imports as nothing, or whole when something of it is wanted; outside, whole."""
    tmp_path.joinpath("costly.py").write_text("value = 7\n")
    monkeypatch.syspath_prepend(tmp_path)
    with held_back("costly", "json"):
        import json

        import costly

        assert not hasattr(costly, "__path__")
        assert json.dumps(1) == "1"
        assert "value" not in vars(costly)
    assert "costly" not in sys.modules
    with held_back("costly"):
        from costly import value
    assert value == sys.modules["costly"].value == 7
    with held_back("costly"), pytest.raises(ImportError, match="other"):
        from costly import other  # noqa: F401
    del sys.modules["costly"]
    with pytest.raises(ZeroDivisionError), held_back("costly"):
        raise ZeroDivisionError
    assert "costly" not in sys.modules


def test_numpy_is_whole_without_its_help() -> None:
    """Only texts are missing, which can be had later; every array, type and module is there."""
    code = """
from radiance_core.cli.serve import _import_numpy
_import_numpy()
import numpy as np
texts = [np.ndarray.__doc__]
assert np.linalg.norm(np.ones(4)) == 2 and np.dtype("f4").name == "float32"
import numpy._core._add_newdocs
texts.append(np.ndarray.__doc__)
print([bool(text) for text in texts], *sorted(n for n in np.__all__ if not hasattr(np, n)))
"""
    assert fresh(code) == "[False, True]"


def test_log_events_do_without_rich() -> None:
    """Events are written with a traceback where there is one, and rich can be imported after."""
    code = """
import sys
from radiance_core.cli.logs import configure_logs
from radiance_core.log_events import get_logger
configure_logs("info")
sys.stderr = sys.stdout
print("rich" in sys.modules)
try:
    1 / 0
except ZeroDivisionError:
    get_logger("x").error("failed", exc_info=True)
import rich.console
"""
    told = fresh(code)
    assert told.startswith("False")
    assert "ZeroDivisionError: division by zero" in told
    assert "event=failed" in told


def test_the_server_imports_half_of_aiohttp() -> None:
    """The client is not imported with the server; whoever asks for it later has all of it."""
    code = """
import sys
import radiance_core.server.app
assert "aiohttp.web_protocol" in sys.modules and "aiohttp.client" not in sys.modules
import aiohttp
from aiohttp import web
assert aiohttp.web_request.BaseRequest is web.BaseRequest
assert issubclass(radiance_core.server.connection.Connection, web.RequestHandler)
print(aiohttp.ClientSession.__name__, aiohttp.__version__ > "3", aiohttp.hdrs.__name__)
"""
    assert fresh(code) == "ClientSession True aiohttp.hdrs"


def test_a_package_is_alone_inside_and_whole_when_asked(tmp_path: Path) -> None:
    """Its module runs at the first question outside, once; dunder names are no question."""
    package = tmp_path / "whole"
    package.mkdir()
    package.joinpath("__init__.py").write_text("print('runs')\nfrom .part import x\ny = x + 1\n")
    package.joinpath("part.py").write_text("from . import given\nx = given\n")
    code = f"""
import sys
sys.path.insert(0, {str(tmp_path)!r})
from radiance_core.without import package_alone
with package_alone("whole", given=3):
    import whole.part
assert whole.part.x == 3 and not hasattr(whole, "__wrapped__")
print("asked")
assert whole.y == 4 and not hasattr(whole, "given") and not hasattr(whole, "z")
with package_alone("whole", given=5):
    assert whole.y == 4 and not hasattr(whole, "given")
"""
    assert fresh(code).split() == ["asked", "runs"]


def test_a_package_that_fails_alone_leaves_no_trace(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One that is not there is told as an import would; one that fails is not kept."""
    told = "No module named 'no_such_package'"
    with pytest.raises(ModuleNotFoundError, match=told), package_alone("no_such_package"):
        pass
    tmp_path.joinpath("fails_alone.py").write_text("")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(ZeroDivisionError), package_alone("fails_alone"):
        raise ZeroDivisionError
    assert "fails_alone" not in sys.modules


BARE_START = """
import sys
sys.path[:] = {path!r}
import radiance_core.cli.main, radiance_core.cli.serving
from radiance_core.server.metrics import render
from radiance_core.server.settings import ServerSettings
from radiance_core.server.state import State
print(render(State(ServerSettings(), "1"))[0].decode())
import http.client, urllib.request, huggingface_hub, rich.live
assert http.client.HTTPSConnection and urllib.request.HTTPSHandler
"""


def test_metrics_are_told_by_a_start_that_nothing_went_before() -> None:
    """No ``.pth`` file has imported anything; what a server imports late finds all it needs."""
    homes = [str(Path(str(m.__file__)).parents[1]) for m in (radiance_core, radiance_abi)]
    code = BARE_START.format(path=homes + sys.path)
    assert "radiance_http_connections 0.0" in fresh(code, "-S")
