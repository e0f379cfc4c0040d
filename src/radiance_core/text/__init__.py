"""Text in and out: tokenizer, incremental decoding, stop strings, chat templates.

What is loaded comes from a checkpoint's own files and from nowhere else; no code of a model
folder is ever run.
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from radiance_core.text.chat_template import ChatTemplate
    from radiance_core.text.template_process import TemplateProcess
    from radiance_core.text.tokenizer import Tokenizer


class TextCheckpoint(Protocol):
    """What the text layer needs to know of a checkpoint."""

    @property
    def format(self) -> str:
        """``gguf`` or ``safetensors``."""

    @property
    def metadata(self) -> Mapping[str, object]:
        """The GGUF file's key/value pairs, or the contents of ``config.json``."""

    def side_file(self, name: str) -> bytes | None:
        """Return the contents of a file beside the weights, ``None`` where there is none."""


def load_tokenizer(checkpoint: TextCheckpoint) -> "Tokenizer":
    """Return the tokenizer of a checkpoint.

    Raises:
        TokenizerError: there is none, or it is malformed or of a kind that is not read.
    """
    from radiance_core.text.errors import TokenizerError
    from radiance_core.text.tokenizer import Tokenizer, parse_object

    if checkpoint.format == "gguf":
        return Tokenizer.from_gguf(checkpoint.metadata)
    data = checkpoint.side_file("tokenizer.json")
    if data is None:
        raise TokenizerError(
            "tokenizer.json: expected beside the weights, got no such file; download it with the "
            "model, or make it from the model's tokenizer.model with a converter."
        )
    config: dict[str, object] = {}
    for name in ("special_tokens_map.json", "tokenizer_config.json"):
        held = checkpoint.side_file(name)
        if held is not None:
            config |= {
                key: value for key, value in parse_object(held, name).items() if value is not None
            }
    generation = checkpoint.side_file("generation_config.json")
    ends = {} if generation is None else parse_object(generation, "generation_config.json")
    if ends.get("eos_token_id") is None:
        ends = {"eos_token_id": checkpoint.metadata.get("eos_token_id")}
    return Tokenizer.from_tokenizer_json(data, config, ends)


def load_chat_template(
    checkpoint: TextCheckpoint, tokenizer: "Tokenizer", process: "TemplateProcess | None" = None
) -> "ChatTemplate | None":
    """Return the chat template of a checkpoint, ``None`` where it has none.

    A ``chat_template.jinja`` file goes before the template in ``tokenizer_config.json``.

    Args:
        checkpoint, tokenizer: of the model.
        process: one that is to hold the template; without a template it is closed.

    Raises:
        TemplateError: the template's file is no text. Whether it is a template shows in ``facts``.
    """
    from radiance_core.text.chat_template import ChatTemplate
    from radiance_core.text.errors import TemplateError

    source = tokenizer.chat_template
    if checkpoint.format != "gguf":
        held = checkpoint.side_file("chat_template.jinja")
        if held is not None:
            try:
                source = held.decode()
            except UnicodeDecodeError as err:
                raise TemplateError(
                    f"chat_template.jinja: expected UTF-8 text, got {err.reason} at byte "
                    f"{err.start}; the file is damaged.",
                    "syntax",
                ) from err
    if source is None:
        if process is not None:
            process.close()
        return None
    return ChatTemplate(source, tokenizer.special_texts(), process)
