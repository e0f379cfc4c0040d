"""Messages of a request put into the form that a template takes."""

from collections.abc import Mapping, Sequence

from radiance_core.text.errors import TemplateError
from radiance_core.text.template_facts import TemplateFacts

_TEXT_PARTS = {"text": "text", "input_text": "text", "output_text": "text", "refusal": "refusal"}


def normalise_messages(
    messages: Sequence[Mapping[str, object]], facts: TemplateFacts
) -> list[dict[str, object]]:
    """Return copies of ``messages`` with roles and contents as the template takes them.

    A ``developer`` message becomes a system message unless the template names that role. Parts
    are joined with nothing between unless the template goes through parts; a string becomes one
    part where the template takes nothing else. A missing content becomes empty unless the
    template tells the two apart.

    Raises:
        TemplateError: a message without a role, or a content of a kind the template cannot take.
    """
    return [_message(index, message, facts) for index, message in enumerate(messages)]


def _message(index: int, message: Mapping[str, object], facts: TemplateFacts) -> dict[str, object]:
    role = message.get("role")
    if not isinstance(role, str):
        raise _wrong(f"messages[{index}].role", "a string", role)
    if role == "developer" and not facts.names_developer:
        role = "system"
    changed = {**message, "role": role}
    if message.get("content") is not None or not facts.tests_none:
        changed["content"] = _content(f"messages[{index}].content", message.get("content"), facts)
    return changed


def _content(where: str, content: object, facts: TemplateFacts) -> object:
    if content is None:
        return "" if facts.takes_strings else []
    if isinstance(content, str):
        return content if facts.takes_strings else [{"type": "text", "text": content}]
    if not isinstance(content, list):
        raise _wrong(where, "a string or a list of parts", content)
    if facts.takes_parts:
        return [_part(f"{where}[{index}]", part) for index, part in enumerate(content)]
    return "".join(_part_text(f"{where}[{index}]", part) for index, part in enumerate(content))


def _part(where: str, part: object) -> Mapping[str, object]:
    """Return a part as an object; text parts under the one name that templates know."""
    if isinstance(part, str):
        return {"type": "text", "text": part}
    if not isinstance(part, Mapping):
        raise _wrong(where, "a part with a type", part)
    if part.get("type") in _TEXT_PARTS:
        return {"type": "text", "text": _part_text(where, part)}
    return part


def _part_text(where: str, part: object) -> str:
    if isinstance(part, str):
        return part
    kind = part.get("type") if isinstance(part, Mapping) else None
    if not isinstance(part, Mapping) or not isinstance(kind, str) or kind not in _TEXT_PARTS:
        raise _wrong(where, "a text part (this template takes no other)", kind or part)
    text = part.get(_TEXT_PARTS[kind])
    if not isinstance(text, str):
        raise _wrong(f"{where}.{_TEXT_PARTS[kind]}", "a string", text)
    return text


def _wrong(where: str, expected: str, got: object) -> TemplateError:
    shown = repr(got)[:80] if isinstance(got, (str, type(None))) else type(got).__name__
    return TemplateError(
        f"{where}: expected {expected}, got {shown}; correct the request.", "message"
    )
