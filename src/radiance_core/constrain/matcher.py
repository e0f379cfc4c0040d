"""The state of one text under a constraint: which tokens may come next, and going on by one."""

import time
from typing import Any

import numpy as np

from radiance_core.constrain.errors import ConstraintError
from radiance_core.constrain.native import error_of

MASK_LIMIT_S = 0.2
"""Processor time of one mask after which a text is ended, since it holds up all others."""
FREE_S = 0.5
TOKEN_S = 0.002
"""Processor time that all masks of a text may take together, at first and for each token."""


class Matcher:
    """Implements the contract of ``engine.sampling.Constraint``.

    Args:
        matcher: llguidance's, in the state of a text that has not begun; owned from now on.
        eos_ids: tokens that end a text.
        num_ids: ids that the vocabulary has; ids past them are never allowed.
    """

    def __init__(self, matcher: Any, eos_ids: frozenset[int], num_ids: int) -> None:
        self._matcher = matcher
        self._eos_ids = eos_ids
        self._num_ids = num_ids
        self._num_accepted = 0
        self._num_ends = 0
        self._spent_s = 0.0

    @property
    def spent_s(self) -> float:
        """Processor time that this text has taken for masks and for going on, in seconds."""
        return self._spent_s

    def fill(self, words: np.ndarray) -> None:
        """Write which tokens may come next: i32 [ceil(V / 32)], bit t % 32 of word t // 32.

        Raises:
            ConstraintError: the text has led where masks cost too much.
        """
        start = time.thread_time()
        mask = np.frombuffer(self._matcher.compute_bitmask(), np.int32)
        self._check(time.thread_time() - start)
        count = min(len(mask), len(words))
        words[:count] = mask[:count]
        words[count:] = 0
        if count and self._num_ids < count * 32:
            last = self._num_ids // 32
            words[last] = int(words[last]) & ((1 << self._num_ids % 32) - 1)

    def accept(self, token: int) -> bool:
        """Go on by a token; False when it was not allowed, and then nothing has changed.

        Raises:
            ConstraintError: the text has led where going on costs too much.
        """
        if not 0 <= token < self._num_ids:
            return False
        if token in self._eos_ids and self._matcher.is_accepting():
            self._num_ends += 1
            return True
        if self._num_ends:
            return False
        start = time.thread_time()
        took: bool = self._matcher.try_consume_tokens([token]) == 1
        self._check(time.thread_time() - start)
        self._num_accepted += took
        return took

    def rewind(self, count: int) -> None:
        """Take the last ``count`` accepted tokens back."""
        total = self._num_accepted + self._num_ends
        assert 0 <= count <= total, f"rewind: {count} of {total} accepted tokens"
        ends = min(count, self._num_ends)
        self._num_ends -= ends
        if count > ends:
            self._num_accepted -= count - ends
            self._matcher.rollback(count - ends)

    @property
    def is_complete(self) -> bool:
        """Whether the text is whole and nothing more may come."""
        if self._num_ends:
            return True
        return bool(self._matcher.is_stopped() and self._matcher.is_accepting())

    def _check(self, seconds: float) -> None:
        if error := error_of(self._matcher):
            raise ConstraintError(f"constraint: the text has led where it cannot go on: {error}.")
        self._spent_s += seconds
        if seconds > MASK_LIMIT_S:
            raise ConstraintError(
                f"constraint: expected to find the next tokens within {MASK_LIMIT_S} s, "
                f"it took {seconds:.1f} s; make the constraint simpler."
            )
        allowed = FREE_S + TOKEN_S * self._num_accepted
        if self._spent_s > allowed:
            raise ConstraintError(
                f"constraint: expected {self._num_accepted} tokens to take at most {allowed:.1f} s "
                f"of processor time to check, they took {self._spent_s:.1f} s; "
                "make the constraint simpler."
            )


class Source:
    """Implements the contract of ``engine.sampling.ConstraintSource``.

    Args:
        prototype: llguidance's matcher; copied for each text.
        eos_ids, num_ids: of the vocabulary.
        ignored: paths in the constraint that mean nothing to anybody here.
    """

    def __init__(
        self, prototype: Any, eos_ids: frozenset[int], num_ids: int, ignored: tuple[str, ...] = ()
    ) -> None:
        self._prototype = prototype
        self._eos_ids = eos_ids
        self._num_ids = num_ids
        self._ignored = ignored

    @property
    def ignored(self) -> tuple[str, ...]:
        """Paths in the constraint that mean nothing to anybody here."""
        return self._ignored

    def start(self) -> Matcher:
        """Return the state of a text that has not begun; takes some microseconds."""
        return Matcher(self._prototype.deep_copy(), self._eos_ids, self._num_ids)
