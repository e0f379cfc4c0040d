"""What surrounds the processes of these tests: no settings and no wishes of whoever runs them."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from surroundings import WISHES

HERE = Path(__file__).parent
DROPPED = ("RADIANCE_", *WISHES)


@pytest.fixture(scope="session", autouse=True)
def _own_surroundings(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Leave out variables that change what is printed, and have folders of settings of our own."""
    with pytest.MonkeyPatch.context() as patch:
        for name in [name for name in os.environ if name.startswith(DROPPED)]:
            patch.delenv(name)
        for name in ("XDG_CONFIG_HOME", "XDG_STATE_HOME"):
            patch.setenv(name, str(tmp_path_factory.mktemp(name.lower())))
        for name in ("NO_PROXY", "no_proxy"):
            patch.setenv(name, "127.0.0.1,localhost")
        yield


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Give these tests, which start servers and wait for events, time on the busiest machine."""
    for item in items:
        if HERE in item.path.parents:
            item.add_marker(pytest.mark.timeout(1200))
