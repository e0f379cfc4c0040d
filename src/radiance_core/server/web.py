"""The half of aiohttp that serves; the other one would take as long to import as this."""

from radiance_core.without import package_alone

# The version is for a header that every answer here replaces.
with package_alone("aiohttp", __version__="x"):
    from aiohttp import http_exceptions
    from aiohttp.client_exceptions import ClientConnectionResetError
    from aiohttp.http import HttpVersion11
    from aiohttp.web_protocol import RequestHandler, RequestPayloadError
    from aiohttp.web_request import BaseRequest
    from aiohttp.web_response import Response, StreamResponse
    from aiohttp.web_server import Server

__all__ = [
    "BaseRequest",
    "ClientConnectionResetError",
    "HttpVersion11",
    "RequestHandler",
    "RequestPayloadError",
    "Response",
    "Server",
    "StreamResponse",
    "http_exceptions",
]
