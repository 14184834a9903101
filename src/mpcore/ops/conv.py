"""Convolution over signals and images, with its bias and activation."""

import math
from typing import Any

import numpy as np

from mpcore._core import nn_conv as core
from mpcore.ops.activations import FROM_INPUT, activation_code
from mpcore.ops.arrays import (
    F32,
    as_array,
    as_factor,
    contiguous,
    empty,
    is_python,
    require_kernel_dtype,
)
from mpcore.ops.cast import full_precision, to_dtype
from mpcore.ops.dense import epilogue_gradients
from mpcore.ops.windows import (
    as_image,
    checked_padding,
    numbers,
    rank_of,
    windows,
)
from mpcore.tape import Gradients, Tensor, gradient_dtype, needs_gradient, record


def conv(
    x: Any,
    kernel: Any,
    bias: Any = None,
    activation: str | None = None,
    strides: Any = 1,
    padding: str = "valid",
    dilation_rate: Any = 1,
) -> np.ndarray | Tensor:
    """Compute activation(x * W + b), * being the convolution of neural networks.

    Parameters
    ----------
    x : array_like of shape (batch, steps, channels) or (batch, height, width, channels)
        float32, float16, or bfloat16: the compute dtype.
    kernel : array_like of shape (*size, channels / groups, filters)
        W; read in the compute dtype. Filter f sees the channels of group
        f // (filters / groups) alone.
    bias : array_like of shape (filters,), optional
        b; read in float32, whatever the autocast scope.
    activation : str, optional
        As in `dense`.
    strides, dilation_rate : int or sequence of int, default 1
        One number, or one for each axis.
    padding : {"valid", "same", "causal"}, default "valid"
        "same" pads with zeros so that there are ceil(length / stride) results, evenly,
        the odd one at the end; "causal", for signals, pads at the beginning alone.

    Returns
    -------
    ndarray or Tensor of shape (batch, ..., filters), compute dtype
        Rounded once, after bias and activation were applied in float32.

    Raises
    ------
    TypeError
        If the dtype of `x` is not supported.
    ValueError
        If shapes do not fit, or a window is larger than the input ("valid").

    Notes
    -----
    Windows are laid out as rows of a matrix, 1 MiB at a time, and multiplied by W: the
    sums are those of a matrix product over (*size, channels) in this order. An image's
    result does not depend on the others of the batch. Backward: dz and db as in
    `dense`; dW is summed in float32; dx adds the terms of a pixel in float32 in a fixed
    order and is rounded once.
    """
    code = activation_code(activation)
    w = as_array(kernel)
    source = as_factor(as_array(x), w.dtype, is_python(x))
    require_kernel_dtype("conv", source)
    rank = rank_of("conv", source)
    source = contiguous(source)
    dtype = source.dtype
    w = contiguous(to_dtype(w, dtype))
    b = None if bias is None else full_precision(bias)
    groups = _groups(source, w, b)
    allowed = ("valid", "same", "causal") if rank == 1 else ("valid", "same")
    place = windows(
        source.shape[1:-1],
        w.shape[:rank],
        numbers(strides, rank, "strides"),
        numbers(dilation_rate, rank, "dilation_rate"),
        checked_padding(padding, allowed),
    )
    geometry = (*place[:4], groups)
    images, filters = as_image(source), w.shape[-1]
    y = empty((len(source), *place.output, filters), dtype)
    followed = code in FROM_INPUT and any(map(needs_gradient, (x, kernel, bias)))
    z = empty(y.shape, dtype) if followed else None
    core.conv2d(images, w, b, code, y, z, *geometry)

    x_dtype, w_dtype, b_dtype = (
        gradient_dtype(item) if isinstance(item, Tensor) else F32
        for item in (x, kernel, bias)
    )

    def backward(gradient: np.ndarray, wanted: tuple[bool, ...]) -> Gradients:
        want_x, want_w, want_b = wanted
        rows = (math.prod(y.shape[:-1]), filters)
        dy = contiguous(to_dtype(gradient, dtype)).reshape(rows)
        known = (y if z is None else z).reshape(rows)
        dz, db = epilogue_gradients(code, known, dy, want_x or want_w, want_b)
        dz = dz.reshape(y.shape)
        dx = dw = None
        if want_x:
            dx = empty(images.shape, dtype)
            core.conv2d_backward_input(dz, w, dx, *geometry)
            dx = to_dtype(dx, x_dtype).reshape(source.shape)
        if want_w:
            dw = empty(w.shape, F32)
            core.conv2d_backward_kernel(images, dz, dw, *geometry)
            dw = to_dtype(dw, w_dtype)
        return dx, dw, db if db is None else to_dtype(db, b_dtype)

    shape = (len(source), *place.output[:rank], filters)
    return record(y.reshape(shape), (x, kernel, bias), backward)


def _groups(x: np.ndarray, w: np.ndarray, b: np.ndarray | None) -> int:
    """Return the number of groups that the shapes stand for."""
    channels: int = x.shape[-1]
    per_group: int = w.shape[-2] if w.ndim == x.ndim else 0
    if w.ndim != x.ndim or not per_group or channels % per_group:
        raise ValueError(
            "conv needs `x` of shape (batch, ..., channels) and a kernel of shape "
            "(*size, channels / groups, filters). Received: shapes "
            f"{x.shape} and {w.shape}"
        )
    groups = channels // per_group
    if not groups or w.shape[-1] % groups or 0 in w.shape:
        raise ValueError(
            "The number of filters must be a multiple of the number of groups, and "
            f"nothing of a kernel may be empty. Received: shapes {x.shape} and "
            f"{w.shape}"
        )
    if b is not None and b.shape != w.shape[-1:]:
        raise ValueError(
            f"`bias` must have shape {w.shape[-1:]}. Received: shape={b.shape}"
        )
    return groups
