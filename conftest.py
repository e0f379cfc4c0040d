"""What holds for every test: none is judged by the time that one example takes.

Nor by what the shell it is run from wants of colours and widths; a test that is about them says so.
"""

import gc
import os

from hypothesis import HealthCheck, settings

# Drawing counts for its time as well: a busy machine draws ten examples in more than a second.
settings.register_profile("untimed", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("untimed")

for name in ("FORCE_COLOR", "NO_COLOR", "CLICOLOR_FORCE", "TTY_COMPATIBLE", "COLUMNS", "LINES"):
    os.environ.pop(name, None)


def pytest_collection_finish() -> None:
    """Keep the collector from what thousands of tests are made of.

    Looking through all that takes half a second, which would fall into a test that counts time.
    """
    gc.collect()
    gc.freeze()
