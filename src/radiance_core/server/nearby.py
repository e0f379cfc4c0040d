"""What a path that is no route was meant to be."""

from collections.abc import Iterable

from radiance_core.nearest import nearest

MOST_CHARS = 80
# By the last part of paths that other servers have.
_ELSEWHERE = {
    "chat": "/chat/completions",
    "generate": "/completions",
    "tags": "/models",
    "embed": "/embeddings",
    "health_check": "/health",
    "healthz": "/health",
}
_USED = ("/chat/completions", "/completions", "/responses", "/messages", "/models")


def nearby(path: str, routes: Iterable[str]) -> str:
    """Return what to ask in place of an unknown path: the route most like it, else the main ones.

    Args:
        path: as it was called, of any length.
        routes: known ones, without ``/v1``.
    """
    known = list(routes)
    asked = path[:MOST_CHARS].lower().rstrip("/")
    last = asked.rpartition("/")[2]
    if last in _ELSEWHERE:
        return f"did you mean /v1{_ELSEWHERE[last]}?"
    both = [*(f"/v1{route}" for route in known), *known]
    if (found := nearest(asked, both, 0.75)) is not None:
        return f"did you mean {found}?"
    return f"routes are {', '.join(f'/v1{route}' for route in _USED)} and more."
