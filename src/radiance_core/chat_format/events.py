"""What an answer is made of, piece by piece; final as soon as it is told, never taken back."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Content:
    """New text of the answer."""

    text: str


@dataclass(frozen=True, slots=True)
class Reasoning:
    """New text of the thoughts before it."""

    text: str


@dataclass(frozen=True, slots=True)
class CallBegin:
    """A call begins: its place among the answer's calls, and its function's name, whole."""

    index: int
    name: str


@dataclass(frozen=True, slots=True)
class CallArguments:
    """New text of a call's arguments; joined they are JSON unless the answer was cut short."""

    index: int
    text: str


@dataclass(frozen=True, slots=True)
class CallEnd:
    """A call is whole."""

    index: int


Event = Content | Reasoning | CallBegin | CallArguments | CallEnd
