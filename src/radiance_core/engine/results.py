"""Take a step's results in: what was computed, and the tokens that were drawn."""

from radiance_core.constrain.errors import ConstraintError
from radiance_core.engine.counters import Counters
from radiance_core.engine.drawing import Drawing
from radiance_core.engine.faults import tell_constraint
from radiance_core.engine.pages import StateCache
from radiance_core.engine.schedule import Step
from radiance_core.engine.sequence import Sequence, held_by
from radiance_core.log_events import get_logger

log = get_logger(__name__)


def take_results(step: Step, drawing: Drawing, cache: StateCache, counters: Counters) -> None:
    """Note what a step computed, then give each sequence the tokens that it drew.

    Args:
        step: what has run.
        drawing: where its results are.
        cache: learns of the blocks that are whole now, unless their sequence failed.
        counters: of the engine.
    """
    drawn = drawing.read(sum(w.num_outs for w in step.work))
    at = 0
    for seq, start, count, outs in step.work:
        seq.computed = start + count - len(seq.drafted)
        if seq.generated and start == seq.seen:
            seq.seen = seq.computed
        else:
            _count(seq, start, counters)
        if outs:
            _accept(seq, drawn[at : at + outs], counters)
            at += outs
        if seq.drafted:
            _end_guesses(seq, counters)
        held = held_by(seq)
        if seq.computed >= held.seal_at and not seq.failed:
            cache.seal(held, seq.text, seq.computed)


def _count(seq: Sequence, start: int, counters: Counters) -> None:
    """Count prompt tokens once, and what is computed again after a preemption apart."""
    if start < seq.seen:
        counters.recomputed_tokens += min(seq.computed, seq.seen) - start
    if seq.seen < seq.prompt_tokens:
        new = min(seq.computed, seq.prompt_tokens) - seq.seen
        counters.prompt_tokens += max(0, new)
    seq.seen = max(seq.seen, seq.computed)


def _accept(seq: Sequence, tokens: list[int | None], counters: Counters) -> None:
    """Take drawn tokens in; with guesses, those up to the first that a guess differs from."""
    guesses = seq.drafted
    for place, token in enumerate(tokens):
        if token is None:
            continue  # a row of the prompt, which was told of and drew nothing
        if seq.cancelled or seq.finished:
            return
        if place and guesses:
            # This row saw a guess as the token before it, which is of worth if that was drawn.
            if tokens[place - 1] != guesses[place - 1]:
                return
            seq.computed += 1
        if token < 0:
            seq.is_poisoned = True
            seq.fail("The model's logits were not finite, so no token could be chosen.")
            return
        counters.tokens_generated += seq.limit > 0
        try:
            seq.accept(token)
        except ConstraintError as error:
            tell_constraint(seq, error)
        except Exception as error:
            # Whatever is wrong with one request's text is no reason to end the others.
            log.exception("token_failed", request=seq.request.request_id, token=token)
            seq.fail(f"Token {token} could not be turned into text: {error}")


def _end_guesses(seq: Sequence, counters: Counters) -> None:
    """Forget guesses, and what is told of the rows after the first wrong one."""
    counters.draft_tokens += len(seq.drafted)
    counters.accepted_tokens += seq.computed - seq.seen
    seq.seen = seq.computed
    seq.drafted = []
    seq.told.clear()
