"""What an op is: its params and operands, spelled on one line and parsed once.

Spelling, one op a line::

    rmsnorm(M~, n, eps:f, dtype:s, wadd:f=0) x[M,n], weight w[n]:* -> y[M,n]

- params: ``name`` is an int; ``:f`` float, ``:s`` string; ``~`` ranged (its value moves from step
  to step, and bands are cut along it); ``?`` optional; ``=v`` optional with a default; ``!``
  derived (the winning kernel's value is filled in when the caller gives none).
- operands: inputs before ``->``, outputs after. A leading ``weight`` names a weight, ``inout`` an
  operand that is read and overwritten, ``state`` a conversation-state pool. ``?`` makes one
  optional.
- ``[M,n/group]`` extents in params; ``_`` is any extent. ``:i8`` is the element type, ``:*`` any
  type, and without one the operand has the type that the param ``dtype`` names.
- a pool whose type is ``:kv_dtype`` has the extent ``kv_row``: what ``radiance_abi.kv_cache`` says
  that a slot of one head takes, in elements of the type that it says.

One file, because the spelling, what it means and its parser are read together.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache

from radiance_abi.dtypes import ALIASES, DTYPES
from radiance_abi.errors import AbiError
from radiance_abi.kv_cache import cache_dtype

KV_ROW = "kv_row"

type_of_kind = {"i": int, "f": float, "s": str}

_HEAD = re.compile(r"\s*([a-z][a-z0-9_]*)\(([^)]*)\)(.*)$", re.DOTALL)
_PARAM = re.compile(r"([A-Za-z_][A-Za-z0-9_]*)([~?!]*)(?::([fs]))?(?:=(.+))?$")
_OPERAND = re.compile(
    r"(?:(weight|inout|state)\s+)?([a-z_][a-z0-9_]*)(\?)?\[([^\]]*)\](?::([a-z0-9_*]+))?$"
)
_EXTENT = re.compile(r"_|[A-Za-z0-9][A-Za-z0-9_]*(?:\s*[+*/]\s*[A-Za-z0-9][A-Za-z0-9_]*)*")
_WORD = re.compile(r"[A-Za-z0-9_]+")


@dataclass(frozen=True, slots=True)
class Param:
    """One param of an op; ``kind`` is "i", "f" or "s"."""

    name: str
    kind: str
    ranged: bool = False
    optional: bool = False
    derived: bool = False
    default: int | float | str | None = None


@dataclass(frozen=True, slots=True)
class Operand:
    """One operand; ``role`` is "in", "weight", "inout", "state" or "out".

    ``dims`` are extent expressions over int params; ``dtype`` is a dtype name, the name of a
    string param that holds one, or "*" for any.
    """

    name: str
    role: str
    dims: tuple[str, ...]
    dtype: str = "dtype"
    optional: bool = False


@dataclass(frozen=True, slots=True)
class OpSchema:
    """The contract of one op; two libraries that declare it must spell it alike."""

    op: str
    params: tuple[Param, ...]
    operands: tuple[Operand, ...]
    # Found once, since a graph asks for them thousands of times.
    _param: Mapping[str, Param] = field(init=False, repr=False, compare=False)
    _ranged: str | None = field(init=False, repr=False, compare=False)
    _inputs: tuple[Operand, ...] = field(init=False, repr=False, compare=False)
    _outputs: tuple[Operand, ...] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        found = {
            "_param": {p.name: p for p in self.params},
            "_ranged": next((p.name for p in self.params if p.ranged), None),
            "_inputs": tuple(o for o in self.operands if o.role != "out"),
            "_outputs": tuple(o for o in self.operands if o.role == "out"),
        }
        for name, value in found.items():
            object.__setattr__(self, name, value)

    @property
    def ranged(self) -> str | None:
        """Name of the ranged param, if the op has one."""
        return self._ranged

    @property
    def inputs(self) -> tuple[Operand, ...]:
        """Operands that the caller supplies."""
        return self._inputs

    @property
    def outputs(self) -> tuple[Operand, ...]:
        """Operands that the op creates."""
        return self._outputs

    def param(self, name: str) -> Param | None:
        """Return the param of that name, or None."""
        return self._param.get(name)

    def __str__(self) -> str:
        """Spell the schema on one line; parsing it gives an equal schema."""
        params = ", ".join(_spell_param(p) for p in self.params)
        inputs = ", ".join(_spell_operand(o) for o in self.inputs)
        outputs = ", ".join(_spell_operand(o) for o in self.outputs)
        return f"{self.op}({params}) {inputs} -> {outputs}".strip()


def _spell_param(p: Param) -> str:
    marks = ("~" if p.ranged else "") + ("!" if p.derived else "")
    if p.optional and p.default is None and not p.derived:
        marks += "?"
    kind = "" if p.kind == "i" else f":{p.kind}"
    value = "" if p.default is None else f"={p.default}"
    return f"{p.name}{marks}{kind}{value}"


def _spell_operand(o: Operand) -> str:
    role = f"{o.role} " if o.role in ("weight", "inout", "state") else ""
    dtype = "" if o.dtype == "dtype" else f":{o.dtype}"
    return f"{role}{o.name}{'?' if o.optional else ''}[{','.join(o.dims)}]{dtype}"


def _split(text: str) -> list[str]:
    """Split on commas that stand outside brackets."""
    parts: list[str] = []
    depth, start = 0, 0
    for i, c in enumerate(text):
        depth += (c == "[") - (c == "]")
        if c == "," and depth == 0:
            parts.append(text[start:i])
            start = i + 1
    parts.append(text[start:])
    return [p.strip() for p in parts if p.strip()]


def _parse_param(text: str, op: str) -> Param:
    m = _PARAM.fullmatch(text)
    if m is None:
        raise AbiError(
            f"schema of {op}: expected a param such as 'M~', 'eps:f' or 'wadd:f=0', got {text!r}"
        )
    name, marks, kind, value = m.group(1), m.group(2), m.group(3) or "i", m.group(4)
    try:
        default = None if value is None else type_of_kind[kind](value.strip())
    except ValueError as error:
        raise AbiError(
            f"schema of {op}: param {name}: expected a default that is "
            f"{type_of_kind[kind].__name__}, got {value!r}"
        ) from error
    derived = "!" in marks
    optional = "?" in marks or default is not None or derived
    return Param(name, kind, "~" in marks, optional, derived, default)


def _parse_operand(text: str, op: str, *, out: bool) -> Operand:
    m = _OPERAND.fullmatch(text)
    if m is None:
        raise AbiError(
            f"schema of {op}: expected an operand such as 'x[M,n]' or 'weight w[N,K]:*', got "
            f"{text!r}"
        )
    role = "out" if out else m.group(1) or "in"
    if out and m.group(1):
        raise AbiError(f"schema of {op}: {m.group(2)} stands after '->' and cannot be {m.group(1)}")
    dims = tuple(d.strip() for d in m.group(4).split(",") if d.strip())
    return Operand(m.group(2), role, dims, m.group(5) or "dtype", m.group(3) is not None)


@lru_cache(maxsize=1024)
def parse_schema(text: str) -> OpSchema:
    """Parse one schema line.

    Raises:
        AbiError: the line does not follow the spelling; names the part.
    """
    m = _HEAD.match(text)
    if m is None or "->" not in m.group(3):
        raise AbiError(f"schema: expected 'op(params) inputs -> outputs', got {text!r}")
    op = m.group(1)
    params = tuple(_parse_param(p, op) for p in _split(m.group(2)))
    inputs, _, outputs = m.group(3).partition("->")
    operands = tuple(_parse_operand(o, op, out=False) for o in _split(inputs)) + tuple(
        _parse_operand(o, op, out=True) for o in _split(outputs)
    )
    for kind, names in (
        ("param", [p.name for p in params]),
        ("operand", [o.name for o in operands]),
    ):
        twice = next((n for n in names if names.count(n) > 1), None)
        if twice is not None:
            raise AbiError(f"schema of {op}: {kind} {twice!r} is named twice")
    if sum(p.ranged for p in params) > 1:
        raise AbiError(f"schema of {op}: at most one param may be ranged ('~')")
    if any(p.ranged and p.kind != "i" for p in params):
        raise AbiError(f"schema of {op}: a ranged param ('~') counts, so it must be an int")
    for operand in operands:
        _check_operand(operand, op, {p.name: p.kind for p in params})
    return OpSchema(op, params, operands)


def _check_operand(operand: Operand, op: str, kinds: Mapping[str, str]) -> None:
    """Require that extents and type of an operand name params, or stand for themselves."""
    where = f"schema of {op}: operand {operand.name}"
    for dim in operand.dims:
        if _EXTENT.fullmatch(dim) is None:
            raise AbiError(f"{where}: expected an extent such as n, 2*n, n/group or _, got {dim!r}")
        for word in _WORD.findall(dim):
            if dim == KV_ROW and kinds.get("kv_dtype") == "s" and kinds.get("head_dim") == "i":
                continue
            if word != "_" and not word.isdigit() and kinds.get(word) != "i":
                raise AbiError(f"{where}: extent {dim}: {word!r} is no int param of the op")
    known = (
        operand.dtype == "*"
        or kinds.get(operand.dtype) == "s"
        or (operand.dtype in DTYPES or operand.dtype in ALIASES)
    )
    # The type of a weight is its encoding's, so that a bare one needs no param.
    if not known and operand.role != "weight":
        raise AbiError(
            f"{where}: type {operand.dtype!r} is neither a dtype nor a string param of the op"
        )


def extent(dim: str, params: Mapping[str, object]) -> int | None:
    """Evaluate an extent expression: names and ints joined by ``+ * /``, left to right by rank.

    Returns:
        The extent, or None when it is ``_`` or when a param it names is absent.

    Raises:
        AbiError: a division in it has a remainder, or packed slots do not fit the head.
    """
    if dim == "_":
        return None
    if dim == KV_ROW:
        name, head_dim = params.get("kv_dtype"), params.get("head_dim")
        if isinstance(name, str) and isinstance(head_dim, int):
            return cache_dtype(name).row(head_dim)
        return None
    total = 0
    for summand in _summands(dim):
        product: int | None = None
        for sign, word in summand:
            value = int(word) if word.isdigit() else params.get(word)
            if not isinstance(value, int):
                return None
            if sign == "/":
                if product is None or value == 0 or product % value:
                    raise AbiError(f"extent {dim}: {product} is not a multiple of {word}={value}")
                product //= value
            else:
                product = value if product is None else product * value
        total += product or 0
    return total


@lru_cache(maxsize=1024)
def _summands(dim: str) -> tuple[tuple[tuple[str, str], ...], ...]:
    """Return the factors of each summand of an extent, with the sign before each."""
    pattern = r"(^|[*/])\s*([A-Za-z_0-9]+)"
    return tuple(tuple(re.findall(pattern, summand.strip())) for summand in dim.split("+"))
