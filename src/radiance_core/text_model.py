"""A served model as its front ends see it: names, tokenizer, chat template, defaults."""

import asyncio
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from radiance_core.chat_format.format import ChatFormat
from radiance_core.engine.sampling import ConstraintSource, ConstraintSpec, SamplingParams
from radiance_core.text.chat_template import ChatTemplate
from radiance_core.text.tokenizer import Tokenizer

if TYPE_CHECKING:
    from radiance_core.constrain.compiler import Compiler


class LoadedTextModel:
    """Implements the contract of engine.interface.TextModel over one checkpoint.

    Args:
        model_id: the name it is served under.
        path: its file or folder.
        max_context: tokens of prompt and answer together.
        tokenizer, template: of the checkpoint; a model without a template cannot chat.
        default_sampling: what a request that says nothing gets.
        chat_format: how the model spells reasoning and tool calls; None for not at all.
        sampling_sources: where the values of ``default_sampling`` came from, by field.
        max_tokens_cap: most tokens of any answer; None for no cap.
    """

    def __init__(
        self,
        model_id: str,
        path: Path,
        max_context: int,
        tokenizer: Tokenizer,
        template: ChatTemplate | None,
        default_sampling: SamplingParams,
        chat_format: ChatFormat | None = None,
        *,
        sampling_sources: Mapping[str, str] | None = None,
        max_tokens_cap: int | None = None,
    ) -> None:
        self.model_id = model_id
        self.created = _created(path)
        self.max_context = max_context
        self.tokenizer = tokenizer
        self.default_sampling = default_sampling
        self.sampling_sources = dict(sampling_sources or {})
        self.max_tokens_cap = max_tokens_cap
        self.chat_format = chat_format or ChatFormat()
        self._template = template
        self._compiler: Compiler | None = None
        self._compiler_lock = threading.Lock()

    @property
    def template_variables(self) -> frozenset[str] | None:
        """Names that the chat template reads from outside; None without a template."""
        return None if self._template is None else frozenset(self._template.facts.variables)

    async def compile_constraint(self, spec: ConstraintSpec) -> ConstraintSource:
        """Compile a constraint off the event loop."""
        compiler = self._compiler
        if compiler is None:
            compiler = await asyncio.to_thread(self._make_compiler)
        return await compiler.compile(spec.kind, spec.text)

    def _make_compiler(self) -> "Compiler":
        """Import what compiles constraints when the first one comes; most servers see none."""
        from radiance_core.constrain.compiler import Compiler

        with self._compiler_lock:
            if self._compiler is None:
                self._compiler = Compiler(self.tokenizer)
            return self._compiler

    async def render_chat(
        self,
        messages: Sequence[Mapping[str, Any]],
        tools: Sequence[Mapping[str, Any]] | None,
        kwargs: Mapping[str, Any],
    ) -> str:
        """Render a conversation off the event loop; what it says holds no special tokens."""
        return await asyncio.to_thread(self._render, messages, tools, kwargs)

    def _render(
        self,
        messages: Sequence[Mapping[str, Any]],
        tools: Sequence[Mapping[str, Any]] | None,
        kwargs: Mapping[str, Any],
    ) -> str:
        assert self._template is not None, "callers ask template_variables first"
        extra = self._as_text(kwargs)
        prompt = bool(extra.pop("add_generation_prompt", True))
        return self._template.render(
            self._as_text(messages),
            tools=None if tools is None else self._as_text(tools),
            add_generation_prompt=prompt,
            extra=extra,
        )

    def _as_text(self, value: Any) -> Any:
        """Return plain JSON with every text in it made one that is only text."""
        if isinstance(value, str):
            return self.tokenizer.as_text(value)
        if isinstance(value, Mapping):
            return {self._as_text(key): self._as_text(item) for key, item in value.items()}
        if isinstance(value, list | tuple):
            return [self._as_text(item) for item in value]
        return value

    def close(self) -> None:
        """End the processes of the template and of the constraints."""
        if self._compiler is not None:
            self._compiler.close()
        if self._template is not None:
            self._template.close()


def _created(path: Path) -> int:
    """Return when a model was written; one that somebody deleted meanwhile is still served."""
    try:
        return int(path.stat().st_mtime)
    except OSError:
        return int(time.time())
