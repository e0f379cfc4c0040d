"""Who must give way when pages are short: the last in line, whose state is computed again later."""

from radiance_core.engine.pages import StateCache
from radiance_core.engine.schedule import Step, Work
from radiance_core.engine.sequence import Sequence, held_by


def hold_pages(
    step: Step, running: list[Sequence], cache: StateCache
) -> tuple[Step, list[Sequence]]:
    """Hold the pages of a step's work; while they do not last, the last that runs loses its own.

    Progress is certain: the first in line keeps what it has, and one sequence alone always fits.

    Args:
        step: what is to run.
        running: who runs, in order of priority and arrival; those who give way are taken out.
        cache: where pages come from.

    Returns:
        The step without those who gave way, and they.
    """
    short = _short(step, cache)
    if short:
        # Nobody gives way to what is only guessed.
        step = step.without_drafts()
        short = _short(step, cache)
    if not short:
        return step, []
    gone: list[Sequence] = []
    for w in sorted(short, key=lambda w: w.seq.order):
        while w.seq not in gone and not cache.hold(held_by(w.seq), w.start, w.end):
            last = running.pop()
            gone.append(last)
            cache.leave(held_by(last))
            last.step_back()
    return step.without(gone), gone


def _short(step: Step, cache: StateCache) -> list[Work]:
    """Hold pages; return the work that there were too few for."""
    short = []
    for w in step.work:
        end, held = w.start + w.num_tokens, held_by(w.seq)
        # Most rows that go on have room in the page of the row before.
        if end > held.room and not cache.hold(held, w.start, end):
            short.append(w)
    return short
