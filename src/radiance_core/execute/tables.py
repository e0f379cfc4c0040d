"""A step program as the C structs of ``executor.h``, which own nothing: all memory is held here."""

from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from radiance_abi import native
from radiance_abi.dtypes import dtype
from radiance_abi.native import arguments
from radiance_core.execute.calls import storage
from radiance_core.execute.program import Band, NodeTemplate, OperandTemplate, StepProgram
from radiance_core.execute.states import States, geometry

_ALIGN = 64


@lru_cache(maxsize=1)
def ffi() -> Any:
    """Return the cffi instance that knows the executor's structs.

    Raises:
        AbiError: the header was changed and not parsed anew.
    """
    from radiance_core.execute import parsed_header

    header = Path(__file__).with_name("executor.h")
    declared = native.declarations(header.read_text(encoding="utf-8"))
    return native.parsed(declared, parsed_header, f"python -m radiance_abi parse {header}")


class Tables:
    """C tables of one loaded program.

    Args:
        program: a checked program.
        max_symbols: largest value of each symbol.
        states: what its kernels' init made.
        num_threads: workers that need scratch, the caller included.

    Raises:
        KernelError: a scratch hook failed.
    """

    def __init__(
        self, program: StepProgram, max_symbols: Sequence[int], states: States, num_threads: int
    ) -> None:
        self._kept: list[Any] = []
        self._operands: dict[int, tuple[Any, Any]] = {}  # by identity: the program outlives them
        self.program = self._new("RadStepProgram *")
        self.num_nodes = self.program.num_nodes = len(program.nodes)
        nodes = self.program.nodes = self._new("RadStepNode[]", max(self.num_nodes, 1))
        self.program.max_symbols = list(max_symbols)
        self.scratch_bytes = _scratch_bytes(program)
        self._scratch = np.empty(self.scratch_bytes * num_threads + _ALIGN, np.uint8)
        address = -(-self._scratch.__array_interface__["data"][0] // _ALIGN) * _ALIGN
        for c, node, row in zip(nodes, program.nodes, states.rows, strict=False):
            self._fill_node(c, node, row)
            if self.scratch_bytes:
                c.call.scratch = ffi().cast("void *", address)
                c.call.scratch_bytes = self.scratch_bytes

    def _new(self, *spec: Any) -> Any:
        made = ffi().new(*spec)
        self._kept.append(made)
        return made

    def _fill_node(self, c: Any, node: NodeTemplate, states: list[Any]) -> None:
        count = len(node.operands)
        c.rows, c.ranged, c.num_operands, c.num_bands = (
            node.rows,
            node.ranged,
            count,
            len(node.bands),
        )
        operands = self._new("RadStepOperand[]", max(count, 1))
        tensors = self._new("DLTensor[]", max(count, 1))
        for i, operand in enumerate(node.operands):
            operands[i], tensors[i] = self._operand(operand)
            if operand.slot >= 0:
                # A step writes its rows here, so each tensor has one of its own.
                tensors[i].shape = self._new("int64_t[]", list(operand.shape))
        bands = self._new("RadStepBand[]", len(node.bands))
        for b, band, state in zip(bands, node.bands, states, strict=True):
            self._fill_band(b, node, band, state)
        layouts = arguments.call_layouts([operand.layout for operand in node.operands], count)
        self._kept.append(layouts)
        c.operands, c.bands, c.tensors = operands, bands, tensors
        c.call.struct_bytes, c.call.num_tensors = ffi().sizeof("RadCall"), count
        c.call.tensors, c.call.layouts = tensors, layouts[0]

    def _operand(self, operand: OperandTemplate) -> tuple[Any, Any]:
        """Return an operand and its tensor, made once for all nodes that share the template."""
        made = self._operands.get(id(operand))
        if made is None:
            o, t = self._new("RadStepOperand *"), self._new("DLTensor *")
            self._fill_operand(o, t, operand)
            made = self._operands[id(operand)] = o[0], t[0]
        return made

    def _fill_operand(self, o: Any, t: Any, operand: OperandTemplate) -> None:
        o.slot, o.rows, o.first_row = operand.slot, operand.rows, operand.first_row
        if operand.slot < 0:
            return
        o.offset, o.rows_add = operand.offset, operand.rows_add
        o.row_bytes = operand.strides[0] * storage(operand.dtype).itemsize
        t.device.device_type, t.ndim = 1, len(operand.shape)
        t.dtype.code, t.dtype.bits, t.dtype.lanes = dtype(operand.dtype).dlpack
        t.strides = self._new("int64_t[]", list(operand.strides))

    def _fill_band(self, b: Any, node: NodeTemplate, band: Band, state: Any) -> None:
        b.upper = min(band.upper, (1 << 63) - 1)
        if not band.kernel.native:
            return
        schema = native.schema_of(band.kernel.native)
        values = self._new("RadValue[]", max(len(band.params), 1))
        for i, (name, value) in enumerate(zip(node.param_names, band.params, strict=True)):
            param = schema.param(name)
            kind = arguments.kind_of(value) if param is None else arguments.KINDS[param.kind]
            arguments.set_value(values[i], kind, value)
            b.params_present |= (value is not None) << i
        b.kernel = ffi().cast("RadKernel *", band.kernel.native)
        b.params, b.num_params = values, len(band.params)
        b.state = ffi().cast("void *", state or 0)


def _scratch_bytes(program: StepProgram) -> int:
    """Return the most scratch that one worker needs in any node, a multiple of 64."""
    needs = [
        int(band.kernel.scratch(geometry(node, band)))
        for node in program.nodes
        for band in node.bands
        if band.kernel.native and band.kernel.scratch is not None
    ]
    return -(-max(needs, default=0) // _ALIGN) * _ALIGN
