"""How a chat template writes calls, found by what it makes of calls that are known.

before   NAME   arguments   between   NAME   arguments   after
▔▔▔▔▔▔                      ▔▔▔▔▔▔▔                      ▔▔▔▔▔
section_open,               call_close, separator,       call_close,
call_open                   call_open                    section_close
"""

from dataclasses import replace
from itertools import product
from typing import Any

from radiance_core.chat_format.format import ID_HOLE, ReasoningFormat, ToolFormat
from radiance_core.chat_format.probes import (
    ARGUMENTS,
    CONTENT,
    FUNCTION_IDS,
    KEYS,
    LONG_IDS,
    NAMES,
    SHORT_IDS,
    TEXT_VALUES,
    CallStyle,
    Probe,
    common_prefix,
    common_suffix,
    user,
)
from radiance_core.chat_format.read_probe import Turns, UnknownFormat, read_call


def derive_tools(probe: Probe, reasoning: ReasoningFormat | None) -> tuple[ToolFormat, CallStyle]:
    """Return how calls are written, and how they must be given to the template.

    Raises: ``UnknownFormat`` with the reason, in words for a client.
    """
    shown = probe.text([user()], with_tools=True)
    if shown is None:
        raise UnknownFormat("its chat template refuses a conversation with tools")
    if NAMES[0] not in shown:
        raise UnknownFormat("its chat template does not mention tools")
    style = find_style(probe)
    turns = Turns(probe, style, reasoning)
    one = turns.text(ARGUMENTS)
    call = read_call(turns, one, 0)
    form = ToolFormat(
        "auto", one[: call.begin], "", one[call.end :], values=call.values, parallel=False
    )
    form = replace(form, **call.pieces)
    return _checked(_with_several(turns, form)), style


def find_style(probe: Probe) -> CallStyle:
    """Return the first way of giving calls to the template that it writes out readably."""
    written = False
    for ids, as_text, content in product(
        (SHORT_IDS, FUNCTION_IDS), (False, True), ("", None, CONTENT)
    ):
        style = CallStyle(as_text, content, ids)
        turn = probe.turn(style.message(ARGUMENTS))
        written |= turn is not None
        if turn is not None and _is_readable(turn):
            return style
    if written:
        raise UnknownFormat("its chat template does not write the calls of earlier answers")
    raise UnknownFormat("its chat template refuses answers with calls")


def takes_long_ids(probe: Probe, style: CallStyle) -> bool:
    """Return whether ids may have other forms than nine letters and digits."""
    return probe.turn(replace(style, ids=LONG_IDS).message(ARGUMENTS)) is not None


def _is_readable(turn: str) -> bool:
    """Return whether a call stands in a turn as JSON or as texts, not as Python or as escapes."""
    words = (NAMES[0], KEYS[0], TEXT_VALUES[0], KEYS[1], TEXT_VALUES[1])
    at = [turn.find(word) for word in words]
    spoiled = f"'{KEYS[0]}'" in turn or f'\\"{KEYS[0]}' in turn
    return -1 not in at and at == sorted(at) and not spoiled


def _with_several(turns: Turns, form: ToolFormat) -> ToolFormat:
    """Return a format with what stands around and between several calls told apart."""
    try:
        two = turns.text(ARGUMENTS, ARGUMENTS)
        first = read_call(turns, two, 0)
        second = read_call(turns, two, 1, first.end)
    except UnknownFormat:
        return form
    special = turns.probe.special
    before, between, after = two[: first.begin], two[first.end : second.begin], two[second.end :]
    call_open = common_suffix(before, between, special).lstrip()
    call_close = common_prefix(between, after, special).rstrip()
    if len(call_open) + len(call_close) > len(between):
        return form
    pieces = {name: _with_hole(text, second.pieces[name]) for name, text in first.pieces.items()}
    return replace(
        form,
        **pieces,
        section_open=before.removesuffix(call_open),
        call_open=call_open,
        call_close=call_close,
        separator=between[len(call_close) : len(between) - len(call_open)],
        section_close=after[len(call_close) :],
        parallel=True,
    )


def _with_hole(one: Any, other: Any) -> Any:
    """Return what two calls have in common, with a hole for the one thing in which they differ."""
    if one == other or not isinstance(one, str):
        return one
    before, after = common_prefix(one, other), common_suffix(one, other)
    return f"{before}{ID_HOLE}{after}" if len(before) + len(after) < len(one) else one


def _checked(form: ToolFormat) -> ToolFormat:
    """Return a format that a parser can find in a text."""
    if form.is_bare:
        if form.values == "json_call":
            return form
        raise UnknownFormat("its calls begin with no mark")
    if form.first_mark[0].isalnum():
        raise UnknownFormat(f"its calls begin with {form.first_mark!r}, which any text may hold")
    return form
