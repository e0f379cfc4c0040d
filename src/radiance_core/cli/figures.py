"""What two looks at a running server say about the time between them; nothing happened is None."""

import time
from collections.abc import Mapping
from dataclasses import dataclass

from radiance_core.server.state import State


@dataclass(frozen=True, slots=True)
class Look:
    """What was counted at a moment.

    Args:
        at_s: when, on the monotonic clock.
        engine: the engine's own numbers.
        num_first, first_s: answers that have begun, and the seconds that they took to begin.
        num_finished: answers that ended well.
    """

    at_s: float
    engine: Mapping[str, float]
    num_first: int
    first_s: float
    num_finished: int


def look(state: State) -> Look:
    """Look at a server that has its model; may be called from any thread."""
    counts = state.counts
    return Look(
        time.monotonic(),
        dict(state.attached().engine.stats()),
        sum(counts.first_token.counts),
        counts.first_token.total,
        sum(dict(counts.finished).values()),
    )


@dataclass(frozen=True, slots=True)
class Figures:
    """The live numbers, by the names that the lines of ``--live`` have.

    Args:
        step_ms: seconds of decode steps by decode steps, in milliseconds.
        generated_per_s, prompt_per_s: tokens by seconds.
        kv_used, kv_held: shares of the fullest pool, in flight and kept for prompts alike.
        hit_rate, draft_accepted: shares of the tokens that were looked up or guessed.
        first_token_ms: mean, queueing included.
    """

    running: int
    waiting: int
    step_ms: float | None
    generated_per_s: float
    prompt_per_s: float
    kv_used: float
    kv_held: float
    hit_rate: float | None
    draft_accepted: float | None
    first_token_ms: float | None
    finished: int
    failed: int

    def line(self) -> str:
        """Spell the figures as key=value; a figure that there is none of is ``-``."""
        parts = ((name, getattr(self, name)) for name in self.__dataclass_fields__)
        return " ".join(f"{name}={spell(value)}" for name, value in parts)


def spell(value: float | None) -> str:
    """Spell a number in as few digits as say something."""
    if value is None:
        return "-"
    if isinstance(value, int) or value == 0:
        return str(round(value))
    return f"{value:.0f}" if abs(value) >= 100 else f"{value:.3g}"


def figures(before: Look, now: Look) -> Figures:
    """Return the figures of the time between two looks."""
    seconds = max(now.at_s - before.at_s, 1e-6)

    def gained(name: str) -> float:
        return now.engine.get(name, 0) - before.engine.get(name, 0)

    pools = pool_pages(now.engine).values()
    return Figures(
        running=int(now.engine.get("requests_running", 0)),
        waiting=int(now.engine.get("requests_waiting", 0)),
        step_ms=_share(1000 * gained("decode_seconds"), gained("decode_steps")),
        generated_per_s=gained("tokens_generated") / seconds,
        prompt_per_s=gained("prompt_tokens") / seconds,
        kv_used=max((used / total for used, _, total in pools), default=0.0),
        kv_held=max((held / total for _, held, total in pools), default=0.0),
        hit_rate=_share(gained("prefix_cache_hits"), gained("prefix_cache_queries")),
        draft_accepted=_share(gained("accepted_tokens"), gained("draft_tokens")),
        first_token_ms=_share(
            1000 * (now.first_s - before.first_s), now.num_first - before.num_first
        ),
        finished=now.num_finished,
        failed=int(now.engine.get("requests_failed", 0)),
    )


def pool_pages(engine: Mapping[str, float]) -> dict[str, tuple[float, float, float]]:
    """Return, by pool, its pages in flight, held, and in all."""
    prefix = "kv_pages_total_"
    names = (key.removeprefix(prefix) for key in engine if key.startswith(prefix))
    return {
        name: (
            engine.get(f"kv_pages_used_{name}", 0),
            engine.get(f"kv_pages_cached_{name}", 0),
            engine[prefix + name],
        )
        for name in names
    }


def _share(part: float, whole: float) -> float | None:
    return part / whole if whole > 0 else None
