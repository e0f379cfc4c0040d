"""What is aimed at, as ratios on the same file in the same run, and what was reached."""

import statistics
from collections.abc import Iterator
from dataclasses import dataclass

from comparison.contenders import OURS
from comparison.rounds import Compared

LLAMA = ("llama.cpp", "llama.cpp flash")
LIBRARIES = (*LLAMA, "openvino-genai")
SERVERS = ("llama-server", "llama-server flash", "llama-cpp-python")


@dataclass(frozen=True, slots=True)
class Aim:
    """At least ``least`` times the best of ``peers``, for files whose name ends so; "" is all."""

    what: str
    encoding: str
    peers: tuple[str, ...]
    shown: str
    least: float


AIMS = (
    Aim("decode", "Q4_1", LIBRARIES, "best peer", 2.5),
    Aim("decode", "Q4_0", LIBRARIES, "best peer", 1.8),
    Aim("decode", "Q8_0", LIBRARIES, "best peer", 1.5),
    Aim("decode", "Q4_K_M", LIBRARIES, "best peer", 2.0),
    Aim("decode", "BF16", LIBRARIES, "best peer", 1.1),
    Aim("prefill", "", ("openvino-genai",), "OpenVINO GenAI", 1.5),
    Aim("prefill", "", LLAMA, "llama.cpp", 3.0),
    Aim("8 streams", "Q4_1", SERVERS[:2], "llama-server", 5.0),
    Aim("8 streams", "Q4_0", SERVERS[:2], "llama-server", 3.0),
)


@dataclass(frozen=True, slots=True)
class Ratio:
    """Ours over the best peer: of medians, and the range of the rounds' own ratios."""

    file: str
    aim: Aim
    ours: str
    value: float
    low: float
    high: float

    @property
    def is_met(self) -> bool:
        """Whether the ratio of medians reaches the aim."""
        return self.value >= self.aim.least


def best_peer(compared: Compared, what: str, peers: tuple[str, ...]) -> str | None:
    """Return the peer with the highest median, None when none was measured."""
    there = [p for p in peers if compared.series.get(p, {}).get(what)]
    return max(there, key=lambda p: statistics.median(compared.series[p][what]), default=None)


def ratios(compared: Compared) -> Iterator[Ratio]:
    """Yield what one file reached of every aim that both sides were measured for."""
    for aim in AIMS:
        peer = best_peer(compared, aim.what, aim.peers)
        if not compared.file.endswith(aim.encoding) or peer is None:
            continue
        theirs = compared.series[peer][aim.what]
        for name in OURS:
            if ours := compared.series.get(name, {}).get(aim.what):
                value = statistics.median(ours) / statistics.median(theirs)
                each = [a / b for a, b in zip(ours, theirs, strict=False)]
                yield Ratio(compared.file, aim, name, value, min(each), max(each))
