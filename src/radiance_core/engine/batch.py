"""Fill a step's inputs from the work that was decided."""

import numpy as np

from radiance_core.engine.drawing import Drawing
from radiance_core.engine.groups import HeldPages
from radiance_core.engine.schedule import Step, Work
from radiance_core.engine.sequence import Sequence, held_by
from radiance_core.runtime import StepModel, StepShape


class RowFault(Exception):  # noqa: N818 (carries a fault to where it is told)
    """What one sequence brought cannot be written into the inputs."""

    def __init__(self, seq: Sequence, cause: Exception) -> None:
        super().__init__(f"{type(cause).__name__}: {cause}")
        self.seq = seq


class Batch:
    """Writes steps into a model's inputs, which it looks up once.

    Args:
        model: whose inputs these are.
    """

    def __init__(self, model: StepModel) -> None:
        inputs = model.inputs
        self.drawing = Drawing(model)
        self._tokens, self._positions = inputs["tokens"], inputs["positions"]
        self._cu_seqlens, self._out_ids = inputs["cu_seqlens"], inputs["out_ids"]
        self._groups = [_GroupInputs(model, name) for name in model.groups]

    @property
    def max_outs(self) -> int:
        """Rows of logits that a step can have."""
        return len(self._out_ids)

    def fill(self, step: Step) -> StepShape:
        """Write tokens, positions, tables and sampling rows; pages must be held already.

        Raises:
            RowFault: one sequence's rows cannot be written; the inputs are then undefined.
        """
        ids: list[int] = []
        out_ids: list[int] = []
        lengths = [0]
        self.drawing.begin()
        for w in step.work:
            seq, start, count, outs = w
            try:
                known = seq.text.ids
                if count == 1:
                    ids.append(known[start])
                else:
                    ids += known[start : start + count]
                    ids += seq.drafted[: lengths[-1] + count - len(ids)]
                end = len(ids)
                if outs == 1:
                    self.drawing.write(seq, len(out_ids), start + count)
                    out_ids.append(end - 1)
                else:
                    self._draw(w, out_ids, end)
            except Exception as error:
                raise RowFault(seq, error) from error
            lengths.append(end)
        return self._write(step, ids, lengths, out_ids)

    def _draw(self, w: Work, out_ids: list[int], end: int) -> None:
        """Write the sampling rows of one sequence, whose last row is before ``end``."""
        for back in range(w.num_outs, 0, -1):
            self.drawing.write(w.seq, len(out_ids), w.end + 1 - back)
            out_ids.append(end - back)

    def _write(
        self, step: Step, ids: list[int], lengths: list[int], out_ids: list[int]
    ) -> StepShape:
        rows, seqs, outs, decode = len(ids), len(step.work), len(out_ids), step.num_decode
        self._tokens[:rows] = ids
        self._cu_seqlens[: seqs + 1] = lengths
        self._out_ids[:outs] = out_ids
        self._positions[:decode] = [w.start for w in step.work[:decode]]
        longest = 1
        for w, row in zip(step.work[decode:], lengths[decode:], strict=False):
            self._positions[row : row + w.num_tokens] = np.arange(w.start, w.end)
            longest = max(longest, w.num_tokens)
        for group in self._groups:
            group.write(step, self._positions, lengths)
        return StepShape(rows, seqs, outs, longest, decode, decode)


class _GroupInputs:
    """The inputs of one cache group; tables that still stand there are not written again."""

    def __init__(self, model: StepModel, name: str) -> None:
        self._name = name
        self._size = model.groups[name].block_size
        self._table = model.inputs[f"{name}.block_table"]
        self._slots = model.inputs[f"{name}.slot_mapping"]
        self._seqused = model.inputs[f"{name}.seqused"]
        self._written: list[tuple[HeldPages | None, int]] = [(None, 0)] * len(self._table)

    def write(self, step: Step, positions: np.ndarray, lengths: list[int]) -> None:
        """Write block tables, used keys and slots."""
        size, decode = self._size, step.num_decode
        for index, w in enumerate(step.work):
            mine = held_by(w.seq).pages[self._name]
            was, changes = self._written[index]
            if was is not mine or changes != mine.changes:
                self._table[index, : mine.stop] = mine.table[: mine.stop]
                self._written[index] = mine, mine.changes
        self._seqused[: len(step.work)] = [w.end for w in step.work]
        at = positions[:decode]
        pages = self._table[np.arange(decode), at // size]
        self._slots[:decode] = pages * size + at % size
        for index in range(decode, len(step.work)):
            rows = slice(lengths[index], lengths[index + 1])
            at = positions[rows]
            self._slots[rows] = self._table[index, at // size] * size + at % size
