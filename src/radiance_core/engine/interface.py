"""The border between the engine and whoever asks it for text: HTTP server, chat command.

One file, because it is the whole border: values and protocols, and nothing that runs.
"""

from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol

from radiance_abi.errors import RadianceError
from radiance_core.chat_format.events import Event
from radiance_core.chat_format.format import ChatFormat
from radiance_core.engine.sampling import (
    AnswerReader,
    Constraint,
    ConstraintSource,
    ConstraintSpec,
    SamplingParams,
    TokenLogprob,
)

FinishReason = Literal["stop", "length", "error"]
Fault = Literal["engine", "constraint"]
EngineState = Literal["loading", "ready", "draining", "failed"]


class QueueFull(RadianceError):  # noqa: N818 (a condition that passes, not a defect)
    """The engine holds as many requests as it may; ``retry_after_s`` says when to come back."""

    def __init__(self, text: str, retry_after_s: float = 1.0) -> None:
        super().__init__(text)
        self.retry_after_s = retry_after_s


class EngineStopped(RadianceError):  # noqa: N818
    """The engine is loading, draining or has failed, and takes no request."""


class PromptTooLong(RadianceError):  # noqa: N818
    """A prompt alone does not fit.

    Args:
        text: the message.
        num_tokens: tokens of the prompt.
        max_tokens: tokens that would have fitted.
    """

    def __init__(self, text: str, num_tokens: int, max_tokens: int) -> None:
        super().__init__(text)
        self.num_tokens = num_tokens
        self.max_tokens = max_tokens


@dataclass(slots=True)
class Request:
    """One prompt to continue.

    Args:
        request_id: unique in the process and made by the server.
        prompt_ids: the prompt.
        sampling: how its tokens are drawn.
        priority: requests of a lower number go first; among equals the earlier one.
        salt: requests share cached prompts only with those of the same salt; made by the server
            from the API key and the client's ``cache_salt``.
        tenant: who asks; of equal priority, those of each tenant get their turn.
        reuse_cache: whether it may start from what an earlier request computed.
        constraint: what its text must look like, in the state of a text that has not begun; this
            request's own.
        shown_special_ids: special tokens that are part of the text; all others are left out.
        reader: decides about stop strings in place of ``sampling.stop``, which may mean a part of
            the text only; this request's own.
    """

    request_id: str
    prompt_ids: tuple[int, ...]
    sampling: SamplingParams
    priority: int = 0
    salt: str = ""
    reuse_cache: bool = True
    constraint: Constraint | None = None
    shown_special_ids: frozenset[int] = frozenset()
    tenant: str = ""
    reader: AnswerReader | None = None


@dataclass(slots=True)
class Delta:
    """What a request gained since the last delta; nobody changes it.

    One is made for each token, and freezing it would make that nine times as slow (2.4 us).

    Args:
        text: new text, whole characters only; may be empty while a stop string is undecided.
        num_tokens: tokens generated since the last delta, counted also when they gave no text.
        finish_reason: ``None`` until the last delta.
        stop_reason: the stop string or stop token id that ended it, else ``None``.
        error: what went wrong, when ``finish_reason`` is ``error``; in words fit for a client.
        prompt_tokens: in the last delta, tokens of the prompt.
        completion_tokens: in the last delta, all tokens generated.
        cached_tokens: in the last delta, prompt tokens whose state was found, not computed.
        queued_s: in the last delta, seconds that the request waited before it was first let in.
        token_ids: the tokens generated since the last delta, also those that gave no text yet.
        logprobs: of those tokens, when the request asked.
        prompt_logprobs: in one delta, of every prompt token after the first, when asked.
        events: what the request's reader made of the text, which is whole then.
        at_fault: what brought an error about, when there is one.
    """

    text: str
    num_tokens: int
    finish_reason: FinishReason | None = None
    stop_reason: str | int | None = None
    error: str | None = None
    prompt_tokens: int = 0
    completion_tokens: int = 0
    cached_tokens: int = 0
    queued_s: float = field(default=0.0, compare=False)
    token_ids: tuple[int, ...] = ()
    logprobs: tuple[TokenLogprob, ...] = ()
    prompt_logprobs: tuple[TokenLogprob, ...] = ()
    events: tuple[Event, ...] = ()
    at_fault: Fault = "engine"


@dataclass(frozen=True, slots=True)
class SequenceInfo:
    """A request in the engine, as an operator may see it; nothing of its text.

    Args:
        request_id: of the request.
        state: ``waiting``, ``running`` or ``preempted``.
        priority: of the request.
        age_s: seconds since it came.
        prompt_tokens, generated_tokens, cached_tokens: of the request.
        pages: cache pages that it holds, by group.
    """

    request_id: str
    state: str
    priority: int
    age_s: float
    prompt_tokens: int
    generated_tokens: int
    cached_tokens: int
    pages: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class Health:
    """Whether the engine can serve now, in a word and in a sentence."""

    ok: bool
    detail: str
    state: EngineState


