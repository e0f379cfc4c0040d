"""Everything that is measured of one file."""

import argparse
import sys
from pathlib import Path
from typing import Any

from peers import Peers

from comparison import servers
from comparison.contenders import Contender, contenders
from comparison.model_files import MODELS, ModelFile
from comparison.quiet import Rests
from comparison.rounds import Amounts, Compared, Lane, decode_and_prefill, long_context, together
from comparison.starting import starts
from comparison.stolen import stolen_core

FIRST = "SmolLM2-135M Q4_1"
# The others are as many bytes a token as these, and servers take most of the time.
SERVED = (FIRST, "SmolLM2-135M Q4_0", "SmolLM2-135M Q8_0")
LONG, LONG_TOKENS = 7936, 64


def available(chosen: list[Contender], peers: Peers, only: list[str] | None) -> list[Contender]:
    """Return the contenders that are asked for and there."""
    chosen = [c for c in chosen if not only or c.name in only]
    return [c for c in chosen if c.kind not in peers.missing]


def shared(options: argparse.Namespace, context: int) -> dict[str, Any]:
    """Return the options that all contenders get."""
    clock = {"processor_time": options.processor_time}
    return {"threads": options.threads, "context": context, **clock}


def compare(file: ModelFile, peers: Peers, options: argparse.Namespace, rests: Rests) -> Compared:
    """Measure one file."""
    compared = Compared(file.name)
    if file.path is None:
        compared.missing["the file"] = file.missing
        return compared
    named = contenders(Path(sys.executable), peers.python)
    chosen = available(named, peers, options.only)
    for gone in named:
        if gone.kind in peers.missing:
            compared.missing[gone.name] = peers.missing[gone.kind]
    amounts = Amounts(options.rounds, options.tokens, options.prompt)
    lane = Lane(compared, rests)
    try:
        lane.load(chosen, file, shared(options, 2048))
        decode_and_prefill(lane, amounts)
        if not options.no_servers:
            together(lane, amounts.rounds, options.stream_tokens)
        if options.stolen_core and file.name == FIRST:
            stolen_core(lane, amounts.rounds, options.tokens)
    finally:
        lane.close()
    if options.long_rounds and file.name == FIRST:
        measure_long(compared, chosen, file, options, rests)
    if not options.no_servers and (file.name in SERVED or file.name not in MODELS):
        measure_servers(compared, file, peers, options, rests)
    return compared


def measure_long(
    compared: Compared,
    chosen: list[Contender],
    file: ModelFile,
    options: argparse.Namespace,
    rests: Rests,
) -> None:
    """Measure a long context: of each program the one setting that is the faster one there."""
    apart = Compared(file.name)
    lane = Lane(apart, rests)
    try:
        wanted = [c for c in chosen if c.name in ("radiance", "llama.cpp flash", "openvino-genai")]
        lane.load(wanted, file, shared(options, LONG + LONG_TOKENS + 64))
        long_context(lane, options.long_rounds, LONG, LONG_TOKENS)
    finally:
        lane.close()
    for name, series in apart.series.items():
        compared.series.setdefault(name, {}).update(series)
    compared.missing |= {f"{n} at a long context": why for n, why in apart.missing.items()}


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
    tokens = options.stream_tokens
    served = servers.eight_streams(compared, file, chosen, rests, options.rounds, tokens)
    if file.name == FIRST:
        starts(compared, file, served, rests, options.rounds)
