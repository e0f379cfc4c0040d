"""What a served model costs: time to first token from a cold process, resident memory, idle CPU.

Prints ratios against the file's size and the stated aims; starts a real server, asks it once, and
then with a prompt of some 1,100 tokens. Memory beside the file and the cache is what the process
holds, and what the template's process has of its own, without the file's size and without what the
answered tokens take in the cache. ``startup.py`` has the start in more detail.
"""

import argparse
import json
import statistics
import sys
import time
import urllib.request
from pathlib import Path

import psutil

sys.path.insert(0, str(Path(__file__).parent))

from demo import ask, model_file, start

LONG = "The quick brown fox jumps over the lazy dog. " * 108

IDLE_S = 10.0
FIRST_TOKEN_S = 0.5
BESIDE_FILE_BYTES = 150e6
IDLE_CPU_S = 0.05


def resident(process: psutil.Process) -> dict[str, int]:
    """Return resident bytes: all, and those that belong to no file."""
    info = process.memory_full_info()
    return {"rss": info.rss, "uss": info.uss}


def once(model: Path) -> dict[str, float]:
    """Start, ask, idle, stop; return seconds and bytes."""
    began = time.monotonic()
    server, url = start(model)
    ready = time.monotonic() - began
    first, _, _ = ask(url, "Say hello.")
    cached = ask_long(url)
    process = psutil.Process(server.pid)
    family = [process, *process.children(recursive=True)]
    memory = resident(process)
    children = sum(resident(p)["uss"] for p in family[1:])
    before = sum(sum(p.cpu_times()[:2]) for p in family)
    time.sleep(IDLE_S)
    idle = sum(sum(p.cpu_times()[:2]) for p in family) - before
    server.terminate()
    status = server.wait(60)
    assert status == 0, f"the server ended with status {status}"
    return {
        "ready_s": ready,
        "first_token_s": first - began,
        "rss": memory["rss"],
        "uss": memory["uss"],
        "children": children,
        "cached": cached,
        "idle_cpu_s": idle,
    }


def ask_long(url: str) -> float:
    """Ask with a long prompt; return the bytes that its tokens take in the cache."""
    body = {"messages": [{"role": "user", "content": LONG}], "max_tokens": 4}
    request = urllib.request.Request(
        f"{url}/v1/chat/completions",
        json.dumps(body).encode(),
        {"content-type": "application/json"},
    )
    with urllib.request.urlopen(request, timeout=120) as response:
        tokens = json.load(response)["usage"]["total_tokens"]
    with urllib.request.urlopen(f"{url}/server_info", timeout=10) as response:
        return float(tokens * json.load(response)["cache"]["bytes_per_token"])


def share(value: float, aim: float) -> str:
    """Return how much of an aim a value takes; below 1 is within it."""
    return f"({value / aim:.2f} of the aim)"


def main() -> int:
    """Print medians of a few starts."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model", type=Path, nargs="?")
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    model = options.model or model_file()
    runs = [once(model) for _ in range(options.rounds)]
    size = model.stat().st_size

    def middle(name: str) -> float:
        return statistics.median(r[name] for r in runs)

    print(f"\n{model.name}, {size / 2**20:.1f} MiB, medians of {len(runs)} starts")
    ready, first = middle("ready_s"), middle("first_token_s")
    beside = middle("rss") + middle("children") - size - middle("cached")
    print(
        f"  ready after {ready:.2f} s, first token after {first:.2f} s", share(first, FIRST_TOKEN_S)
    )
    print(
        f"  resident {middle('rss') / 2**20:.0f} MiB (private {middle('uss') / 2**20:.0f}) and "
        f"{middle('children') / 2**20:.0f} of the template's process: beside the file and "
        f"{middle('cached') / 2**20:.0f} of the cache {beside / 2**20:.0f} MiB",
        share(beside, BESIDE_FILE_BYTES),
    )
    idle = middle("idle_cpu_s")
    print(f"  idle {idle:.3f} s of CPU in {IDLE_S:.0f} s", share(idle, IDLE_CPU_S))
    return 0


if __name__ == "__main__":
    sys.exit(main())
