"""API keys: every route wants one, except those that say only whether the server lives."""

import hashlib
import hmac
from collections.abc import Iterable

from radiance_core.server import web
from radiance_core.server.errors import ApiError


class KeyRing:
    """The accepted keys, as digests; empty when no key is asked for."""

    def __init__(self, keys: Iterable[str]) -> None:
        self._digests = tuple(_digest(key) for key in keys)

    def __bool__(self) -> bool:
        return bool(self._digests)

    def trusts(self, request: web.BaseRequest) -> bool:
        """Say whether a request shows an accepted key, or whether none is asked for."""
        found = not self._digests
        for key in _shown(request):
            found |= self.accepts(key)
        return found

    def tenant(self, request: web.BaseRequest) -> str:
        """Return who asks: the digest of the accepted key shown, empty where none is."""
        shown = (key for key in _shown(request) if self.accepts(key))
        return next((_digest(key).hex() for key in shown), "")

    def accepts(self, key: str) -> bool:
        """Compare with every key, in a time that tells neither which matched nor how far."""
        shown = _digest(key)
        found = False
        for digest in self._digests:
            found |= hmac.compare_digest(shown, digest)
        return found


def refusal(request: web.BaseRequest) -> ApiError:
    """Return the 401 for a request without an accepted key."""
    got = "one that is not accepted" if any(True for _ in _shown(request)) else "none"
    return ApiError(
        401,
        "API key: expected one in Authorization: Bearer … or X-Api-Key, got " + got + ".",
        code="invalid_api_key",
        headers={"WWW-Authenticate": "Bearer"},
    )


def not_local(route: str) -> ApiError:
    """Return the 403 for a look into the machine from outside when no key is asked for."""
    return ApiError(
        403,
        f"{route}: without API keys it answers callers on this machine only, got one from "
        "elsewhere; start the server with --api-key and show that key.",
        code="local_only",
    )


def _shown(request: web.BaseRequest) -> Iterable[str]:
    for value in request.headers.getall("Authorization", []):
        scheme, _, key = value.partition(" ")
        if scheme.lower() == "bearer":
            yield key.strip()
    yield from request.headers.getall("X-Api-Key", [])


def _digest(key: str) -> bytes:
    # Header bytes that are no UTF-8 reach us as surrogates, and must compare, not raise.
    return hashlib.sha256(key.encode("utf-8", "surrogateescape")).digest()
