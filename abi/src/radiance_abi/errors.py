"""The one tree of errors: every error text says subject, expected, got, where, and what to do."""


class RadianceError(Exception):
    """Base of every error that radiance or one of its plugins raises on purpose."""


class AbiError(RadianceError):
    """A plugin breaks the contract: wrong version, bad table, misspelt hook, bad schema."""


class EncodingError(RadianceError):
    """An encoding is malformed, or planes do not have the extents that it demands."""


class KernelError(RadianceError):
    """A kernel returned a negative status or raised; ``status`` is the ABI code.

    Args:
        text: the message, naming kernel and geometry.
        status: negative status code of the C contract (for example -1 for SHAPE).
    """

    def __init__(self, text: str, status: int) -> None:
        super().__init__(text)
        self.status = status


class ConfigurationError(RadianceError):
    """An option, a file of settings or a model's own configuration is not acceptable."""
