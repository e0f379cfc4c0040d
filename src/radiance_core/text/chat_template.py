"""A model's chat template: messages to prompt text, within limits of time, size and memory."""

import asyncio
from collections.abc import Mapping, Sequence

from radiance_core.text.chat_messages import normalise_messages
from radiance_core.text.errors import TemplateError
from radiance_core.text.template_facts import TemplateFacts
from radiance_core.text.template_process import TemplateProcess

# Names that the server sets, and names of switches of other programs' rendering call: a request
# that could set them would change what a prompt is, not what it says.
RESERVED = frozenset({
    "messages", "conversation", "tools", "add_generation_prompt", "continue_final_message",
    "chat_template", "tokenize", "tokenizer", "padding", "truncation", "max_length",
    "return_tensors", "return_dict", "return_assistant_tokens_mask", "tokenizer_kwargs",
    "bos_token", "eos_token", "unk_token", "pad_token", "raise_exception", "strftime_now",
})  # fmt: skip


class ChatTemplate:
    """One template in its own process. Rendering is safe from any thread.

    Args:
        source: the template; untrusted. Its process checks it before it runs any of it.
        special_texts: variables such as ``bos_token`` that the template may print.
        process: one that holds no template yet and is this one's from now on; it may be starting.
    """

    def __init__(
        self,
        source: str,
        special_texts: Mapping[str, str] | None = None,
        process: TemplateProcess | None = None,
    ) -> None:
        self.source = source
        self._special_texts = dict(special_texts or {})
        self._process = TemplateProcess() if process is None else process

    @property
    def facts(self) -> TemplateFacts:
        """What the template says of itself. Blocks until it is loaded: not for the event loop.

        Raises:
            TemplateError: the source is too long, too deep, or no template.
        """
        return self._process.load(self.source)

    def start(self) -> None:
        """Start the rendering process in the background; otherwise the first render does."""
        self._process.start()

    def close(self) -> None:
        """End the rendering process."""
        self._process.close()

    def render(
        self,
        messages: Sequence[Mapping[str, object]],
        *,
        tools: Sequence[Mapping[str, object]] | None = None,
        add_generation_prompt: bool = True,
        extra: Mapping[str, object] | None = None,
    ) -> str:
        """Return the prompt text of a conversation. Blocks: not for the event loop.

        Args:
            messages: chat messages as a request gives them (plain JSON).
            tools: tool descriptions as a request gives them, or ``None``.
            add_generation_prompt: end with what makes the model answer.
            extra: further variables (``chat_template_kwargs``); see ``facts.variables`` for
                those that have an effect.

        Raises:
            TemplateError: the template refuses the conversation (its words are in
                ``template_text``), fails, takes too long, or gives too much text; or ``extra``
                names a variable that is not a request's to set.
        """
        taken = sorted(RESERVED.intersection(extra or ()))
        if taken:
            raise TemplateError(
                f"chat_template_kwargs: expected variables of the template's own, got "
                f"{', '.join(taken)}, which the server sets; leave them out.",
                "message",
            )
        return self._process.render(
            self.source,
            {
                **self._special_texts,
                **(extra or {}),
                "messages": normalise_messages(messages, self.facts),
                "tools": None if tools is None else list(tools),
                "documents": (extra or {}).get("documents"),
                "add_generation_prompt": add_generation_prompt,
            },
        )

    async def render_async(
        self,
        messages: Sequence[Mapping[str, object]],
        *,
        tools: Sequence[Mapping[str, object]] | None = None,
        add_generation_prompt: bool = True,
        extra: Mapping[str, object] | None = None,
    ) -> str:
        """Do as ``render`` does without holding up the event loop."""
        return await asyncio.to_thread(
            self.render,
            messages,
            tools=tools,
            add_generation_prompt=add_generation_prompt,
            extra=extra,
        )
