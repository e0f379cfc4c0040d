"""Templates as models have them, each rendered in the process that renders chat templates."""

from collections.abc import Callable, Iterator

import pytest
from unit.chat_format.families import FAMILIES, SPECIAL
from unit.chat_format.vocabulary import Bytes

from radiance_core.chat_format.derive import derive_format
from radiance_core.chat_format.format import ChatFormat
from radiance_core.text.chat_template import ChatTemplate


@pytest.fixture(scope="session")
def deriving() -> Iterator[Callable[..., tuple[ChatFormat, ChatTemplate]]]:
    """Return a function from a template's source to what is derived, and the template."""
    opened: list[ChatTemplate] = []

    def go(source: str, special: tuple[str, ...] = SPECIAL) -> tuple[ChatFormat, ChatTemplate]:
        template = ChatTemplate(source, {"bos_token": "<s>", "eos_token": "<|end|>"})
        opened.append(template)
        return derive_format(template, Bytes(special)), template  # type: ignore[arg-type]

    yield go
    for template in opened:
        template.close()


@pytest.fixture(scope="session")
def formats(deriving) -> dict[str, tuple[ChatFormat, ChatTemplate]]:
    """What is derived for every family, by its name."""
    return {name: deriving(source) for name, source in FAMILIES.items()}
