"""What kernels keep between calls: one state per node and band, made at load and freed at close."""

from typing import Any

from radiance_abi import KernelError
from radiance_core.execute.program import Band, NodeTemplate, StepProgram

_INVAL = -12


def geometry(node: NodeTemplate, band: Band) -> dict[str, int | float | str]:
    """Return the params that the band's hooks see: those that are given, and the axes."""
    pairs = zip(node.param_names, band.params, strict=True)
    given = {name: value for name, value in pairs if value is not None}
    return {**given, **dict(band.axes)}


class States:
    """States of a program's bands, by node index and band index.

    Raises:
        KernelError: a kernel's init raised; the states made before it were freed.
    """

    def __init__(self, program: StepProgram) -> None:
        self._made: list[tuple[Band, Any]] = []
        self.rows: list[list[Any]] = []
        try:
            for node in program.nodes:
                self.rows.append([self._init(node, band) for band in node.bands])
        except BaseException:
            self.close()
            raise

    def _init(self, node: NodeTemplate, band: Band) -> Any:
        if band.kernel.init is None:
            return None
        try:
            state = band.kernel.init(geometry(node, band))
        except Exception as err:
            shown = " ".join(f"{name}={value}" for name, value in geometry(node, band).items())
            raise KernelError(
                f"{node.name}: expected kernel {band.kernel.name} of {node.op} to make its state "
                f"at {shown}, got {type(err).__name__}: {err}; report it to the author of the "
                "kernel, or leave its library out with --kernels",
                err.status if isinstance(err, KernelError) else _INVAL,
            ) from err
        self._made.append((band, state))
        return state

    def close(self) -> None:
        """Free every state once, the last one made first."""
        while self._made:
            band, state = self._made.pop()
            if band.kernel.fini is not None:
                band.kernel.fini(state)
