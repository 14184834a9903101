"""Pooling over signals and images."""

from typing import Any

import numpy as np

from mpcore._core import nn_conv as core
from mpcore.ops.arrays import as_array, contiguous, empty, require_kernel_dtype
from mpcore.ops.cast import to_dtype
from mpcore.ops.windows import (
    as_image,
    checked_padding,
    numbers,
    rank_of,
    windows,
)
from mpcore.tape import Gradients, Tensor, needs_gradient, record

_MAX, _AVERAGE = 0, 1
_I32 = np.dtype(np.int32)


def max_pool(
    x: Any, pool_size: Any, strides: Any = None, padding: str = "valid"
) -> np.ndarray | Tensor:
    """Return the maximum of each window; a window that holds NaN gives NaN.

    Parameters
    ----------
    x : array_like of shape (batch, steps, channels) or (batch, height, width, channels)
        float32, float16, or bfloat16.
    pool_size : int or sequence of int
        One number, or one for each axis.
    strides : int or sequence of int, optional
        Default: `pool_size`, so that windows do not overlap.
    padding : {"valid", "same"}, default "valid"
        "same" gives ceil(length / stride) results; what is padded never counts.

    Raises
    ------
    TypeError
        If the dtype is not supported.
    ValueError
        If shapes do not fit, or a window is larger than the input ("valid").

    Notes
    -----
    The gradient goes to the first maximum of a window, row by row.
    """
    return _pool(x, _MAX, pool_size, strides, padding)


def average_pool(
    x: Any, pool_size: Any, strides: Any = None, padding: str = "valid"
) -> np.ndarray | Tensor:
    """Return the mean of each window, without what is padded; see `max_pool`."""
    return _pool(x, _AVERAGE, pool_size, strides, padding)


def _pool(
    x: Any, kind: int, pool_size: Any, strides: Any, padding: str
) -> np.ndarray | Tensor:
    array = as_array(x)
    require_kernel_dtype("pooling", array)
    rank = rank_of("pooling", array)
    source = contiguous(array)
    dtype = source.dtype
    size = numbers(pool_size, rank, "pool_size")
    place = windows(
        source.shape[1:-1],
        size,
        size if strides is None else numbers(strides, rank, "strides"),
        (1,) * rank,
        checked_padding(padding, ("valid", "same")),
    )
    geometry = (place.size, place.strides, place.before)
    images = as_image(source)
    y = empty((len(source), *place.output, source.shape[-1]), dtype)
    argmax = empty(y.shape, _I32) if kind == _MAX and needs_gradient(x) else None
    core.pool2d(kind, images, y, argmax, *geometry)

    def backward(gradient: np.ndarray, wanted: tuple[bool, ...]) -> Gradients:
        dy = contiguous(to_dtype(gradient, dtype)).reshape(y.shape)
        dx = empty(images.shape, dtype)
        core.pool2d_backward(kind, argmax, dy, dx, *geometry)
        return (dx.reshape(source.shape),)

    shape = (len(source), *place.output[:rank], source.shape[-1])
    return record(y.reshape(shape), (x,), backward)
