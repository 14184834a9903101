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

_NOT_KEPT = np.empty(0, F32)


def checked(x: Any) -> np.ndarray:
    """Return the array in `x`, native; TypeError if its dtype is none of ours."""
    return _supported(as_array(x))


def _supported(array: np.ndarray) -> np.ndarray:
    try:
        dtypes.of_array(array)
    except ValueError as error:
        raise TypeError(str(error)) from None
    return array if array.dtype.isnative else contiguous(array)


def work_dtype(dtype: np.dtype) -> np.dtype:
    """Return the dtype to compute in."""
    return F32 if dtype in HALVES else dtype


def widened(array: np.ndarray, dtype: np.dtype) -> np.ndarray:
    """Return the array in a dtype to compute in."""
    if array.dtype == dtype:
        return array
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


def unary(
    x: Any,
    forward: Callable[[np.ndarray], np.ndarray],
    derivative: Unary,
    keep: str = "",
) -> np.ndarray | Tensor:
    """Apply a function of one array; `keep` names what the derivative uses: x, y."""
    array = checked(x)
    work = work_dtype(array.dtype)
    with np.errstate(all="ignore"):
        # In C order, since NumPy's loops for other strides may round differently.
        wide = np.asarray(forward(contiguous(widened(array, work))))
    result = to_dtype(wide, array.dtype) if array.dtype in HALVES else wide
    kept = [
        value if name in keep else _NOT_KEPT
        for name, value in (("x", array), ("y", result))
    ]

    def backward(gradient: np.ndarray, wanted: tuple[bool, ...]) -> Gradients:
        g, *values = (widened(value, work) for value in (gradient, *kept))
        with np.errstate(all="ignore"):
            return (derivative(g, *values),)

    return record(result, (x,), backward)


def binary(
    a: Any,
    b: Any,
    forward: Callable[[np.ndarray, np.ndarray], np.ndarray],
    d_a: Binary,
    d_b: Binary,
    keep: str = "",
) -> np.ndarray | Tensor:
    """Apply a function of two arrays; `keep` names what derivatives use: a, b, y."""
    left, right, common = _operands(a, b)
    work = work_dtype(common)
    with np.errstate(all="ignore"):
        wide = np.asarray(forward(widened(left, work), widened(right, work)))
    result = to_dtype(wide, common) if common in HALVES else wide
    shapes = left.shape, right.shape
    kept = [
        value if name in keep else _NOT_KEPT
        for name, value in (("a", left), ("b", right), ("y", result))
    ]

    def backward(gradient: np.ndarray, wanted: tuple[bool, ...]) -> Gradients:
        g, *values = (widened(value, work) for value in (gradient, *kept))
        with np.errstate(all="ignore"):
            return tuple(
                unbroadcast(derivative(g, *values), shape) if want else None
                for derivative, shape, want in zip(
                    (d_a, d_b), shapes, wanted, strict=True
                )
            )

    return record(result, (a, b), backward)


def _operands(a: Any, b: Any) -> tuple[np.ndarray, np.ndarray, np.dtype]:
    """Return two arrays and the dtype in which they meet; Python numbers are weak."""
    weak = is_python(a), is_python(b)
    if weak[0] == weak[1]:
        left, right = checked(a), checked(b)
        if left.dtype == right.dtype:
            return left, right, left.dtype
        return left, right, dtypes.promote(left.dtype, right.dtype)
    # A Python number is not rounded to the dtype of the array first.
    left, right = (
        _supported(np.asarray(x)) if python else checked(x)
        for x, python in zip((a, b), weak, strict=True)
    )
    strong, number = (right, left) if weak[0] else (left, right)
    dtype = strong.dtype
    if not dtypes.is_floating(dtype):
        dtype = dtypes.promote(dtype, {"f": 0.0, "b": False}.get(number.dtype.kind, 0))
    return left, right, dtype


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
