"""Readers of GGUF files and safetensors checkpoints: metadata, and tensors as encoding planes."""

from radiance_core.model_files.checkpoint import Batch, Checkpoint, TensorInfo
from radiance_core.model_files.errors import ModelFileError
from radiance_core.model_files.opening import open_checkpoint

__all__ = ["Batch", "Checkpoint", "ModelFileError", "TensorInfo", "open_checkpoint"]
