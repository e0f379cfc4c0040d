"""One request on its way: its tokens, its pages, and how its text is cut."""

import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace

from radiance_core.engine.drafting import PromptLookup
from radiance_core.engine.interface import Delta, Fault, FinishReason, Request
from radiance_core.engine.pages import Held, Text
from radiance_core.engine.row_plan import RowPlan
from radiance_core.engine.sampling import TokenLogprob
from radiance_core.text.detokenizer import Detokenizer
from radiance_core.text.stop import StopMatcher

Emit = Callable[[Delta], bool]
"""Hands a delta to whoever asked; False when nobody can hear any more. Must not block or raise."""


@dataclass(slots=True, eq=False)
class Sequence:
    """State of one request on the engine's thread.

    ``text``: prompt, then what was generated, as the cache sees it; ``tokens`` are its ids.
    ``computed``: tokens whose keys and values are held. ``held``: its cache pages, ``None`` while
    it waits. ``limit``: tokens to generate. ``drafted``: guessed tokens after ``tokens`` that the
    step at hand verifies. ``arrival``: its number among all; ``arrived_s``: the time on the
    monotonic clock; ``queued_s``: from then until it was first let in. ``seen``: tokens that were
    computed once, before a preemption or now. ``entries``: times that it was let in, the last time
    with ``entered_with`` generated tokens. ``stalls``: preemptions in a row that came before it had
    gained a token. ``displaced``: it was sent out of the queue. ``is_poisoned``: what it computed
    must not be found by others. ``plan``: how its rows are drawn. ``told``: log probabilities of
    tokens that were drawn and not accepted yet; ``prompt_told``: those of the prompt after its
    first token, in order.
    """

    request: Request
    plan: RowPlan
    limit: int
    stop_ids: frozenset[int]
    detokenizer: Detokenizer
    matcher: StopMatcher
    emit: Emit
    text: Text
    lookup: PromptLookup | None = None
    _gained: int = -1
    drafted: list[int] = field(default_factory=list)
    held: Held | None = None
    arrival: int = 0
    arrived_s: float = 0.0
    queued_s: float = 0.0
    computed: int = 0
    seen: int = 0
    generated: int = 0
    cached_tokens: int = 0
    entries: int = 0
    entered_with: int = 0
    preempted: bool = False
    stalls: int = 0
    is_poisoned: bool = False
    told: list[TokenLogprob] = field(default_factory=list)
    prompt_told: list[TokenLogprob] = field(default_factory=list)
    cancelled: bool = False
    finished: bool = False
    failed: bool = False
    displaced: bool = False
    prompt_tokens: int = field(init=False)

    def __post_init__(self) -> None:
        self.prompt_tokens = len(self.request.prompt_ids)

    @property
    def tokens(self) -> list[int]:
        """Ids of the prompt and of what was generated."""
        return self.text.ids

    @property
    def order(self) -> tuple[int, int]:
        """What it is sorted by, wherever one must come before another."""
        return self.request.priority, self.arrival

    @property
    def most_tokens(self) -> int:
        """Tokens that prompt and answer can come to."""
        return self.prompt_tokens + self.limit

    @property
    def pending(self) -> int:
        """Tokens that are known but not computed yet."""
        return len(self.tokens) - self.computed

    def enter(self, held: Held, hit: int) -> None:
        """Begin, or begin again, with the state of the first ``hit`` tokens."""
        self.held, self.computed = held, hit
        self.entered_with = self.generated
        self.preempted = False
        self.entries += 1
        if self.entries == 1:
            self.cached_tokens = self.seen = hit
            self.queued_s = time.monotonic() - self.arrived_s

    def step_back(self) -> None:
        """Lose all that was computed, but nothing that was generated."""
        self.held, self.computed = None, 0
        self.drafted = []
        self.preempted = True
        self.stalls = self.stalls + 1 if self.generated == self.entered_with else 0

    @property
    def wanted_from(self) -> int:
        """The first place whose row of logits is wanted: the last one, unless the prompt is told.

        A row tells of the token after it.
        """
        if self.request.sampling.prompt_logprobs is not None:
            first = len(self.prompt_told)
            if first + 1 < self.prompt_tokens:
                return first
        return len(self.text.ids) - 1

    def tell_prompt(self, told: TokenLogprob, place: int) -> None:
        """Take what is told of the prompt's token at ``place``; once told it stays."""
        if place == len(self.prompt_told) + 1 and place < self.prompt_tokens:
            self.prompt_told.append(told)

    def accept(self, token: int) -> None:
        """Take a token: end on a stop token, stop string or the limit; send what is decided."""
        if self.limit == 0:
            self._end("length", None, "")
            return
        ends, constraint = token in self.stop_ids, self.request.constraint
        reader = self.request.reader
        if ends and reader is not None:
            ends = not reader.passes(token)
        if constraint is not None and not ends and not constraint.accept(token):
            self.fail(f"Token {token} was drawn, which the constraint of the text does not allow.")
            return
        self.text.ids.append(token)
        self.generated += 1
        self._gained = token
        if ends:
            named = token in self.request.sampling.stop_token_ids
            self._close("stop", token if named else None, "")
            return
        text, stop = self.detokenizer.push(token), None
        # Text that came before anything may end it can neither complete nor begin a stop string.
        if reader is not None:
            stop = reader.feed(text, may_stop=self._may_stop)
        elif self._may_stop and not self.matcher.is_empty:
            fed = self.matcher.feed(text)
            text, stop = fed.text, fed.stop
        if stop is not None:
            self._end("stop", stop, text)
        elif constraint is not None and constraint.is_complete:
            self._close("stop", None, text)
        elif self.generated >= self.limit:
            self._close("length", None, text)
        else:
            self._send(self._delta(text))

    @property
    def _may_stop(self) -> bool:
        return self.generated > self.plan.min_tokens

    def _delta(self, text: str) -> Delta:
        """Return a delta of one token, or of none when none was wanted."""
        if not self.plan.is_told:
            if self.limit == 0:
                return Delta(text, 0)
            return Delta(text, 1, token_ids=(self._gained,))
        prompt: tuple[TokenLogprob, ...] = ()
        if self.generated <= 1:
            prompt = tuple(self.prompt_told)
        if self.limit == 0:
            return Delta(text, 0, prompt_logprobs=prompt)
        told = (self.told.pop(0),) if self.told else ()
        return Delta(
            text, 1, token_ids=(self._gained,), logprobs=told, prompt_logprobs=prompt
        )  # fmt: skip

    def _close(self, reason: FinishReason, stop: int | None, text: str) -> None:
        """End with all text that was held back, unless it completes a stop string."""
        rest, matched = self.detokenizer.flush(), None
        if (reader := self.request.reader) is not None:
            text += rest
            is_cut = reason == "length" or stop is not None
            matched = reader.feed(rest, may_stop=self._may_stop)
            matched = matched or reader.finish(cut=is_cut, may_stop=self._may_stop)
        else:
            tail = self.matcher.feed(rest)
            last = self.matcher.flush() if tail.stop is None else tail
            text += tail.text + (last.text if last is not tail else "")
            matched = last.stop
        if matched is not None:
            self._end("stop", matched, text)
        else:
            self._end(reason, stop, text)

    def _end(self, reason: FinishReason, stop: str | int | None, text: str) -> None:
        self.finished = True
        self._send(
            replace(
                self._delta(text),
                finish_reason=reason,
                stop_reason=stop,
                prompt_tokens=self.prompt_tokens,
                completion_tokens=self.generated,
                cached_tokens=self.cached_tokens,
                queued_s=self.queued_s,
            )
        )

    def fail(self, text: str, at_fault: Fault = "engine") -> None:
        """End with an error, and say what brought it about."""
        if not self.finished:
            self.finished = self.failed = True
            totals = self.prompt_tokens, self.generated, self.cached_tokens
            self._send(Delta("", 0, "error", None, text, *totals, at_fault=at_fault))

    def _send(self, delta: Delta) -> None:
        if self.request.reader is not None:
            delta = replace(delta, events=self.request.reader.take())
        if not self.emit(delta):
            self.cancelled = True


def held_by(seq: Sequence) -> Held:
    """Return what a running sequence holds."""
    assert seq.held is not None, "who runs holds pages"
    return seq.held
