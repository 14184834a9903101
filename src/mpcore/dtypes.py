"""The element types: one table from names to NumPy dtypes.

A name is what the API shows and accepts ("float32", "bfloat16", ...). This file knows
no other module of the package.
"""

import ml_dtypes
import numpy as np

__all__ = [
    "canonical",
    "floatx",
    "gradient_dtype",
    "is_floating",
    "numpy_dtype",
    "of_array",
    "promote",
    "set_floatx",
]

_FLOATING: dict[str, np.dtype] = {
    "float32": np.dtype(np.float32),
    "float16": np.dtype(np.float16),
    "bfloat16": np.dtype(ml_dtypes.bfloat16),
    "float64": np.dtype(np.float64),
}
_TABLE: dict[str, np.dtype] = _FLOATING | {
    name: np.dtype(name)
    for name in (
        *("int8", "int16", "int32", "int64"),
        *("uint8", "uint16", "uint32", "uint64"),
        "bool",
    )
}
# Names, NumPy dtypes, and scalar types lead to the name in one look-up.
_NAMES: dict[object, str] = {name: name for name in _TABLE}
_NAMES |= {dtype: name for name, dtype in _TABLE.items()}
_NAMES |= {dtype.type: name for name, dtype in _TABLE.items()}

_floatx = "float32"


def canonical(dtype: object) -> str:
    """Return the name of a dtype.

    Parameters
    ----------
    dtype : str, numpy.dtype, or type
        A name such as ``"bfloat16"``, a NumPy dtype in any byte order, or a type such
        as ``numpy.float16``, ``ml_dtypes.bfloat16``, ``float`` (float64, as to NumPy).

    Returns
    -------
    str
        One of float32, float16, bfloat16, float64, int8 ... int64, uint8 ... uint64,
        bool.

    Raises
    ------
    ValueError
        If it is a dtype, but not one of these.
    TypeError
        If it is no dtype.

    Examples
    --------
    >>> canonical(np.float16)
    'float16'
    """
    try:
        name = _NAMES.get(dtype)
    except TypeError:  # unhashable
        name = None
    if name is not None:
        return name
    if isinstance(dtype, type):
        try:
            dtype = np.dtype(dtype)
        except TypeError:
            dtype = None
    if isinstance(dtype, np.dtype):
        # dtype.name leaves out the byte order.
        name, shown = _NAMES.get(dtype.name), dtype.name
    elif isinstance(dtype, str):
        shown = dtype
    else:
        raise TypeError(
            f"`dtype` must be a name, a NumPy dtype, or a type. Received: {dtype!r}"
        )
    if name is None:
        raise ValueError(
            f"Unknown dtype {shown!r}. Supported dtypes: {', '.join(_TABLE)}."
        )
    return name


def of_array(array: np.ndarray) -> str:
    """Return the name of the dtype of an array.

    Raises
    ------
    ValueError
        If it has none; the message shows dtype and shape.
    """
    try:
        return canonical(array.dtype)
    except ValueError as error:
        raise ValueError(f"{error} Received: shape={array.shape}") from None


def numpy_dtype(dtype: object) -> np.dtype:
    """Return the native NumPy dtype of anything `canonical` takes."""
    return _TABLE[canonical(dtype)]


def is_floating(dtype: object) -> bool:
    """Return whether a dtype is float32, float16, bfloat16, or float64."""
    return canonical(dtype) in _FLOATING


def gradient_dtype(dtype: object) -> str:
    """Return the dtype of the gradient of a variable that is stored in `dtype`.

    float64 for float64, float32 for all narrower ones: a weight gradient is summed in
    float32 and rounding it to 16 bits would lose what the update could still use.
    """
    return "float64" if canonical(dtype) == "float64" else "float32"


def promote(*operands: np.dtype | bool | int | float) -> np.dtype:
    """Return the dtype in which operands meet.

    NumPy's rules, with two answers where it has none: float16 with bfloat16 gives
    float32, and a Python scalar never widens a bfloat16.

    Parameters
    ----------
    *operands : numpy.dtype, bool, int, or float
        dtypes of arrays, and Python scalars, which are weak: they adapt to the arrays.

    Returns
    -------
    numpy.dtype
        The common dtype; native byte order.

    Raises
    ------
    TypeError
        If there is no common dtype (bfloat16 with an integer wider than 8 bits).
    """
    dtypes = {item for item in operands if isinstance(item, np.dtype)}
    # Only the kind of a scalar counts: its value may lie outside of the common dtype.
    kinds = {type(item) for item in operands if not isinstance(item, np.dtype)}
    if _FLOATING["bfloat16"] in dtypes:
        kinds.clear()
        if _FLOATING["float16"] in dtypes:
            dtypes = dtypes - {_FLOATING["float16"]} | {_FLOATING["float32"]}
    try:
        common: np.dtype = np.result_type(*dtypes, *(kind(0) for kind in kinds))
    except TypeError:
        names = sorted(dtype.name for dtype in dtypes)
        raise TypeError(
            f"No common dtype for {' and '.join(names)}. Cast one of them first."
        ) from None
    return np.dtype(common.newbyteorder("="))


def floatx() -> str:
    """Return the default float dtype, ``"float32"`` unless `set_floatx` changed it."""
    return _floatx


def set_floatx(dtype: object) -> None:
    """Set the default float dtype of the process.

    Parameters
    ----------
    dtype : str, numpy.dtype, or type
        float16, bfloat16, float32, or float64.

    Raises
    ------
    ValueError
        If it is not floating.
    """
    global _floatx
    name = canonical(dtype)
    if name not in _FLOATING:
        raise ValueError(
            f"`floatx` must be one of {', '.join(_FLOATING)}. Received: {name!r}"
        )
    _floatx = name
