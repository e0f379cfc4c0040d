"""Rates of every kind of rope scaling equal those of the public reference implementation."""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from unittest.mock import patch

import numpy as np
import pytest

from radiance_arch_blocks import hf_rope
from radiance_arch_blocks.testing import KeysRaw

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")
rope_utils = pytest.importorskip("transformers.modeling_rope_utils")

HEAD_DIM = 48


def settings_of(kind: str, rng: np.random.Generator) -> dict:
    settings = {"rope_type": kind, "rope_theta": float(rng.uniform(50, 1e6))}
    if kind != "longrope" or rng.random() < 0.5:
        settings["factor"] = float(rng.uniform(1.1, 16))
    if kind in ("yarn", "llama3", "longrope") and rng.random() < 0.8:
        settings["original_max_position_embeddings"] = int(rng.integers(16, 512))
    if kind == "llama3":
        settings["low_freq_factor"] = float(rng.uniform(0.5, 2))
        settings["high_freq_factor"] = float(rng.uniform(3, 8))
    if kind == "yarn":
        for key, low, high in (
            ("attention_factor", 0.5, 2),
            ("beta_fast", 4, 40),
            ("beta_slow", 0.2, 2),
            ("mscale", 0.2, 2),
            ("mscale_all_dim", 0.2, 2),
        ):
            if rng.random() < 0.4:
                settings[key] = float(rng.uniform(low, high))
        settings["truncate"] = bool(rng.random() < 0.5)
    if kind == "longrope":
        for key in ("short_factor", "long_factor"):
            settings[key] = rng.uniform(1, 8, HEAD_DIM // 2).tolist()
    return settings


@contextmanager
def in_double() -> Iterator[None]:
    """Let the reference compute in f64: in f32 a rate that its ramp divides keeps few digits."""
    with ExitStack() as stack:
        for name in ("float", "float32"):
            stack.enter_context(patch.object(torch, name, torch.float64))
        stack.enter_context(patch.object(torch.Tensor, "float", torch.Tensor.double))
        yield


@pytest.mark.parametrize("kind", ["linear", "dynamic", "yarn", "llama3", "longrope"])
def test_rates_equal_the_reference(kind: str):
    """For random settings, rates and the factor on cosines are the reference's, rounded to f32."""
    seed = np.random.SeedSequence().entropy
    rng = np.random.default_rng(seed)
    for _ in range(40):
        settings = settings_of(kind, rng)
        maximum = int(rng.integers(600, 4096))
        config = transformers.LlamaConfig(
            hidden_size=HEAD_DIM,
            num_attention_heads=1,
            max_position_embeddings=maximum,
            rope_parameters=dict(settings),
        )
        original = config.rope_parameters.get("original_max_position_embeddings", maximum)
        raw = KeysRaw("safetensors", {"rope_parameters": settings})
        rope = hf_rope(raw, head_dim=HEAD_DIM, max_context=maximum)
        assert raw.unanswered() == []
        lengths = [original, original + 1] if kind == "longrope" else [maximum]
        for length in lengths:
            with in_double():
                want, factor = rope_utils.ROPE_INIT_FUNCTIONS[kind](config, "cpu", seq_len=length)
            assert want.dtype == torch.float64
            got, mscale = rope.rates(length)
            assert mscale == pytest.approx(factor, rel=1e-12), f"seed {seed}: {settings}"
            np.testing.assert_allclose(
                got, want.numpy(), rtol=1.001 * 2.0**-24, err_msg=f"{seed}: {settings}"
            )
