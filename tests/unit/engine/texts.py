"""What the deep fake model says, worked out from the text alone."""

from collections.abc import Sequence

from .fake_model import digest, told_by


def continuation(prompt: Sequence[int], count: int) -> str:
    """The ``count`` letters that follow a prompt."""
    text = 0
    for token in prompt:
        text = digest(text, token)
    letters = []
    for _ in range(count):
        letters.append(told_by(text))
        text = digest(text, letters[-1])
    return bytes(letters).decode()
