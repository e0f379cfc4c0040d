"""Log events: structlog, as the rest of the program imports it."""

from radiance_core.without import without

# Its renderer for terminals, which is not used here, would bring rich along: 60 ms of every start.
with without("rich"):
    import structlog

get_logger = structlog.get_logger

__all__ = ["get_logger", "structlog"]
