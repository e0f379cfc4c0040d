"""Generate load for an OpenAI-compatible server and say how soon and how evenly it answers.

    python benchmarks/serve.py --target http://127.0.0.1:8000 --rate 4             # open loop
    python benchmarks/serve.py --target http://127.0.0.1:8000 --streams 8          # closed loop

Open loop: requests come when they are due, however slow the server is, and times count from then,
so that waiting is not hidden. Closed loop: as many streams as stated, each sends when its last
answer ended. A piece of a stream may hold several tokens: "between pieces" is what a reader sees
come, "per token" spreads an answer's time over its tokens, as its usage tells them (where a server
tells none, pieces count). Goodput counts the answers within both limits. "late" is how much this
program itself came too late: when it is not small beside the times measured, those say little about
the server.
"""

import argparse
import asyncio
import json
import math
import statistics
import sys
import time
from collections.abc import AsyncIterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parent))

from streams import Caller, Timed, UnusableServerError, calling, lag, percentiles

WORDS = Path(__file__).read_text().split()


@dataclass(frozen=True, slots=True)
class Load:
    """What is sent. ``rate`` 0 means a closed loop of ``streams``."""

    requests: int
    rate: float
    streams: int
    constant: bool
    prompt_words: int
    shared_words: int
    max_tokens: int
    ignore_eos: bool
    temperature: float
    seed: int


def bodies(load: Load) -> list[dict[str, Any]]:
    """Make the requests: words in random order, the first ones the same in all."""
    rng = np.random.default_rng(load.seed)
    shared = list(rng.choice(WORDS, load.shared_words))
    fields: dict[str, Any] = {"max_tokens": load.max_tokens, "temperature": load.temperature}
    if load.ignore_eos:
        fields["ignore_eos"] = True
    made = []
    for _ in range(load.requests):
        words = shared + list(rng.choice(WORDS, max(0, load.prompt_words - load.shared_words)))
        made.append({"messages": [{"role": "user", "content": " ".join(words)}], **fields})
    return made


async def arrivals(load: Load) -> AsyncIterator[float]:
    """Yield the time at which each request is due, when it is."""
    rng = np.random.default_rng([load.seed, 1])
    due = time.perf_counter()
    for _ in range(load.requests):
        await asyncio.sleep(max(0.0, due - time.perf_counter()))
        yield due
        due += 1 / load.rate if load.constant else rng.exponential(1 / load.rate)


async def open_loop(caller: Caller, load: Load) -> list[Timed]:
    """Send each request when it is due."""
    tasks = []
    waiting = iter(bodies(load))
    async for due in arrivals(load):
        tasks.append(asyncio.create_task(caller.chat(next(waiting), due)))
    return list(await asyncio.gather(*tasks))


async def closed_loop(caller: Caller, load: Load) -> list[Timed]:
    """Keep ``streams`` requests going."""
    waiting = iter(bodies(load))
    done: list[Timed] = []

    async def one() -> None:
        for body in waiting:
            done.append(await caller.chat(body))

    await asyncio.gather(*(one() for _ in range(load.streams)))
    return done


async def generate(
    url: str, key: str | None, load: Load, model: str | None = None
) -> tuple[list[Timed], float, list[float]]:
    """Run the load after one request that warms both sides up.

    Returns the answers, how many seconds they took, and how late this program's loop was.

    Raises:
        UnusableServerError: the server gives no answer to the first request.
    """
    async with calling(url, key, model=model) as caller:
        warm = await caller.chat(bodies(load)[0] | {"max_tokens": 4})
        if not warm.ok:
            raise UnusableServerError(
                f"{url}: expected an answer, got HTTP {warm.status} {warm.failure}"
            )
        async with lag() as late:
            start = time.perf_counter()
            answers = await (open_loop if load.rate else closed_loop)(caller, load)
            took = time.perf_counter() - start
    return answers, took, late


