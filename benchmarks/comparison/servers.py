"""Servers over HTTP: how each is started, and eight streams at once."""

import asyncio
import os
import signal
import statistics
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from load import resident
from probes.target import Launch
from streams import Timed, calling

from comparison.model_files import ModelFile
from comparison.quiet import Rests
from comparison.rounds import Compared

STREAMS = 8
_ROUND_LIMIT_S = 60.0


@dataclass(frozen=True, slots=True)
class Server:
    """How a server is started: ``command`` gets the model file and says {port} for a port.

    ``kind``: what has to be there for it, as peers name it.
    """

    name: str
    kind: str
    command: Callable[[Path], list[str]]


def servers(ours: Path, python: Path, llama_server: Path, threads: int) -> list[Server]:
    """Return all of them."""
    t = str(threads)

    def radiance(activations: str) -> Callable[[Path], list[str]]:
        program = str(ours.with_name("radiance"))
        given = ["--port", "{port}", "--threads", t, "--max-num-seqs", str(STREAMS)]
        given += ["--max-model-len", "2048", "--activations", activations]
        return lambda file: [program, "--model", str(file), *given, "--log-level", "warning"]

    def llama(flash: str) -> Callable[[Path], list[str]]:
        given = ["--port", "{port}", "-t", t, "-tb", t, "-np", str(STREAMS)]
        given += ["-c", str(2048 * STREAMS), "-fa", flash, "--no-ui"]
        return lambda file: [str(llama_server), "-m", str(file), *given]

    def python_server(file: Path) -> list[str]:
        given = ["--port", "{port}", "--n_threads", t, "--n_threads_batch", t, "--n_ctx", "2048"]
        # By default a new request cuts short the one before it.
        given += ["--interrupt_requests", "false"]
        return [str(python), "-m", "llama_cpp.server", "--model", str(file), *given]

    return [
        Server("radiance", "radiance", radiance("int16")),
        Server("radiance int8", "radiance", radiance("int8")),
        Server("llama-server", "llama-server", llama("off")),
        Server("llama-server flash", "llama-server", llama("on")),
        Server("llama-cpp-python", "llama.cpp", python_server),
    ]


def eight_streams(
    compared: Compared,
    file: ModelFile,
    chosen: list[Server],
    rests: Rests,
    rounds: int,
    tokens: int,
) -> list[Server]:
    """Measure tokens a second of eight streams together, in turn; return those that answered."""
    assert file.path is not None, "files that are missing are not compared"
    launched: dict[str, Launch] = {}
    try:
        for server in chosen:
            launch = Launch(server.command(file.path))
            launched[server.name] = launch
            if launch.wait_ready():
                os.kill(launch.process.pid, signal.SIGSTOP)
            else:
                compared.missing[server.name] = last_line(launch.output())
                launched.pop(server.name).stop()
        for turn in range(rounds + 1):
            for name, launch in list(launched.items()):
                rests.rest()
                os.kill(launch.process.pid, signal.SIGCONT)
                answers = asyncio.run(ask_all(launch.url, tokens if turn else 8, turn))
                if bad := [a for a in answers if not a.ok]:
                    compared.missing[name] = f"HTTP {bad[0].status} {bad[0].failure}"[:200]
                    launched.pop(name).stop()
                    continue
                if turn:
                    note(compared, name, answers)
                    compared.add(name, "resident MiB", resident(launch.process.pid) / 2**20)
                os.kill(launch.process.pid, signal.SIGSTOP)
        return [s for s in chosen if s.name in launched]
    finally:
        for launch in launched.values():
            launch.stop()


async def ask_all(url: str, tokens: int, turn: int) -> list[Timed]:
    """Ask for as many stories at once, each of ``tokens`` where the server knows ignore_eos."""
    fields = {"max_tokens": tokens, "temperature": 0, "ignore_eos": True}
    async with calling(url, timeout_s=_ROUND_LIMIT_S) as caller:
        texts = [f"Tell story {i} of evening {turn}." for i in range(STREAMS)]
        asked = [{"messages": [{"role": "user", "content": t}], **fields} for t in texts]
        return list(await asyncio.gather(*(caller.chat(body) for body in asked)))


def note(compared: Compared, name: str, answers: list[Timed]) -> None:
    """Note the rates of one round."""
    compared.add(name, "8 streams", while_all_run(answers) or whole_rate(answers))
    compared.add(name, "8 streams with prompts", whole_rate(answers))
    compared.add(name, "first of 8, s", statistics.median(a.first_s for a in answers))


def while_all_run(answers: list[Timed]) -> float:
    """Return tokens a second from when the last has begun until the first has ended; 0 if never.

    A piece may hold several tokens, so that tokens are spread over the pieces of each answer.
    """
    begin, end = max(a.pieces[0] for a in answers), min(a.pieces[-1] for a in answers)
    if end <= begin:
        return 0.0
    inside = (a.tokens * sum(begin < t <= end for t in a.pieces) / len(a.pieces) for a in answers)
    return sum(inside) / (end - begin)


def whole_rate(answers: list[Timed]) -> float:
    """Return tokens a second from the first request to the end of the last answer."""
    begin, end = min(a.due for a in answers), max(a.ended for a in answers)
    return sum(a.tokens for a in answers) / (end - begin)


def last_line(text: str) -> str:
    """Return the last line that says something."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return lines[-1][:200] if lines else "it ended without a word"
