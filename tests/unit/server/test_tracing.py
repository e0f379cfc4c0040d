"""Traces: what a collector gets over real HTTP, and what happens when there is none."""

import http.server
import random
import secrets
import subprocess
import sys
import threading
import time

import pytest
from opentelemetry.exporter.otlp.proto.http import trace_exporter
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from structlog.testing import capture_logs

from radiance_abi.errors import ConfigurationError
from radiance_core.server import tracing
from radiance_core.server.tracing import Tracing, collector_url

CHAT = "/v1/chat/completions"
SECRET = "the words of a conversation"


class Collector:
    """Takes what is exported and keeps the spans."""

    def __init__(self, status=200):
        kept = self.requests = []

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_POST(self):
                body = self.rfile.read(int(self.headers["content-length"]))
                if self.headers.get("content-encoding") == "gzip":
                    import gzip

                    body = gzip.decompress(body)
                kept.append((self.path, ExportTraceServiceRequest.FromString(body)))
                self.send_response(status)
                self.end_headers()

            def log_message(self, *_):
                return

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}"
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def spans(self):
        """Return (resource's attributes, span, its attributes) of all that came."""
        return [
            (_plain(group.resource.attributes), span, _plain(span.attributes))
            for _, request in self.requests
            for group in request.resource_spans
            for scope in group.scope_spans
            for span in scope.spans
        ]


def _plain(attributes):
    def value(of):
        kind = of.WhichOneof("value")
        found = getattr(of, kind)
        return [value(each) for each in found.values] if kind == "array_value" else found

    return {each.key: value(each.value) for each in attributes}


@pytest.fixture
def collector():
    made = Collector()
    yield made
    made.server.shutdown()
    made.server.server_close()


@pytest.fixture
def traced(collector, monkeypatch):
    monkeypatch.setattr(tracing, "LAST_EXPORT_S", 120)
    monkeypatch.setattr(tracing, "EXPORT_LIMIT_S", 120)
    made = Tracing(collector.url, "1.2.3")
    yield made
    made.close()


async def test_a_span_says_how_much_and_never_what(start, hi, collector, traced):
    """Operation, model, sampling, counts and times, under the caller's trace; no word of it."""
    live = await start()
    live.server.state.trace = traced.record
    trace, parent = secrets.token_hex(16), secrets.token_hex(8)
    body = {**hi, "temperature": 0.5, "top_p": 0.75, "max_tokens": 4, "seed": 7}
    body["messages"][0]["content"] = SECRET
    began = time.time_ns()
    headers = {"traceparent": f"00-{trace}-{parent}-01", "X-Request-Id": "mine"}
    assert (await live.post(CHAT, body, headers=headers))[0] == 200
    traced.close()
    [(path, _)] = collector.requests
    assert path == "/v1/traces"
    [(resource, span, said)] = collector.spans()
    assert (resource["service.name"], resource["service.version"]) == ("radiance", "1.2.3")
    assert (span.trace_id.hex(), span.parent_span_id.hex()) == (trace, parent)
    assert span.name == "chat org/tiny:q4"
    assert began <= span.start_time_unix_nano + 10**6
    assert span.start_time_unix_nano < span.end_time_unix_nano <= time.time_ns()
    assert said.pop("gen_ai.response.time_to_first_chunk") > 0
    assert said == {
        "gen_ai.operation.name": "chat", "gen_ai.provider.name": "radiance",
        "gen_ai.request.model": "org/tiny:q4", "gen_ai.response.model": "org/tiny:q4",
        "gen_ai.request.temperature": 0.5, "gen_ai.request.top_p": 0.75,
        "gen_ai.request.top_k": 0, "gen_ai.request.max_tokens": 4, "gen_ai.request.seed": 7,
        "gen_ai.request.frequency_penalty": 0, "gen_ai.request.presence_penalty": 0,
        "gen_ai.usage.input_tokens": said["gen_ai.usage.input_tokens"],
        "gen_ai.usage.output_tokens": 4, "gen_ai.usage.cache_read.input_tokens": 1,
        "gen_ai.response.finish_reasons": ["length"], "http.request.method": "POST",
        "http.route": CHAT, "http.response.status_code": 200, "radiance.request_id": "mine",
    }  # fmt: skip
    assert said["gen_ai.usage.input_tokens"] > len(SECRET)
    assert SECRET not in str(collector.requests)


