"""Traces of a real server: what the collector has when the server has ended."""

import gzip
import http.server
import json
import subprocess
import sys
import threading
import urllib.request

from live_server import running, small_model
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest


def test_the_last_spans_are_sent_before_the_end() -> None:
    """A signal right after an answer loses no span, and the span has the answer's counts."""
    got: list[ExportTraceServiceRequest] = []

    class Collector(http.server.BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["content-length"]))
            body = gzip.decompress(body) if self.headers["content-encoding"] == "gzip" else body
            got.append(ExportTraceServiceRequest.FromString(body))
            self.send_response(200)
            self.end_headers()

        def log_message(self, *_: object) -> None:
            return

    collector = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Collector)
    threading.Thread(target=collector.serve_forever, daemon=True).start()
    url = f"http://127.0.0.1:{collector.server_port}"
    with running("--otlp-endpoint", url, "--max-num-seqs", "2") as server:
        body = {"messages": [{"role": "user", "content": "Hi"}], "max_tokens": 5}
        request = urllib.request.Request(
            f"{server.url}/v1/chat/completions",
            json.dumps(body).encode(),
            {"content-type": "application/json"},
        )
        with urllib.request.urlopen(request, timeout=60) as answer:
            usage = json.loads(answer.read())["usage"]
        server.process.terminate()
        assert server.end() == 0
    collector.shutdown()
    collector.server_close()
    [span] = [s for r in got for g in r.resource_spans for sc in g.scope_spans for s in sc.spans]
    said = {a.key: a.value for a in span.attributes}
    assert said["gen_ai.usage.input_tokens"].int_value == usage["prompt_tokens"]
    assert said["gen_ai.usage.output_tokens"].int_value == usage["completion_tokens"]
    assert said["http.route"].string_value == "/v1/chat/completions"


def test_an_endpoint_that_is_none_is_told_before_anything_is_loaded() -> None:
    """A wrong address ends the command at once, with what was expected."""
    command = [sys.executable, "-m", "radiance_core.cli.main", "--model", str(small_model()),
               "--otlp-endpoint", "localhost:4318"]  # fmt: skip
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith(
        "radiance: --otlp-endpoint localhost:4318: expected the http address of a collector"
    )
