"""The official npm client against a live server; its tests are in node/openai.test.mjs."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest
from e2e.clients.facts import KEY, MODEL, engine_stats, wait_idle

HERE = Path(__file__).parent / "node"
CACHE = Path(__file__).parents[3] / ".nox" / "npm"


@pytest.fixture(scope="module")
def installed() -> Path:
    """Return a folder outside the tree with the client and its node, pinned, installed once."""
    if shutil.which("npm") is None:
        assert "CI" not in os.environ, "npm: expected where everything is checked; install it"
        pytest.skip("npm is not installed")
    wanted = HERE / "package.json"
    present = CACHE / "package.json"
    modules = CACHE / "node_modules"
    if not modules.exists() or not present.exists() or present.read_text() != wanted.read_text():
        shutil.rmtree(CACHE, ignore_errors=True)
        CACHE.mkdir(parents=True)
        shutil.copy(wanted, present)
        command = ["npm", "install", "--no-audit", "--no-fund", "--no-package-lock"]
        done = subprocess.run(
            command, cwd=CACHE, capture_output=True, text=True, check=False, timeout=280
        )
        if done.returncode:
            present.unlink()
        assert done.returncode == 0, done.stdout + done.stderr
    shutil.copy(HERE / "openai.test.mjs", CACHE)
    return CACHE


def test_the_npm_client_works(installed: Path, server) -> None:
    """Streams, tools, schemas, responses, errors by class and aborts, all in node's own runner."""
    environment = {**os.environ, "RADIANCE_URL": server.url, "RADIANCE_KEY": KEY,
                   "RADIANCE_MODEL": MODEL}  # fmt: skip
    done = subprocess.run(
        ["node_modules/.bin/node", "--test", "--test-reporter=tap", "openai.test.mjs"],
        cwd=installed, env=environment, capture_output=True, text=True, check=False, timeout=280,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    assert "# pass 8" in done.stdout
    wait_idle(server.url)
    assert engine_stats(server.url)["requests_cancelled"] == 1, "the stream that was aborted"
