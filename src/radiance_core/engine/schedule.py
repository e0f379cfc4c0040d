"""Who goes on in the next step, with how many tokens: decode rows first, then prompts."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import NamedTuple

from radiance_core.engine.counters import StepKind
from radiance_core.engine.sequence import Sequence


class Work(NamedTuple):
    """Tokens [start, start + num_tokens) of one sequence; the last ``num_outs`` have logits.

    A tuple, for as many of these as there are rows are made in every step.
    """

    seq: Sequence
    start: int
    num_tokens: int
    num_outs: int

    @property
    def end(self) -> int:
        """The position after the last."""
        return self.start + self.num_tokens


class Step(NamedTuple):
    """The work of one step; the first ``num_decode`` are one row each, over a filled cache."""

    work: list[Work]
    num_decode: int
    kind: StepKind = "decode"

    @property
    def num_prompt_tokens(self) -> int:
        """Tokens of those that are neither drawn just before nor guessed."""
        others = self.work[self.num_decode :]
        return sum(w.num_tokens for w in others if not w.seq.drafted)

    def without(self, gone: Iterable[Sequence]) -> "Step":
        """Return the step without some sequences."""
        left = set(gone)
        decode = [w for w in self.work[: self.num_decode] if w.seq not in left]
        others = [w for w in self.work[self.num_decode :] if w.seq not in left]
        return Step([*decode, *others], len(decode), self.kind)

    def without_drafts(self) -> "Step":
        """Return the step with no token that is only guessed."""
        decode, others = self.work[: self.num_decode], []
        for w in self.work[self.num_decode :]:
            if w.seq.drafted:
                w.seq.drafted = []
                decode.append(Work(w.seq, w.start, 1, 1))
            else:
                others.append(w)
        return Step([*decode, *others], len(decode), self.kind)

    def halves(self) -> "tuple[Step, Step]":
        """Return two steps that come to this one."""
        at = len(self.work) // 2
        first = Step(self.work[:at], min(self.num_decode, at), self.kind)
        rest = Step(self.work[at:], self.num_decode - first.num_decode, self.kind)
        return first, rest


@dataclass(frozen=True, slots=True)
class Bounds:
    """What a step may come to: tokens, rows of logits, and guessed tokens of one sequence."""

    tokens: int
    outs: int
    drafts: int = 0


def next_step(
    running: Iterable[Sequence], bounds: Bounds, shared_tokens: int | None = None
) -> Step:
    """Divide the step's tokens: one for each that goes on, guesses after it, the rest to prompts.

    Args:
        running: sequences in order of priority and arrival.
        bounds: those that go on are never more than a step can take.
        shared_tokens: most prompt tokens of a step in which more than one sequence takes part;
            ``None`` for no other bound than a step has.
    """
    work: list[Work] = []
    prompts: list[Sequence] = []
    for seq in running:
        computed = seq.computed
        if computed and computed + 1 == len(seq.text.ids):
            work.append(Work(seq, computed, 1, 1))
        else:
            prompts.append(seq)
    room, outs = bounds.tokens - len(work), bounds.outs - len(work)
    guessing: list[Work] = []
    if bounds.drafts and work:
        # Guesses leave at least half of what there is to prompts that wait.
        most = room // 2 if prompts else room
        work, guessing = _guess(work, bounds.drafts, min(most, outs))
        room -= sum(w.num_tokens - 1 for w in guessing)
        outs -= sum(w.num_tokens - 1 for w in guessing)
    going_on = bool(work or guessing)
    shared = bounds.tokens if shared_tokens is None else shared_tokens
    read = list(_read_on(prompts, min(room, shared) if going_on else room, outs, shared))
    kind: StepKind = ("mixed" if going_on else "prefill") if read else "decode"
    return Step([*work, *guessing, *read], len(work), kind)


def _guess(work: list[Work], each: int, room: int) -> tuple[list[Work], list[Work]]:
    """Return the work without guesses, and that with them, which is longer by ``room`` at most."""
    plain, longer = [], []
    for w in work:
        seq = w.seq
        most = min(each, room, seq.limit - seq.generated - 1)
        if seq.lookup is not None and most > 0:
            seq.drafted = seq.lookup.guess(seq.text.ids, most)
        count = len(seq.drafted)
        if count:
            room -= count
            longer.append(Work(seq, w.start, 1 + count, 1 + count))
        else:
            plain.append(w)
    return plain, longer


def _read_on(prompts: Iterable[Sequence], room: int, outs: int, shared: int) -> Iterator[Work]:
    """Divide tokens among prompts, in order; more than one get ``shared`` together at most."""
    taken = 0
    for seq in prompts:
        if room <= 0 or outs <= 0:
            return
        start = seq.computed
        count = min(seq.pending, room)
        wanted = _outs(seq, count)
        if wanted > outs:
            count -= wanted - outs
            wanted = outs
        yield Work(seq, start, count, wanted)
        taken += count
        room = min(room - count, shared - taken)
        outs -= wanted


def _outs(seq: Sequence, count: int) -> int:
    """Return how many rows of the next ``count`` must have logits; they are the last ones."""
    return max(0, seq.computed + count - max(seq.computed, seq.wanted_from))
