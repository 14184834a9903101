"""Conversion between dtypes."""

from typing import Any

import numpy as np

from mpcore import dtypes
from mpcore._core import cast as kernel
from mpcore.ops.arrays import BF16, F16, F32, F64, Output, contiguous
from mpcore.tape import Gradients, Tensor, gradient_dtype, record, unwrap

_TARGETS = (F32, F16, BF16, F64)


def convert(
    array: np.ndarray, dtype: np.dtype, out: np.ndarray | None = None
) -> np.ndarray:
    """Return a new array (or `out`) with the elements rounded once to `dtype`."""
    source = contiguous(array)
    output = Output(out, array.shape, dtype, array)
    kernel.cast(source, output.array)
    return output.finish()


def to_dtype(array: np.ndarray, dtype: np.dtype) -> np.ndarray:
    """Return the array itself if it has the dtype, else a converted one."""
    return array if array.dtype == dtype else convert(array, dtype)


def cast(x: Any, dtype: Any, out: np.ndarray | None = None) -> np.ndarray | Tensor:
    """Convert to another floating dtype.

    Parameters
    ----------
    x : array_like, Tensor, or Variable
        Any shape, strides, byte order; floating, integer, or bool. Python floats are
        float64.
    dtype : str, numpy.dtype, or type
        float32, float16, bfloat16, or float64.
    out : ndarray, optional
        Where to put the result: of the shape of `x` and of the target dtype; may
        overlap `x`.

    Returns
    -------
    ndarray or Tensor
        Of the shape of `x`, never `x` itself. A Tensor if `x` is one, or is recorded.

    Raises
    ------
    TypeError
        If one of the dtypes is not supported.
    ValueError
        If `dtype` names no dtype; if `out` has another shape or dtype, or is read-only.

    Notes
    -----
    One rounding to nearest, ties to even, from every source dtype. Subnormals are kept;
    what is beyond the largest finite number becomes infinite. NaN stays a quiet NaN
    with its sign. The gradient is cast back.

    Examples
    --------
    >>> cast([1.0, 1e6], "float16").tolist()
    [1.0, inf]
    """
    array = unwrap(x)
    target = dtypes.numpy_dtype(dtype)
    if target not in _TARGETS:
        raise TypeError(_message(target))
    try:
        dtypes.of_array(array)
    except ValueError:
        message = f"{_message(array.dtype)} Received: shape={array.shape}"
        raise TypeError(message) from None

    result = convert(array, target, out)
    source = gradient_dtype(x) if isinstance(x, Tensor) else target

    def backward(gradient: np.ndarray, wanted: tuple[bool, ...]) -> Gradients:
        return (to_dtype(gradient, source),)

    return record(result, (x,), backward)


def _message(dtype: np.dtype) -> str:
    return (
        f"Cannot cast {dtype.name!r}. Supported dtypes: float32, float16, bfloat16, "
        "float64 (and integers and bool as the source)."
    )
