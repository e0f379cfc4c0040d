"""A small vocabulary with every kind of token that real ones have, and a compiler over it."""

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from vocabulary import SmallVocabulary

from radiance_core.constrain.compiler import Compiler


@pytest.fixture(scope="session")
def compiler():
    made = Compiler(SmallVocabulary())
    yield made
    made.close()
