"""Hooks of a C kernel row as callables with the Python signatures of ``radiance_abi.kernels``.

Each call costs some microseconds of marshalling and releases the GIL while C runs. The step
executor does not come through here: it calls the row itself.

One file, because each hook is a few lines that marshal like those beside them.
"""

import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from radiance_abi.encoding import Encoding, rows_and_cols
from radiance_abi.errors import AbiError
from radiance_abi.kernels import Call, Geometry, Layout
from radiance_abi.native import arguments
from radiance_abi.native.arguments import AS_IS
from radiance_abi.native.header import ffi
from radiance_abi.native.status import check
from radiance_abi.ops import OpSchema, extent

_DTYPE, _UNSUPPORTED = -2, -18
_ALIGN = 64
_MOST_REMEMBERED = 4096


@dataclass(frozen=True, slots=True, eq=False)
class RelayoutCall:
    """A row's relayout as C calls it: its address, and those of its arguments before the planes."""

    hook: int
    geometry: int
    operand: int
    encoding: int
    layout: int
    kept: tuple[Any, ...]
    """What must live as long as the call may be made."""


@dataclass(slots=True, eq=False, repr=False)
class NativeHooks:
    """The callables of one row; ``row`` is the RadKernel, ``schema`` that of its op."""

    row: Any
    name: str
    schema: OpSchema
    _local: threading.local = field(default_factory=threading.local)
    _remembered: dict[Any, Any] = field(default_factory=dict)

    def _once(self, key: Any, make: Callable[[], Any]) -> Any:
        """Return what ``make`` gave for this key before: row ranges repeat their geometry."""
        found = self._remembered.get(key)
        if found is None:
            if len(self._remembered) >= _MOST_REMEMBERED:
                self._remembered.clear()
            found = self._remembered[key] = make()
        return found

    def _geometry(self, params: Geometry) -> Any:
        """Return the RadGeometry of params; its parts live as long as the returned pair."""
        return self._once(
            ("geometry", *params.items()), lambda: arguments.geometry(self.schema, params)
        )

    def _check(self, status: int, hook: str, params: Mapping[str, object]) -> int:
        check(status, self.schema.op, self.name, hook, params)
        return status

    def _call(self, call: Call, worker: int) -> arguments.Kept:
        num = len(self.schema.operands)
        if len(call.tensors) != num:
            raise AbiError(
                f"{self.schema.op}: expected {num} tensors, got {len(call.tensors)} in a call of "
                f"kernel {self.name}; pass None for an absent operand"
            )
        c = ffi().new("RadCall *")
        tensors, kept_tensors = arguments.tensors(call.tensors)
        layouts, kept_layouts = arguments.call_layouts(call.layouts, num)
        params, present = arguments.call_params(self.schema, call.params)
        c.struct_bytes = ffi().sizeof("RadCall")
        c.tensors, c.layouts, c.params, c.params_present = tensors, layouts, params, present
        c.num_tensors, c.num_params = num, len(self.schema.params)
        c.state = ffi().cast("void *", call.state or 0)
        if self.row.scratch:
            size = self._once(("scratch", *call.params.items()), lambda: self.scratch(call.params))
            # The kernel adds worker * size; this thread holds only that one worker's bytes.
            c.scratch = ffi().cast("void *", self._scratch_address(size) - worker * size)
            c.scratch_bytes = size
        return c, (tensors, kept_tensors, layouts, kept_layouts, params)

    def _scratch_address(self, size: int) -> int:
        held = getattr(self._local, "scratch", None)
        if held is None or len(held) < size + _ALIGN:
            held = self._local.scratch = np.empty(size + _ALIGN, np.uint8)
        return int(-(-held.ctypes.data // _ALIGN) * _ALIGN)

    def tiles(self, call: Call) -> int:
        """Return how many pieces the call has."""
        c, _kept = self._call(call, 0)
        return self._check(int(self.row.tiles(c)), "tiles", call.params)

    def run_range(self, call: Call, first: int, last: int, worker: int) -> None:
        """Compute pieces [first, last)."""
        c, _kept = self._call(call, worker)
        self._check(self.row.run(c, first, last, worker), "run", call.params)

    def run_whole(self, call: Call) -> None:
        """Compute a call of a row that is one piece."""
        self.run_range(call, 0, 1, 0)

    def scratch(self, geometry: Geometry) -> int:
        """Return the bytes of scratch that one worker needs, rounded up to 64."""
        c, _kept = self._geometry(geometry)
        size = self._check(int(self.row.scratch(c)), "scratch", geometry)
        return -(-size // _ALIGN) * _ALIGN

    def init(self, geometry: Geometry) -> int:
        """Return the address of the state that the row made for one node."""
        c, _kept = self._geometry(geometry)
        state = ffi().new("void **")
        self._check(self.row.init(c, state), "init", geometry)
        return int(ffi().cast("uintptr_t", state[0]))

    def fini(self, state: int) -> None:
        """Free a state."""
        self.row.fini(ffi().cast("void *", state))

    def _weight(self, geometry: Geometry, operand: int) -> tuple[int, int]:
        """Return rows and cols of a weight operand, which the schema spells in params."""
        key = ("weight", operand, *geometry.items())
        found: tuple[int, int] = self._once(key, lambda: self._extents(geometry, operand))
        return found

    def _extents(self, geometry: Geometry, operand: int) -> tuple[int, int]:
        spelt = self.schema.operands[operand]
        extents = [extent(dim, geometry) for dim in spelt.dims]
        known = [e for e in extents if e is not None]
        if len(known) < len(extents):
            raise AbiError(
                f"{self.schema.op}: expected extents of weight {spelt.name} in terms of params, "
                f"got [{','.join(spelt.dims)}] at {dict(geometry)}; spell them out in the schema"
            )
        return rows_and_cols(known)

    def layout(
        self, encoding: Encoding, shape: tuple[int, ...], geometry: Geometry, operand: int
    ) -> Layout | None:
        """Return what the row stores for a weight, None when it does not read the encoding.

        A row that takes the plane of a plain weight as it is gives the layout named ``plain``.
        """
        rows, cols = rows_and_cols(shape)
        g, _kept = self._geometry(geometry)
        e, _kept_planes = arguments.encoding(encoding, rows, cols)
        out = ffi().new("RadLayout *")
        out.struct_bytes, out.row_block = ffi().sizeof("RadLayout"), 1
        status = self.row.layout(g, operand, e, out)
        if status == _UNSUPPORTED and encoding.is_plain:
            stored = (
                encoding.codes.storage(rows, cols)[1] if encoding.codes.element.packed else shape
            )
            return Layout(AS_IS, encoding.codes.dtype, stored)
        if status in (_DTYPE, _UNSUPPORTED):
            return None
        self._check(status, "layout", geometry)
        return self._checked_layout(out)

    def _checked_layout(self, out: Any) -> Layout:
        name = ffi().string(out.name, 48)
        sound = 1 <= out.ndim <= 4 and out.row_block >= 1 and 0 < len(name) < 48
        if not sound or name == AS_IS.encode() or min(out.shape[0 : out.ndim]) < 0:
            raise AbiError(
                f"{self.schema.op}: expected kernel {self.name} to name its layout (1 to 47 bytes, "
                f"not '{AS_IS}') with 1 to 4 extents and row_block >= 1, got name={name!r} "
                f"ndim={out.ndim} row_block={out.row_block}; fill the RadLayout in the layout hook"
            )
        return arguments.layout_from_c(out)

    def _require(self, hook: str, layout: Layout) -> None:
        if not getattr(self.row, hook):
            raise AbiError(
                f"{self.schema.op}: expected kernel {self.name} to have {hook}, got a row "
                f"without it for layout {layout.name!r}; add the hook next to layout"
            )

    def relayout(
        self,
        encoding: Encoding,
        layout: Layout,
        planes: Mapping[str, np.ndarray],
        stored: np.ndarray,
        first: int,
        last: int,
        geometry: Geometry,
        operand: int,
    ) -> None:
        """Write rows [first, last) of a weight into ``stored``."""
        rows, cols = self._weight(geometry, operand)
        if layout.name == AS_IS:
            codes = planes["codes"]
            stored.reshape(rows, -1)[first:last] = codes.reshape(last - first, -1)
            return
        self._require("relayout", layout)
        g, _kept = self._geometry(geometry)
        e, _kept_planes = arguments.encoding(encoding, rows, cols)
        c, _kept_tensors = arguments.tensors([planes[role] for role in encoding.roles])
        status = self.row.relayout(
            g, operand, e, arguments.layout(layout), c, _pointer(stored), first, last
        )
        self._check(status, "relayout", geometry)

    def relayout_call(
        self, encoding: Encoding, layout: Layout, geometry: Geometry, operand: int
    ) -> RelayoutCall | None:
        """Return how C calls ``relayout``; None for a layout that is the plane as it is."""
        if layout.name == AS_IS:
            return None
        self._require("relayout", layout)
        g, kept_params = self._geometry(geometry)
        e, kept_planes = arguments.encoding(encoding, *self._weight(geometry, operand))
        made = arguments.layout(layout)
        kept = (g, kept_params, e, kept_planes, made)
        at = arguments.address
        return RelayoutCall(at(self.row.relayout), at(g), operand, at(e), at(made), kept)

    def unrelayout(
        self,
        encoding: Encoding,
        layout: Layout,
        stored: np.ndarray,
        first: int,
        last: int,
        geometry: Geometry,
        operand: int,
    ) -> dict[str, np.ndarray]:
        """Return the planes of rows [first, last) from ``stored``."""
        rows, cols = self._weight(geometry, operand)
        if layout.name == AS_IS:
            return {"codes": stored.reshape(rows, -1)[first:last].copy()}
        self._require("unrelayout", layout)
        planes = {}
        for plane in encoding:
            element, shape = plane.storage(last - first, cols)
            planes[plane.role] = np.zeros(shape, element)
        g, _kept = self._geometry(geometry)
        e, _kept_planes = arguments.encoding(encoding, rows, cols)
        c, _kept_tensors = arguments.tensors(list(planes.values()))
        status = self.row.unrelayout(
            g, operand, e, arguments.layout(layout), _pointer(stored), c, first, last
        )
        self._check(status, "unrelayout", geometry)
        return planes


def _pointer(array: np.ndarray) -> Any:
    return ffi().cast("void *", array.__array_interface__["data"][0])
