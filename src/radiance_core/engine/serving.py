"""The engine as its front ends see it: asynchronous, bounded, truthful about its thread.

One file, because it is one class of short methods over one engine.
"""

import asyncio
import secrets
import time
from collections.abc import AsyncIterator, Mapping
from dataclasses import replace
from weakref import WeakKeyDictionary

from radiance_core.engine.drafting import PromptLookup
from radiance_core.engine.interface import (
    Delta,
    EngineStopped,
    Health,
    PromptTooLong,
    QueueFull,
    Request,
    SequenceInfo,
)
from radiance_core.engine.loop import EngineLoop
from radiance_core.engine.pages import Text
from radiance_core.engine.post import PostOffice
from radiance_core.engine.row_plan import RowPlan, plan_rows, row_fault
from radiance_core.engine.sequence import Emit, Sequence
from radiance_core.runtime import StepModel
from radiance_core.text.detokenizer import Detokenizer
from radiance_core.text.stop import StopMatcher
from radiance_core.text.tokenizer import Tokenizer

HUNG_AFTER_S = 30.0
DRAIN_POLL_S = 0.02
LAST_STEP_S = 1.0
"""How long the last step may take after a drain before those who wait are told anyway."""


class LocalEngine:
    """Implements the contract between the engine and its front ends.

    Args:
        model: the built model.
        tokenizer: its tokenizer.
        max_context: tokens of prompt and answer together.
        max_seqs, max_tokens: bounds of a step.
        max_queued: requests that may wait; one more is refused.
        max_queued_tokens: tokens of requests that may wait; 0 for no bound.
        keep_prefixes: whether what one request computed serves later ones.
        max_drafts: tokens of one sequence that a step may guess; the model needs a row of logits
            for each.
    """

    def __init__(
        self,
        model: StepModel,
        tokenizer: Tokenizer,
        *,
        max_context: int,
        max_seqs: int,
        max_tokens: int,
        max_queued: int,
        max_queued_tokens: int = 0,
        keep_prefixes: bool = True,
        max_drafts: int = 0,
    ) -> None:
        self._tokenizer = tokenizer
        self._n_vocab = model.n_vocab
        self._max_context = max_context
        self._max_seqs = max_seqs
        self._max_queued = max_queued
        self._max_queued_tokens = max_queued_tokens
        self._max_drafts = max_drafts
        self._loop = EngineLoop(
            model, max_seqs, max_tokens, keep_prefixes=keep_prefixes, max_drafts=max_drafts
        )
        for name, count in self._loop.cache.needs(max_context).items():
            held = self._loop.cache.pools[name].num_pages
            assert count <= held, f"cache {name}: {held} pages, one conversation needs {count}"
        self._offices: WeakKeyDictionary[asyncio.AbstractEventLoop, PostOffice] = (
            WeakKeyDictionary()
        )
        self._draining = False
        self._rejected = 0

    def start(self) -> None:
        """Start the engine's thread."""
        self._loop.start()

    def stop(self, timeout_s: float | None = None) -> bool:
        """End the engine's thread; return whether it has ended within the time, if one is given."""
        return self._loop.stop(timeout_s)

    async def generate(self, request: Request) -> AsyncIterator[Delta]:
        """Run a request; see the contract."""
        self._check(request)
        fault = self._fault(request)
        if fault is not None:
            yield Delta("", 0, "error", None, fault, len(request.prompt_ids), 0, 0)
            return
        mailbox = self._post_office().mailbox()
        seq = self._sequence(request, mailbox.put)
        self._loop.submit(seq)
        try:
            while True:
                delta = await mailbox.get()
                if seq.displaced:
                    self._rejected += 1
                    raise QueueFull(delta.error or "")
                yield delta
                if delta.finish_reason is not None:
                    return
        finally:
            if not seq.finished:
                self._loop.cancel(seq)

    def _check(self, request: Request) -> None:
        health = self.health()
        if not health.ok:
            raise EngineStopped(f"engine: it is {health.state}: {health.detail}")
        count = len(request.prompt_ids)
        most = self._max_context - (request.sampling.max_tokens != 0)
        if count > most:
            raise PromptTooLong(
                f"prompt: expected at most {most} tokens, got {count}; shorten it", count, most
            )
        self._check_queue(count, request.tenant)

    def _check_queue(self, count: int, tenant: str) -> None:
        """Refuse a prompt of ``count`` tokens that the queue has no room for."""
        loop = self._loop
        # Those just queued for a free place only look as if they waited.
        held = loop.num_running + loop.num_waiting
        full = held >= self._max_seqs + self._max_queued
        if full and not (self._max_queued and loop.displace(tenant, self._max_queued)):
            self._rejected += 1
            raise QueueFull(
                f"queue: {loop.num_waiting} requests wait already and at most "
                f"{self._max_queued} may; come back later"
            )
        tokens = loop.num_waiting_tokens
        if held >= self._max_seqs and 0 < self._max_queued_tokens < tokens + count:
            self._rejected += 1
            raise QueueFull(
                f"queue: {tokens} tokens wait already and at most {self._max_queued_tokens} may, "
                f"got {count} more; come back later"
            )

    def _post_office(self) -> PostOffice:
        """Return the way to the event loop that asks."""
        events = asyncio.get_running_loop()
        office = self._offices.get(events)
        if office is None:
            office = self._offices[events] = PostOffice(events)
        return office

    def _fault(self, request: Request) -> str | None:
        """Return what makes the request one that no step can run, or None."""
        ids = request.prompt_ids
        if not ids:
            return "prompt: expected one token or more, got none; send some text"
        wrong = max(ids) if min(ids) >= 0 else min(ids)
        if not 0 <= wrong < self._n_vocab:
            return f"prompt: expected token ids from 0 to {self._n_vocab - 1}, got {wrong}"
        return row_fault(request.sampling, self._n_vocab)

    def _sequence(self, request: Request, emit: Emit) -> Sequence:
        s = request.sampling
        room = self._max_context - len(request.prompt_ids)
        limit = room if s.max_tokens is None else min(room, s.max_tokens)
        stop_ids = frozenset(s.stop_token_ids)
        # A text that must look like something says itself where it may end.
        if not s.ignore_eos or request.constraint is not None:
            stop_ids |= self._tokenizer.eos_ids
        prompt = list(request.prompt_ids)
        seed = secrets.randbits(64) if s.seed is None else s.seed % 2**64
        if s.prompt_logprobs is not None:
            # What is told of a prompt's tokens is told by computing them.
            request = replace(request, reuse_cache=False)
        tokenizer = self._tokenizer
        plan = plan_rows(request, seed, stop_ids, self._n_vocab, tokenizer.token_bytes)
        return Sequence(
            request=request,
            plan=plan,
            lookup=PromptLookup() if self._may_guess(plan) else None,
            limit=limit,
            stop_ids=stop_ids,
            detokenizer=Detokenizer(
                tokenizer,
                shown_special_ids=request.shown_special_ids,
                prompt_ids_tail=prompt[-16:],
            ),
            matcher=StopMatcher(s.stop),
            emit=emit,
            text=Text(self._loop.cache.chain(request.salt), prompt, len(prompt) + limit),
        )

    def _may_guess(self, plan: RowPlan) -> bool:
        """Return whether the rows of guessed tokens find room for what they look back at."""
        rows = 1 + self._max_drafts
        return rows > 1 and 0 <= plan.look_back * rows <= self._max_context

    def health(self) -> Health:
        """Say whether the thread runs and gets on with its steps."""
        loop = self._loop
        if self._draining and loop.state != "failed":
            return Health(False, "the server is stopping", "draining")
        if loop.state != "ready":
            detail = loop.failure or {
                "loading": "the engine's thread has not started",
                "draining": "the engine's thread has been stopped",
            }.get(loop.state, "the engine's thread has ended")
            return Health(False, detail, loop.state)
        busy = loop.busy_since
        if busy is not None and time.monotonic() - busy > HUNG_AFTER_S:
            return Health(False, f"a step has taken over {HUNG_AFTER_S:.0f} s", "failed")
        return Health(True, "ready", "ready")

    async def drain(self, timeout_s: float) -> None:
        """Refuse new requests and wait for those that run."""
        self._draining = True
        end = time.monotonic() + timeout_s
        while time.monotonic() < end and (self._loop.num_running or self._loop.num_waiting):
            await asyncio.sleep(DRAIN_POLL_S)
        await asyncio.to_thread(self._loop.stop, LAST_STEP_S)

    def sequences(self) -> tuple[SequenceInfo, ...]:
        """Return what waits and runs."""
        return self._loop.observation.infos

    async def reset_prefix_cache(self) -> bool:
        """Forget cached prompts; False when some are in use, or the engine has ended."""
        return await asyncio.wrap_future(self._loop.reset_cache())

    def stats(self) -> Mapping[str, float]:
        """Return counters and gauges by name.

        Besides the totals of ``Counters``: requests_running, requests_waiting, tokens_waiting;
        requests_rejected; prefix_cache_evictions, pages of cached prompts that made room;
        kv_cache_usage, the share of the fullest pool that requests hold, 0 to 1; and of every pool
        kv_pages_used_NAME, which requests hold, kv_pages_cached_NAME, which only cached prompts
        do, and kv_pages_total_NAME.
        """
        pools = self._loop.cache.pools
        return {
            "requests_running": self._loop.num_running,
            "requests_waiting": self._loop.num_waiting,
            "tokens_waiting": self._loop.num_waiting_tokens,
            "requests_rejected": self._rejected,
            **self._loop.counters.as_stats(),
            "prefix_cache_evictions": sum(p.num_evicted for p in pools.values()),
            # The fullest pool is the one that new requests wait for.
            "kv_cache_usage": max((p.num_used / p.num_pages for p in pools.values()), default=0.0),
            **{f"kv_pages_used_{n}": p.num_used for n, p in pools.items()},
            **{f"kv_pages_cached_{n}": p.num_kept for n, p in pools.items()},
            **{f"kv_pages_total_{n}": p.num_pages for n, p in pools.items()},
        }
