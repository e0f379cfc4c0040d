"""The one jinja2 environment that chat templates run in, and what they may reach from it.

Templates come out of model files, so they are untrusted programs. The sandbox keeps them from
Python's objects; it does not bound time or memory, which is why they run in a process of their
own (`template_worker`).
"""

import json
from collections.abc import Callable
from datetime import datetime
from typing import Any

from jinja2 import TemplateError as JinjaError
from jinja2 import Undefined, nodes
from jinja2.exceptions import SecurityError
from jinja2.ext import Extension, loopcontrols
from jinja2.parser import Parser
from jinja2.sandbox import ImmutableSandboxedEnvironment


class RefusedByTemplateError(JinjaError):
    """The template called ``raise_exception``: it does not take this conversation."""


class GenerationBlock(Extension):
    """The ``{% generation %}`` block, which only marks text for training: its body as it is."""

    tags = {"generation"}  # noqa: RUF012  # jinja2 declares it as a plain attribute

    def parse(self, parser: Parser) -> nodes.Node | list[nodes.Node]:
        """Return the block's body in the block's place."""
        next(parser.stream)
        return parser.parse_statements(("name:endgeneration",), drop_needle=True)


class ChatEnvironment(ImmutableSandboxedEnvironment):
    """The sandbox, which here fails at a forbidden attribute instead of printing nothing."""

    def unsafe_undefined(self, obj: Any, attribute: str) -> Undefined:
        """Refuse the attribute at once, so that an attack shows and does not pass for a prompt."""
        raise SecurityError(f"access to {attribute!r} of a {type(obj).__name__} is forbidden")


def template_environment() -> ChatEnvironment:
    """Return a fresh environment with the globals and filters that chat templates rely on."""
    environment = ChatEnvironment(
        trim_blocks=True,
        lstrip_blocks=True,
        extensions=[GenerationBlock, loopcontrols],
    )
    for unused in ("lipsum", "cycler", "joiner"):
        del environment.globals[unused]
    environment.filters["tojson"] = _to_json
    environment.globals["raise_exception"] = _raise_exception
    environment.globals["strftime_now"] = _strftime_now
    return environment


def _raise_exception(message: object) -> None:
    raise RefusedByTemplateError(str(message))


def _strftime_now(pattern: str) -> str:
    # Templates print the wall clock's date as the user would read it.
    return datetime.now().astimezone().strftime(pattern)


def _to_json(
    value: Any,
    ensure_ascii: bool = False,
    indent: int | None = None,
    separators: tuple[str, str] | None = None,
    sort_keys: bool = False,
) -> str:
    """Write JSON as models were shown it: neither HTML-escaped nor sorted."""
    return json.dumps(
        value,
        ensure_ascii=ensure_ascii,
        indent=indent,
        separators=separators,
        sort_keys=sort_keys,
        default=_refuse_value,
    )


def _refuse_value(value: object) -> Callable[..., object]:
    raise TypeError(f"tojson: expected plain data, got {type(value).__name__}")
