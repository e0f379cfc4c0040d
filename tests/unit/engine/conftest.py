"""Log events of the engine are kept out of the way; formatting them takes longer than a step."""

from collections.abc import Iterator

import pytest
from structlog.testing import capture_logs


@pytest.fixture(autouse=True)
def logs() -> Iterator[list[dict]]:
    """Give the events that a test logged."""
    with capture_logs() as events:
        yield events
