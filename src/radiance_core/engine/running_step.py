"""The step that runs now, which other threads may end when nobody waits for any of it."""

from collections.abc import Sequence as Listed

import numpy as np

from radiance_core.engine.sequence import Sequence


class RunningStep:
    """Knows whose step runs; all methods are called under the engine's lock.

    Each step has a word of its own, so that what was meant for one never ends the next.
    """

    def __init__(self) -> None:
        self._seqs: Listed[Sequence] = ()
        self._word = np.zeros(1, np.int32)

    def begin(self, seqs: Listed[Sequence], *, stopping: bool) -> np.ndarray:
        """Return the word, int32 [1], that ends the step when it is not 0."""
        self._seqs, self._word = seqs, np.zeros(1, np.int32)
        if stopping:
            self.stop()
        self.look()
        return self._word

    def end(self) -> None:
        """Let go of the sequences of a step that is through."""
        self._seqs = ()

    def look(self) -> None:
        """End the step if all its sequences have been cancelled."""
        if self._seqs and all(seq.cancelled for seq in self._seqs):
            self.stop()

    def stop(self) -> None:
        """End the step, whoever waits for it."""
        self._word[0] = 1
