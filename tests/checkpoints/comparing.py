"""Radiance's logits for a checkpoint against the reference's, at every position."""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from importlib import import_module
from pathlib import Path
from unittest.mock import patch

import numpy as np

from checkpoints.cases import Case
from checkpoints.making import Made
from radiance_core.build import BuildSettings, load_model, plan_model
from radiance_core.runtime import StepModel, sequence_logits

BOUNDS = {"libref": 1e-4, "libavx": 1e-3}
"""Largest difference over largest logit, by library, where activations and cache stay f32."""

CACHE_BOUND = 5e-3
"""The same with the cache that a library likes best, which may be f16."""

INT8_BOUND = 0.1
"""The same where activations have one int8 plane: what that does to wide random weights, doubled.

With two planes what the cache rounds away is the larger part.
"""


def ways(length: int) -> dict[str, list[int]]:
    """Return the ways to feed ``length`` tokens: tokens of each step."""
    chunks, left = [], length
    for size in (5, 1, 16, 3, 11, 64):
        chunks.append(min(size, left))
        left -= chunks[-1]
        if not left:
            break
    return {"whole": [length], "chunks": chunks, "tokens": [1] * length}


@contextmanager
def opened(
    path: Path,
    kernels: str,
    context: int,
    executor: str = "c",
    kv_dtype: str | None = None,
    activation_planes: int = 2,
) -> Iterator[StepModel]:
    """Build a model of libraries "a+b" on one thread, with room for ``context`` tokens a step."""
    plan = plan_model(
        BuildSettings(
            path,
            kernels=tuple(kernels.split("+")),
            max_seqs=1,
            max_tokens=context,
            max_context=context,
            max_out_rows=context,
            threads=1,
            accept_reference=True,
            executor=executor,
            kv_dtype=kv_dtype,
            activation_planes=activation_planes,
        )
    )
    model = load_model(plan)
    try:
        yield model
    finally:
        model.close()


@contextmanager
def as_precise_as_the_reference(wanted: bool) -> Iterator[None]:
    """While inside, and if wanted, activations of products with integer weights stay plain."""
    with ExitStack() as stack:
        for module in ("linear", "vocabulary") if wanted else ():
            name = f"radiance_arch_blocks.{module}"
            stack.enter_context(patch.object(import_module(name), "int8_planes", _none))
        yield


def _none(*_: object) -> int:
    return 0


def bound_of(case: Case, kernels: str, *, precise: bool, planes: int = 2) -> float:
    """Return the bound that ``errors`` has to stay within."""
    if precise:
        return BOUNDS[kernels.split("+", maxsplit=1)[0]]
    return CACHE_BOUND if case.is_lossless or planes == 2 else INT8_BOUND


def errors(
    case: Case,
    made: Made,
    kernels: str,
    rng: np.random.Generator,
    *,
    precise: bool,
    executor: str = "c",
    planes: int = 2,
) -> dict[str, float]:
    """Return by way of feeding the largest difference over the largest logit, over all prompts.

    ``precise``: with f32 activations and cache, as in the reference, and not as served.
    ``planes``: int8 planes of activations otherwise.
    """
    worst: dict[str, float] = {}
    with (
        as_precise_as_the_reference(precise),
        opened(
            made.path, kernels, case.context, executor, "f32" if precise else None, planes
        ) as model,
    ):
        vocabulary = model.logits.shape[1]
        for length in case.lengths:
            tokens = [int(t) for t in rng.integers(0, vocabulary, length)]
            want = made.logits(tokens)
            for way, sizes in ways(length).items():
                got = sequence_logits(model, tokens, sizes)
                error = float(np.abs(got - want).max() / np.abs(want).max())
                # A NaN compares with nothing, so it counts as endless.
                error = error if np.isfinite(error) else np.inf
                worst[way] = max(worst.get(way, 0.0), error)
    return worst
