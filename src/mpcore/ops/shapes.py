"""Ops that move elements, with gradients. Where NumPy returns a view, so do they."""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from mpcore.ops.arrays import F32, HALVES, zeros
from mpcore.ops.cast import to_dtype
from mpcore.ops.elementwise import checked
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
