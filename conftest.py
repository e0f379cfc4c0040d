"""What holds for every test: none is judged by the time that one example takes."""

import gc

from hypothesis import HealthCheck, settings

# Drawing counts for its time as well: a busy machine draws ten examples in more than a second.
settings.register_profile("untimed", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("untimed")


def pytest_collection_finish() -> None:
    """Keep the collector from what thousands of tests are made of.

    Looking through all that takes half a second, which would fall into a test that counts time.
    """
    gc.collect()
    gc.freeze()
