"""What the server counts of its own: a microsecond or two for each request, none for a token.

Written on the event loop only, so nothing is locked; a reader on another thread sees each number
whole, if not all of one moment.
"""

from bisect import bisect_left
from collections import Counter
from collections.abc import Sequence

from radiance_core.server.generation import Generation

FIRST_TOKEN_S = (0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 60, 120)
BETWEEN_TOKENS_S = (0.002, 0.005, 0.01, 0.02, 0.03, 0.05, 0.075, 0.1, 0.15, 0.2, 0.5, 1, 2, 5)
QUEUED_S = (0.001, 0.005, 0.02, 0.1, 0.5, 1, 2, 5, 10, 30, 60, 120)
PREFILL_S = (0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 60, 120, 300)
TOKENS = (1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000, 10_000, 20_000, 50_000, 100_000)
WHOLE_S = (0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 60, 120, 300, 600, 1800)


class Histogram:
    """Counts of values by upper bound; a value on a bound is below it.

    Args:
        bounds: upper bounds in increasing order; one more bucket takes what is above the last.
    """

    def __init__(self, bounds: Sequence[float]) -> None:
        self.bounds = tuple(bounds)
        self.counts = [0] * (len(bounds) + 1)
        self.total = 0.0

    def add(self, value: float, times: int = 1) -> None:
        """Count a value, or as many values with this mean as ``times`` says."""
        self.counts[bisect_left(self.bounds, value)] += times
        self.total += value * times


class Counts:
    """Totals since the start.

    ``prompt_tokens`` are those of whole prompts, whatever of them was found computed, one prompt
    for each choice that begins. ``client_disconnects``: requests that their clients left or did
    not read; ``streams_cut_off``: streams that an error ended. ``prefill`` is the time in the
    engine to the first token, less the wait in its queue; ``decode`` the time from there to the
    last. ``finished`` has choices by finish reason, ``answers`` has HTTP answers by route and
    status; both have few keys: reasons, routes and statuses are the server's words, never a
    client's.
    """

    def __init__(self) -> None:
        self.first_token = Histogram(FIRST_TOKEN_S)
        self.between_tokens = Histogram(BETWEEN_TOKENS_S)
        self.whole = Histogram(WHOLE_S)
        self.queued = Histogram(QUEUED_S)
        self.prefill = Histogram(PREFILL_S)
        self.decode = Histogram(WHOLE_S)
        self.prompt_sizes = Histogram(TOKENS)
        self.answer_sizes = Histogram(TOKENS)
        self.prompt_tokens = 0
        self.client_disconnects = 0
        self.streams_cut_off = 0
        self.finished: Counter[str] = Counter({"stop": 0, "length": 0})
        self.answers: Counter[tuple[str, int]] = Counter()

    def answered(self, route: str, status: int) -> None:
        """Count one HTTP answer; 499 is a client that left before it."""
        self.answers[route, status] += 1

    def begun(self, prompt_tokens: int, took_s: float) -> None:
        """Count a choice whose first token has come, that long after its request."""
        self.prompt_tokens += prompt_tokens
        self.first_token.add(took_s)

    def note(self, generation: Generation, started: float) -> None:
        """Count the choices of a request that has ended, however it did.

        The gaps between one answer's tokens are counted as so many times their mean, which leaves
        number and sum exact and asks for nothing while tokens come.

        Args:
            generation: the request's choices.
            started: when the request came, on the monotonic clock.
        """
        for index, at in generation.first_at.items():
            last = generation.last.get(index)
            if last is None or last.finish_reason is None:
                continue
            ended = generation.last_at[index]
            self.finished[last.finish_reason] += 1
            self.whole.add(ended - started)
            self.queued.add(last.queued_s)
            self.prompt_sizes.add(last.prompt_tokens)
            self.answer_sizes.add(last.completion_tokens)
            self.prefill.add(max(0.0, at - generation.asked_at - last.queued_s))
            self.decode.add(ended - at)
            if not last.completion_tokens:
                self.prompt_tokens += last.prompt_tokens  # such a choice never began
            gaps = last.completion_tokens - 1
            if gaps > 0:
                self.between_tokens.add((ended - at) / gaps, gaps)