async def test_what_generates_has_a_span_whatever_its_end(start, hi, collector, traced):
    """Streams, refusals and failures have one span each; looks and probes have none."""
    live = await start()
    live.server.state.trace = traced.record
    await live.stream(CHAT, hi | {"n": 2})
    await live.post("/v1/completions", {"prompt": "x", "max_tokens": 1})
    await live.post(CHAT, {"messages": []})
    live.engine.fail_after = 0
    await live.post(CHAT, hi)
    for path in ("/stats", "/health", "/v1/models", "/nothing", "/"):
        await live.get(path)
    traced.close()
    got = [
        (span.name.split()[0], said["http.response.status_code"], said.get("error.type"),
         said.get("gen_ai.response.finish_reasons"), span.status.code)
        for _, span, said in collector.spans()
    ]  # fmt: skip
    assert got == [
        ("chat", 200, None, ["stop"], 0), ("text_completion", 200, None, ["length"], 0),
        ("chat", 400, "400", None, 0), ("chat", 500, "500", None, 2),
    ]  # fmt: skip


@pytest.mark.parametrize("header", ["", "junk", "00-" + "0" * 32 + "-" + "0" * 16 + "-01", "ff-x"])
async def test_a_bad_traceparent_begins_a_trace(start, hi, collector, traced, header):
    """What is no trace context is as if it were not there."""
    live = await start()
    live.server.state.trace = traced.record
    await live.post(CHAT, hi, headers={"traceparent": header})
    traced.close()
    [(_, span, _)] = collector.spans()
    assert len(span.trace_id) == 16
    assert span.parent_span_id == b""


async def test_a_caller_that_does_not_sample_is_not_traced(start, hi, collector, traced):
    """A trace context whose flag says no is obeyed."""
    live = await start()
    live.server.state.trace = traced.record
    header = f"00-{secrets.token_hex(16)}-{secrets.token_hex(8)}-00"
    await live.post(CHAT, hi, headers={"traceparent": header})
    traced.close()
    assert collector.requests == []


async def test_a_collector_that_is_gone_costs_neither_answers_nor_the_end(start, hi, monkeypatch):
    """Nobody listens: requests are answered, the end comes in time, the log says what failed."""
    monkeypatch.setattr(tracing, "LAST_EXPORT_S", 0.1)
    monkeypatch.setattr(tracing, "EXPORT_LIMIT_S", 120)
    gone = Collector()
    gone.server.shutdown()
    gone.server.server_close()
    exporters = []

    class Kept(trace_exporter.OTLPSpanExporter):
        def __init__(self, **given):
            super().__init__(**given)
            exporters.append(self)

    monkeypatch.setattr(trace_exporter, "OTLPSpanExporter", Kept)
    live, threads = await start(), set(threading.enumerate())
    made = Tracing(gone.url, "1")
    threads = set(threading.enumerate()) - threads
    live.server.state.trace = made.record
    with capture_logs() as events:
        assert (await live.post(CHAT, hi))[0] == 200
        began, others = time.monotonic(), set(threading.enumerate())
        made.close()
        assert time.monotonic() - began < 20, "it tries for half a minute where nobody ends it"
        threads |= set(threading.enumerate()) - others
        deadline = time.monotonic() + 120
        while not any(event["event"] == "trace_export_failed" for event in events):
            assert time.monotonic() < deadline, events
            time.sleep(0.05)
        # What it still has to say would be printed into what other tests look at.
        exporters[0].shutdown()
        assert threads
        for thread in threads:
            thread.join(60)
            assert not thread.is_alive()


def test_where_a_collector_is():
    """A bare address gets the standard path, another path stays; anything else is refused."""
    port = random.randint(1, 65535)
    assert collector_url(f"http://h:{port}") == f"http://h:{port}/v1/traces"
    assert collector_url(f"http://h:{port}/") == f"http://h:{port}/v1/traces"
    assert collector_url("https://h/a/b?c=d") == "https://h/a/b?c=d"
    for wrong in ("", "h:4318", "grpc://h:4317", "http://", "/x", "127.0.0.1"):
        with pytest.raises(ConfigurationError) as caught:
            Tracing(wrong, "1")
        assert str(caught.value) == (
            f"--otlp-endpoint {wrong}: expected the http address of a collector, such as "
            "http://127.0.0.1:4318"
        )


def test_without_the_packages_the_remedy_is_named(monkeypatch):
    """OpenTelemetry that is not installed is named with what to install."""
    monkeypatch.setitem(sys.modules, "opentelemetry.sdk.trace", None)
    with pytest.raises(ConfigurationError) as caught:
        Tracing("http://127.0.0.1:1", "1")
    text = str(caught.value)
    assert text.startswith("--otlp-endpoint: expected OpenTelemetry to be installed, and it is not")
    assert "install opentelemetry-sdk and opentelemetry-exporter-otlp-proto-http" in text


def test_off_it_is_not_imported():
    """Without an endpoint no module of OpenTelemetry is loaded, though the command is."""
    code = (
        "import sys; import radiance_core.cli.serve, radiance_core.server.tracing; "
        "print([m for m in sys.modules if m.startswith('opentelemetry')])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
