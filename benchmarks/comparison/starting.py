"""How long a server takes from a new process to the first token of an answer."""

import json
import time
import urllib.error
import urllib.request

from probes.target import Launch

from comparison.model_files import ModelFile
from comparison.quiet import Rests
from comparison.rounds import Compared
from comparison.servers import Server, last_line

_START_LIMIT_S = 120.0


def starts(
    compared: Compared, file: ModelFile, chosen: list[Server], rests: Rests, rounds: int
) -> None:
    """Measure seconds from a cold process to the first token of an answer, servers in turn."""
    assert file.path is not None, "files that are missing are not compared"
    for turn in range(rounds + 1):
        for server in chosen:
            rests.rest()
            began = time.perf_counter()
            launch = Launch(server.command(file.path))
            try:
                took = first_token(launch, began)
                if turn:
                    compared.add(server.name, "first token, s", took)
            except TimeoutError:
                compared.missing[server.name] = last_line(launch.output())
            finally:
                launch.stop()


def first_token(launch: Launch, began: float) -> float:
    """Ask until there is an answer; return seconds from ``began`` to its first text.

    Raises:
        TimeoutError: the process ended, or there was none in time.
    """
    body = {"model": "x", "stream": True, "max_tokens": 4, "temperature": 0}
    body["messages"] = [{"role": "user", "content": "Say hello."}]
    model = ""
    while launch.process.poll() is None and time.perf_counter() < began + _START_LIMIT_S:
        try:
            model = model or model_name(launch.url)
            data = json.dumps(body | {"model": model}).encode()
            header = {"content-type": "application/json"}
            request = urllib.request.Request(f"{launch.url}/v1/chat/completions", data, header)
            with urllib.request.urlopen(request, timeout=_START_LIMIT_S) as answer:
                for line in answer:
                    if has_text(line):
                        return time.perf_counter() - began
        except (urllib.error.URLError, ConnectionError):
            # Not there yet, or 503 while it loads.
            time.sleep(0.005)
    raise TimeoutError


def model_name(url: str) -> str:
    """Return what the server calls its model."""
    with urllib.request.urlopen(f"{url}/v1/models", timeout=_START_LIMIT_S) as answer:
        return str(json.load(answer)["data"][0]["id"])


def has_text(line: bytes) -> bool:
    """Return whether a line of a stream brings text."""
    data = line.removeprefix(b"data:").strip()
    if not data.startswith(b"{"):
        return False
    choices = json.loads(data).get("choices") or [{}]
    return bool((choices[0].get("delta") or {}).get("content"))
