"""Ops that move elements, with gradients. Where NumPy returns a view, so do they."""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from mpcore import dtypes
from mpcore.ops.arrays import F32, HALVES, empty, zeros
from mpcore.ops.cast import to_dtype
from mpcore.ops.elementwise import checked, widened
from mpcore.tape import Gradients, Tensor, record, unwrap


def reshape(x: Any, shape: int | Sequence[int]) -> np.ndarray | Tensor:
    """Give an array another shape; one length may be -1."""
    array = checked(x)

    def backward(gradient: np.ndarray, wanted: tuple[bool, ...]) -> Gradients:
        return (gradient.reshape(array.shape),)

    return record(array.reshape(shape), (x,), backward)


def flatten(x: Any) -> np.ndarray | Tensor:
    """Make all axes but the first into one: (n, ...) becomes (n, size)."""
    shape = checked(x).shape
    return reshape(x, (*shape[:1], math.prod(shape[1:])))


def transpose(x: Any, axes: Sequence[int] | None = None) -> np.ndarray | Tensor:
    """Permute axes; None reverses them."""
    array = checked(x)
    order = tuple(axes) if axes is not None else tuple(reversed(range(array.ndim)))
    result = array.transpose(order)

    def backward(gradient: np.ndarray, wanted: tuple[bool, ...]) -> Gradients:
        return (gradient.transpose(np.argsort([i % array.ndim for i in order])),)

    return record(result, (x,), backward)


def getitem(x: Any, index: Any) -> np.ndarray | Tensor:
    """Return x[index], with any index NumPy takes."""
    array = checked(x)
    parts = index if isinstance(index, tuple) else (index,)
    parts = tuple(unwrap(part) if isinstance(part, Tensor) else part for part in parts)
    basic = all(
        part is None or part is Ellipsis or isinstance(part, int | np.integer | slice)
        for part in parts
    ) and not any(isinstance(part, bool) for part in parts)
    result = np.asarray(array[parts])

    def backward(gradient: np.ndarray, wanted: tuple[bool, ...]) -> Gradients:
        if gradient.dtype in HALVES:
            gradient = to_dtype(gradient, F32)
        spread = zeros(array.shape, gradient.dtype)
        if basic:
            spread[parts] = gradient
        else:
            # An element may be picked several times.
            np.add.at(spread, parts, gradient)
        return (spread,)

    return record(result, (x,), backward)


def expand_dims(x: Any, axis: int | Sequence[int]) -> np.ndarray | Tensor:
    """Insert axes of length 1, where they are in the result."""
    return reshape(x, np.expand_dims(checked(x), axis).shape)


def squeeze(x: Any, axis: int | Sequence[int] | None = None) -> np.ndarray | Tensor:
    """Remove axes of length 1: those named, or all."""
    axes = tuple(axis) if isinstance(axis, Sequence) else axis
    return reshape(x, np.squeeze(checked(x), axes).shape)


def concatenate(xs: Sequence[Any], axis: int = 0) -> np.ndarray | Tensor:
    """Join arrays along an axis; they meet in their common dtype.

    Parameters
    ----------
    xs : sequence of array_like
        At least one; of equal shapes but for the axis.
    axis : int, default 0
    """
    arrays = [checked(x) for x in xs]
    if not arrays:
        raise ValueError("`xs` must have at least one array. Received: none")
    dtype = arrays[0].dtype
    for array in arrays[1:]:
        dtype = dtype if array.dtype == dtype else dtypes.promote(dtype, array.dtype)
    result = np.concatenate([widened(array, dtype) for array in arrays], axis)
    ends = np.cumsum([array.shape[axis] for array in arrays])

    def backward(gradient: np.ndarray, wanted: tuple[bool, ...]) -> Gradients:
        return tuple(np.split(gradient, ends[:-1], axis))

    return record(result, tuple(xs), backward)


def stack(x: Sequence[Any], axis: int = 0) -> np.ndarray | Tensor:
    """Join arrays of one shape along a new axis, which is `axis` of the result."""
    return concatenate([expand_dims(item, axis) for item in x], axis)


def split(
    x: Any, indices_or_sections: int | Sequence[int], axis: int = 0
) -> list[np.ndarray | Tensor]:
    """Cut an array along an axis into equal parts, or before each of the indices.

    Parameters
    ----------
    x : array_like of at least 1 dimension
    indices_or_sections : int or sequence of int
        The number of parts, which divides the length; or where parts begin.
    axis : int, default 0
    """
    array = checked(x)
    axis = np.lib.array_utils.normalize_axis_index(axis, array.ndim)
    length = array.shape[axis]
    if isinstance(indices_or_sections, Sequence | np.ndarray):
        cuts = [int(i) for i in indices_or_sections]
    else:
        parts = int(indices_or_sections)
        if parts < 1 or length % parts:
            raise ValueError(
                "The number of parts must divide the length of the axis. Received: "
                f"{parts} parts of length {length}"
            )
        cuts = [i * length // parts for i in range(1, parts)]
    edges = zip([0, *cuts], [*cuts, None], strict=True)
    before = (slice(None),) * axis
    return [getitem(x, (*before, slice(start, stop))) for start, stop in edges]


def pad(
    x: Any, pad_width: Any, mode: str = "constant", constant_values: float = 0
) -> np.ndarray | Tensor:
    """Surround an array with a constant.

    Parameters
    ----------
    x : array_like
    pad_width : int, (before, after), or such a pair for each axis
    mode : {"constant"}
    constant_values : float, default 0
    """
    if mode != "constant":
        raise ValueError(f"`mode` must be 'constant'. Received: mode={mode!r}")
    array = checked(x)
    widths = np.broadcast_to(np.asarray(pad_width, dtype=np.int64), (array.ndim, 2))
    if (widths < 0).any():
        raise ValueError(f"`pad_width` must be >= 0. Received: pad_width={pad_width}")
    lengths = zip(widths.tolist(), array.shape, strict=True)
    inner = tuple(slice(before, before + n) for (before, _), n in lengths)
    shape = tuple((np.array(array.shape, np.int64) + widths.sum(1)).tolist())
    result = empty(shape, array.dtype)
    result.fill(constant_values)
    result[inner] = array

    def backward(gradient: np.ndarray, wanted: tuple[bool, ...]) -> Gradients:
        return (gradient[inner],)

    return record(result, (x,), backward)
