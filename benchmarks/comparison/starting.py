"""How long a server takes from a new process to the first token of an answer."""

import http.client
import json
import time
import urllib.request

from probes.target import Launch

from comparison.contenders import ContenderError
from comparison.model_files import ModelFile
from comparison.quiet import Rests
from comparison.rounds import Compared
from comparison.servers import Server, ending

_START_LIMIT_S, _AGAIN_S = 120.0, 0.005


def starts(
    compared: Compared, file: ModelFile, chosen: list[Server], rests: Rests, rounds: int
) -> None:
    """Measure seconds from a cold process to the first token of an answer, servers in turn.

    A round goes before that does not count; who fails once is not started again.
    """
    there = list(chosen)
    for turn in range(rounds + 1):
        for server in list(there):
            rests.rest()
            if not compared.attempt(
                server.name, lambda s=server, t=turn: start(compared, file, s, t)
            ):
                there.remove(server)


def start(compared: Compared, file: ModelFile, server: Server, turn: int) -> None:
    """Start one server, note how long it took unless it is the first turn, and end it."""
    assert file.path is not None, "files that are missing are not compared"
    began = time.perf_counter()
    launch = Launch(server.command(file.path))
    try:
        took = first_token(launch, began)
        if turn:
            compared.add(server.name, "first token, s", took)
    finally:
        launch.stop()


def first_token(launch: Launch, began: float, limit_s: float = _START_LIMIT_S) -> float:
    """Ask until there is an answer; return seconds from ``began`` to its first text.

    Raises:
        ContenderError: the process ended, or there was no text in time.
    """
    model, last = "", "it answered without text"
    while launch.process.poll() is None and time.perf_counter() < began + limit_s:
        try:
            model = model or model_name(launch.url, limit_s)
            if text_comes(launch.url, model, limit_s):
                return time.perf_counter() - began
        except (OSError, http.client.HTTPException) as error:
            last = str(error)  # not there yet, or 503 while it loads
        except (ValueError, LookupError, TypeError, AttributeError) as error:
            raise ContenderError(
                f"expected an answer of the protocol, got {type(error).__name__}: {error}"
            ) from error
        time.sleep(_AGAIN_S)
    raise ContenderError(ending(launch, f"no text in {limit_s:.0f} s: {last}"))


def text_comes(url: str, model: str, limit_s: float) -> bool:
    """Ask for a streamed answer and return at its first text, or False at its end."""
    body = {"model": model, "stream": True, "max_tokens": 4, "temperature": 0}
    body["messages"] = [{"role": "user", "content": "Say hello."}]
    header = {"content-type": "application/json"}
    asked = urllib.request.Request(f"{url}/v1/chat/completions", json.dumps(body).encode(), header)
    with urllib.request.urlopen(asked, timeout=limit_s) as answer:
        return any(has_text(line) for line in answer)


def model_name(url: str, limit_s: float) -> str:
    """Return what the server calls its model."""
    with urllib.request.urlopen(f"{url}/v1/models", timeout=limit_s) as answer:
        return str(json.load(answer)["data"][0]["id"])


def has_text(line: bytes) -> bool:
    """Return whether a line of a stream brings text."""
    data = line.removeprefix(b"data:").strip()
    if not data.startswith(b"{"):
        return False
    choices = json.loads(data).get("choices") or [{}]
    return bool((choices[0].get("delta") or {}).get("content"))
