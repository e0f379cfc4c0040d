"""The process in which a constraint is compiled first: it may run out of time, memory or stack.

Run by ``trial``, and killed at any time. One JSON object a line:

    {"tokens": [...], "special_ids": [...], "eos_ids": [...]}  -> {"ok": true}
    {"grammar": ...}                                           -> {"error": ""} or what is wrong
"""

import json
import os
import random
import resource
import signal
import sys
import threading
from typing import Any, BinaryIO

from radiance_core.constrain.native import PlainVocabulary, build_matcher, error_of

CPU_SECONDS = 1.0
MEMORY_BYTES = 512 << 20
STACK_BYTES = 2 << 20
"""Less than a thread of the server has, so that what passes here has room there."""
WALK_TOKENS = 16


def attempt(vocabulary: Any, grammar: str) -> str:
    """Compile a grammar and take a few steps in it; return what is wrong."""
    matcher = build_matcher(vocabulary, grammar)
    dice = random.Random(0)  # noqa: S311 (the same grammar gets the same verdict)
    for _ in range(WALK_TOKENS):
        if error := error_of(matcher):
            return error
        allowed = _ids(matcher.compute_bitmask())
        if error := error_of(matcher):
            return error
        if not allowed:
            return "no text can satisfy it"
        if matcher.is_stopped() or matcher.try_consume_tokens([dice.choice(allowed)]) != 1:
            break
    return error_of(matcher)


def _ids(mask: bytes) -> list[int]:
    """Return up to a few hundred ids of a mask, from all over it."""
    places = [place for place, byte in enumerate(mask) if byte][:: 1 + sum(map(bool, mask)) // 256]
    return [place * 8 + bit for place in places for bit in range(8) if mask[place] >> bit & 1]


def _answer(vocabulary: Any, grammar: str) -> str:
    """Try a grammar under a clock that ends this process."""
    signal.setitimer(signal.ITIMER_PROF, CPU_SECONDS)
    try:
        return attempt(vocabulary, grammar)
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)


def serve(requests: BinaryIO, answers: BinaryIO) -> None:
    """Answer until the parent closes its end."""
    told = json.loads(requests.readline())
    tokens = [token.encode("latin-1") for token in told["tokens"]]
    vocabulary = PlainVocabulary(tokens, told["special_ids"], told["eos_ids"]).build()
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))
    answers.write(b'{"ok": true}\n')
    answers.flush()
    for line in requests:
        error = _answer(vocabulary, json.loads(line)["grammar"])
        answers.write(json.dumps({"error": error}).encode() + b"\n")
        answers.flush()


def main() -> None:
    """Serve on a thread with a small stack."""
    # Nothing that runs here may write into the stream of answers by printing.
    out = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    threading.stack_size(STACK_BYTES)
    thread = threading.Thread(target=serve, args=(sys.stdin.buffer, out))
    thread.start()
    thread.join()


if __name__ == "__main__":
    main()
