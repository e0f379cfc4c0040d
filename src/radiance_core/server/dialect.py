"""Other words for a conversation: a request becomes a chat request, and its errors come back.

body ── sort_out, read_fields ── convert ── chat fields ── begin / make_turn
                                            errors, ignored paths ── names of the route
"""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Generic, TypeVar

from msgspec import UnsetType

from radiance_core.engine.sampling import SamplingParams
from radiance_core.server import fields
from radiance_core.server.body import aside, read_json
from radiance_core.server.dialogue import begin, make_turn
from radiance_core.server.errors import ApiError
from radiance_core.server.exchange import Exchange
from radiance_core.server.extension import Extension, extension, name_ignored
from radiance_core.server.generation import Generation
from radiance_core.server.prompts import check_count
from radiance_core.server.requests import ChatRequest, read_fields
from radiance_core.server.state import Serving, State
from radiance_core.server.taken_apart import AnswerParts
from radiance_core.server.turn import Turn
from radiance_core.server.unknown_keys import UnknownKeys

R = TypeVar("R")
_NOTHING: Mapping[str, Any] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class Heard(Generic[R]):
    """A request as its route spells it, and what it comes to.

    Args:
        request: as sent.
        chat: the fields of a chat request that asks the same.
        serving: the model that it names.
        ignored: paths that nothing reads, in the route's words so far.
    """

    request: R
    chat: Mapping[str, Any]
    serving: Serving
    ignored: list[str]


@dataclass(frozen=True, slots=True)
class Begun:
    """An answer that has begun.

    Args:
        generation, turn, params: as ``dialogue.begin`` returns them.
        asked: the chat request.
        parts: take the answer apart.
        said: what is told about the request beside its answer.
    """

    generation: Generation
    turn: Turn
    params: SamplingParams
    asked: ChatRequest
    parts: AnswerParts
    said: Extension | UnsetType


@dataclass(frozen=True, slots=True)
class Dialect(Generic[R]):
    """How a route asks for what ``/v1/chat/completions`` asks for in its own way.

    Args:
        kind: the request's type; it has a field ``model``.
        served, inert, unserved: its fields, as ``fields.sort_out`` takes them.
        listed: its field with the conversation, whose items are counted before they are read.
        convert: makes the chat fields.
        names: by the path of a chat request's field, what it is called here.
        parts: parts of paths below that, and what they are called here.
    """

    kind: type[R]
    served: frozenset[str]
    inert: frozenset[str]
    unserved: Mapping[str, fields.Unserved]
    listed: str
    convert: Callable[[R, Mapping[str, Any], UnknownKeys], dict[str, Any]]
    names: Mapping[str, str]
    parts: Mapping[str, str]

    async def hear(
        self, exchange: Exchange, state: State, defaults: Mapping[str, Any] = _NOTHING
    ) -> Heard[R]:
        """Read a request.

        Raises: ``ApiError`` for what cannot be read or asked, in the route's words.
        """
        state.current()  # a server that cannot serve says so before it reads a body
        body = await read_json(exchange.request, state.settings)
        strict = state.settings.strict_requests
        known, ignored = fields.sort_out(
            body, self.served, strict=strict, inert=self.inert, unserved=self.unserved
        )
        known = {**defaults, **known}
        request = read_fields(known, self.kind)
        serving = state.named(known.get("model"))
        if isinstance(items := known[self.listed], list):
            check_count(serving.model, len(items), self.listed)
        unknown = UnknownKeys(strict=strict)
        chat = await aside(exchange.request, lambda: self.convert(request, known, unknown))
        return Heard(request, chat, serving, [*ignored, *unknown.paths])

    async def begin(self, heard: Heard[R], exchange: Exchange, state: State) -> Begun:
        """Begin to answer; call it where errors are ``named``."""
        unread = heard.ignored
        generation, turn, params = await begin(heard.chat, heard.serving, state, unread)
        ignored = [self.called(path) for path in unread]
        name_ignored(exchange, ignored)
        asked = read_fields(heard.chat, ChatRequest)
        is_read = generation.choices[0].request.reader is not None
        parts = AnswerParts(turn, heard.serving.model.tokenizer, is_read=is_read)
        said = extension(ignored, asked, params)
        return Begun(generation, turn, params, asked, parts, said)

    async def count(
        self, exchange: Exchange, state: State, defaults: Mapping[str, Any] = _NOTHING
    ) -> int:
        """Return how many tokens a request's conversation has as a prompt."""
        heard = await self.hear(exchange, state, defaults)
        settings, unread = state.settings, heard.ignored
        with self.named():
            turn = await make_turn(
                heard.chat,
                heard.serving.model,
                settings.retry_after_s,
                unread,
                strict=settings.strict_requests,
            )
        name_ignored(exchange, [self.called(path) for path in unread])
        return len(turn.ids)

    @contextmanager
    def named(self) -> Iterator[None]:
        """Call the field that an error names as it is called here."""
        try:
            yield
        except ApiError as error:
            if error.param is not None:
                path, colon, rest = error.message.partition(": ")
                if " " not in path:
                    error.message = self.called(path) + colon + rest
                error.param = self.called(error.param)
            raise

    def called(self, path: str) -> str:
        """Return what the field at a path is called here."""
        for name in sorted(self.names, key=len, reverse=True):
            if path.startswith(name) and path[len(name) : len(name) + 1] in {"", ".", "["}:
                path = self.names[name] + path[len(name) :]
                break
        for part, here in self.parts.items():
            path = path.replace(part, here)
        return path
