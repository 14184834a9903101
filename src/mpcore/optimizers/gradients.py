"""Gradients on their way into an update: paired with variables, ready to compute.

Nothing here writes to a gradient or a variable.
"""

import warnings
from collections.abc import Sequence
from itertools import compress
from typing import NamedTuple

import ml_dtypes
import numpy as np

from mpcore import autocast, dtypes
from mpcore.indexed_slices import IndexedSlices
from mpcore.ops.optim import can_read
from mpcore.tape import unwrap
from mpcore.variable import Variable, stored_arrays

# A gradient of another dtype is cast to what its variable's update computes in.
_DIRECT = frozenset(np.dtype(t) for t in (np.float32, np.float16, ml_dtypes.bfloat16))
_F32, _F64 = np.dtype(np.float32), np.dtype(np.float64)
# Beyond these a factor is no normal fp32 number, and the kernels would round it.
_MIN_FACTOR = 2.0**-126
_MAX_FACTOR = 2.0**127


class Update(NamedTuple):
    """Variables to be changed by clip(gradient * factor), decayed before."""

    gradients: list[np.ndarray]
    variables: list[Variable]
    factors: list[float]
    decays: list[float]
    learning_rate: float
    clipvalue: float = 0.0

    def where(self, chosen: Sequence[bool]) -> "Update":
        """Return the same of some of the variables."""
        return self._replace(
            gradients=list(compress(self.gradients, chosen)),
            variables=list(compress(self.variables, chosen)),
            factors=list(compress(self.factors, chosen)),
            decays=list(compress(self.decays, chosen)),
        )


def _owner(array: np.ndarray | None) -> int:
    """Return the identity of the object whose memory an array shows."""
    base: object = array
    while isinstance(base, np.ndarray) and base.base is not None:
        base = base.base
    return id(base)


def _owners(variables: Sequence[Variable]) -> frozenset[int]:
    """Return the owners of all memory an update of `variables` writes."""
    with autocast.scope(None):
        return frozenset(
            _owner(array)
            for variable in variables
            for array in (variable.value, variable.compute_copy)
            if array is not None
        )


def convert(gradient: object, variable: Variable) -> np.ndarray:
    """Return a gradient as a contiguous array of a dtype its update reads."""
    if isinstance(gradient, IndexedSlices):
        gradient = gradient.to_dense()
    array = gradient if type(gradient) is np.ndarray else unwrap(gradient)
    if array.shape != variable.shape:
        raise ValueError(
            f"The gradient of variable '{variable.path}' must have the variable's "
            f"shape {variable.shape}. Received: {array.shape}"
        )
    dtype = array.dtype
    wanted: np.dtype = _F32
    if variable.dtype == "float64":
        wanted = _F64
    elif dtype in _DIRECT:
        wanted = dtype
    if dtype.kind not in "fiu" and dtype not in _DIRECT:
        raise TypeError(
            f"The gradient of variable '{variable.path}' must be an array of real "
            f"numbers. Received: dtype={dtype}"
        )
    flags = array.flags
    if dtype == wanted and flags.c_contiguous and flags.aligned:
        return array
    with np.errstate(over="ignore"):
        # f64 beyond fp32 becomes an infinity: an overflow like any other.
        return np.require(array, wanted, ["C", "A", "E"])


def match(
    gradients: Sequence[object], variables: Sequence[Variable]
) -> tuple[list[np.ndarray], list[Variable]]:
    """Pair gradients with variables and drop the pairs without a gradient.

    Parameters
    ----------
    gradients : sequence of (array-like or None)
        One per variable, of the variable's shape, any real dtype.
    variables : sequence of Variable

    Returns
    -------
    gradients : list of ndarray
        C-contiguous; f32, f16 or bf16, and f64 for f64 variables. The caller's own
        arrays where they already are so; never memory that the update writes.
    variables : list of Variable
        Those that have a gradient.

    Raises
    ------
    ValueError
        For another number or shape of gradients, or if all are None.
    TypeError
        For a gradient that is not real.

    Warns
    -----
    UserWarning
        If some gradients are None, with the paths of their variables.
    """
    if len(gradients) != len(variables):
        raise ValueError(
            "There must be one gradient (or None) per variable. Received: "
            f"{len(gradients)} gradients for {len(variables)} variables"
        )
    usual = list(gradients)
    if can_read(usual, stored_arrays(variables)):
        return usual, list(variables)
    pairs = [
        (convert(g, v), v)
        for g, v in zip(gradients, variables, strict=True)
        if g is not None
    ]
    if not pairs:
        raise ValueError("No gradients provided for any variable.")
    missing = [v.path for g, v in zip(gradients, variables, strict=True) if g is None]
    if missing:
        warnings.warn(
            f"Gradients do not exist for variables {missing} when minimizing the loss.",
            stacklevel=4,
        )
    arrays = [gradient for gradient, _ in pairs]
    # A gradient may be the value of a variable (that of w**2 / 2 is w), which is a
    # read-only view of what the update writes.
    if not all(array.flags.writeable for array in arrays):
        written = _owners(variables)
        arrays = [g.copy() if _owner(g) in written else g for g in arrays]
    return arrays, [variable for _, variable in pairs] if missing else list(variables)


def wide(variable: Variable) -> np.ndarray:
    """Return a copy of a variable's value in the dtype its update is computed in."""
    dtype = dtypes.numpy_dtype(variable.gradient_dtype)
    return variable.numpy().astype(dtype, copy=False)


def scaled(
    gradient: np.ndarray, factor: float, variable: Variable, clipvalue: float = 0.0
) -> np.ndarray:
    """Return gradient * factor as a new array of the variable's gradient dtype.

    Its elements are clipped to `clipvalue`, if that is not 0.
    """
    dtype = dtypes.numpy_dtype(variable.gradient_dtype)
    with np.errstate(over="ignore", invalid="ignore", under="ignore"):
        if dtype == _F64 or _MIN_FACTOR <= factor <= _MAX_FACTOR:
            product = gradient.astype(dtype)
            product *= dtype.type(factor)
        else:
            product = (gradient.astype(_F64) * factor).astype(dtype)
    return np.clip(product, -clipvalue, clipvalue) if clipvalue else product


def with_normal_factors(
    gradients: list[np.ndarray], factors: list[float], variables: Sequence[Variable]
) -> tuple[list[np.ndarray], list[float]]:
    """Multiply in the factors that fp32 arithmetic would not hold to full precision."""
    if all(_MIN_FACTOR <= f <= _MAX_FACTOR for f in set(factors)):
        return gradients, factors
    done = [
        (g, f) if _MIN_FACTOR <= f <= _MAX_FACTOR else (scaled(g, f, v), 1.0)
        for g, f, v in zip(gradients, factors, variables, strict=True)
    ]
    return [g for g, _ in done], [f for _, f in done]
