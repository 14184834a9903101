"""Pieces of neural networks around the matrix product, with gradients.

Arithmetic is float32 with one rounding per result; float32, float16, and bfloat16 are
supported.
"""

from typing import Any

import numpy as np

from mpcore._core import nn as kernel
from mpcore.ops.activations import (
    FROM_INPUT,
    GELU,
    GELU_TANH,
    LINEAR,
    RELU,
    SIGMOID,
    SILU,
    TANH,
    activation_code,
)
from mpcore.ops.arrays import (
    as_array,
    contiguous,
    empty,
    require_kernel_dtype,
)
from mpcore.ops.cast import to_dtype
from mpcore.ops.elementwise import checked, widened, work_dtype
from mpcore.tape import Gradients, Tensor, record


def linear(x: Any) -> np.ndarray | Tensor:
    """Return x itself: the activation that does nothing."""
    return record(checked(x), (x,), lambda gradient, wanted: (gradient,))


def relu(x: Any) -> np.ndarray | Tensor:
    """Return max(x, 0); NaN stays NaN. The gradient at 0 is 0."""
    return _activate(x, RELU)


def sigmoid(x: Any) -> np.ndarray | Tensor:
    """Return 1 / (1 + exp(-x))."""
    return _activate(x, SIGMOID)


def tanh(x: Any) -> np.ndarray | Tensor:
    """Return the hyperbolic tangent."""
    return _activate(x, TANH)


def gelu(x: Any, approximate: bool = False) -> np.ndarray | Tensor:
    """Return x Phi(x), Phi the normal distribution; or its tanh approximation."""
    return _activate(x, GELU_TANH if approximate else GELU)


def silu(x: Any) -> np.ndarray | Tensor:
    """Return x sigmoid(x)."""
    return _activate(x, SILU)


def activation(x: Any, name: str | None) -> np.ndarray | Tensor:
    """Apply a fused activation of `dense` by name; None stands for linear."""
    code = activation_code(name)
    return linear(x) if code == LINEAR else _activate(x, code)


def _activate(x: Any, code: int) -> np.ndarray | Tensor:
    array = as_array(x)
    require_kernel_dtype("an activation", array)
    source = contiguous(array)
    dtype = source.dtype
    y = empty(source.shape, dtype)
    kernel.activation_forward(code, source, y)

    def backward(gradient: np.ndarray, wanted: tuple[bool, ...]) -> Gradients:
        dy = contiguous(to_dtype(gradient, dtype))
        dz = empty(y.shape, dtype)
        rows = (1, y.size)
        known = source if code in FROM_INPUT else y
        kernel.dense_backward(
            code, known.reshape(rows), dy.reshape(rows), dz.reshape(rows), None
        )
        return (dz,)

    return record(y, (x,), backward)


def dropout(x: Any, rate: float, generator: np.random.Generator) -> np.ndarray | Tensor:
    """Set elements to zero at random and scale the others by 1 / (1 - rate).

    Parameters
    ----------
    x : array_like, floating
    rate : float in [0, 1]
        The probability of a zero.
    generator : numpy.random.Generator
        One float32 is drawn for each element.

    Returns
    -------
    ndarray or Tensor of the shape and dtype of `x`
        Halves are scaled in float32 and rounded once. A dropped element is 0, be it
        infinite or NaN.

    Raises
    ------
    ValueError
        If `rate` is out of range.
    TypeError
        If `x` is not floating.
    """
    if not 0 <= rate <= 1:
        raise ValueError(f"`rate` must be in [0, 1]. Received: rate={rate}")
    array = checked(x)
    dtype, work = array.dtype, work_dtype(array.dtype)
    if work.kind != "f":
        raise TypeError(f"Cannot apply dropout to {dtype.name!r}: it is not floating.")
    dropped = generator.random(array.shape, dtype=np.float32) < rate
    scale = work.type(1 / (1 - rate) if rate < 1 else 0)

    def apply(values: np.ndarray) -> np.ndarray:
        kept = empty(array.shape, work)
        with np.errstate(all="ignore"):
            np.multiply(widened(values, work), scale, out=kept)
        # Not by multiplication: a dropped infinity is a zero too.
        kept[dropped] = 0
        return kept

    def backward(gradient: np.ndarray, wanted: tuple[bool, ...]) -> Gradients:
        return (apply(gradient),)

    return record(to_dtype(apply(array), dtype), (x,), backward)
