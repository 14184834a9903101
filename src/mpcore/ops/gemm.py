"""Matrix products with fp32 accumulation."""

import math
from typing import Any

import numpy as np

from mpcore import dtypes
from mpcore._core import gemm as kernel
from mpcore.ops.arrays import (
    F32,
    KERNEL_DTYPES,
    Output,
    as_arrays,
    as_factor,
    empty,
    is_python,
    native,
    require_kernel_dtype,
    zeros,
)
from mpcore.ops.cast import to_dtype
from mpcore.tape import Gradients, Tensor, gradient_dtype, record


def matmul(
    a: Any, b: Any, out_dtype: Any = None, out: np.ndarray | None = None
) -> np.ndarray | Tensor:
    """Multiply matrices, by the shape rules of ``numpy.matmul``.

    Parameters
    ----------
    a : array_like of shape (..., m, k) or (k,)
    b : array_like of shape (..., k, n) or (k,)
        float32, float16, or bfloat16, both the same. Any strides: a transpose costs no
        copy. Leading axes are broadcast.
    out_dtype : str, numpy.dtype, or type, optional
        float32, float16, or bfloat16; default: the dtype of the operands.
    out : ndarray, optional
        Where to put the result: of its shape and dtype; may overlap an operand.

    Returns
    -------
    ndarray or Tensor
        Of shape (..., m, n), without the axis that a 1-D operand lacks.

    Raises
    ------
    TypeError
        If a dtype is not supported, or the operands' differ.
    ValueError
        If shapes do not fit; if `out` has another shape or dtype, or is read-only.

    Notes
    -----
    Products are exact, sums float32, and there is one rounding, to `out_dtype`. A row
    has the same bits whatever the other rows are, and for any number of threads. k = 0
    gives zeros. The order of summation is described in ``mpcore/gemm.h``.

    Examples
    --------
    >>> matmul(np.ones((2, 3), np.float16), np.ones((3, 1), np.float16)).tolist()
    [[3.0], [3.0]]
    """
    left, right = as_arrays(a, b)
    left, right = (
        as_factor(left, right.dtype, is_python(a)),
        as_factor(right, left.dtype, is_python(b)),
    )
    require_kernel_dtype("matmul", left)
    require_kernel_dtype("matmul", right)
    left, right = native(left), native(right)
    if left.dtype != right.dtype:
        raise TypeError(
            "The operands of matmul must have one dtype. Received: "
            f"{left.dtype.name} and {right.dtype.name}"
        )
    dtype = left.dtype if out_dtype is None else dtypes.numpy_dtype(out_dtype)
    if dtype not in KERNEL_DTYPES:
        raise TypeError(
            "`out_dtype` must be float32, float16, or bfloat16. Received: "
            f"out_dtype={dtype.name}"
        )
    shape = _result_shape(left, right)
    output = Output(out, shape, dtype, left, right)
    # Vectors become matrices of one row or column, also in the result.
    x = left if left.ndim > 1 else left[np.newaxis]
    w = right if right.ndim > 1 else right[:, np.newaxis]
    if w.ndim == 2 and x.ndim > 2 and x.flags.c_contiguous:
        x = x.reshape(math.prod(x.shape[:-1]), x.shape[-1])
    batch = _batch_shape(x, w)
    full = (*batch, x.shape[-2], w.shape[-1])
    _multiply(x, w, output.array.reshape(full), batch)
    x_dtype, w_dtype = (
        gradient_dtype(x) if isinstance(x, Tensor) else F32 for x in (a, b)
    )

    def backward(gradient: np.ndarray, wanted: tuple[bool, ...]) -> Gradients:
        # A float32 gradient of a float32 result of halves is not rounded to a half:
        # the products are formed in float32 instead.
        work = dtype if dtype == F32 else x.dtype
        g = native(to_dtype(gradient, work)).reshape(full)
        dx = dw = None
        if wanted[0]:
            transposed = to_dtype(w, work).swapaxes(-1, -2)
            dx = _reduced(g, transposed, x.shape[:-2], x_dtype).reshape(left.shape)
        if wanted[1]:
            transposed = to_dtype(x, work).swapaxes(-1, -2)
            dw = _reduced(transposed, g, w.shape[:-2], w_dtype).reshape(right.shape)
        return dx, dw

    return record(output.finish(), (a, b), backward)


def _result_shape(a: np.ndarray, b: np.ndarray) -> tuple[int, ...]:
    if a.ndim == 0 or b.ndim == 0:
        raise ValueError(
            "The operands of matmul must have at least 1 dimension. Received: shapes "
            f"{a.shape} and {b.shape}"
        )
    if a.shape[-1] != b.shape[-2 if b.ndim > 1 else 0]:
        raise ValueError(
            "The last axis of `a` must be as long as the second-to-last of `b`. "
            f"Received: shapes {a.shape} and {b.shape}"
        )
    rows = a.shape[-2:-1] if a.ndim > 1 else ()
    columns = b.shape[-1:] if b.ndim > 1 else ()
    return (*_batch_shape(a, b), *rows, *columns)


def _batch_shape(a: np.ndarray, b: np.ndarray) -> tuple[int, ...]:
    try:
        return np.broadcast_shapes(a.shape[:-2], b.shape[:-2])
    except ValueError:
        raise ValueError(
            "The leading axes of the operands of matmul must broadcast. Received: "
            f"shapes {a.shape} and {b.shape}"
        ) from None


def _matrix(stack: np.ndarray, index: tuple[int, ...]) -> np.ndarray:
    """Return the matrix at an index of the broadcast leading axes."""
    own = stack.shape[:-2]
    aligned = index[len(index) - len(own) :]
    matrix: np.ndarray = stack[
        tuple(i if n > 1 else 0 for i, n in zip(aligned, own, strict=True))
    ]
    return matrix


def _multiply(
    a: np.ndarray,
    b: np.ndarray,
    d: np.ndarray,
    batch: tuple[int, ...],
    accumulate: bool = False,
) -> None:
    """Write the products of stacked matrices to a stack, or add them to it."""
    for index in np.ndindex(batch):
        kernel.gemm(
            _matrix(a, index),
            _matrix(b, index),
            _matrix(d, index),
            accumulate=accumulate,
        )


def _reduced(
    a: np.ndarray, b: np.ndarray, own: tuple[int, ...], dtype: np.dtype
) -> np.ndarray:
    """Return a @ b, summed over leading axes along which an operand was broadcast."""
    batch = _batch_shape(a, b)
    matrix = (a.shape[-2], b.shape[-1])
    if own == batch:
        product = empty(batch + matrix, dtype if dtype in KERNEL_DTYPES else F32)
        _multiply(a, b, product, batch)
    else:
        # The sum over the batch is float32.
        product = zeros(own + matrix, F32)
        _multiply(a, b, product, batch, accumulate=True)
    return to_dtype(product, dtype)
