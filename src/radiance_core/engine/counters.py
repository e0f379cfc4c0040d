"""What the engine counts, under the names that statistics have."""

from dataclasses import asdict, dataclass
from typing import Literal

StepKind = Literal["decode", "prefill", "mixed"]


@dataclass(slots=True)
class Counters:
    """Totals since the start; written by the engine's thread only.

    Args:
        steps, step_seconds: all steps and the seconds that they took.
        decode_steps, prefill_steps, mixed_steps: steps of only continuing rows, of only prompts,
            of both; with ``…_seconds`` of each kind.
        steps_aborted: steps that ended early, since nobody waited for them any more; of none other.
        prompt_tokens: prompt tokens computed for the first time.
        recomputed_tokens: tokens computed again after a preemption.
        tokens_generated: tokens drawn and accepted.
        requests_finished, requests_cancelled, requests_failed: how requests ended.
        preemptions: times that a request lost its place to one before it.
        prefix_cache_queries: prompt tokens that were looked up when their request was let in.
        prefix_cache_hits: of those, tokens whose state was found.
        draft_tokens, accepted_tokens: tokens that were guessed, and of those the right ones.
    """

    steps: int = 0
    step_seconds: float = 0.0
    decode_steps: int = 0
    decode_seconds: float = 0.0
    prefill_steps: int = 0
    prefill_seconds: float = 0.0
    mixed_steps: int = 0
    mixed_seconds: float = 0.0
    steps_aborted: int = 0
    prompt_tokens: int = 0
    recomputed_tokens: int = 0
    tokens_generated: int = 0
    requests_finished: int = 0
    requests_cancelled: int = 0
    requests_failed: int = 0
    preemptions: int = 0
    prefix_cache_queries: int = 0
    prefix_cache_hits: int = 0
    draft_tokens: int = 0
    accepted_tokens: int = 0

    def count_step(self, kind: StepKind, seconds: float) -> None:
        """Count one step."""
        self.steps += 1
        self.step_seconds += seconds
        if kind == "decode":
            self.decode_steps += 1
            self.decode_seconds += seconds
        elif kind == "prefill":
            self.prefill_steps += 1
            self.prefill_seconds += seconds
        else:
            self.mixed_steps += 1
            self.mixed_seconds += seconds

    def as_stats(self) -> dict[str, float]:
        """Return every total by its name."""
        return asdict(self)
