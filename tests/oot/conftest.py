from pathlib import Path

import pytest

from oot.fresh import Fresh, make


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--oot-folder",
        type=Path,
        help="make the fresh environment in this folder and keep it; one that is there is used",
    )


@pytest.fixture(scope="session")
def fresh(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Fresh:
    """The environment outside the checkout, everything bundled built and installed in it."""
    kept: Path | None = request.config.getoption("--oot-folder")
    if kept is None:
        return make(tmp_path_factory.mktemp("oot"))
    if not (kept / "ready").exists():
        kept.mkdir(parents=True, exist_ok=True)
        make(kept)
        (kept / "ready").touch()
    return Fresh(kept)
