"""A built model driven directly, one greedy sequence, without a server."""

from pathlib import Path

import numpy as np

from radiance_core.build import BuildSettings, load_model, plan_model
from radiance_core.runtime import StepModel, StepShape

STEP = 512


class SingleStream:
    """One sequence on pages 0.. of every pool."""

    def __init__(
        self, path: Path, threads: int, max_context: int = 2048, activation_planes: int = 2
    ) -> None:
        settings = BuildSettings(
            path,
            max_seqs=1,
            max_tokens=STEP,
            max_context=max_context,
            threads=threads,
            activation_planes=activation_planes,
        )
        self.plan = plan_model(settings)
        self.model: StepModel = load_model(self.plan)
        self.position = 0
        for name in self.model.groups:
            table = self.model.inputs[f"{name}.block_table"]
            table[0] = np.arange(table.shape[1])

    def reset(self) -> None:
        """Forget the conversation."""
        self.position = 0

    def feed(self, ids: list[int]) -> int:
        """Run one step over ``ids`` and return the greedy next token."""
        inputs, n, at = self.model.inputs, len(ids), self.position
        inputs["tokens"][:n] = ids
        inputs["positions"][:n] = range(at, at + n)
        inputs["cu_seqlens"][:2] = (0, n)
        inputs["out_ids"][0] = n - 1
        inputs["sampling"][:1] = 0
        inputs["sampling"].view(np.int32)[0, 22] = 1
        for name in self.model.groups:
            inputs[f"{name}.slot_mapping"][:n] = range(at, at + n)
            inputs[f"{name}.seqused"][0] = at + n
        self.model.run(StepShape(n, 1, 1, n, int(n == 1), int(n == 1)))
        self.position += n
        return int(self.model.tokens[0])

    def feed_prompt(self, ids: list[int]) -> int:
        """Feed a prompt of any length, and return the greedy next token."""
        for at in range(0, len(ids), STEP):
            token = self.feed(ids[at : at + STEP])
        return token

    def close(self) -> None:
        """Stop the threads."""
        self.model.close()
