"""What operators see of the sequences: copies that the engine's thread makes."""

import time
from collections.abc import Iterable, Iterator

from radiance_core.engine.interface import SequenceInfo
from radiance_core.engine.sequence import Sequence

PUBLISH_EVERY_S = 0.02
"""Between two copies while steps run; a copy of 32 sequences takes as long as half their host
work of a step."""


class Observation:
    """The last copy; one thread makes it, any may read it."""

    def __init__(self) -> None:
        self.infos: tuple[SequenceInfo, ...] = ()
        self._due_s = 0.0

    @property
    def is_due(self) -> bool:
        """Whether the last copy is old enough for another."""
        return time.monotonic() >= self._due_s

    def publish(self, waiting: Iterable[Sequence], running: Iterable[Sequence]) -> None:
        """Copy what waits and runs."""
        at = time.monotonic()
        self._due_s = at + PUBLISH_EVERY_S
        self.infos = (*_infos(running, "running", at), *_infos(waiting, "waiting", at))


def _infos(seqs: Iterable[Sequence], state: str, at: float) -> Iterator[SequenceInfo]:
    for seq in seqs:
        held = {} if seq.held is None else seq.held.pages
        yield SequenceInfo(
            seq.request.request_id,
            "preempted" if seq.preempted else state,
            seq.request.priority,
            at - seq.arrived_s,
            seq.prompt_tokens,
            seq.generated,
            seq.cached_tokens,
            {name: mine.stop - mine.first for name, mine in held.items()},
        )
