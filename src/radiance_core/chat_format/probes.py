"""Conversations made to be recognised in whatever a chat template makes of them.

Every name, key and value here is a word that no template has, so that where it stands in a
rendered text is where the template puts such a thing.
"""

import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from radiance_abi.errors import RadianceError

NAMES = ("qzalpha", "qzbeta")
KEYS = ("kzone", "kztwo")
TEXT_VALUES = ("vzone", "vztwo")
ARGUMENTS = dict(zip(KEYS, TEXT_VALUES, strict=True))
CONTENT, THOUGHT, QUESTION, RESULT = "czplain", "rzthought", "uzquestion", "tzresult"
SHORT_IDS = ("qid000001", "qid000002")
LONG_IDS = ("call_qid00000000000000001", "call_qid00000000000000002")
FUNCTION_IDS = tuple(f"functions.{name}:{n}" for n, name in enumerate(NAMES))

MAX_PROBE_CHARS = 1 << 17

Message = Mapping[str, Any]
Render = Callable[[Sequence[Message], Sequence[Mapping[str, Any]] | None, bool], str]
"""Messages, tools and whether to open the assistant's turn, to text; raises a RadianceError."""

_ATOM = re.compile(
    r"<[|｜][^|｜<>\n]{1,64}[|｜]>|</?[^<>\n]{1,64}>|\[/?[A-Z_]{2,32}\]|\w+|\s+|.", re.DOTALL
)


def tools() -> list[dict[str, Any]]:
    """Return two tools that each take two texts."""
    return [
        {
            "type": "function",
            "function": {
                "name": name,
                "description": f"dz{name}",
                "parameters": {
                    "type": "object",
                    "properties": {key: {"type": "string", "description": key} for key in KEYS},
                    "required": list(KEYS),
                },
            },
        }
        for name in NAMES
    ]


def user() -> dict[str, Any]:
    """Return the user's message."""
    return {"role": "user", "content": QUESTION}


@dataclass(frozen=True, slots=True)
class CallStyle:
    """How calls are put into a message: what templates differ in reading.

    ``as_text``: arguments as JSON text, else as an object. ``content``: beside the calls.
    """

    as_text: bool = False
    content: str | None = ""
    ids: tuple[str, ...] = SHORT_IDS

    def message(self, *calls: Mapping[str, Any]) -> dict[str, Any]:
        """Return an assistant's message with a call of the n-th function for each arguments."""
        return {
            "role": "assistant",
            "content": self.content,
            "tool_calls": [
                {
                    "id": self.ids[n],
                    "type": "function",
                    "function": {"name": NAMES[n], "arguments": self._written(arguments)},
                }
                for n, arguments in enumerate(calls)
            ],
        }

    def _written(self, arguments: Mapping[str, Any]) -> Any:
        return json.dumps(arguments) if self.as_text else dict(arguments)


def atoms(text: str, special: Iterable[str] = ()) -> list[str]:
    """Cut a text into marks, words, spaces and signs; joined they are the text."""
    ours = [re.escape(one) for one in sorted(special, key=len, reverse=True) if one in text]
    pattern = re.compile("|".join([*ours, _ATOM.pattern]), re.DOTALL) if ours else _ATOM
    return pattern.findall(text)


def common_prefix(left: str, right: str, special: Iterable[str] = ()) -> str:
    """Return the longest common beginning that ends between two atoms of both."""
    known = list(special)
    same = []
    for one, other in zip(atoms(left, known), atoms(right, known), strict=False):
        if one != other:
            break
        same.append(one)
    return "".join(same)


def common_suffix(left: str, right: str, special: Iterable[str] = ()) -> str:
    """Return the longest common end that begins between two atoms of both."""
    known = list(special)
    same = []
    pairs = zip(reversed(atoms(left, known)), reversed(atoms(right, known)), strict=False)
    for one, other in pairs:
        if one != other:
            break
        same.append(one)
    return "".join(reversed(same))


@dataclass(frozen=True, slots=True)
class Probe:
    """Renders probes with one template.

    Args:
        render: the template; raises a RadianceError for what it refuses.
        special: texts of the vocabulary's special tokens, which are never cut in two.
        ends: those that end a turn.
    """

    render: Render
    special: tuple[str, ...] = ()
    ends: tuple[str, ...] = ()

    def turn(self, message: Message, with_tools: bool = True) -> str | None:
        """Return what the template makes of the assistant's message, None when it refuses.

        That is what it writes after what it writes to open a turn, less what ends every turn.
        """
        whole = self.text([user(), message], with_tools)
        plain = self.text([user(), {"role": "assistant", "content": CONTENT}], with_tools)
        opened = self.text([user()], with_tools, opens=True)
        if whole is None:
            return None
        starts = [] if opened is None else [common_prefix(opened, whole, self.special)]
        end = ""
        if plain is not None and CONTENT in plain:
            before, _, end = plain.rpartition(CONTENT)
            starts.append(common_prefix(before, whole, self.special))
        rest = whole[len(max(starts, key=len, default="")) :]
        cut = min((at for one in self.ends if (at := rest.find(one)) >= 0), default=len(rest))
        rest = rest[:cut]
        return rest.removesuffix(common_suffix(rest, end, self.special)) if end else rest

    def text(
        self, messages: Sequence[Message], with_tools: bool, opens: bool = False
    ) -> str | None:
        """Return a conversation's text, None when the template refuses it or says too much."""
        try:
            text = self.render(messages, tools() if with_tools else None, opens)
        except RadianceError:
            return None
        return text if len(text) <= MAX_PROBE_CHARS else None
