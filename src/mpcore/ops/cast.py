"""Conversion between dtypes."""

from typing import Any, Literal, SupportsIndex

import numpy as np

from mpcore import autocast, dtypes, random
from mpcore._core import cast as kernel
from mpcore.ops.arrays import BF16, F16, F32, Output, as_array, contiguous
from mpcore.tape import Gradients, Tensor, gradient_dtype, record, unwrap

# What the kernels read as it is. The other byte order is not among them.
_NATIVE = frozenset(
    dtypes.numpy_dtype(name)
    for name in (
        *("float64", "float32", "float16", "bfloat16", "bool"),
        *("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"),
    )
)


def convert(
    array: np.ndarray, dtype: np.dtype, out: np.ndarray | None = None
) -> np.ndarray:
    """Return a new array (or `out`) with the elements converted to `dtype`."""
    if out is None:
        source = array if array.dtype in _NATIVE else contiguous(array)
        return kernel.cast_new(source, dtype)
    output = Output(out, array.shape, dtype, array)
    kernel.cast(contiguous(array), output.array)
    return output.finish()


def to_dtype(array: np.ndarray, dtype: np.dtype) -> np.ndarray:
    """Return the array itself if it has the dtype, else a converted one."""
    return array if array.dtype == dtype else convert(array, dtype)


def full_precision(x: Any) -> np.ndarray:
    """Return a parameter as kernels add it: unrounded, contiguous, in float32."""
    with autocast.scope(None):
        array = as_array(x)
    return contiguous(to_dtype(array, F32))


def cast(
    x: Any,
    dtype: Any,
    out: np.ndarray | None = None,
    *,
    rounding: Literal["nearest", "stochastic"] = "nearest",
    seed: SupportsIndex | None = None,
) -> np.ndarray | Tensor:
    """Convert to another dtype.

    Parameters
    ----------
    x : array_like, Tensor, or Variable
        Any shape, strides, byte order; floating, integer, or bool. Python floats are
        float64.
    dtype : str, numpy.dtype, or type
        float64, float32, float16, bfloat16, int8 ... int64, uint8 ... uint64, or bool.
    out : ndarray, optional
        Where to put the result: of the shape of `x` and of the target dtype; may
        overlap `x`.
    rounding : {"nearest", "stochastic"}, default "nearest"
        "stochastic", from float32 to float16 or bfloat16: up or down, with the chance
        that makes the mean equal to the element [1]_.
    seed : int in [0, 2**64), optional
        Of the stochastic rounding; the same seed gives the same bits, at any number of
        threads and ISA level. None: drawn from the next stream of `mpcore.random`.

    Returns
    -------
    ndarray or Tensor
        Of the shape of `x`, never `x` itself. A Tensor if `x` is one, or is recorded.

    Raises
    ------
    TypeError
        If one of the dtypes is not supported, or not with stochastic rounding; if
        `seed` is no integer.
    ValueError
        If `dtype` names no dtype; if `out` has another shape or dtype, or is read-only;
        if `rounding` or `seed` is out of range, or there is a seed but nothing random.

    Notes
    -----
    To a float: one rounding to nearest, ties to even, from every source dtype.
    Subnormals are kept; what is beyond the largest finite number becomes infinite. NaN
    stays a quiet NaN with its sign.

    To an integer: floats are cut toward zero; what is out of range becomes the nearest
    integer that the dtype has, and NaN becomes 0 (NumPy leaves both undefined).
    Integers wrap modulo 2^bits, as in NumPy. To bool: what is not zero is True.

    Stochastic rounding keeps what the target holds. Beyond its largest finite number
    the upper neighbour is infinity.

    The gradient is cast back; there is none from or to integers.

    References
    ----------
    .. [1] S. Gupta et al., "Deep learning with limited numerical precision", ICML 2015,
       section 3. The random bits are Philox's, see `mpcore.random`.

    Examples
    --------
    >>> cast([1.0, 1e6], "float16").tolist()
    [1.0, inf]
    >>> cast([-1.5, 300.0, float("nan")], "int8").tolist()
    [-1, 127, 0]
    """
    target = dtypes.numpy_dtype(dtype)
    # Most calls: a plain array, so nothing to adapt and nothing to record.
    if type(x) is np.ndarray and x.dtype in _NATIVE:
        if out is None and seed is None and rounding == "nearest":
            return kernel.cast_new(x, target)

    array = unwrap(x)
    if rounding != "nearest":
        result = _stochastic(array, target, out, rounding, seed)
    elif seed is not None:
        raise ValueError(
            f"`seed` must be None unless `rounding` is 'stochastic'. Received: {seed!r}"
        )
    else:
        _require_supported(array)
        result = convert(array, target, out)
    source = gradient_dtype(x) if isinstance(x, Tensor) else target

    def backward(gradient: np.ndarray, wanted: tuple[bool, ...]) -> Gradients:
        return (to_dtype(gradient, source),)

    return record(result, (x,), backward)


def _stochastic(
    array: np.ndarray,
    dtype: np.dtype,
    out: np.ndarray | None,
    rounding: str,
    seed: SupportsIndex | None,
) -> np.ndarray:
    """Return a new array (or `out`) with float32 numbers rounded at random."""
    if rounding != "stochastic":
        raise ValueError(
            f"`rounding` must be 'nearest' or 'stochastic'. Received: {rounding!r}"
        )
    if array.dtype.newbyteorder("=") != F32 or dtype not in (F16, BF16):
        raise TypeError(
            "Stochastic rounding goes from float32 to float16 or bfloat16. Received: "
            f"{array.dtype.name} to {dtype.name}"
        )
    key = None if seed is None else random.checked("seed", seed)
    output = Output(out, array.shape, dtype, array)
    if key is None:  # Last: a call that is refused takes no stream.
        key = random.generator().bit_generator.random_raw()
    kernel.cast_stochastic(contiguous(array), output.array, key, 0)
    return output.finish()


def _require_supported(array: np.ndarray) -> None:
    """Raise TypeError unless the dtype, in any byte order, can be cast from."""
    try:
        dtypes.of_array(array)
    except ValueError:
        raise TypeError(
            f"Cannot cast {array.dtype.name!r}. Supported dtypes: float64, float32, "
            "float16, bfloat16, int8 ... int64, uint8 ... uint64, bool. Received: "
            f"shape={array.shape}"
        ) from None
