"""Sums, means, extremes, and variances, with gradients.

float16 and bfloat16 are added up in float32, and the result is rounded once.
"""

import math
from collections.abc import Callable, Sequence
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
    return _reduce(x, axis, keepdims, _total, _to_all)


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
    return _reduce(x, axis, keepdims, _average, _shared)


def max(x: Any, axis: Axis = None, keepdims: bool = False) -> np.ndarray | Tensor:
    """Return the largest element, or NaN; equal ones share the gradient.

    Parameters
    ----------
    x : array_like
        Not without elements.
    axis : int, sequence of int, or None
        None: all axes.
    keepdims : bool, default False
        Keep the axes with length 1.
    """
    return _reduce(x, axis, keepdims, _largest, _to_the_equal)


def min(x: Any, axis: Axis = None, keepdims: bool = False) -> np.ndarray | Tensor:
    """Return the smallest element, or NaN; equal ones share the gradient.

    Parameters
    ----------
    x : array_like
        Not without elements.
    axis : int, sequence of int, or None
        None: all axes.
    keepdims : bool, default False
        Keep the axes with length 1.
    """
    return _reduce(x, axis, keepdims, _smallest, _to_the_equal)


def var(x: Any, axis: Axis = None, keepdims: bool = False) -> np.ndarray | Tensor:
    """Return the variance of the population: the mean of (x - mean(x)) ** 2.

    Parameters
    ----------
    x : array_like
        Integers give floating numbers.
    axis : int, sequence of int, or None
        None: all axes.
    keepdims : bool, default False
        Keep the axes with length 1.
    """
    return _reduce(x, axis, keepdims, _variance, _from_the_mean)


Axes = tuple[int, ...]
Forward = Callable[[np.ndarray, Axes], np.ndarray]
"""(x, axes) -> the result, with the axes kept."""
Derivative = Callable[[np.ndarray, np.ndarray, np.ndarray, Axes], np.ndarray]
"""(gradient, x, result, axes) -> gradient of x; the first and third keep the axes."""


def _total(x: np.ndarray, axes: Axes) -> np.ndarray:
    return np.asarray(np.sum(x, axis=axes, keepdims=True))


def _largest(x: np.ndarray, axes: Axes) -> np.ndarray:
    return np.asarray(np.max(x, axis=axes, keepdims=True))


def _smallest(x: np.ndarray, axes: Axes) -> np.ndarray:
    return np.asarray(np.min(x, axis=axes, keepdims=True))


def _average(x: np.ndarray, axes: Axes) -> np.ndarray:
    # The count is exact: it is never rounded to a half.
    count = _count(x, axes)
    divisor = x.dtype.type(count) if dtypes.is_floating(x.dtype) else count
    return np.asarray(np.true_divide(_total(x, axes), divisor))


def _variance(x: np.ndarray, axes: Axes) -> np.ndarray:
    return _average(np.square(x - _average(x, axes)), axes)


def _count(x: np.ndarray, axes: Axes) -> int:
    return math.prod(x.shape[i] for i in axes)


def _to_all(g: np.ndarray, x: np.ndarray, y: np.ndarray, axes: Axes) -> np.ndarray:
    return np.broadcast_to(g, x.shape)


def _shared(g: np.ndarray, x: np.ndarray, y: np.ndarray, axes: Axes) -> np.ndarray:
    return np.broadcast_to(g / g.dtype.type(_count(x, axes)), x.shape)


def _to_the_equal(
    g: np.ndarray, x: np.ndarray, y: np.ndarray, axes: Axes
) -> np.ndarray:
    equal = (x == y).astype(g.dtype)
    shares: np.ndarray = equal * (g / _total(equal, axes))
    return shares


def _from_the_mean(
    g: np.ndarray, x: np.ndarray, y: np.ndarray, axes: Axes
) -> np.ndarray:
    twice = g.dtype.type(2 / (_count(x, axes) or 1))
    slope: np.ndarray = (x - _average(x, axes)) * (g * twice)
    return slope


_FROM_X = (_to_the_equal, _from_the_mean)


def _reduce(
    x: Any, axis: Axis, keepdims: bool, forward: Forward, derivative: Derivative
) -> np.ndarray | Tensor:
    array = checked(x)
    work = work_dtype(array.dtype)
    axes = _axes(axis, array.ndim)
    with np.errstate(all="ignore"):
        # NumPy adds in the order of memory; C order makes it that of the indices.
        wide = forward(contiguous(widened(array, work)), axes)
    kept = wide.shape
    # Where the derivative asks for the shape of x alone, a tape need not keep x.
    source = (
        array if derivative in _FROM_X else np.broadcast_to(work.type(0), array.shape)
    )
    result = to_dtype(wide, array.dtype) if array.dtype in HALVES else wide
    if not keepdims:
        result = result.reshape([n for i, n in enumerate(kept) if i not in axes])

    def backward(gradient: np.ndarray, wanted: tuple[bool, ...]) -> Gradients:
        g = widened(gradient, work).reshape(kept)
        with np.errstate(all="ignore"):
            return (derivative(g, widened(source, work), wide, axes),)

    return record(result, (x,), backward)


def _axes(axis: Axis, ndim: int) -> tuple[int, ...]:
    if axis is None:
        return tuple(range(ndim))
    return np.lib.array_utils.normalize_axis_tuple(axis, ndim, "axis")
