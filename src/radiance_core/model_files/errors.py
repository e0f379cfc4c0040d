"""The one error that reading a model file raises."""

from pathlib import Path

from radiance_abi.errors import RadianceError


class ModelFileError(RadianceError):
    """A model file is malformed, of a kind that is not read, or was asked for what it lacks.

    Args:
        file: the file the fault is in.
        what: expected, got, and what to do; both numbers where there are two.
        tensor: the tensor concerned, or None when it is the file as a whole.
    """

    def __init__(self, file: Path, what: str, tensor: str | None = None) -> None:
        subject = f"{file}" if tensor is None else f"{file}: tensor {tensor!r}"
        super().__init__(f"{subject}: {what}")
        self.file = file
        self.tensor = tensor
