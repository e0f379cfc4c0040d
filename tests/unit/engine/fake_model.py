"""A step model without kernels: the next token is a fixed function of the tokens before it."""

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from radiance_abi import KernelError
from radiance_core.engine.sampling_row import MASK
from radiance_core.execute.program import StepAborted
from radiance_core.plan.budget import KvPlan
from radiance_core.runtime import StepShape, ToldRows

N_VOCAB = 256


def digest(before: int, token: int) -> int:
    """What a cell holds: a number that all tokens up to its own have a part in."""
    return hash((before, token))


def told_by(text: int) -> int:
    """The letter that a model with ``is_deep`` draws after a text with this digest."""
    return 97 + text % 26


def plan(name: str = "full", pages: int = 64, block_size: int = 4, window: int = 0) -> KvPlan:
    """A cache group of one layer."""
    return KvPlan(name, pages, block_size, "f32", 1, 1, 8, window, 64 * block_size)


@dataclass
class Seen:
    """What one step was given, copied."""

    shape: StepShape
    tokens: list[int]
    positions: list[int]
    cu_seqlens: list[int]
    out_ids: list[int]
    sampling: np.ndarray
    history: np.ndarray
    tables: dict[str, np.ndarray]
    slots: dict[str, list[int]]
    seqused: dict[str, list[int]]

    def rows(self, index: int) -> list[int]:
        """Tokens of one sequence of the step."""
        return self.tokens[self.cu_seqlens[index] : self.cu_seqlens[index + 1]]


