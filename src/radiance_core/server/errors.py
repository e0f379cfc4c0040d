"""The one form in which a client hears that something went wrong, and when it may try again."""

import math
import re
from typing import Any

import msgspec

from radiance_abi.errors import RadianceError
from radiance_core.engine.interface import EngineStopped, PromptTooLong, QueueFull
from radiance_core.text.errors import TemplateError

MAX_MESSAGE_CHARS = 1000
_PRIVATE = re.compile(
    r'File "[^"]*"(?:, line \d+)?'  # a traceback's line
    r"|0x[0-9a-fA-F]{4,}"  # an address
    r"|(?<![\w/:.])(?:~|[A-Za-z]:)?(?:[/\\][\w.@%+-]+){2,}[/\\]?"  # a path of two parts or more
)
_TYPES = {
    401: "authentication_error",
    403: "permission_error",
    408: "timeout_error",
    429: "rate_limit_error",
    501: "not_implemented_error",
}


class ApiError(RadianceError):
    """An answer other than success.

    Args:
        status: HTTP status.
        message: what was expected, what was got, what to do; shown to the client.
        param: path of the field that is at fault, such as ``messages[0].role``.
        code: a word that programs can compare.
        headers: headers that go with it.
        extra: facts beside the four standard keys.
    """

    def __init__(
        self,
        status: int,
        message: str,
        *,
        param: str | None = None,
        code: str | None = None,
        headers: dict[str, str] | None = None,
        extra: dict[str, Any] | None = None,
    ) -> None:
        super().__init__(message)
        self.status = status
        self.message = message
        self.param = param
        self.code = code
        self.headers = headers or {}
        self.extra = extra or {}

    @property
    def type(self) -> str:
        """The class of the error, from its status."""
        default = "invalid_request_error" if self.status < 500 else "server_error"
        return _TYPES.get(self.status, default)

    def body(self) -> dict[str, Any]:
        """Return the error object with the four keys that clients read."""
        error = {
            "message": cap(self.message),
            "type": self.type,
            "param": self.param,
            "code": self.code,
        }
        return {"error": error | self.extra}

    def encoded(self) -> bytes:
        """Return the error object as JSON."""
        return msgspec.json.encode(self.body())


def scrub(text: str) -> str:
    """Take paths, addresses and traceback lines out of a text that others wrote, and cap it."""
    return cap(_PRIVATE.sub("[removed]", text))


def cap(text: str) -> str:
    """Return a text that is valid Unicode and not longer than a message may be."""
    clean = text.encode("utf-8", "replace").decode()
    return clean if len(clean) <= MAX_MESSAGE_CHARS else clean[: MAX_MESSAGE_CHARS - 1] + "…"


def quote(value: object, limit: int = 80) -> str:
    """Return what a client sent, short enough to repeat to it."""
    text = value if isinstance(value, str) else repr(value)
    return repr(text if len(text) <= limit else text[: limit - 1] + "…")


def invalid(message: str, param: str | None = None, code: str | None = None) -> ApiError:
    """Return a 400: the request is wrong and stays wrong."""
    return ApiError(400, message, param=param, code=code)


def unsupported(param: str, why: str) -> ApiError:
    """Return the 400 for a field that is known but not served."""
    return ApiError(400, f"{param}: {why}.", param=param, code="unsupported_parameter")


def unavailable(message: str, code: str, retry_after_s: float) -> ApiError:
    """Return a 503 that a client may repeat."""
    return ApiError(503, message, code=code, headers=retry_after(retry_after_s))


def internal(message: str, code: str | None = None) -> ApiError:
    """Return a 500 that would only fail again."""
    return ApiError(500, message, code=code, headers={"x-should-retry": "false"})


def retry_after(seconds: float) -> dict[str, str]:
    """Return the header for a wait, in whole seconds and never 0."""
    return {"Retry-After": str(max(1, math.ceil(seconds)))}


def context_exceeded(
    num_tokens: int, max_tokens: int, param: str, context: int | None = None
) -> ApiError:
    """Return the 400 for a prompt that alone does not fit.

    Args:
        num_tokens: tokens of the prompt.
        max_tokens: tokens that it may have; one less than the context when an answer is to come.
        param: where it stands.
        context: tokens of prompt and answer together, where that is known.
    """
    whole = "" if context is None else f" of {context} tokens"
    return ApiError(
        400,
        f"{param}: the prompt may have at most {max_tokens} tokens in this model's context{whole}, "
        f"got {num_tokens}; shorten it by {num_tokens - max_tokens}.",
        param=param,
        code="context_length_exceeded",
        extra={"n_prompt_tokens": num_tokens} | ({} if context is None else {"n_ctx": context}),
    )


def from_engine(error: BaseException, param: str, retry_after_s: float) -> ApiError:
    """Say in HTTP what the engine or the template said in Python."""
    match error:
        case ApiError():
            return error
        case QueueFull():
            wait = retry_after(error.retry_after_s)
            return ApiError(429, scrub(str(error)), code="queue_full", headers=wait)
        case EngineStopped():
            return unavailable(scrub(str(error)), "engine_stopped", retry_after_s)
        case PromptTooLong():
            return context_exceeded(error.num_tokens, error.max_tokens, param)
        case TemplateError(kind="raised"):
            said = error.template_text or str(error)
            return invalid(
                f"messages: the model's chat template refuses this conversation: {scrub(said)}",
                "messages",
                "chat_template_error",
            )
        case TemplateError(kind="syntax"):
            return internal(f"chat template: {scrub(str(error))}", "chat_template_error")
        case TemplateError():
            return invalid(f"messages: {scrub(str(error))}", "messages", "chat_template_error")
        case MemoryError():
            return unavailable("the host is out of memory", "out_of_memory", retry_after_s)
        case _:
            return internal("an unexpected error ended this request; the log has its request id")
