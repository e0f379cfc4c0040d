"""The one error of this package."""

from radiance_abi.errors import RadianceError


class ConstraintError(RadianceError):
    """A constraint cannot be enforced: it is malformed, too large, or says what no mask can.

    Args:
        text: the message, in words for a client.
        path: the place in the constraint, as ``properties.name.uniqueItems``, or empty.
    """

    def __init__(self, text: str, path: str = "") -> None:
        super().__init__(text)
        self.path = path
