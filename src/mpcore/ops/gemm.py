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
    as_array,
    as_arrays,
    as_factor,
    empty,
    is_python,
    native,
    require_kernel_dtype,
    zeros,
)
from mpcore.ops.cast import to_dtype
from mpcore.tape import Gradients, Tensor, gradient_dtype, needs_gradient, record

BYTES = np.dtype(np.uint8)


class PackedMatrix:
    """The right operand of products, laid out ahead for those that use it often.

    Parameters
    ----------
    matrix : array_like of shape (k, n)
        float32, float16, or bfloat16. Its values are copied.

    Attributes
    ----------
    shape : tuple of int
    dtype : numpy.dtype

    Raises
    ------
    TypeError
        If the dtype is not supported.
    ValueError
        If it has not 2 dimensions.

    Notes
    -----
    ``matmul(x, packed)`` has the bits of ``matmul(x, matrix)`` and no gradient. The
    layout is that of the ISA level, and for float32 of the precision, in force when it
    was made; with others `matmul` raises ValueError.

    Examples
    --------
    >>> packed = PackedMatrix(np.eye(3, 2, dtype=np.float16))
    >>> matmul(np.ones((1, 3), np.float16), packed).tolist()
    [[1.0, 1.0]]
    """

    __slots__ = ("_block", "dtype", "shape")

    def __init__(self, matrix: Any) -> None:
        array = as_array(matrix)
        require_kernel_dtype("PackedMatrix", array)
        array = native(array)
        if array.ndim != 2:
            raise ValueError(
                f"`matrix` must have 2 dimensions. Received: shape={array.shape}"
            )
        k, n = array.shape
        self.shape = (k, n)
        self.dtype = array.dtype
        self._block = empty((kernel.packed_size(k, n, array.dtype),), BYTES)
        kernel.pack(array, self._block)

    def __repr__(self) -> str:
        """Return shape and dtype."""
        return f"<PackedMatrix shape={self.shape} dtype={self.dtype.name}>"


def matmul(
    a: Any, b: Any, out_dtype: Any = None, out: np.ndarray | None = None
) -> np.ndarray | Tensor:
    """Multiply matrices, by the shape rules of ``numpy.matmul``.

    Parameters
    ----------
    a : array_like of shape (..., m, k) or (k,)
    b : array_like of shape (..., k, n) or (k,), or PackedMatrix
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
    if type(a) is np.ndarray and type(b) is np.ndarray:
        result_dtype = None if out_dtype is None else dtypes.numpy_dtype(out_dtype)
        product = kernel.plain_product(a, b, result_dtype, out)
        if product is not None:
            return product
    if isinstance(b, PackedMatrix):
        return _packed_product(a, b, out_dtype, out)
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
    dtype = _output_dtype(out_dtype, left.dtype)
    shape = _result_shape(left, right)
    output = Output(out, shape, dtype, left, right)
    # Vectors become matrices of one row or column, also in the result.
    x = left if left.ndim > 1 else left[np.newaxis]
    w = right if right.ndim > 1 else right[:, np.newaxis]
    if w.ndim == 2 and x.ndim > 2 and x.flags.c_contiguous:
        x = x.reshape(math.prod(x.shape[:-1]), x.shape[-1])
    batch = _batch_shape(x, w)
    full = (*batch, x.shape[-2], w.shape[-1])
    kernel.gemm(x, w, output.array.reshape(full))
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


def _packed_product(
    a: Any, b: PackedMatrix, out_dtype: Any, out: np.ndarray | None
) -> np.ndarray | Tensor:
    if needs_gradient(a):
        raise ValueError(
            "A product with a PackedMatrix has no gradient; multiply by the matrix. "
            f"Received: {b!r}"
        )
    left = native(as_factor(as_array(a), b.dtype, is_python(a)))
    if left.dtype != b.dtype:
        raise TypeError(
            "The operands of matmul must have one dtype. Received: "
            f"{left.dtype.name} and {b.dtype.name}"
        )
    if left.ndim == 0 or left.shape[-1] != b.shape[0]:
        raise ValueError(
            "The last axis of `a` must be as long as the second-to-last of `b`. "
            f"Received: shapes {left.shape} and {b.shape}"
        )
    shape = (*left.shape[:-1], b.shape[1])
    output = Output(out, shape, _output_dtype(out_dtype, left.dtype), left)
    x = left if left.ndim > 1 else left[np.newaxis]
    y = output.array.reshape((*x.shape[:-1], b.shape[1]))
    if x.flags.c_contiguous:
        rows = math.prod(x.shape[:-1])
        x, y = x.reshape(rows, b.shape[0]), y.reshape(rows, b.shape[1])
    kernel.gemm(x, None, y, packed=b._block)
    result = output.finish()
    return Tensor(result) if isinstance(a, Tensor) and not a.is_variable else result


def _output_dtype(out_dtype: Any, own: np.dtype) -> np.dtype:
    dtype = own if out_dtype is None else dtypes.numpy_dtype(out_dtype)
    if dtype not in KERNEL_DTYPES:
        raise TypeError(
            "`out_dtype` must be float32, float16, or bfloat16. Received: "
            f"out_dtype={dtype.name}"
        )
    return dtype


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
    if a.ndim <= 2 and b.ndim <= 2:
        return ()
    try:
        return np.broadcast_shapes(a.shape[:-2], b.shape[:-2])
    except ValueError:
        raise ValueError(
            "The leading axes of the operands of matmul must broadcast. Received: "
            f"shapes {a.shape} and {b.shape}"
        ) from None


def _reduced(
    a: np.ndarray, b: np.ndarray, own: tuple[int, ...], dtype: np.dtype
) -> np.ndarray:
    """Return a @ b, summed over leading axes along which an operand was broadcast."""
    batch = _batch_shape(a, b)
    matrix = (a.shape[-2], b.shape[-1])
    if own == batch:
        product = empty(batch + matrix, dtype if dtype in KERNEL_DTYPES else F32)
        kernel.gemm(a, b, product)
        return to_dtype(product, dtype)
    # The sum over the batch is float32.
    kept = (1,) * (len(batch) - len(own)) + own
    product = zeros(kept + matrix, F32)
    lengths = [n if n != k else 1 for n, k in zip(batch, kept, strict=True)]
    for index in np.ndindex(*lengths):
        # An axis that is kept stays whole; of one that is summed, one place at a time.
        place = [
            slice(None) if n == k else slice(i, i + 1)
            for i, n, k in zip(index, batch, kept, strict=True)
        ]
        kernel.gemm(_part(a, place), _part(b, place), product, beta=1)
    return to_dtype(product.reshape(own + matrix), dtype)


def _part(stack: np.ndarray, place: list[slice]) -> np.ndarray:
    """Return a place of the broadcast leading axes of a stack."""
    own = stack.shape[:-2]
    aligned = place[len(place) - len(own) :]
    part: np.ndarray = stack[
        tuple(p if n > 1 else slice(None) for p, n in zip(aligned, own, strict=True))
    ]
    return part
