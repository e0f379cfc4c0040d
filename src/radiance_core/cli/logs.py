"""Where log events go: standard error, one line each."""

import logging
import sys
from typing import TYPE_CHECKING, TextIO, cast

import msgspec

from radiance_abi.errors import ConfigurationError
from radiance_core.log_events import structlog

if TYPE_CHECKING:
    from structlog.typing import Processor

LEVELS = {
    "debug": logging.DEBUG,
    "info": logging.INFO,
    "warning": logging.WARNING,
    "error": logging.ERROR,
}


class _StandardError:
    """Whatever standard error is at the moment: ``--live`` puts itself before the terminal."""

    def write(self, text: str) -> int:
        return sys.stderr.write(text)

    def flush(self) -> None:
        sys.stderr.flush()


def configure_logs(level: str, form: str = "text") -> None:
    """Send log events to standard error, a line each.

    Args:
        level: events below it are not told.
        form: ``text`` for key=value, ``json`` for one object a line.

    Raises:
        ConfigurationError: no such level.
    """
    if level not in LEVELS:
        raise ConfigurationError(f"--log-level: expected {', '.join(LEVELS)}, got {level!r}")
    structlog.configure(
        processors=[
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            structlog.processors.format_exc_info,
            _renderer(form),
        ],
        wrapper_class=structlog.make_filtering_bound_logger(LEVELS[level]),
        logger_factory=structlog.WriteLoggerFactory(file=cast("TextIO", _StandardError())),
        cache_logger_on_first_use=True,
    )


def _renderer(form: str) -> "Processor":
    if form == "text":
        return structlog.processors.LogfmtRenderer(key_order=["timestamp", "level", "event"])

    def encode(event: object, **_: object) -> str:
        return msgspec.json.encode(event, enc_hook=str).decode()

    return structlog.processors.JSONRenderer(encode)
