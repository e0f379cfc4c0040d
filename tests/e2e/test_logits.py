"""Logits of small random checkpoints against transformers; benchmarks/logits.py has them all."""

import json
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from unittest.mock import patch

import numpy as np
import pytest
import torch
from checkpoints.cases import CASES, Case
from checkpoints.comparing import BOUNDS, bound_of, errors, opened
from checkpoints.making import make

from radiance_core.graph.builder import GraphBuilder
from radiance_core.runtime import sequence_logits

QUICK = [case.name for case in CASES if case.quick]
BY_NAME = {case.name: case for case in CASES}
ONE_PLANE = ("libavx", False, 1)
RUNS = (("libref", True, 2), ("libavx", True, 2), ("libavx", False, 2), ONE_PLANE)


@pytest.fixture
def seed() -> int:
    torch.set_num_threads(1)
    return int(np.random.SeedSequence().generate_state(1)[0])


def short(name: str, *lengths: int) -> Case:
    return replace(BY_NAME[name], lengths=lengths or (19,))


def beyond(
    case: Case, folder: Path, seed: int, runs: Iterable[tuple[str, bool, int]]
) -> dict[tuple[str, bool, int], str]:
    """Return which runs of a checkpoint of this seed miss their bound, and by what."""
    folder.mkdir()
    made = make(case, folder, seed)
    missed = {}
    for kernels, precise, planes in runs:
        rng = np.random.default_rng(seed)
        found = errors(case, made, kernels, rng, precise=precise, planes=planes)
        if max(found.values()) > bound_of(case, kernels, precise=precise, planes=planes):
            missed[kernels, precise, planes] = f"seed {seed}: {found}"
    return missed


@pytest.mark.parametrize("name", QUICK)
def test_logits_equal_the_reference(name: str, tmp_path: Path, seed: int):
    """Whole, in chunks and token by token, every position's logits are the reference's.

    What rounding does depends on the weights: with one int8 plane, one checkpoint in about a
    hundred thousand is beyond the bound. Then two more must not be; nothing else is forgiven.
    """
    case = short(name, 2, 25)
    missed = beyond(case, tmp_path / "0", seed, RUNS)
    assert missed.keys() <= {ONE_PLANE}, missed
    for n in (1, 2) if missed else ():
        more = beyond(case, tmp_path / str(n), (seed + n) % 2**32, [ONE_PLANE])
        assert not more, (missed, more)


@pytest.mark.parametrize("name", ["llama", "llama-biases", "minicpm", "qwen3", "gemma3"])
def test_a_graph_without_fusions_equals_the_reference(name: str, tmp_path: Path, seed: int):
    """A library that serves no fused op gives the same answer through the chains spelt out."""
    case = short(name)
    made = make(case, tmp_path, seed)
    with patch.object(GraphBuilder, "has", lambda *_, **__: False):
        found = errors(case, made, "libref", np.random.default_rng(seed), precise=True)
    assert max(found.values()) <= BOUNDS["libref"], f"seed {seed}: {found}"


@pytest.mark.parametrize(
    ("name", "change"),
    [
        ("mistral", {"sliding_window": None}),
        ("mistral", {"sliding_window": 12}),
        ("llama", {"rms_norm_eps": 0.05}),
        ("llama-rope-llama3", {"rope_parameters": {"rope_theta": 500.0, "rope_type": "default"}}),
        ("llama-rope-linear", {"rope_parameters": {"rope_theta": 1000.0, "rope_type": "default"}}),
        ("llama-rope-yarn", {"rope_parameters": {"rope_theta": 1000.0, "rope_type": "default"}}),
        ("minicpm", {"scale_depth": None}),
        ("minicpm", {"scale_emb": None}),
        ("qwen2-window-tied-bf16", {"layer_types": None, "max_window_layers": 2}),
        ("gemma3", {"query_pre_attn_scalar": 96}),
        ("gemma3-softcap-linear-untied", {"final_logit_softcapping": None}),
        ("gemma3", {"layer_types": ["sliding_attention"] * 2 + ["full_attention"]}),
    ],
)
def test_a_wrong_term_shows(name: str, change: dict, tmp_path: Path, seed: int):
    """The comparison can fail: a changed key moves the logits far beyond the bound."""
    case = short(name)
    made = make(case, tmp_path, seed)
    config = made.path / "config.json"
    config.write_text(json.dumps({**json.loads(config.read_text()), **change}))
    found = errors(case, made, "libref", np.random.default_rng(seed), precise=True)
    assert min(found.values()) > 10 * BOUNDS["libavx"], f"seed {seed}: {found}"


def test_feeding_does_not_matter_to_a_bit(tmp_path: Path, seed: int):
    """The same tokens give bit-identical logits whole, in chunks and one by one."""
    case = short("llama-gguf-q8_0")
    made = make(case, tmp_path, seed)
    tokens = np.random.default_rng(seed).integers(0, 515, 41).tolist()
    with opened(made.path, "libavx", case.context) as model:
        whole = sequence_logits(model, tokens, [41])
        for sizes in ([5, 1, 16, 19], [1] * 41):
            assert np.array_equal(whole, sequence_logits(model, tokens, sizes)), f"seed {seed}"
