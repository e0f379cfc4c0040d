"""Which marks a chat template puts around the thoughts of a model."""

import re

from radiance_core.chat_format.format import ReasoningFormat
from radiance_core.chat_format.probes import CONTENT, THOUGHT, Probe, user

_CLOSING = re.compile(
    r"</[\w:]{0,32}think[\w:]{0,32}>|\[/THINK\]|<\|END_THINKING\|>|<\|end_of_thought\|>"
)


def derive_reasoning(probe: Probe, source: str) -> ReasoningFormat | None:
    """Return the marks around thoughts; None for a template that knows of none.

    Three things tell: what the template writes around the thoughts of an earlier answer, what
    it takes off an earlier answer's text, and what it opens the next answer with.

    Args:
        probe: the template.
        source: its text.
    """
    found = _written(probe) or _taken_off(probe, source) or _opened(probe, source)
    if found is None:
        return None
    opening, closing = found
    prompt = probe.text([user()], with_tools=False, opens=True) or ""
    starts_open = prompt.rstrip().endswith(opening.strip())
    special = {opening.strip(), closing.strip()} <= set(probe.special)
    return ReasoningFormat(opening.strip(), closing.strip(), starts_open, special)


def _written(probe: Probe) -> tuple[str, str] | None:
    """Read the marks around the thoughts of an answer that has some."""
    message = {
        "role": "assistant", "content": CONTENT,
        "reasoning": THOUGHT, "reasoning_content": THOUGHT, "thinking": THOUGHT,
    }  # fmt: skip
    whole = probe.text([user(), message], with_tools=False)
    if whole is None or THOUGHT not in whole:
        return None
    before, _, rest = whole.partition(THOUGHT)
    between, found, _ = rest.partition(CONTENT)
    opening = before.split()[-1:]
    if not found or not opening or not between.strip():
        return None
    mark = _last_mark(opening[0], probe.special)
    closing = _first_mark(between.split()[0], probe.special)
    # Where plain answers have the same mark, it is one of messages, not of thoughts.
    plain = probe.text([user(), {"role": "assistant", "content": CONTENT}], with_tools=False) or ""
    of_messages = plain.partition(CONTENT)[0].rstrip().endswith(mark) or closing in probe.ends
    return (mark, closing) if mark and not of_messages else None


def _taken_off(probe: Probe, source: str) -> tuple[str, str] | None:
    """Find the closing mark whose text, with what is before it, an earlier answer loses."""
    for closing in dict.fromkeys(_CLOSING.findall(source)):
        opening = _partner(closing)
        said = {"role": "assistant", "content": f"{opening}{THOUGHT}{closing}{CONTENT}"}
        whole = probe.text([user(), said, user()], with_tools=False)
        if whole is not None and CONTENT in whole and THOUGHT not in whole:
            return opening, closing
    return None


def _opened(probe: Probe, source: str) -> tuple[str, str] | None:
    """Find a mark that an answer's turn is opened with, and whose partner the source names."""
    prompt = (probe.text([user()], with_tools=False, opens=True) or "").rstrip()
    known = (*probe.special, *_CLOSING.findall(source))
    for closing in dict.fromkeys(one for one in known if _CLOSING.fullmatch(one)):
        if prompt.endswith((_partner(closing), closing)):
            return _partner(closing), closing
    return None


def _partner(closing: str) -> str:
    """Return the opening mark that belongs to a closing one."""
    return closing.replace("/", "", 1).replace("END", "START").replace("|end_", "|begin_")


def _last_mark(text: str, special: tuple[str, ...]) -> str:
    """Return the mark that a text ends with, or nothing."""
    for one in sorted(special, key=len, reverse=True):
        if text.endswith(one):
            return one
    found = re.search(r"(<[^<>\s]{1,64}>|\[[A-Z_]{2,32}\])\Z", text[-66:])
    return found[1] if found else ""


def _first_mark(text: str, special: tuple[str, ...]) -> str:
    """Return the mark that a text begins with, the whole text where it begins with none."""
    for one in sorted(special, key=len, reverse=True):
        if text.startswith(one):
            return one
    found = re.match(r"<[^<>\s]{1,64}>|\[/?[A-Z_]{2,32}\]", text)
    return found[0] if found else text
