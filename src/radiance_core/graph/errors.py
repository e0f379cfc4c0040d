"""Errors of the stages from declaring a graph to binding it."""

from radiance_abi.errors import RadianceError


class DeclareError(RadianceError):
    """An architecture declares something that its ops or its checkpoint do not allow."""


class ModelConfigError(RadianceError):
    """A model's configuration has a key that is missing, of another type, unknown or not served."""


class WeightError(RadianceError):
    """A checkpoint lacks a weight, or has it with other extents than the architecture declares."""


class ResolveError(RadianceError):
    """Some op has no kernel, or only one of a reference library."""


class BudgetError(RadianceError):
    """The stated memory does not hold what serving the model needs."""
