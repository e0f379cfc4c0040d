"""Run the ops of which a row says that it is their fusion, and compare byte for byte."""

from collections.abc import Mapping, Sequence

import numpy as np

from radiance_abi.dtypes import dtype
from radiance_abi.kernels import Geometry, Kernel
from radiance_abi.ops import Operand, extent
from radiance_abi.testing import run, same_bits
from radiance_abi.testing.case import Array, Case, Weight
from radiance_abi.testing.independence import holds
from radiance_abi.vocabulary import STANDARD

_Given = Mapping[str, Array | Weight | None]


class _MissingError(Exception):
    """A chain cannot be run here; the text says what is missing."""


def difference(
    kernel: Kernel, rows: Sequence[Kernel], case: Case, results: Mapping[str, Array]
) -> str:
    """Return how a fused result differs from that of its chain, "" when no byte does.

    Each op of the chain runs by the same library's row. A chain that cannot be run makes the claim
    one that nobody can check, which is a difference too.
    """
    chain = (kernel.replaces or "").split("+")
    try:
        made = _run(chain, rows, case)
    except _MissingError as missing:
        return f"replaces {kernel.replaces}: cannot be checked: {missing}"
    shared = {name: array for name, array in results.items() if name in made}
    if not shared:
        return (
            f"replaces {kernel.replaces}: cannot be checked: the chain makes no result of this op"
        )
    changed = same_bits(shared, made)
    if changed is None:
        return ""
    fused, apart = shared[changed], made[changed]
    if fused.shape != apart.shape:
        return f"replaces {kernel.replaces}: {changed}: {fused.shape} against {apart.shape}"
    bad = np.argwhere(fused != apart)
    at = tuple(int(i) for i in bad[0]) if len(bad) else (0,) * fused.ndim
    return (
        f"replaces {kernel.replaces}: {changed}{list(at)}: the chain gives {apart[at]}, the fusion "
        f"{fused[at]} ({len(bad)} of {fused.size} differ)"
    )


def _run(chain: Sequence[str], rows: Sequence[Kernel], case: Case) -> dict[str, Array]:
    """Run a chain: each op takes operands of its names, and what the one before it made."""
    made: dict[str, Array] = {}
    last: Array | None = None
    for op in chain:
        schema = STANDARD.get(op)
        if schema is None:
            raise _MissingError(f"op {op} is not standard")
        given: dict[str, Array | Weight | None] = {}
        known = dict(case.params)
        # A fusion of sampling ops has room for every logit; the rows of a product have N columns.
        known |= {"n_cand": known["n_vocab"]} if "n_vocab" in known else {}
        known |= {"n": known["N"]} if "N" in known else {}
        params = {p.name: known[p.name] for p in schema.params if p.name in known}
        for operand in schema.inputs:
            if operand.role == "inout" and operand.name not in case.operands:
                given[operand.name] = made.get(operand.name, _room(operand, params))
            elif operand.name in made:
                given[operand.name] = made[operand.name]
            else:
                given[operand.name] = _operand(operand.name, schema.op, given, case, last)
        part = Case(schema, params, given)
        row = next((k for k in rows if k.op == op and holds(k, params)), None)
        if row is None:
            raise _MissingError(f"the library has no row for {part}")
        outputs = run(row, part)
        last = next(iter(outputs.values()))
        made |= outputs
        # A sum on the way is the residual that goes on.
        if op == "add" and "residual_out" in {o.name for o in case.schema.outputs}:
            made["residual_out"] = last
    return made


def _room(operand: Operand, params: Geometry) -> Array:
    """Return what a stage writes over, which the fusion has no operand for."""
    kind = dtype(operand.dtype).numpy
    assert kind is not None, "rows of candidates are whole items"
    return np.zeros([extent(d, params) or 0 for d in operand.dims], kind)


def _operand(
    name: str, op: str, given: _Given, case: Case, last: Array | None
) -> Array | Weight | None:
    """Return what an op of a chain takes under a name."""
    first = not given
    if first and last is not None:
        return last
    pair = case.operands.get("gate_up")
    if isinstance(pair, np.ndarray) and name != "gate_up":
        # A product of two halves: the gate goes through the activation, the other half waits.
        half = pair.shape[1] // 2
        return np.ascontiguousarray(pair[:, :half] if first else pair[:, half:])
    if op == "add":
        name = "x" if first else "residual" if case.has("residual") else "res"
    if name in case.operands:
        return case.operands[name]
    raise _MissingError(f"op {op}: nothing is known to be its operand {name}")
