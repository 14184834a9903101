"""The fully connected layer's arithmetic in one product."""

import math
from typing import Any

import numpy as np

from mpcore._core import gemm, nn
from mpcore.ops.activations import FROM_INPUT, LINEAR, activation_code
from mpcore.ops.arrays import (
    F32,
    KERNEL_DTYPES,
    as_array,
    as_factor,
    contiguous,
    empty,
    is_python,
    native,
    require_kernel_dtype,
)
from mpcore.ops.cast import full_precision, to_dtype
from mpcore.tape import Gradients, Tensor, gradient_dtype, needs_gradient, record


def dense(
    x: Any,
    kernel: Any,
    bias: Any = None,
    activation: str | None = None,
    axes: int = 1,
) -> np.ndarray | Tensor:
    """Compute activation(x W + b).

    Parameters
    ----------
    x : array_like of shape (..., *inputs)
        float32, float16, or bfloat16: the compute dtype. Integers and booleans are
        cast to the dtype the kernel reads as.
    kernel : array_like of shape (*inputs, *outputs)
        W; read in the compute dtype.
    bias : array_like of shape (*outputs,), optional
        b; read in float32, whatever the autocast scope.
    activation : str, optional
        "linear", "relu", "sigmoid", "tanh", "gelu", "gelu_tanh" (the approximation of
        gelu by tanh), or "silu".
    axes : int, default 1
        The number of axes that `inputs` stands for; all of them are summed over.

    Returns
    -------
    ndarray or Tensor of shape (..., *outputs), compute dtype
        Rounded once, after bias and activation were applied in float32.

    Raises
    ------
    TypeError
        If the dtype of `x` is not supported.
    ValueError
        If shapes do not fit, or the activation is unknown.

    Notes
    -----
    Backward: dz = dy * activation'(z) in the compute dtype and, in the same pass, db in
    float32; the derivatives of gelu and silu are taken at z rounded to the compute
    dtype. dW = x^T dz is written in the kernel's gradient dtype (float32 for a
    Variable), dx = dz W^T in that of `x`. Transposes are strides.
    """
    code = activation_code(activation)
    w = as_array(kernel)
    source = as_factor(as_array(x), w.dtype, is_python(x))
    require_kernel_dtype("dense", source)
    source = native(source)
    dtype = source.dtype
    w = native(to_dtype(w, dtype))
    b = None if bias is None else full_precision(bias)
    _check_shapes(source, w, b, axes)
    lead, shape = source.shape[: source.ndim - axes], w.shape[axes:]
    rows, inputs, outputs = map(math.prod, (lead, w.shape[:axes], shape))
    flat, matrix = source.reshape(rows, inputs), w.reshape(inputs, outputs)
    y = empty((rows, outputs), dtype)
    followed = code in FROM_INPUT and any(map(needs_gradient, (x, kernel, bias)))
    z = empty((rows, outputs), dtype) if followed else None
    gemm.gemm(flat, matrix, y, None if b is None else b.ravel(), code, pre_activation=z)

    x_dtype, w_dtype, b_dtype = (
        gradient_dtype(item) if isinstance(item, Tensor) else F32
        for item in (x, kernel, bias)
    )

    def backward(gradient: np.ndarray, wanted: tuple[bool, ...]) -> Gradients:
        want_x, want_w, want_b = wanted
        dy = contiguous(to_dtype(gradient, dtype)).reshape(rows, outputs)
        known = y if z is None else z
        dz, db = epilogue_gradients(code, known, dy, want_x or want_w, want_b)
        dx = _product(dz, matrix.T, x_dtype).reshape(source.shape) if want_x else None
        dw = _product(flat.T, dz, w_dtype).reshape(w.shape) if want_w else None
        return dx, dw, None if db is None else to_dtype(db.reshape(shape), b_dtype)

    return record(y.reshape(*lead, *shape), (x, kernel, bias), backward)


def epilogue_gradients(
    code: int, known: np.ndarray, dy: np.ndarray, want_z: bool, want_bias: bool
) -> tuple[np.ndarray, np.ndarray | None]:
    """Return the gradients of what an activation was applied to, and of a bias.

    `known`, of shape (rows, outputs) as all are, is what the activation's derivative is
    computed from. The gradient of the bias is float32.
    """
    # dz of a linear layer is dy itself.
    needs_dz = code != LINEAR and want_z
    dz = empty(dy.shape, dy.dtype) if needs_dz else dy
    db = empty(dy.shape[1:], F32) if want_bias else None
    if needs_dz or want_bias:
        nn.dense_backward(code, known, dy, dz if needs_dz else None, db)
    return dz, db


def _check_shapes(
    x: np.ndarray, w: np.ndarray, b: np.ndarray | None, axes: int
) -> None:
    if not 1 <= axes <= min(x.ndim, w.ndim - 1) or x.shape[-axes:] != w.shape[:axes]:
        raise ValueError(
            "dense needs `x` of shape (..., *inputs) and a kernel of shape (*inputs, "
            f"*outputs), `inputs` being {axes} lengths. Received: shapes "
            f"{x.shape} and {w.shape}"
        )
    if b is not None and b.shape != w.shape[axes:]:
        raise ValueError(
            f"`bias` must have shape {w.shape[axes:]}. Received: shape={b.shape}"
        )


def _product(a: np.ndarray, b: np.ndarray, dtype: np.dtype) -> np.ndarray:
    """Return a @ b, rounded once if the kernel writes the dtype."""
    d = empty((a.shape[0], b.shape[1]), dtype if dtype in KERNEL_DTYPES else F32)
    gemm.gemm(a, b, d)
    return to_dtype(d, dtype)
