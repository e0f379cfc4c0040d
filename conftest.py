"""What holds for every test: none is judged by the time that one example takes."""

import gc

from hypothesis import settings

settings.register_profile("untimed", deadline=None)
settings.load_profile("untimed")


def pytest_collection_finish() -> None:
    """Keep the collector from what thousands of tests are made of.

    Looking through all that takes half a second, which would fall into a test that counts time.
    """
    gc.collect()
    gc.freeze()
