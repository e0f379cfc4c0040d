"""Everything that is measured of one file."""

import argparse
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from peers import Peers

from comparison import servers
from comparison.contenders import Contender, Running, contenders
from comparison.model_files import MODELS, ModelFile
from comparison.quiet import Rests
from comparison.rounds import Amounts, Compared, Lane, decode_and_prefill, long_context, together
from comparison.starting import starts
from comparison.stolen import stolen_core

FIRST = "SmolLM2-135M Q4_1"
# The others are as many bytes a token as these, and servers take most of the time.
SERVED = (FIRST, "SmolLM2-135M Q4_0", "SmolLM2-135M Q8_0")
LONG, LONG_TOKENS = 7936, 64


def shared(options: argparse.Namespace, context: int) -> dict[str, Any]:
    """Return the options that all contenders get."""
    clock = {"processor_time": options.processor_time}
    return {"threads": options.threads, "context": context, **clock}


def compare(file: ModelFile, peers: Peers, options: argparse.Namespace, rests: Rests) -> Compared:
    """Measure one file; what cannot be measured is named with the reason, and the rest goes on."""
    compared = Compared(file.name)
    if file.path is None:
        compared.missing["the file"] = file.missing
        return compared
    compared.attempt("libraries", lambda: measure_libraries(compared, file, peers, options, rests))
    if options.long_rounds and file.name == FIRST:
        job = lambda: measure_long(compared, file, peers, options, rests)  # noqa: E731
        compared.attempt("a long context", job)
    if not options.no_servers and (file.name in SERVED or file.name not in MODELS):
        compared.attempt("servers", lambda: measure_servers(compared, file, peers, options, rests))
    return compared


@contextmanager
def part(compared: Compared, where: str) -> Iterator[Compared]:
    """Collect a part by itself, so that who is missing in it is named with where that is."""
    own = Compared(compared.file)
    try:
        yield own
    finally:
        for name, series in own.series.items():
            compared.series.setdefault(name, {}).update(series)
        compared.missing |= {f"{name} {where}": why for name, why in own.missing.items()}


def chosen_of(compared: Compared, peers: Peers, only: list[str] | None) -> list[Contender]:
    """Return the contenders that are asked for and there; note who is asked for and not there."""
    named = contenders(Path(sys.executable), peers.python)
    asked = [c for c in named if not only or c.name in only]
    for gone in asked:
        if gone.kind in peers.missing:
            compared.missing[gone.name] = peers.missing[gone.kind]
    return [c for c in asked if c.kind not in peers.missing]


def load(
    lane: Lane[Running], chosen: list[Contender], file: ModelFile, given: dict[str, Any]
) -> None:
    """Start all, with options that are the same for each."""
    assert file.path is not None, "files that are missing are not compared"
    for contender in chosen:
        lane.load(contender.name, lambda c=contender: Running(c, file.path, given))
    lane.compared.facts |= {r.name: r.facts for r in lane.running}


def measure_libraries(
    compared: Compared, file: ModelFile, peers: Peers, options: argparse.Namespace, rests: Rests
) -> None:
    """Measure one stream, and of the first file what a busy program leaves of it."""
    amounts = Amounts(options.rounds, options.tokens, options.prompt)
    with Lane[Running](compared, rests) as lane:
        load(lane, chosen_of(compared, peers, options.only), file, shared(options, 2048))
        decode_and_prefill(lane, amounts)
        if not options.no_servers:
            together(lane, amounts.rounds, options.stream_tokens)
        if options.stolen_core and file.name == FIRST:
            stolen_core(lane, amounts.rounds, options.tokens)


def measure_long(
    compared: Compared, file: ModelFile, peers: Peers, options: argparse.Namespace, rests: Rests
) -> None:
    """Measure a long context: of each program the one setting that is the faster one there."""
    wanted = [
        c
        for c in chosen_of(Compared(file.name), peers, options.only)
        if c.name in ("radiance", "llama.cpp flash", "openvino-genai")
    ]
    with part(compared, "at a long context") as own, Lane[Running](own, rests) as lane:
        load(lane, wanted, file, shared(options, LONG + LONG_TOKENS + 64))
        long_context(lane, options.long_rounds, LONG, LONG_TOKENS)


def measure_servers(
    compared: Compared, file: ModelFile, peers: Peers, options: argparse.Namespace, rests: Rests
) -> None:
    """Measure eight streams, and starts of the first file."""
    ours = Path(sys.executable)
    chosen = servers.servers(ours, peers.python, peers.llama_server, options.threads)
    chosen = [s for s in chosen if not options.only or s.name in options.only]
    for server in chosen:
        if why := peers.missing.get(server.kind):
            compared.missing[server.name] = why
    chosen = [s for s in chosen if s.kind not in peers.missing]
    if file.name != FIRST:
        # It takes one request after the other, so that eight streams say what one says.
        chosen = [s for s in chosen if s.name != "llama-cpp-python"]
    with part(compared, "over HTTP") as own:
        lane = Lane[servers.Serving](own, rests)
        servers.eight_streams(lane, file, chosen, options.rounds, options.stream_tokens)
    if file.name == FIRST:
        served = [s for s in chosen if s.name not in own.missing]
        with part(compared, "at a start") as own:
            starts(own, file, served, rests, options.rounds)