@dataclass
class FakeModel:
    """Counts up: after token t comes t + 1. Checks every step against what a kernel may assume.

    Args:
        plans: cache groups.
        max_seqs, max_tokens, max_context, max_drafts: extents of the inputs.
        token_after: what is drawn after a last token.
        is_deep: what is drawn depends on every token before it, as the caches have them.
        fault: what a step raises, if anything.
        keep: copy every step into ``steps``.
        hangs: a step at a closed gate cannot be ended early either.
    """

    plans: Sequence[KvPlan] = field(default_factory=lambda: [plan()])
    max_seqs: int = 4
    max_tokens: int = 16
    max_context: int = 64
    max_drafts: int = 0
    token_after: Callable[[int], int] = lambda last: (last + 1) % N_VOCAB
    is_deep: bool = False
    fault: Callable[["Seen"], BaseException | None] = lambda _: None
    keep: bool = True
    hangs: bool = False

    def __post_init__(self) -> None:
        rows = max(self.max_tokens, self.max_seqs)
        outs = self.max_seqs * (1 + self.max_drafts)
        self.groups: Mapping[str, KvPlan] = {p.name: p for p in self.plans}
        self.n_vocab = N_VOCAB
        self.inputs: dict[str, np.ndarray] = {
            "tokens": np.zeros(rows, np.int32),
            "positions": np.zeros(rows, np.int32),
            "cu_seqlens": np.zeros(self.max_seqs + 1, np.int32),
            "out_ids": np.zeros(outs, np.int32),
            "sampling": np.zeros((outs, 96), np.uint8),
            "history": np.zeros(self.max_seqs * self.max_context, np.int32),
        }
        wide = {"bias_ids": "i4", "bias_values": "f4", "bitmask": "i4", "logprob_ids": "i4"}
        widths = (1024, 1024, N_VOCAB // 32, 1)
        for (name, kind), width in zip(wide.items(), widths, strict=True):
            self.inputs[name] = np.zeros((outs, width), kind)
        self.inputs["dry_breakers"] = np.zeros(self.max_seqs * self.max_context, np.uint8)
        self.told = ToldRows(
            np.zeros((outs, 1), np.float32),
            np.zeros((outs, 1), np.int32),
            np.zeros((outs, 20), np.int32),
            np.zeros((outs, 20), np.float32),
        )
        for p in self.plans:
            pages = -(-self.max_context // p.block_size)
            self.inputs[f"{p.name}.block_table"] = np.full((self.max_seqs, pages), 7777, np.int32)
            self.inputs[f"{p.name}.slot_mapping"] = np.zeros(rows, np.int32)
            self.inputs[f"{p.name}.seqused"] = np.zeros(self.max_seqs, np.int32)
        self.tokens = np.zeros(outs, np.int32)
        self.steps: list[Seen] = []
        self.cells: dict[str, dict[int, tuple[int, int, int]]] = {p.name: {} for p in self.plans}
        self.cleared: list[tuple[str, int]] = []
        self.gate: threading.Event | None = None
        self.entered = threading.Event()
        self.fail_next: BaseException | None = None

    def run(self, shape: StepShape, abort: np.ndarray | None = None) -> None:
        """Write the caches, check that what attention reads is there, draw."""
        gate = self.gate  # before others hear of it: the next one that a test puts up is for later
        self.entered.set()
        if gate is not None:
            self._wait(gate, None if self.hangs else abort)
        if self.fail_next is not None:
            error, self.fail_next = self.fail_next, None
            raise error
        seen = self._copy(shape)
        if self.keep:
            self.steps.append(seen)
        error = self.fault(seen)
        if error is not None:
            raise error
        digests = self._check(seen)
        self.told.rank[: len(seen.out_ids)] = 1
        for out, row in enumerate(seen.out_ids):
            last = seen.tokens[row]
            token = told_by(digests[row]) if self.is_deep else self.token_after(last)
            self.tokens[out] = self._allowed(seen, out, token)

    @staticmethod
    def _wait(gate: threading.Event, abort: np.ndarray | None) -> None:
        """Stay in the step, as a long one would, until it may go on or is to end early."""
        end = time.monotonic() + 240
        while not gate.wait(0.001):
            if abort is not None and abort[0]:
                raise StepAborted("fake: expected the step to run to its end, got a request")
            assert time.monotonic() < end, "the test opens the gate"

    def _allowed(self, seen: Seen, out: int, token: int) -> int:
        """Return the token, or the next one that the row's mask allows."""
        line, flags = seen.sampling[out].view(np.int32)[21:23]
        if not flags & MASK or token < 0:
            return token
        bits = np.unpackbits(self.inputs["bitmask"][line].view(np.uint8), bitorder="little")
        allowed = np.flatnonzero(bits)
        after = allowed[allowed >= token]
        return int(after[0] if len(after) else allowed[0])

    def copy_page(self, group: str, source: int, target: int) -> None:
        """Copy what a page holds."""
        assert source != target
        cells, size = self.cells[group], self.groups[group].block_size
        for i in range(size):
            cells.pop(target * size + i, None)
            if source * size + i in cells:
                cells[target * size + i] = cells[source * size + i]

    def clear_page(self, group: str, page: int) -> None:
        """Forget what a page holds."""
        self.cleared.append((group, page))
        size = self.groups[group].block_size
        for i in range(size):
            self.cells[group].pop(page * size + i, None)

    def _copy(self, shape: StepShape) -> Seen:
        i, t, s = self.inputs, shape.tokens, shape.seqs
        return Seen(
            shape,
            i["tokens"][:t].tolist(),
            i["positions"][:t].tolist(),
            i["cu_seqlens"][: s + 1].tolist(),
            i["out_ids"][: shape.out_rows].tolist(),
            i["sampling"][: shape.out_rows].copy(),
            i["history"].copy(),
            {n: i[f"{n}.block_table"][:s].copy() for n in self.groups},
            {n: i[f"{n}.slot_mapping"][:t].tolist() for n in self.groups},
            {n: i[f"{n}.seqused"][:s].tolist() for n in self.groups},
        )

    def _check(self, seen: Seen) -> list[int]:
        """Each key that attention may read was written for just that text; return the digests."""
        assert seen.shape.seqs <= self.max_seqs
        assert seen.shape.tokens <= max(self.max_tokens, self.max_seqs)
        widths = np.diff(seen.cu_seqlens)
        assert widths.min() >= 1
        assert seen.shape.max_q_len == widths.max()
        assert (widths[: seen.shape.decode_seqs] == 1).all(), "decode rows come first"
        digests: list[int] = []
        for name, p in self.groups.items():
            digests, written = [], set[int]()
            for index in range(len(widths)):
                digests += self._check_sequence(seen, name, p, index, written)
        return digests

    def _check_sequence(
        self, seen: Seen, name: str, p: KvPlan, index: int, written: set[int]
    ) -> list[int]:
        """Write one sequence's cells of one group, then read them as its rows do."""
        cells, table = self.cells[name], seen.tables[name][index]
        first, last = seen.cu_seqlens[index], seen.cu_seqlens[index + 1]
        used = seen.seqused[name][index]
        start = used - (last - first)
        assert seen.positions[first:last] == list(range(start, used))

        def cell(position: int) -> tuple[int, int, int]:
            page = table[position // p.block_size]
            assert page >= 0, "what a row sees is held"
            return cells[page * p.block_size + position % p.block_size]

        digests = []
        for row, position in zip(range(first, last), range(start, used), strict=True):
            slot = seen.slots[name][row]
            page = table[position // p.block_size]
            assert slot == page * p.block_size + position % p.block_size
            assert 0 <= slot < p.pages * p.block_size
            assert slot not in written, "two rows of a step never share a slot"
            written.add(slot)
            before = cell(position - 1)[2] if position and p.window != 1 else 0
            digests.append(digest(before, seen.tokens[row]))
            cells[slot] = position, seen.tokens[row], digests[-1]
        low = max(0, start - p.window + 1) if p.window else 0
        for position in range(low, used):
            at, token, text = cell(position)
            assert at == position, "a page belongs to one text"
            if position > low and p.window != 1:
                assert text == digest(cell(position - 1)[2], token), "a page belongs to one text"
        return digests


def kernel_error() -> KernelError:
    """An error as the executor raises it."""
    return KernelError("attn: expected a result, got status -12", -12)


def poisoned_by(
    letter: str, error: Callable[[], BaseException]
) -> Callable[[Seen], BaseException | None]:
    """A fault of every step that one letter takes part in."""
    return lambda seen: error() if ord(letter) in seen.tokens else None