def summary(
    answers: list[Timed], took: float, late: list[float], first_limit_s: float, gap_limit_s: float
) -> dict[str, float]:
    """Return the figures: milliseconds, counts, and amounts a second."""
    good = [a for a in answers if a.ok]
    first = percentiles([a.first_s for a in good], 50, 90, 99)
    gaps = percentiles([gap for a in good for gap in a.gaps_s], 50, 90, 99)
    within = [a for a in good if a.first_s <= first_limit_s and a.per_token_s <= gap_limit_s]
    mean = statistics.fmean([a.per_token_s for a in good]) if good else 0.0
    named = ("p50", "p90", "p99")
    figures = {
        "requests": len(answers),
        "answered": len(good),
        "refused": sum(a.status in (429, 503) for a in answers),
        "failed": sum(not a.ok and a.status not in (429, 503) for a in answers),
        "seconds": took,
        **{f"first_token_{n}_ms": v * 1e3 for n, v in zip(named, first, strict=True)},
        **{f"between_pieces_{n}_ms": v * 1e3 for n, v in zip(named, gaps, strict=True)},
        "per_token_mean_ms": mean * 1e3,
        "output_tokens_per_s": sum(a.tokens for a in good) / took,
        "requests_per_s": len(good) / took,
        "goodput_per_s": len(within) / took,
        "within_limits_percent": 100 * len(within) / max(1, len(answers)),
        "late_p99_ms": percentiles(late, 99)[0] * 1e3,
        "late_max_ms": max(late, default=0.0) * 1e3,
    }
    return {name: round(value, 3) for name, value in figures.items()}


def write_lines(path: Path, answers: list[Timed]) -> None:
    """Write one JSON object a request."""
    with path.open("w") as out:
        for answer in sorted(answers, key=lambda a: a.due):
            row = asdict(answer) | {"first_s": answer.first_s, "gaps_s": answer.gaps_s}
            row.pop("pieces")
            print(json.dumps(row), file=out)


def positive(text: str) -> int:
    """Read a count."""
    if (value := int(text)) < 1:
        raise argparse.ArgumentTypeError(f"expected 1 or more, got {text}")
    return value


def above_zero(text: str) -> float:
    """Read a rate."""
    if not 0 < (value := float(text)) < math.inf:
        raise argparse.ArgumentTypeError(f"expected more than 0, got {text}")
    return value


def parsed() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--target", required=True, help="URL of the server, with or without /v1")
    parser.add_argument("--model", help="asked for; without it the only one of /v1/models")
    parser.add_argument("--key", help="API key")
    loop = parser.add_mutually_exclusive_group(required=True)
    loop.add_argument("--rate", type=above_zero, default=0.0, help="requests a second, open loop")
    loop.add_argument("--streams", type=positive, default=0, help="requests at once, closed loop")
    parser.add_argument("--constant", action="store_true", help="equal distances, not Poisson's")
    parser.add_argument("--requests", type=positive, default=64)
    parser.add_argument("--prompt-words", type=int, default=48)
    parser.add_argument("--shared-words", type=int, default=0, help="of the prompt, same in all")
    parser.add_argument("--max-tokens", type=int, default=64)
    parser.add_argument("--ignore-eos", action="store_true", help="where the server knows it")
    parser.add_argument("--temperature", type=float, default=0.0)
    parser.add_argument("--seed", type=int, default=0, help="of prompts and arrivals")
    parser.add_argument("--first-limit-ms", type=float, default=1000.0, help="for goodput")
    parser.add_argument("--token-limit-ms", type=float, default=100.0, help="mean, for goodput")
    parser.add_argument("--json", action="store_true", help="print the figures as JSON")
    parser.add_argument("--lines", type=Path, help="write one JSON line a request there")
    return parser.parse_args()


def main() -> int:
    options = parsed()
    load = Load(**{name: getattr(options, name) for name in Load.__slots__})
    try:
        answers, took, late = asyncio.run(
            generate(options.target, options.key, load, options.model)
        )
    except UnusableServerError as error:
        print(error, file=sys.stderr)
        return 1
    limits = options.first_limit_ms / 1e3, options.token_limit_ms / 1e3
    figures = summary(answers, took, late, *limits)
    if options.lines:
        write_lines(options.lines, answers)
    if options.json:
        print(json.dumps(figures))
    else:
        for name, value in figures.items():
            print(f"{name.replace('_', ' '):24} {value:12.2f}".replace(".00", "   "))
    for failure in sorted({a.failure for a in answers if not a.ok})[:5]:
        print(f"not answered: {failure}", file=sys.stderr)
    return int(not figures["answered"])


if __name__ == "__main__":
    sys.exit(main())
