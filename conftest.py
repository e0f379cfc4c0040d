"""What holds for every test: none is judged by the time that one example takes.

Nor by what the shell it is run from wants of colours and widths; a test that is about them says so.
"""

import gc
import os

from hypothesis import HealthCheck, settings
from surroundings import WISHES

# Drawing counts for its time as well: a busy machine draws ten examples in more than a second.
settings.register_profile("untimed", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("untimed")

for wish in [name for name in os.environ if name.startswith(WISHES)]:
    del os.environ[wish]


def pytest_collection_finish() -> None:
    """Keep the collector from what thousands of tests are made of.

    Looking through all that takes half a second, which would fall into a test that counts time.
    """
    gc.collect()
    gc.freeze()
