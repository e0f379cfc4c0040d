"""Stand-ins for the core, with which architectures are tested without kernels or files."""

from radiance_arch_blocks.testing.keys import KeysRaw
from radiance_arch_blocks.testing.recording import (
    FakeGroup,
    FakeValue,
    FakeWeight,
    Issued,
    RecordingGraph,
)

__all__ = ["FakeGroup", "FakeValue", "FakeWeight", "Issued", "KeysRaw", "RecordingGraph"]
