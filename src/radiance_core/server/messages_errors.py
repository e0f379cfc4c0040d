"""Errors in the form that clients of ``/v1/messages`` read; every answer on these paths has it."""

from collections.abc import Callable

from radiance_core.server.errors import ApiError, cap

Speller = Callable[[ApiError, str], tuple[int, object]]
"""Turns an error and the request's id into a status and a body."""
_PATHS = frozenset({"/messages", "/messages/count_tokens"})
_OVERLOADED = 529
_TYPES = {
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    413: "request_too_large",
    429: "rate_limit_error",
    504: "timeout_error",
    _OVERLOADED: "overloaded_error",
}


def speller(path: str) -> Speller:
    """Return how errors are spelled on a path, known or not, with ``/v1`` or without."""
    return spell if path.removeprefix("/v1") in _PATHS else openai


def openai(error: ApiError, request_id: str) -> tuple[int, object]:  # noqa: ARG001 (the other's)
    """Spell an error as on every other path; its id is in a header only."""
    return error.status, error.body()


def spell(error: ApiError, request_id: str) -> tuple[int, object]:
    """Spell an error as Anthropic's clients know it: not being able to serve now is 529."""
    status = _OVERLOADED if error.status == 503 else error.status
    default = "invalid_request_error" if status < 500 else "api_error"
    said = {"type": _TYPES.get(status, default), "message": cap(error.message)}
    return status, {"type": "error", "error": said, "request_id": request_id}
