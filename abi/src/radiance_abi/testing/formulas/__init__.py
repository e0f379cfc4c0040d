"""What every standard op means, once more, as short numpy formulas in f64.

Written apart from any kernel library, so that a mistake would have to be made twice to go unseen.
"""

from radiance_abi.testing.formulas import attention, products, rows, sampling
from radiance_abi.testing.formulas.expected import (
    F32_SLACK,
    Codes,
    Exact,
    Expected,
    Formula,
    Near,
    difference,
)

FORMULAS: dict[str, Formula] = {
    **rows.FORMULAS,
    **products.FORMULAS,
    **attention.FORMULAS,
    **sampling.FORMULAS,
}
"""Formula by op; each takes a case and says what is expected of every result."""

__all__ = ["F32_SLACK", "FORMULAS", "Codes", "Exact", "Expected", "Formula", "Near", "difference"]
