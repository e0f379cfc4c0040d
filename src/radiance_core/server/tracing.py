"""Spans of what was generated, sent to an OpenTelemetry collector; imported only when asked for.

Names of attributes are those of OpenTelemetry's conventions for generative models. Spans say how
long and how much, never what: no prompt and no answer is in them.
"""

import logging
import threading
import time
from collections.abc import Mapping
from typing import Any
from urllib.parse import urlsplit, urlunsplit

from radiance_abi.errors import ConfigurationError
from radiance_core.log_events import get_logger
from radiance_core.server.exchange import Exchange

OPERATIONS = {
    "/chat/completions": "chat",
    "/completions": "text_completion",
    "/messages": "chat",
    "/responses": "chat",
}
_SAMPLING = {
    "temperature": "gen_ai.request.temperature",
    "top_p": "gen_ai.request.top_p",
    "top_k": "gen_ai.request.top_k",
    "max_tokens": "gen_ai.request.max_tokens",
    "frequency_penalty": "gen_ai.request.frequency_penalty",
    "presence_penalty": "gen_ai.request.presence_penalty",
    "seed": "gen_ai.request.seed",
}
_USAGE = {
    "prompt_tokens": "gen_ai.usage.input_tokens",
    "completion_tokens": "gen_ai.usage.output_tokens",
    "cached_tokens": "gen_ai.usage.cache_read.input_tokens",
}
_TRACES = "/v1/traces"
EXPORT_LIMIT_S = 5
LAST_EXPORT_S = 2.0
_log = get_logger("radiance.tracing")


def collector_url(text: str) -> str:
    """Return where a collector takes traces; its standard path is added to a bare address.

    Raises:
        ConfigurationError: not an address that HTTP can reach.
    """
    parts = urlsplit(text)
    if parts.scheme not in {"http", "https"} or not parts.hostname:
        raise ConfigurationError(
            f"--otlp-endpoint {text}: expected the http address of a collector, such as "
            "http://127.0.0.1:4318"
        )
    return urlunsplit(parts) if parts.path.strip("/") else urlunsplit(parts._replace(path=_TRACES))


class Tracing:
    """Makes a span of each request that generates, and sends them in batches on another thread.

    Args:
        endpoint: of the collector.
        version: the program's.

    Raises:
        ConfigurationError: the endpoint is no address, or OpenTelemetry is not installed.
    """

    def __init__(self, endpoint: str, version: str) -> None:
        url = collector_url(endpoint)
        try:
            from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
            from opentelemetry.sdk.resources import Resource
            from opentelemetry.sdk.trace import TracerProvider
            from opentelemetry.sdk.trace.export import BatchSpanProcessor
        except ImportError as error:
            raise ConfigurationError(
                "--otlp-endpoint: expected OpenTelemetry to be installed, and it is not "
                f"({error}); install opentelemetry-sdk and opentelemetry-exporter-otlp-proto-http, "
                "which this distribution's extra otel names"
            ) from error
        _tell_failures()
        resource = Resource.create({"service.name": "radiance", "service.version": version})
        self._provider = TracerProvider(resource=resource, shutdown_on_exit=False)
        exporter = OTLPSpanExporter(endpoint=url, timeout=EXPORT_LIMIT_S)
        self._provider.add_span_processor(BatchSpanProcessor(exporter))
        self._tracer = self._provider.get_tracer("radiance", version)

    def record(self, exchange: Exchange, status: int, model: str | None) -> None:
        """Make the span of a request that has been answered, if it was one to generate."""
        from opentelemetry.trace import SpanKind, StatusCode
        from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

        operation = OPERATIONS.get(exchange.route)
        if operation is None:
            return
        # In this order, so that no span begins before its request did.
        elapsed_ms, now = exchange.elapsed_ms(), time.time_ns()
        span = self._tracer.start_span(
            f"{operation} {model}" if model else operation,
            context=TraceContextTextMapPropagator().extract(exchange.request.headers),
            kind=SpanKind.SERVER,
            attributes=attributes(exchange, status, operation, model),
            start_time=now - round(elapsed_ms * 1e6),
        )
        if status >= 500:
            span.set_status(StatusCode.ERROR)
        span.end(now)

    def close(self) -> None:
        """Send what is left, if the collector takes it in time."""
        sending = threading.Thread(target=self._provider.shutdown, daemon=True)
        sending.start()
        sending.join(LAST_EXPORT_S)


def attributes(
    exchange: Exchange, status: int, operation: str, model: str | None
) -> Mapping[str, Any]:
    """Return what a span says of a request."""
    facts, sampling = exchange.facts, exchange.sampling
    said: dict[str, Any] = {
        "gen_ai.operation.name": operation,
        "gen_ai.provider.name": "radiance",
        "http.request.method": exchange.request.method,
        "http.route": exchange.called,
        "http.response.status_code": status,
        "radiance.request_id": exchange.request_id,
    }
    if model is not None:
        said["gen_ai.request.model"] = said["gen_ai.response.model"] = model
    said |= {to: facts[name] for name, to in _USAGE.items() if name in facts}
    if facts.get("finish_reason"):
        said["gen_ai.response.finish_reasons"] = facts["finish_reason"].split(",")
    if "ttft_ms" in facts:
        said["gen_ai.response.time_to_first_chunk"] = facts["ttft_ms"] / 1000
    if sampling is not None:
        given = {to: getattr(sampling, name) for name, to in _SAMPLING.items()}
        said |= {to: value for to, value in given.items() if value is not None}
    if status >= 400:
        said["error.type"] = str(status)
    return said


class _ToOurLog(logging.Handler):
    """Passes what OpenTelemetry says of failed exports on to the log of the server."""

    def emit(self, record: logging.LogRecord) -> None:
        _log.warning("trace_export_failed", detail=record.getMessage())


def _tell_failures() -> None:
    logger = logging.getLogger("opentelemetry")
    if not any(isinstance(handler, _ToOurLog) for handler in logger.handlers):
        logger.addHandler(_ToOurLog(logging.WARNING))
        logger.propagate = False
