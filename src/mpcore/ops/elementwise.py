"""How elementwise ops compute: halves in float32, and one rounding at the end.

NumPy does the arithmetic, in float32 for float16 and bfloat16. The rounding to a half
is that of the core's cast. Overflow and the like are results here, not warnings.
"""

from collections.abc import Callable
from typing import Any

import numpy as np

from mpcore import dtypes
from mpcore.ops.arrays import F32, HALVES, as_array, contiguous, empty, is_python
from mpcore.ops.cast import to_dtype
from mpcore.tape import Gradients, Tensor, record

Unary = Callable[[np.ndarray, np.ndarray, np.ndarray], np.ndarray]
"""(gradient, x, y) -> gradient of x."""
Binary = Callable[[np.ndarray, np.ndarray, np.ndarray, np.ndarray], np.ndarray]
"""(gradient, a, b, y) -> gradient of one operand, before it is summed to its shape."""


def checked(x: Any) -> np.ndarray:
    """Return the array in `x`; TypeError if its dtype is none of ours."""
    array = as_array(x)
    try:
        dtypes.canonical(array.dtype)
    except ValueError as error:
        raise TypeError(str(error)) from None
    return array


def work_dtype(dtype: np.dtype) -> np.dtype:
    """Return the dtype to compute in."""
    return F32 if dtype in HALVES else dtype.newbyteorder("=")


def widened(array: np.ndarray, dtype: np.dtype) -> np.ndarray:
    """Return the array in a dtype to compute in."""
    if array.dtype == dtype:
        return contiguous(array) if not array.dtype.isnative else array
    if dtypes.is_floating(dtype):
        return to_dtype(array, dtype)
    return array.astype(dtype)


def unbroadcast(gradient: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
    """Sum a gradient over the axes along which an operand was repeated."""
    if gradient.shape == shape:
        return gradient
    extra = gradient.ndim - len(shape)
    axes = tuple(range(extra)) + tuple(
        extra + axis
        for axis, n in enumerate(shape)
        if n == 1 and gradient.shape[extra + axis] != 1
    )
    sums: np.ndarray = np.sum(gradient, axis=axes, keepdims=True)
    return sums.reshape(shape)


def unary(x: Any, forward: np.ufunc, derivative: Unary) -> np.ndarray | Tensor:
    """Apply a ufunc of one array."""
    array = checked(x)
    work = work_dtype(array.dtype)
    with np.errstate(all="ignore"):
        wide = np.asarray(forward(widened(array, work)))
    result = to_dtype(wide, array.dtype) if array.dtype in HALVES else wide

    def backward(gradient: np.ndarray, wanted: tuple[bool, ...]) -> Gradients:
        with np.errstate(all="ignore"):
            return (
                derivative(
                    widened(gradient, work),
                    widened(array, work),
                    widened(result, work),
                ),
            )

    return record(result, (x,), backward)


def _common(arrays: list[np.ndarray], operands: tuple[Any, ...]) -> np.dtype:
    """Return the dtype in which operands meet; Python numbers are weak."""
    kinds = {"f": 0.0, "b": False}
    python = [is_python(x) for x in operands]
    if all(python):
        return dtypes.promote(*(array.dtype for array in arrays))
    return dtypes.promote(
        *(
            kinds.get(array.dtype.kind, 0) if weak else array.dtype.newbyteorder("=")
            for array, weak in zip(arrays, python, strict=True)
        )
    )


def binary(
    a: Any, b: Any, forward: np.ufunc, d_a: Binary, d_b: Binary
) -> np.ndarray | Tensor:
    """Apply a ufunc of two broadcast arrays."""
    # A Python number is not rounded to the dtype of the other operand first.
    arrays = [np.asarray(x) if is_python(x) else checked(x) for x in (a, b)]
    if is_python(a) and is_python(b):
        arrays = [checked(a), checked(b)]
    common = _common(arrays, (a, b))
    work = work_dtype(common)
    left, right = arrays
    with np.errstate(all="ignore"):
        wide = np.asarray(forward(widened(left, work), widened(right, work)))
    result = to_dtype(wide, common) if common in HALVES else wide

    def backward(gradient: np.ndarray, wanted: tuple[bool, ...]) -> Gradients:
        operands = (
            widened(gradient, work),
            widened(left, work),
            widened(right, work),
            widened(result, work),
        )
        with np.errstate(all="ignore"):
            return (
                unbroadcast(d_a(*operands), left.shape) if wanted[0] else None,
                unbroadcast(d_b(*operands), right.shape) if wanted[1] else None,
            )

    return record(result, (a, b), backward)


def accumulate(total: np.ndarray, gradient: np.ndarray, owned: bool) -> np.ndarray:
    """Add gradients for the tape, halves in float32."""
    work = work_dtype(
        np.promote_types(work_dtype(total.dtype), work_dtype(gradient.dtype))
    )
    left, right = widened(total, work), widened(gradient, work)
    reuse = owned and left is total
    sums = total if reuse else empty(left.shape, work)
    with np.errstate(all="ignore"):
        np.add(left, right, out=sums)
    return sums
