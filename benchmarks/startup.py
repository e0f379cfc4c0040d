"""What a start costs: when a server listens, is ready and gives a token, in time and in memory.

    python benchmarks/startup.py [--rounds 7] [--model FILE] [--command "radiance --model {model}"]

Each command is started in turn, `--rounds` times, on a port that stands for {port}; it must answer
/health and /v1/chat/completions as OpenAI's API does. So a peer is one more `--command`, such as
"llama-server -m {model} --port {port} -t 2". Printed are medians and, behind them, the least and
the most: seconds from the start of the process until the port takes connections, until /health says
200, and until the first token of a greedy answer is here; processor seconds of the server and its
children up to then; resident memory of all of them, and what of it belongs to no other process.

The file is read once before, so that it is in the page cache. On a machine that others use, the
processor seconds say more than the others.
"""

import argparse
import http.client
import json
import os
import shlex
import socket
import statistics
import subprocess
import sys
import time
from dataclasses import astuple, dataclass, fields
from pathlib import Path

import psutil

sys.path.insert(0, str(Path(__file__).parent))

from demo import model_file
from probes.target import installed_environment

POLL_S = 0.002
LIMIT_S = 120.0
MIB = 2**20
HOST = "127.0.0.1"


@dataclass(frozen=True)
class Start:
    """One start: seconds from the beginning, seconds of processors, MiB."""

    listens_s: float
    ready_s: float
    first_token_s: float
    cpu_s: float
    resident_mib: float
    own_mib: float


def free_port() -> int:
    """Return a port that was free a moment ago."""
    with socket.socket() as s:
        s.bind((HOST, 0))
        return int(s.getsockname()[1])


def listens(port: int) -> bool:
    """Whether the port takes connections."""
    with socket.socket() as s:
        return s.connect_ex((HOST, port)) == 0


def is_ready(port: int) -> bool:
    """Whether /health says 200."""
    connection = http.client.HTTPConnection(HOST, port, timeout=LIMIT_S)
    try:
        connection.request("GET", "/health")
        return connection.getresponse().status == 200
    except OSError:
        return False
    finally:
        connection.close()


def await_first_token(port: int) -> None:
    """Ask for a greedy answer and return when its first text comes."""
    question = {
        "messages": [{"role": "user", "content": "Why is the sky blue?"}],
        "stream": True,
        "temperature": 0,
        "max_tokens": 16,
    }
    connection = http.client.HTTPConnection(HOST, port, timeout=LIMIT_S)
    headers = {"content-type": "application/json"}
    connection.request("POST", "/v1/chat/completions", json.dumps(question), headers)
    response = connection.getresponse()
    assert response.status == 200, response.read()
    for line in response:
        data = line.decode().removeprefix("data: ").strip()
        if data.startswith("{") and any(
            choice["delta"].get("content") for choice in json.loads(data)["choices"]
        ):
            connection.close()
            return
    sys.exit("the answer ended without a token")


def until(what: str, holds: bool, server: "subprocess.Popen[bytes]", began: float) -> bool:
    """Say whether to go on waiting; end the program when there is nothing to wait for."""
    if holds:
        return False
    if server.poll() is not None:
        sys.exit(f"the server ended with status {server.returncode} before it {what}")
    if time.monotonic() - began > LIMIT_S:
        server.kill()
        sys.exit(f"the server did not {what} within {LIMIT_S:g} s")
    time.sleep(POLL_S)
    return True


def cost(pid: int) -> tuple[float, float, float]:
    """Return processor seconds, resident MiB and private MiB of a process and its children."""
    root = psutil.Process(pid)
    family = [root, *root.children(recursive=True)]
    times = [p.cpu_times() for p in family]
    memory = [p.memory_full_info() for p in family]
    return (
        sum(t.user + t.system for t in times),
        sum(m.rss for m in memory) / MIB,
        sum(m.uss for m in memory) / MIB,
    )


def once(command: str, model: Path) -> Start:
    """Start a server, ask it once, and stop it."""
    port = free_port()
    words = [w.format(model=model, port=port) for w in shlex.split(command)]
    began = time.monotonic()
    server = subprocess.Popen(
        words,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        env=installed_environment(),
    )
    while until("listens", listens(port), server, began):
        pass
    bound = time.monotonic()
    while until("is ready", is_ready(port), server, began):
        pass
    ready = time.monotonic()
    await_first_token(port)
    answered = time.monotonic()
    used = cost(server.pid)
    server.terminate()
    server.wait(60)
    return Start(bound - began, ready - began, answered - began, *used)


def spread(values: list[float], digits: int) -> str:
    """Return the median with the least and the most."""
    middle = f"{statistics.median(values):.{digits}f}"
    return f"{middle} ({min(values):.{digits}f}–{max(values):.{digits}f})"


def main() -> int:
    """Print what each command's starts take."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", type=Path)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--command", action="append")
    options = parser.parse_args()
    model = options.model or model_file()
    here = Path(sys.executable).with_name("radiance")
    commands = options.command or [
        f"{shlex.quote(str(here))} --model {{model}} --port {{port}} --log-level warning"
    ]
    model.read_bytes()
    runs: dict[str, list[Start]] = {c: [] for c in commands}
    for _ in range(options.rounds):
        for command in commands:
            runs[command].append(once(command, model))
    load = os.getloadavg()[0] / (os.cpu_count() or 1)
    print(f"{model.name}, {model.stat().st_size / MIB:.0f} MiB; load {load:.1f} a processor")
    for command, starts in runs.items():
        print(f"\n$ {command}\n  medians of {len(starts)} starts")
        for field, values in zip(
            fields(Start), zip(*map(astuple, starts), strict=True), strict=True
        ):
            digits = 0 if field.name.endswith("mib") else 2
            print(f"  {field.name.replace('_', ' '):>14} {spread(list(values), digits)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
