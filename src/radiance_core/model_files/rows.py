"""Row ranges of tensors, checked against extents and blocks."""

from radiance_core.model_files.checkpoint import TensorInfo
from radiance_core.model_files.errors import ModelFileError


def check_rows(info: TensorInfo, first_row: int, last_row: int | None) -> tuple[int, int]:
    """Return the range with its end filled in.

    Raises:
        ModelFileError: the range leaves the tensor or cuts through a block of rows.
    """
    last = info.rows if last_row is None else last_row
    if not 0 <= first_row <= last <= info.rows:
        raise ModelFileError(
            info.file,
            f"expected rows within 0 .. {info.rows}, got {first_row} .. {last}",
            info.name,
        )
    unit = info.encoding.block_rows
    # A plane that spans all rows (unit 0) goes whole with any range.
    if unit > 1 and (first_row % unit or (last % unit and last != info.rows)):
        raise ModelFileError(
            info.file,
            f"expected rows cut at multiples of {unit}, got {first_row} .. {last}",
            info.name,
        )
    return first_row, last
