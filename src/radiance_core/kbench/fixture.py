"""Fixtures: the sizes of one family of models, and what a reference answered at them.

A fixture is one JSON file. It holds no operands: those are drawn again from the seed, and a digest
says whether they are the same. To add a family, write a file with ``family``, ``about`` and
``sizes`` only, and let ``rad-kbench --record FILE --reference LIBRARY`` fill in the rest.
"""

from collections.abc import Sequence
from importlib import resources
from pathlib import Path

import msgspec
import numpy as np

from radiance_abi.errors import RadianceError
from radiance_abi.testing.case import F64

Value = int | float | str


class FixtureError(RadianceError):
    """A fixture cannot be read, drawn again or recorded; the text names it."""


class Sizes(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Extents of a family of models, as its configuration states them.

    ``encodings`` spells those of its linear weights; ``window`` 0 is full attention; ``modes``: how
    rope pairs the elements of a head, which may differ between the kinds of files.
    """

    n_embd: int
    n_ff: int
    n_head: int
    n_head_kv: int
    head_dim: int
    n_vocab: int
    encodings: list[str]
    eps: float = 1e-6
    theta: float = 1e4
    wadd: float = 0.0
    window: int = 0
    modes: tuple[str, ...] = ("neox",)


class Answer(msgspec.Struct, frozen=True):
    """What is known of one result, as little-endian numbers in base64.

    ``values`` (f64): some of its elements, and how far others may be, ``within`` (f32). ``norms``
    (f64): of equal runs of the flat result, and how far those may be, ``slacks`` (f32). Which
    elements and runs follows from the extents. ``digest``: of all, where all must be equal.
    """

    extents: list[int]
    values: bytes
    within: bytes
    norms: bytes
    slacks: bytes
    digest: str = ""


class Recorded(msgspec.Struct, frozen=True):
    """One case: params, encodings of weights by operand, digest of its operands, answers by name.

    ``codes``: results are codes in int8 planes, which answers hold times their scales. ``past``:
    keys that attention has before one sequence, at least; 0 for a few.
    """

    op: str
    params: dict[str, Value]
    weights: dict[str, str]
    operands: str
    answers: dict[str, Answer]
    codes: bool = False
    past: int = 0


class Fixture(msgspec.Struct, frozen=True):
    """A family of models and its cases; ``made`` says by what they were recorded."""

    family: str
    about: str
    sizes: Sizes
    seed: int = 0
    made: str = ""
    cases: list[Recorded] = []


def numbers(data: bytes, kind: str = "<f8") -> F64:
    """Return the numbers that an answer's bytes hold."""
    return np.frombuffer(data, kind).astype(np.float64)


def read(path: Path) -> Fixture:
    """Read a fixture.

    Raises:
        FixtureError: it cannot be read, or is no fixture.
    """
    try:
        return msgspec.json.decode(path.read_bytes(), type=Fixture)
    except (OSError, msgspec.MsgspecError) as error:
        raise FixtureError(
            f"{path}: expected a fixture with family, about and sizes, got: {error}"
        ) from error


def write(fixture: Fixture, path: Path) -> None:
    """Write a fixture, one case a line."""
    head = msgspec.structs.replace(fixture, cases=[])
    start = msgspec.json.encode(head).removesuffix(b"]}")
    lines = b",\n".join(msgspec.json.encode(case) for case in fixture.cases)
    path.write_bytes(start + b"\n" + lines + b"\n]}\n")


def bundled() -> Sequence[Path]:
    """Return the files of the fixtures that come with the core."""
    folder = resources.files(__package__).joinpath("fixtures")
    return sorted(p for p in Path(str(folder)).iterdir() if p.suffix == ".json")
