"""What users bring, made fit for the kernels.

The kernels take native byte order, and most of them C order. Whatever else comes in is
copied here; what fits is passed on as it is.
"""

from typing import Any

import numpy as np

from mpcore import dtypes
from mpcore._core import cast as kernel
from mpcore._core import runtime
from mpcore.tape import unwrap

F32 = dtypes.numpy_dtype("float32")
F16 = dtypes.numpy_dtype("float16")
BF16 = dtypes.numpy_dtype("bfloat16")
F64 = dtypes.numpy_dtype("float64")
HALVES = frozenset((F16, BF16))
KERNEL_DTYPES = (F32, F16, BF16)


def empty(shape: tuple[int, ...], dtype: np.dtype) -> np.ndarray:
    """Return an uninitialized array in memory of the core's buffer pool."""
    return runtime.empty(shape, dtype)


def zeros(shape: tuple[int, ...], dtype: np.dtype) -> np.ndarray:
    """Return an array of zeros in memory of the core's buffer pool."""
    array = runtime.empty(shape, dtype)
    array.fill(0)
    return array


def _rounded(array: np.ndarray, dtype: np.dtype) -> np.ndarray:
    """Return the array rounded once to a floating dtype."""
    if dtype not in HALVES:
        return array.astype(dtype)
    source = contiguous(array)  # NumPy would go to a half by way of float32
    result = empty(array.shape, dtype)
    kernel.cast(source, result)
    return result


def as_array(x: Any) -> np.ndarray:
    """Return the array in `x`; Python floats and lists of them become `floatx()`."""
    array = unwrap(x)
    if array.dtype == F64 and is_python(x):
        return _rounded(array, dtypes.numpy_dtype(dtypes.floatx()))
    return array


def as_factor(array: np.ndarray, partner: np.dtype, python: bool) -> np.ndarray:
    """Return an operand of a product, floating where that is plain.

    Integers and booleans take the dtype of the other operand, if that is floating;
    otherwise those that came as Python numbers or lists take `floatx()`.
    """
    if array.dtype.kind not in "iub":
        return array
    if dtypes.is_floating(partner):
        return _rounded(array, partner)
    return _rounded(array, dtypes.numpy_dtype(dtypes.floatx())) if python else array


def as_arrays(*operands: Any) -> list[np.ndarray]:
    """Return the arrays in operands; Python numbers take the dtype of the arrays."""
    arrays = [as_array(x) for x in operands]
    own = {a.dtype for a, x in zip(arrays, operands, strict=True) if not is_python(x)}
    if len(own) == 1:
        (dtype,) = own
        if dtypes.is_floating(dtype):
            return [
                _rounded(np.asarray(x), dtype) if is_python(x) else a
                for a, x in zip(arrays, operands, strict=True)
            ]
    return arrays


def is_python(x: Any) -> bool:
    """Return whether `x` is a Python number, or lists and tuples of such."""
    return not hasattr(x, "__array__")


def native(array: np.ndarray) -> np.ndarray:
    """Return the array in native byte order, with strides that count elements."""
    array = unwrap(array)
    if not array.dtype.isnative:
        array = array.astype(array.dtype.newbyteorder("="))
    if array.flags.c_contiguous:
        return array
    itemsize = array.itemsize
    if any(stride % itemsize for stride in array.strides):
        return array.copy(order="C")
    return array


def contiguous(array: np.ndarray) -> np.ndarray:
    """Return the array in native byte order and C order."""
    array = unwrap(array)
    if array.dtype.isnative and array.flags.c_contiguous:
        return array
    return np.asarray(array, dtype=array.dtype.newbyteorder("="), order="C")


def require_kernel_dtype(operation: str, array: np.ndarray) -> None:
    """Raise TypeError unless the array is float32, float16, or bfloat16."""
    if array.dtype in KERNEL_DTYPES:
        return
    if array.dtype.newbyteorder("=") not in KERNEL_DTYPES:
        raise TypeError(
            f"Cannot apply {operation} to {array.dtype.name!r}. Supported dtypes: "
            f"float32, float16, bfloat16. Received: shape={array.shape}"
        )


class Output:
    """Where an op puts its result: a new array, or the caller's `out`.

    `array` is contiguous and overlaps no input. `finish` moves it to `out` if need be,
    so a caller's array is written once everything has succeeded.
    """

    __slots__ = ("_out", "_waits", "array")

    def __init__(
        self,
        out: np.ndarray | None,
        shape: tuple[int, ...],
        dtype: np.dtype,
        *inputs: np.ndarray | None,
    ) -> None:
        self._out = out
        self._waits = False
        if out is not None:
            _check_out(out, shape, dtype)
            self._waits = not out.flags.c_contiguous or any(
                x is not None and np.may_share_memory(out, x) for x in inputs
            )
        self.array = empty(shape, dtype) if out is None or self._waits else unwrap(out)

    def finish(self) -> np.ndarray:
        """Return the result in its place."""
        if self._out is None:
            return self.array
        if self._waits:
            np.copyto(self._out, self.array)
        return self._out


def _check_out(out: Any, shape: tuple[int, ...], dtype: np.dtype) -> None:
    if not isinstance(out, np.ndarray):
        raise TypeError(f"`out` must be an ndarray. Received: {type(out).__name__}")
    unwrap(out)  # refuses a masked array
    if out.shape != shape or out.dtype != dtype:
        raise ValueError(
            f"`out` must have shape {shape} and dtype {dtype.name}. Received: "
            f"shape={out.shape}, dtype={out.dtype}"
        )
    if not out.flags.writeable:
        raise ValueError("`out` must be writable. Received: a read-only array")
    if 0 in out.strides and any(
        n > 1 and not stride for n, stride in zip(shape, out.strides, strict=True)
    ):
        raise ValueError(
            "`out` must have a place for each element. Received: "
            f"shape={out.shape}, strides={out.strides}"
        )
