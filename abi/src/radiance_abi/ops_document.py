"""docs/reference/ops.md, made from the schemas and their notes."""

from collections.abc import Iterator

from radiance_abi.ops import OpSchema
from radiance_abi.vocabulary import STANDARD
from radiance_abi.vocabulary_notes import DEFINITIONS, GROUPS

_HEAD = """\
# Ops

Printed by `python -m radiance_abi ops`; a test keeps this page equal to it.

A library serves ops by name. Params: `~` ranged (bands are cut along it), `?` optional, `=`
optional with a default, `!` filled in by the kernel that wins, `:f` float, `:s` word, else int.
Operands: inputs, then `->`, then outputs, in the order of a call; `weight` has an encoding,
`inout` is overwritten, `state` is a pool of conversation state, `?` may be absent; `_` is any
extent, `:*` any type, and the type is that of `dtype` where none is given.
"""


def document() -> str:
    """Return the page as Markdown."""
    return "\n".join(_lines()).rstrip() + "\n"


def _lines() -> Iterator[str]:
    yield _HEAD
    for group, meanings in GROUPS.items():
        yield f"## {group}\n"
        yield "| op | params | operands | meaning |"
        yield "|---|---|---|---|"
        for op, meaning in meanings.items():
            yield _row(STANDARD[op], meaning)
        yield ""
    yield "## Definitions\n"
    for title, text in DEFINITIONS.items():
        yield f"### {title}\n\n{text}\n"


def _row(schema: OpSchema, meaning: str) -> str:
    """Return one line of a table; the schema's own spelling is cut at its brackets."""
    head, _, operands = str(schema).partition(") ")
    params = head.partition("(")[2]
    cells = (f"`{schema.op}`", f"`{params}`", f"`{operands.strip()}`", meaning.replace("|", "\\|"))
    return f"| {' | '.join(cells)} |"
