"""Run a step so that what is wrong with one sequence ends that one alone."""

from collections.abc import Callable, Iterator

import numpy as np

from radiance_abi.errors import KernelError
from radiance_core.constrain.errors import ConstraintError
from radiance_core.engine.batch import Batch, RowFault
from radiance_core.engine.schedule import Step
from radiance_core.engine.sequence import Sequence
from radiance_core.log_events import get_logger
from radiance_core.runtime import StepModel

log = get_logger(__name__)

Fail = Callable[[Sequence, str], None]


def run_apart(
    model: StepModel, batch: Batch, step: Step, fail: Fail, abort: np.ndarray
) -> Iterator[Step]:
    """Run a step, after a fault in halves and those in halves, and yield each part that ran.

    A part that failed has changed nothing that counts: its rows are written again when its halves
    run, and rows do not depend on their neighbours.

    Args:
        model, batch: what runs, and what fills its inputs.
        step: what is to run; pages must be held already.
        fail: ends a sequence that fails alone, with what to tell its client.
        abort: int32 [1]; the step ends early when another thread sets it.

    Yields:
        Steps whose results can be read until the next one is asked for.

    Raises:
        StepAborted: ``abort`` was set; what was not yielded has changed nothing.
    """
    left = [step] if step.work else []
    while left:
        part = left.pop()
        try:
            model.run(batch.fill(part), abort)
        except RowFault as fault:
            _end_row(fault, fail)
            part = part.without([fault.seq])
            left += [part] if part.work else []
        except (KernelError, MemoryError) as error:
            names = [w.seq.request.request_id for w in part.work]
            log.exception("step_failed", requests=names)
            if len(part.work) == 1:
                fail(part.work[0].seq, _told(error))
            else:
                left += reversed(part.halves())
        else:
            yield part


def _end_row(fault: RowFault, fail: Fail) -> None:
    """End the sequence whose rows could not be written."""
    if isinstance(fault.__cause__, ConstraintError):
        tell_constraint(fault.seq, fault.__cause__)
        return
    log.exception("request_failed", request=fault.seq.request.request_id)
    fail(fault.seq, f"The request could not be made ready for a step: {fault}")


def tell_constraint(seq: Sequence, error: ConstraintError) -> None:
    """End a sequence whose own constraint leads nowhere: a fault of its request, not of ours."""
    log.info("constraint_failed", request=seq.request.request_id, error=str(error))
    seq.fail(str(error), "constraint")


def _told(error: Exception) -> str:
    """Return what a client is told."""
    if isinstance(error, MemoryError):
        return "The machine had no memory left for this request; try again later."
    return f"A kernel failed: {error}"
