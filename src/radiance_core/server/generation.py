"""Runs the choices of one request side by side and hands out what they gained.

    engine.generate(choice 0) ─┐
    engine.generate(choice 1) ─┼─ one pending delta a choice, merged while nobody takes it ─ take()
    engine.generate(choice 2) ─┘

Text that a slow client has not taken is one growing delta, not a queue of small ones, and past a
limit the engine is not asked for more.
"""

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Self

from radiance_core.engine.interface import Delta, Engine, Request
from radiance_core.server.errors import ApiError, from_engine, internal, invalid, scrub, unavailable
from radiance_core.server.usage import Usage, usage


@dataclass(frozen=True, slots=True)
class Choice:
    """One answer to make.

    Args:
        index: place in the response.
        prompt: number of the prompt it answers; choices of one prompt share its token count.
        request: what the engine is asked.
        prefix: text that comes before the generated text (``echo``).
    """

    index: int
    prompt: int
    request: Request
    prefix: str = ""


class Generation:
    """The running choices of one request.

    ``last``, ``first_at`` and ``last_at`` have, by index, the last delta of the choices that are
    done, and the times of first and last deltas on the monotonic clock; ``asked_at`` is when the
    engine was asked. ``on_first`` is called with a choice and the time when its first token comes.

    Args:
        engine: runs them.
        choices: what to run.
        buffer_chars: unsent text of a choice past which the engine is not asked for more.
        param: field to name when the prompt does not fit.
        retry_after_s: wait to tell a client that is turned away.
    """

    def __init__(
        self,
        engine: Engine,
        choices: Sequence[Choice],
        *,
        buffer_chars: int,
        param: str,
        retry_after_s: float,
    ) -> None:
        self.choices = choices
        self.last: dict[int, Delta] = {}
        self.first_at: dict[int, float] = {}
        self.last_at: dict[int, float] = {}
        self.asked_at = time.monotonic()
        self.on_first: Callable[[Choice, float], None] | None = None
        self._engine = engine
        self._buffer_chars = buffer_chars
        self._param = param
        self._retry_after_s = retry_after_s
        self._pending = {item.index: Delta(item.prefix, 0) for item in choices if item.prefix}
        self._error: ApiError | None = None
        self._news = asyncio.Event()
        self._taken = asyncio.Event()
        self._tasks: list[asyncio.Task[None]] = []

    async def __aenter__(self) -> Self:
        self.asked_at = time.monotonic()
        self._tasks = [asyncio.create_task(self._pump(choice)) for choice in self.choices]
        return self

    async def __aexit__(self, *exc: object) -> None:
        """Cancel what still runs and wait until the engine has let go of it."""
        for task in self._tasks:
            task.cancel()
        # A second cancellation (the client left while we were here) must not leave one running.
        await asyncio.shield(asyncio.gather(*self._tasks, return_exceptions=True))

    def abort(self, error: ApiError) -> None:
        """End the request from outside, as at the limit of a drain."""
        self._fail(error)

    async def begin(self, timeout_s: float) -> None:
        """Wait until every choice has its first delta, or for ``timeout_s``.

        Raises: ``ApiError`` when one was refused or failed at once.
        """
        loop = asyncio.get_running_loop()
        deadline = loop.time() + timeout_s
        while self._error is None and len(self.first_at) < len(self.choices):
            self._news.clear()
            try:
                async with asyncio.timeout_at(deadline):
                    await self._news.wait()
            except TimeoutError:
                break
        if self._error is not None:
            raise self._error
        if self._pending:
            self._news.set()

    async def take(self, timeout_s: float | None = None) -> list[tuple[Choice, Delta]] | None:
        """Return what the choices gained since the last call, in the order of their index.

        ``None`` when nothing came for ``timeout_s``; an empty list when all are done.

        Raises: ``ApiError`` when a choice failed or the request was aborted.
        """
        while not self._pending:
            if self._error is not None:
                raise self._error
            if len(self.last) == len(self.choices):
                return []
            self._news.clear()
            try:
                async with asyncio.timeout(timeout_s):
                    await self._news.wait()
            except TimeoutError:
                return None
        gained = [(choice, self._pending[choice.index]) for choice in self.choices
                  if choice.index in self._pending]  # fmt: skip
        self._pending = {}
        self._taken.set()
        return gained

    def usage(self) -> Usage:
        """Return the counts: each prompt once, every choice's answer."""
        prompts: dict[int, Delta] = {}
        for choice in self.choices:
            prompts.setdefault(choice.prompt, self.last[choice.index])
        return usage(
            sum(delta.prompt_tokens for delta in prompts.values()),
            sum(delta.completion_tokens for delta in self.last.values()),
            sum(delta.cached_tokens for delta in prompts.values()),
        )

    async def _pump(self, choice: Choice) -> None:
        try:
            deltas = self._engine.generate(choice.request)
            try:
                async for delta in deltas:
                    self._gain(choice, delta)
                    if delta.finish_reason is not None:
                        return
                    await self._room(choice)
            finally:
                await _close(deltas)
            self._fail(internal("the engine ended this request without a finish reason"))
        except asyncio.CancelledError:
            raise
        except Exception as err:
            error = from_engine(err, self._param, self._retry_after_s)
            error.__cause__ = None if error is err else err
            self._fail(error)

    def _gain(self, choice: Choice, delta: Delta) -> None:
        if delta.finish_reason == "error":
            self._fail(self._ended(delta))
            return
        if choice.index not in self.first_at:
            at = self.first_at[choice.index] = time.monotonic()
            is_empty = delta.finish_reason is not None and not delta.completion_tokens
            if self.on_first is not None and not is_empty:
                self.on_first(choice, at)
        if delta.finish_reason is not None:
            self.last[choice.index] = delta
            self.last_at[choice.index] = time.monotonic()
        pending = self._pending.get(choice.index)
        if pending is not None:
            delta = replace(
                delta,
                text=pending.text + delta.text,
                num_tokens=pending.num_tokens + delta.num_tokens,
                token_ids=pending.token_ids + delta.token_ids,
                logprobs=pending.logprobs + delta.logprobs,
                prompt_logprobs=pending.prompt_logprobs + delta.prompt_logprobs,
                events=pending.events + delta.events,
            )
        self._pending[choice.index] = delta
        self._news.set()

    def _ended(self, delta: Delta) -> ApiError:
        """Tell a request that failed by itself or by its constraint from one cut off by a drain."""
        text = scrub(delta.error or "the engine failed on this request")
        if delta.at_fault == "constraint":
            return invalid(text, code="unsupported_constraint")
        if self._engine.health().state == "draining":
            return unavailable(text, "draining", self._retry_after_s)
        return internal(text, "engine_error")

    async def _room(self, choice: Choice) -> None:
        while (held := self._pending.get(choice.index)) and len(held.text) > self._buffer_chars:
            self._taken.clear()
            await self._taken.wait()

    def _fail(self, error: ApiError) -> None:
        if self._error is None:
            self._error = error
        self._news.set()


async def _close(deltas: AsyncIterator[Any]) -> None:
    """Close an iterator that has something to close: this is what cancels a request."""
    close = getattr(deltas, "aclose", None)
    if close is not None:
        await close()
