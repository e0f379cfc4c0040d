"""Who enters: by priority, then each tenant in turn, then by arrival, as long as pages last."""

from bisect import bisect_left, insort
from collections import Counter
from collections.abc import Mapping
from operator import attrgetter, itemgetter

from radiance_core.engine.pages import StateCache
from radiance_core.engine.sequence import Sequence

MOST_STALLS = 2
"""Times that a sequence may lose its place without having gained a token; after that it enters only
when nothing that runs can come to need its pages."""

DISPLACED = (
    "queue: it is full and others, who wait for less, needed the place of this request; come back "
    "later"
)


class WaitingLine:
    """Sequences that wait, a line for each tenant and one for those that lost their place.

    Of equal priority those that lost their place go first, by arrival; then the tenant with fewest
    requests that run, of equals the one whose turn was longest ago, and of one tenant by arrival.
    """

    def __init__(self) -> None:
        self._returning: _Line = []
        self._lines: dict[str, _Line] = {}
        # A tenant is a key of the server's configuration, so that this does not grow for ever.
        self._turns: dict[str, int] = {}
        self._turn = 0
        self.num_tokens = 0

    def __len__(self) -> int:
        return len(self._returning) + sum(map(len, self._lines.values()))

    def add(self, seq: Sequence) -> None:
        """Let a sequence wait."""
        insort(self._line_of(seq), (seq.order, seq), key=itemgetter(0))
        self.num_tokens += len(seq.tokens)

    def first(self, seats: Mapping[str, int]) -> Sequence:
        """Return the sequence that is next, where tenants have so many that run."""
        heads = [line[0][1] for line in (self._returning, *self._lines.values()) if line]
        return min(heads, key=lambda seq: self._rank(seq, seats))

    def _rank(self, seq: Sequence, seats: Mapping[str, int]) -> tuple[int, bool, int, int, int]:
        priority, arrival = seq.order
        if seq.preempted:
            return priority, False, 0, 0, arrival
        tenant = seq.request.tenant
        return priority, True, seats.get(tenant, 0), self._turns.get(tenant, 0), arrival

    def enter(self, seq: Sequence) -> None:
        """Take a sequence out of the line, whose tenant has had its turn."""
        if not seq.preempted:
            self._turn += 1
            self._turns[seq.request.tenant] = self._turn
        self.take(seq)

    def take(self, seq: Sequence) -> None:
        """Take a sequence out of the line."""
        line = self._line_of(seq)
        del line[bisect_left(line, seq.order, key=itemgetter(0))]
        self.num_tokens -= len(seq.tokens)
        if not line and line is not self._returning:
            del self._lines[seq.request.tenant]

    def _line_of(self, seq: Sequence) -> "_Line":
        if seq.preempted:
            return self._returning
        return self._lines.setdefault(seq.request.tenant, [])

    def displace(self, tenant: str, most: int) -> bool:
        """Send away the last in line of who has most, so that one of ``tenant`` can wait.

        One that had been let in before never goes.

        Args:
            tenant: who comes.
            most: how many may wait, of which each tenant has an equal share.

        Returns:
            Whether there is room now; there is none for a tenant that has its share already.
        """
        seq = self._crowding(tenant, most)
        if seq is None:
            return False
        self.take(seq)
        seq.displaced = True
        seq.fail(DISPLACED)
        return True

    def _crowding(self, tenant: str, most: int) -> Sequence | None:
        """Return the last of the tenant that has most, if it has more than its share."""
        counts = {name: len(line) for name, line in self._lines.items() if line}
        mine = counts.get(tenant, 0)
        share = max(1, most // (len(counts) + (tenant not in counts)))
        if mine >= share or not counts:
            return None
        name = max(counts, key=lambda name: (counts[name], self._lines[name][-1][0]))
        return self._lines[name][-1][1] if counts[name] > share else None

    def take_cancelled(self) -> list[Sequence]:
        """Return the sequences that nobody waits for any more, which leave the line."""
        gone = [seq for _, seq in self._entries() if seq.cancelled]
        for seq in gone:
            self.take(seq)
        return gone

    def in_order(self) -> list[Sequence]:
        """Return all that wait, the next first if tenants are served in turn from now on."""
        places = [*enumerate(self._returning)]
        for line in self._lines.values():
            places += enumerate(line)
        ranked = [(seq.request.priority, not seq.preempted, place, order, seq)
                  for place, (order, seq) in places]  # fmt: skip
        return [entry[-1] for entry in sorted(ranked, key=itemgetter(slice(0, 4)))]

    def _entries(self) -> "_Line":
        return [entry for line in (self._returning, *self._lines.values()) for entry in line]

    def clear(self) -> None:
        """Let none wait any more."""
        self._returning.clear()
        self._lines.clear()
        self.num_tokens = 0


_Line = list[tuple[tuple[int, int], Sequence]]
"""Sequences by priority and arrival."""


def admit(
    waiting: WaitingLine, running: list[Sequence], cache: StateCache, max_seqs: int
) -> list[Sequence]:
    """Let sequences in, in order, as long as pages last for the tokens that they have now.

    Args:
        waiting: who waits.
        running: who runs, kept in order of priority and arrival.
        cache: where pages come from.
        max_seqs: how many may run.

    Returns:
        Those that entered.
    """
    entered = []
    seats = Counter(seq.request.tenant for seq in running)
    while waiting and len(running) < max_seqs:
        seq = waiting.first(seats)
        if seq.stalls >= MOST_STALLS and not _can_stay(seq, running, cache):
            break
        if seq.request.reuse_cache and _is_computed_now(seq, running, cache):
            break
        # Each that runs may want its next page before this one has its first token.
        got = cache.enter(seq.text, reuse=seq.request.reuse_cache, spare=len(running))
        if got is None:
            break
        waiting.enter(seq)
        seats[seq.request.tenant] += 1
        seq.enter(*got)
        insort(running, seq, key=attrgetter("order"))
        entered.append(seq)
    return entered


def _is_computed_now(seq: Sequence, running: list[Sequence], cache: StateCache) -> bool:
    """Return whether the next block that a sequence needs is on its way in another's prompt.

    Then it is better found than computed again; prompts are computed in order, so that whoever
    comes behind loses next to nothing.
    """
    reading = [r.text.chain.keys for r in running if r.pending > 1 and r.text.chain.keys]
    found = cache.next_key(seq.text) if reading else None
    if found is None:
        return False
    number, key = found
    return any(len(keys) > number and keys[number] == key for keys in reading)


def _can_stay(seq: Sequence, running: list[Sequence], cache: StateCache) -> bool:
    """Return whether the pools hold all that a sequence and those that run can come to."""
    most: dict[str, int] = {}
    for each in (seq, *running):
        for name, count in cache.needs(each.most_tokens).items():
            most[name] = most.get(name, 0) + count
    return all(count <= cache.pools[name].num_pages for name, count in most.items())
