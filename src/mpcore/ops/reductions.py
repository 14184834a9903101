"""Sums and means, with gradients.

float16 and bfloat16 are added up in float32, and the result is rounded once.
"""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from mpcore import dtypes
from mpcore.ops.arrays import HALVES, contiguous
from mpcore.ops.cast import to_dtype
from mpcore.ops.elementwise import checked, widened, work_dtype
from mpcore.tape import Gradients, Tensor, record

Axis = int | Sequence[int] | None


def sum(x: Any, axis: Axis = None, keepdims: bool = False) -> np.ndarray | Tensor:
    """Add up elements.

    Parameters
    ----------
    x : array_like
    axis : int, sequence of int, or None
        None: all axes.
    keepdims : bool, default False
        Keep the axes with length 1.
    """
    return _reduce(x, axis, keepdims, mean=False)


def mean(x: Any, axis: Axis = None, keepdims: bool = False) -> np.ndarray | Tensor:
    """Return the arithmetic mean; NaN of no elements.

    Parameters
    ----------
    x : array_like
        Integers give floating numbers.
    axis : int, sequence of int, or None
        None: all axes.
    keepdims : bool, default False
        Keep the axes with length 1.
    """
    return _reduce(x, axis, keepdims, mean=True)


def _reduce(x: Any, axis: Axis, keepdims: bool, mean: bool) -> np.ndarray | Tensor:
    array = checked(x)
    work = work_dtype(array.dtype)
    axes = _axes(axis, array.ndim)
    count = math.prod(array.shape[i] for i in axes)
    # NumPy adds in the order of memory; C order makes it that of the indices.
    terms = contiguous(widened(array, work))
    with np.errstate(all="ignore"):
        wide = np.asarray(np.sum(terms, axis=axes, keepdims=keepdims))
        if mean:
            # The count is exact: it is never rounded to a half.
            divisor = count if not dtypes.is_floating(work) else work.type(count)
            wide = np.asarray(np.true_divide(wide, divisor))
    result = to_dtype(wide, array.dtype) if array.dtype in HALVES else wide
    kept = tuple(1 if i in axes else n for i, n in enumerate(array.shape))

    def backward(gradient: np.ndarray, wanted: tuple[bool, ...]) -> Gradients:
        g = widened(gradient, work).reshape(kept)
        if mean and count:
            g = g / work.type(count)
        return (np.broadcast_to(g, array.shape),)

    return record(result, (x,), backward)


def _axes(axis: Axis, ndim: int) -> tuple[int, ...]:
    if axis is None:
        return tuple(range(ndim))
    return np.lib.array_utils.normalize_axis_tuple(axis, ndim, "axis")
