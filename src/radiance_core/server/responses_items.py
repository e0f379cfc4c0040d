"""The output items of ``/v1/responses``: thoughts, messages and calls, in the order they came."""

from collections.abc import Sequence
from typing import Literal

import msgspec

from radiance_core.server.chat_logprobs import ToldToken

Status = Literal["in_progress", "completed", "incomplete"]


class OutputText(msgspec.Struct):
    """A message's text."""

    text: str = ""
    type: str = "output_text"
    annotations: tuple[()] = ()
    logprobs: Sequence[ToldToken] = ()


class ReasoningText(msgspec.Struct):
    """The text of thoughts."""

    text: str = ""
    type: str = "reasoning_text"


class OutputMessage(msgspec.Struct):
    """What the assistant says."""

    id: str
    content: list[OutputText]
    status: Status = "in_progress"
    type: str = "message"
    role: str = "assistant"


class ReasoningItem(msgspec.Struct):
    """What the model thought before; all of it, so that there is no summary."""

    id: str
    content: list[ReasoningText]
    status: Status = "in_progress"
    type: str = "reasoning"
    summary: tuple[()] = ()


class FunctionCall(msgspec.Struct):
    """A call of a function; ``arguments`` is JSON unless the status is ``incomplete``."""

    id: str
    call_id: str
    name: str
    arguments: str = ""
    status: Status = "in_progress"
    type: str = "function_call"


OutputItem = OutputMessage | ReasoningItem | FunctionCall
