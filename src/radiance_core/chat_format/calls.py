"""Takes calls apart: one parser for each way in which a family writes a call's arguments."""

import json
from collections.abc import Callable, Mapping

from radiance_core.chat_format.events import CallArguments, CallBegin, CallEnd, Event
from radiance_core.chat_format.format import CDATA, ToolFormat
from radiance_core.chat_format.json_text import (
    arguments_of,
    pass_on,
    read_string,
    read_value,
    text_of,
)
from radiance_core.chat_format.reader import END, Reader, Step
from radiance_core.chat_format.tools import Tool
from radiance_core.chat_format.values import property_schema, types_of, value_json

MAX_NAME_CHARS = 256
_NAME_SIGNS = frozenset("_-.")


class CallReader:
    """Reads calls that follow a format's opening.

    A call is told of once its name is known and is one of ``tools``; from there on all of its
    text is arguments. What is no call raises nothing: ``read`` returns False, and whoever asked
    has the text in the reader's record.

    Args:
        form: how calls are written.
        tools: those that may be called, by name.
        reader: where the text comes from.
        emit: takes the events.
    """

    def __init__(
        self,
        form: ToolFormat,
        tools: Mapping[str, Tool],
        reader: Reader,
        emit: Callable[[Event], None],
    ) -> None:
        self._form = form
        self._tools = tools
        self._reader = reader
        self._emit = emit
        self.count = 0

    def read(self) -> Step[bool]:
        """Read one call after its ``call_open``, its ``call_close`` included."""
        match self._form.values:
            case "json_call":
                return (yield from self._json_call())
            case "json_object":
                return (yield from self._named(self._object))
            case "tagged":
                return (yield from self._named(self._tagged))

    def _begin(self, name: str) -> bool:
        if name not in self._tools:
            return False
        self._reader.recorded()  # from here on nothing is given back as content
        self._emit(CallBegin(self.count, name))
        return True

    def _say(self, text: str) -> None:
        if text:
            self._emit(CallArguments(self.count, text))

    def _end(self) -> None:
        self._emit(CallEnd(self.count))
        self.count += 1

    # Name first, arguments behind it.

    def _named(self, arguments: Callable[[str], Step[bool]]) -> Step[bool]:
        name = yield from self._name()
        if (yield from self._reader.choose([self._form.name_end])) is None:
            return False
        yield from self._reader.skip_space()
        if not self._begin(name):
            return False
        if not (yield from arguments(name)):
            return True  # the text has ended within the arguments
        yield from self._reader.choose([self._form.call_close, ""], closing=True)
        self._end()
        return True

    def _name(self) -> Step[str]:
        """Read what a name can be made of."""
        yield from self._reader.skip_space()
        name: list[str] = []
        while char := (yield from self._reader.take()):
            if not (char.isalnum() or char in _NAME_SIGNS) or len(name) == MAX_NAME_CHARS:
                self._reader.put_back(char)
                break
            name.append(char)
        return "".join(name)

    def _object(self, _name: str) -> Step[bool]:
        """Stream a JSON object, balanced by its brackets; False when the text ends within."""
        if (yield from self._reader.peek()) != "{":
            return (yield from self._odd_value())
        return (yield from pass_on(self._reader, self._say))

    def _odd_value(self) -> Step[bool]:
        """Read arguments that are no object: a text of JSON, null, or nothing at all."""
        if (yield from self._at_close()):
            self._say("{}")
            return True
        value = yield from read_value(self._reader)
        if value is None:
            return False
        self._say(arguments_of(value))
        return True

    def _at_close(self) -> Step[bool]:
        close = self._form.call_close
        if not close.strip() or (yield from self._reader.choose([close])) is None:
            return False
        self._reader.put_back(close)
        return True

    # Name and arguments in one object.

    def _json_call(self) -> Step[bool]:
        form, reader = self._form, self._reader
        yield from reader.skip_space()
        if (yield from reader.expect("{")) is False:
            return False
        early: str | None = None
        begun = said = False
        while (key := (yield from self._key(begun))) is not None:
            yield from reader.skip_space()
            if key == form.arguments_key and begun:
                said = True
                if not (yield from self._object("")):
                    return True
                continue
            value = yield from read_value(reader)
            if value is None:
                return begun
            if key == form.arguments_key:
                early = value
            elif key == form.name_key:
                if not self._begin(text_of(value)):
                    return False
                begun = True
        if not begun or (yield from self._brace()) is False:
            return begun
        if not said:
            self._say(arguments_of(early))
        yield from reader.choose([form.call_close, ""], closing=True)
        self._end()
        return True

    def _key(self, begun: bool) -> Step[str | None]:
        """Read a member's key and colon; None where there is no further member of a call."""
        reader = self._reader
        yield from reader.choose([",", ""])
        yield from reader.skip_space()
        if (yield from reader.peek()) != '"':
            return None
        key = text_of((yield from read_string(reader)) or "")
        form = self._form
        known = {form.name_key, form.arguments_key, form.id_key, "id", "type"}
        if (not begun and form.is_bare and key not in known) or len(key) > MAX_NAME_CHARS:
            return None
        return key if (yield from reader.choose([":"])) is not None else None

    def _brace(self) -> Step[bool]:
        """Pass over the brace that ends the call's object; False when the text ends before it."""
        if (yield from self._reader.choose(["}", ""])) == 0:
            return True
        yield from self._reader.skip_space()
        return (yield from self._reader.peek()) != END

    # Every argument marked by itself.

    def _tagged(self, name: str) -> Step[bool]:
        form, reader = self._form, self._reader
        parameters = self._tools[name].parameters
        self._say("{")
        first = True
        closes = (form.key_close, form.other_key_close or form.key_close)
        while (yield from reader.choose([form.key_open])) is not None:
            key = yield from reader.until(closes)
            if key is None:
                return False
            self._say(("" if first else ", ") + json.dumps(key.strip(), ensure_ascii=False) + ": ")
            first = False
            schema = property_schema(parameters, key.strip())
            if not (yield from self._tagged_value(types_of(schema, parameters))):
                return False
        yield from reader.skip_space()
        if (yield from reader.peek()) == END:
            return False
        self._say("}")
        return True

    def _tagged_value(self, types: frozenset[str]) -> Step[bool]:
        """Read a value up to its mark; of a text, the line breaks at its ends are the mark's."""
        form, reader = self._form, self._reader
        if form.has_cdata and (yield from reader.choose(CDATA[:1])) is not None:
            text = yield from reader.until(CDATA[1:])
            if text is None:
                return False
            self._say(value_json(text, types))
            return (yield from reader.expect(form.value_close))
        yield from reader.skip_end_of(form.key_close)
        marks = tuple({form.value_close, form.value_close.lstrip()})
        if types != {"string"}:
            text = yield from reader.until(marks)
            if text is None:
                return False
            self._say(value_json(text, types))
            return True
        self._say('"')
        ended = yield from reader.until(
            marks, lambda part: self._say(json.dumps(part, ensure_ascii=False)[1:-1])
        )
        if ended is None:
            return False
        self._say('"')
        return True
