"""What the installed plugins are and what their kernels compute, as JSON and as bytes.

    python recording.py describe             prints every plugin, schema, row and layout answer
    python recording.py results FILE SEED    writes operands and results of every row to FILE (.npz)

Runs in any environment that has radiance-abi; uses nothing of a checkout.
"""

import json
import sys
from importlib.metadata import entry_points
from typing import Any

import numpy as np
import pluggy

from radiance_abi import Kernel, KernelLibrary, OpSchema, hooks, parse_schema
from radiance_abi.kernels import Layout
from radiance_abi.testing import ENCODINGS, Weight, cases, libraries, names, run
from radiance_abi.testing.running import geometry_of, laid_out
from radiance_abi.vocabulary import STANDARD

HOOKS = ("tiles", "layout", "relayout", "unrelayout", "init", "fini", "scratch")
SHAPE = (64, 512)
COUNT = 2


def schemas_of(library: KernelLibrary) -> dict[str, OpSchema]:
    """Return the ops that a library may serve."""
    own = [parse_schema(line) for line in library.schemas]
    return {**STANDARD, **{schema.op: schema for schema in own}}


def describe() -> dict[str, Any]:
    """Return everything that plugins declare."""
    found: dict[str, Any] = {
        group: sorted(
            (e.name, e.value, e.dist.name if e.dist else "") for e in entry_points(group=group)
        )
        for group in hooks.HOOK_OF_GROUP
    }
    found["standard"] = {op: str(schema) for op, schema in STANDARD.items()}
    found["architectures"] = sorted(
        (a.id, a.quant) for a in offered("radiance.architectures", "radiance_architectures")
    )
    found["libraries"] = [library_facts(x) for name in names() for x in libraries(name)]
    return found


def offered(group: str, hook: str) -> list[Any]:
    """Return what the plugins of a group yield."""
    manager = pluggy.PluginManager(hooks.PROJECT)
    manager.add_hookspecs(hooks)
    for entry in entry_points(group=group):
        manager.register(entry.load(), entry.name)
    return [item for some in getattr(manager.hook, hook)() for item in some]


def library_facts(library: KernelLibrary) -> dict[str, Any]:
    """Return what a library says of itself and of each row."""
    schemas = schemas_of(library)
    return {
        "name": library.name,
        "version": library.version,
        "target": library.target,
        "reference": library.reference,
        "declined": library.declined,
        "about": library.about,
        "abi": library.abi_version,
        "schemas": list(library.schemas),
        "rows": [row_facts(kernel, schemas[kernel.op]) for kernel in library.kernels],
    }


def row_facts(kernel: Kernel, schema: OpSchema) -> dict[str, Any]:
    """Return what a row declares, and what it answers when asked how it stores weights."""
    answers = {}
    for index, operand in enumerate(schema.operands):
        if operand.role != "weight" or kernel.layout is None:
            continue
        geometry = geometry_of(kernel, {"dtype": "f32", "group": 32})
        for encoding in ENCODINGS:
            answers[f"{operand.name} {encoding}"] = answer(kernel, encoding, geometry, index)
    return {
        "op": kernel.op,
        "name": kernel.name,
        "domain": kernel.domain,
        "priority": kernel.priority,
        "where": [str(c) for c in kernel.where],
        "axes": [[a.name, list(a.values), a.default] for a in kernel.axes],
        "hooks": [h for h in HOOKS if getattr(kernel, h) is not None],
        "native": kernel.native != 0,
        "replaces": kernel.replaces,
        "describe": kernel.describe,
        "layouts": answers,
    }


def answer(kernel: Kernel, encoding: Any, geometry: Any, index: int) -> Any:
    """Return a layout as a list, or the text of a refusal."""
    assert kernel.layout is not None, "rows without the hook are not asked"
    try:
        found: Layout | None = kernel.layout(encoding, SHAPE, geometry, index)
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    if found is None:
        return None
    return [found.name, found.dtype, list(found.shape), found.row_block, found.tag]


def record(seed: int) -> dict[str, Any]:
    """Run every host row on cases drawn from the seed; return all bytes by name."""
    found: dict[str, Any] = {}
    for library in (x for name in names() for x in libraries(name)):
        schemas = schemas_of(library)
        for kernel in library.kernels if library.declined is None else ():
            rng = np.random.default_rng([seed, *f"{kernel.op} {kernel.name}".encode()])
            for i, case in enumerate(cases(kernel, schemas[kernel.op], rng, COUNT)):
                head = f"{library.name} {kernel.op} {kernel.name} {i}"
                for index, operand in enumerate(schemas[kernel.op].operands):
                    given = case.operands.get(operand.name)
                    if isinstance(given, Weight):
                        geometry = geometry_of(kernel, case.params)
                        stored = laid_out(kernel, given, geometry, index)[0].array
                        keep(found, f"{head} {operand.name} {given.encoding} stored", stored)
                        for role, plane in given.planes.items():
                            keep(found, f"{head} {operand.name} {role}", plane)
                    elif given is not None:
                        keep(found, f"{head} {operand.name}", given)
                for name, array in run(kernel, case).items():
                    keep(found, f"{head} -> {name}", array)
    return found


def keep(found: dict[str, Any], name: str, array: Any) -> None:
    """Keep an array's bytes; its type and extents go into the name."""
    extents = "x".join(map(str, array.shape))
    found[f"{name} {array.dtype}[{extents}]"] = np.frombuffer(array.tobytes(), np.uint8)


if __name__ == "__main__":
    if sys.argv[1] == "describe":
        sys.stdout.write(json.dumps(describe()))
    else:
        arrays = record(int(sys.argv[3]))
        np.savez(sys.argv[2], **{f"a{i}": a for i, a in enumerate(arrays.values())})
        sys.stdout.write(json.dumps(list(arrays)))
