"""Servers over HTTP: how each is started, and eight streams at once."""

import asyncio
import signal
import subprocess
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from load import resident
from probes.target import START_LIMIT_S, Launch
from streams import Timed, UnreachableServerError, UnusableServerError, calling, while_all_run

from comparison.contenders import ContenderError, last_word
from comparison.model_files import ModelFile
from comparison.rounds import Compared, Lane

STREAMS = 8
_ROUND_LIMIT_S, _END_S = 60.0, 20.0


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


class Serving:
    """A server's process with one file loaded; stopped whenever it is not its turn."""

    def __init__(self, server: Server, file: Path) -> None:
        self.name, self.kind = server.name, server.kind
        self.launch = Launch(server.command(file))
        try:
            if not self.launch.wait_ready():
                late = f"it did not answer in {START_LIMIT_S:.0f} s"
                raise ContenderError(ending(self.launch, late))
        except BaseException:
            self.close()
            raise
        self._signal(signal.SIGSTOP)

    def ask_all(self, tokens: int, turn: int) -> list[Timed]:
        """Let it go on for as many streams at once; return their answers, each with text.

        Raises:
            ContenderError: an answer failed, or the process ended.
        """
        self._signal(signal.SIGCONT)
        try:
            answers = asyncio.run(ask_all(self.launch.url, tokens, turn))
        except UnusableServerError as error:
            broke = isinstance(error, UnreachableServerError)
            raise ContenderError(ending(self.launch, str(error), broke=broke)) from error
        for answer in answers:
            if not answer.ok or not answer.pieces:
                why = f"HTTP {answer.status} {answer.failure or 'without text'}"[:200]
                raise ContenderError(ending(self.launch, why, broke=answer.broken))
        return answers

    def resident(self) -> int:
        """Return the bytes that it and its children have in memory."""
        return resident(self.launch.process.pid)

    def pause(self) -> None:
        """Stop it until it is asked again."""
        self._signal(signal.SIGSTOP)

    def close(self) -> None:
        """End it."""
        if not self.launch.said.closed:
            self.launch.stop()

    def _signal(self, number: signal.Signals) -> None:
        self.launch.process.send_signal(number)


def ending(launch: Launch, otherwise: str, *, broke: bool = False) -> str:
    """Return how a server's process ended and its last line; what else is wrong where it lives.

    ``broke``: a connection did, which may be the first that is seen of an end.
    """
    try:
        status = launch.process.wait(_END_S if broke else 0)
    except subprocess.TimeoutExpired:
        return otherwise
    return last_word(launch.output().encode(), status)


def eight_streams(
    lane: Lane[Serving], file: ModelFile, chosen: list[Server], rounds: int, tokens: int
) -> None:
    """Measure tokens a second of eight streams together, in turn, after a short round."""
    path = file.path
    assert path is not None, "files that are missing are not compared"
    with lane:
        for server in chosen:
            lane.load(server.name, lambda server=server: Serving(server, path))
        for turn in range(rounds + 1):

            def job(serving: Serving, turn=turn) -> None:
                answers = serving.ask_all(tokens if turn else 8, turn)
                if turn:
                    note(lane.compared, serving.name, answers)
                    lane.compared.add(serving.name, "resident MiB", serving.resident() / 2**20)
                serving.pause()

            lane.each(job)


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


def whole_rate(answers: list[Timed]) -> float:
    """Return tokens a second from the first request to the end of the last answer."""
    begin, end = min(a.due for a in answers), max(a.ended for a in answers)
    return sum(a.tokens for a in answers) / (end - begin)