class Engine(Protocol):
    """Runs requests. All methods are called on the event loop and must not block it."""

    def generate(self, request: Request) -> AsyncIterator[Delta]:
        """Run a request; the last delta carries a finish reason.

        Closing the iterator cancels the request and frees what it held within 250 ms, never
        touching another request. An error of the request itself is a last delta whose
        ``finish_reason`` is ``error``, not an exception.

        Raises (before the first delta): ``QueueFull``, ``EngineStopped``, ``PromptTooLong``.
        """

    def health(self) -> Health:
        """Say the truth about the loop that runs the steps, not about this object."""

    async def drain(self, timeout_s: float) -> None:
        """Refuse new requests, let running ones end, and end those left with an error delta."""

    def stats(self) -> Mapping[str, float]:
        """Return counters and gauges by name (``requests_running``, ``tokens_generated``, …)."""

    def sequences(self) -> Sequence[SequenceInfo]:
        """Return what waits and runs, from a copy that the engine's thread made."""

    async def reset_prefix_cache(self) -> bool:
        """Forget every cached prompt; False when some could not be, since requests use them."""


class TextTokenizer(Protocol):
    """What the server needs of a tokenizer; every method may be called from any thread."""

    @property
    def vocab_size(self) -> int:
        """Number of token ids."""

    @property
    def bos_id(self) -> int | None:
        """The token that begins a text, if the vocabulary has one."""

    @property
    def eos_ids(self) -> frozenset[int]:
        """The tokens that end a text."""

    @property
    def add_bos(self) -> bool:
        """Whether a plain text is encoded with a begin token before it."""

    @property
    def add_eos(self) -> bool:
        """Whether a plain text is encoded with an end token after it."""

    def special_texts(self) -> dict[str, str]:
        """Return the texts that chat templates know as ``bos_token``, ``eos_token`` and so on."""

    def token_text(self, id_: int) -> str | None:
        """Return a token's text as the vocabulary spells it, ``None`` for an unused id."""

    def token_bytes(self, id_: int) -> bytes:
        """Return exactly the bytes that a token stands for in the middle of a text."""

    def encode(
        self, text: str, *, add_special_tokens: bool, parse_special: bool = True
    ) -> list[int]:
        """Return the ids of ``text``, with the model's own prefix and suffix when asked."""

    def encode_prompt(self, rendered: str) -> list[int]:
        """Return the ids of a rendered chat template, with one BOS where one is due."""

    def as_text(self, text: str) -> str:
        """Return ``text`` as a rendered chat template holds it, where it gives no special token."""

    def decode(self, ids: Iterable[int], *, skip_special_tokens: bool = True) -> str:
        """Return the text of ``ids``."""


class TextModel(Protocol):
    """A served model as its front ends see it."""

    @property
    def model_id(self) -> str:
        """The name it is served under."""

    @property
    def created(self) -> int:
        """Unix time of the model file, stable over restarts."""

    @property
    def max_context(self) -> int:
        """Tokens that prompt and answer may have together."""

    @property
    def tokenizer(self) -> TextTokenizer:
        """Text to ids and back."""

    @property
    def default_sampling(self) -> SamplingParams:
        """What a request that says nothing gets."""

    @property
    def sampling_sources(self) -> Mapping[str, str]:
        """Where the values of ``default_sampling`` came from, by field."""

    @property
    def max_tokens_cap(self) -> int | None:
        """Most tokens of any answer, whatever a request asks for."""

    @property
    def chat_format(self) -> ChatFormat:
        """How the model spells reasoning and tool calls, as far as that is known."""

    async def compile_constraint(self, spec: ConstraintSpec) -> ConstraintSource:
        """Compile a constraint, off the event loop and within limits.

        Raises: ``radiance_core.constrain.errors.ConstraintError`` for what cannot be enforced.
        """

    @property
    def template_variables(self) -> frozenset[str] | None:
        """Names that the chat template reads from outside; ``None`` without a template."""

    async def render_chat(
        self,
        messages: Sequence[Mapping[str, Any]],
        tools: Sequence[Mapping[str, Any]] | None,
        kwargs: Mapping[str, Any],
    ) -> str:
        """Render a conversation to prompt text, off the event loop.

        ``kwargs`` holds ``add_generation_prompt`` and what the request passed to the template.

        Raises: ``radiance_core.text.errors.TemplateError``.
        """
