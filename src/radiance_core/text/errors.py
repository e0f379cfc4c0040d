"""Errors of the text layer: a vocabulary, a chat template or a stop list that is not acceptable."""

from radiance_abi.errors import RadianceError


class TokenizerError(RadianceError):
    """A vocabulary (GGUF keys or ``tokenizer.json``) is malformed or of a kind that is not read."""


class TemplateError(RadianceError):
    """A chat template could not be loaded, or a conversation could not be rendered with it.

    Args:
        text: the message.
        kind: one of ``syntax``, ``raised`` (the template refused the conversation itself),
            ``undefined``, ``forbidden``, ``timeout``, ``too_large``, ``message``, ``failed``.
        template_text: for ``raised``, exactly what the template said; otherwise ``None``.
    """

    def __init__(self, text: str, kind: str, template_text: str | None = None) -> None:
        super().__init__(text)
        self.kind = kind
        self.template_text = template_text


class StopError(RadianceError):
    """A list of stop strings is empty where it may not be, too long, or holds an unusable entry."""
