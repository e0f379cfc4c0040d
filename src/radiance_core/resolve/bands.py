"""Cut a ranged param into bands at the values that the candidates' constraints name."""

from collections.abc import Iterable, Sequence

from radiance_abi.kernels import Constraint
from radiance_abi.kv_cache import CACHE_DTYPES


def cut(
    constraints: Iterable[Constraint], ranged: str | None, largest: int
) -> list[tuple[int, int]]:
    """Return ascending bands [lower, upper] that cover 1..largest.

    Inside a band every eq, le and ge constraint on ``ranged`` has one answer; div and in make no
    edges.
    """
    if ranged is None:
        return [(1, largest)]
    starts = {1}
    for c in constraints:
        if c.key != ranged:
            continue
        if c.op == "eq":
            starts |= {c.value, c.value + 1}
        elif c.op == "le":
            starts.add(c.value + 1)
        elif c.op == "ge":
            starts.add(c.value)
    edges = sorted(s for s in starts if 1 <= s <= largest)
    return [
        (start, (edges[i + 1] - 1) if i + 1 < len(edges) else largest)
        for i, start in enumerate(edges)
    ]


def refusal(
    where: Sequence[Constraint],
    params: dict[str, int | float | str],
    ranged: str | None,
    band: tuple[int, int],
    derived: frozenset[str],
) -> str | None:
    """Return the first constraint that does not hold over a band, in words, or None."""
    for c in where:
        if c.key in derived and c.key not in params:
            if c.op == "in" and not unasked(c):
                return f"{c} is packed, which is only used when asked for"
            continue
        if c.key == ranged:
            if not (c.holds(band[0]) and (c.op != "div" or band[0] == band[1])):
                return f"{c} not met by {ranged} {band[0]}..{band[1]}"
            continue
        if not c.holds(params.get(c.key)):
            have = params.get(c.key)
            shown = "absent" if have is None else have
            return f"{c} not met by {c.key}={shown}"
    return None


def unasked(c: Constraint) -> tuple[str, ...]:
    """Return the words that may be picked where nobody asked: those of no packed cache."""
    if c.key != "kv_dtype":
        return c.words
    return tuple(w for w in c.words if w not in CACHE_DTYPES or not CACHE_DTYPES[w].packed)


def fill_derived(
    where: Sequence[Constraint], params: dict[str, int | float | str], derived: frozenset[str]
) -> dict[str, int | float | str]:
    """Return ``params`` with derived ones set to what the winning kernel fixes."""
    filled = dict(params)
    for c in where:
        if c.key in derived and c.key not in filled:
            if c.op == "eq":
                filled[c.key] = c.value
            elif c.op == "in":
                filled[c.key] = unasked(c)[0]
    return filled
