"""What is known of a chat template before it renders anything."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class TemplateFacts:
    """What a template expects of the conversation.

    Args:
        variables: names it reads that it does not set itself (``tools``, ``enable_thinking``).
        takes_strings: message contents may be strings.
        takes_parts: message contents may be lists of parts.
        names_developer: it knows the role ``developer``.
        tests_none: it tells a missing content from an empty one.
    """

    variables: frozenset[str]
    takes_strings: bool
    takes_parts: bool
    names_developer: bool
    tests_none: bool
