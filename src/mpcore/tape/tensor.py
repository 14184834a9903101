"""Tensor: an array whose history a tape can follow."""

import itertools
import sys
from collections.abc import Callable, Mapping
from typing import Any, ClassVar

import numpy as np

from mpcore import dtypes

_keys = itertools.count()


class Tensor:
    """An array whose history a `GradientTape` can follow.

    Ops return Tensors where a tape records, or where a Tensor went in. Elsewhere they
    return plain arrays. Arithmetic operators and indexing are those of `mpcore.ops`.
    Functions of NumPy take a Tensor as its array, and raise TypeError if a tape that
    records follows it: they would lose the gradient. (`numpy.asarray` does not ask.)

    Parameters
    ----------
    value : array_like
        The elements; not copied if it is an ndarray. Python floats become `floatx()`.

    Raises
    ------
    ValueError
        If the dtype is not one of `mpcore.dtypes`.
    """

    __slots__ = ("__weakref__", "_key", "_value")

    # NumPy leaves `ndarray + Tensor` to Tensor.
    __array_ufunc__ = None
    is_variable: ClassVar[bool] = False
    trainable: bool
    version: int

    def __init__(self, value: object) -> None:
        array = unwrap(value)
        if not isinstance(value, Tensor | np.ndarray | np.generic):
            if array.dtype == np.float64:
                array = array.astype(dtypes.numpy_dtype(dtypes.floatx()))
        dtypes.of_array(array)
        self._value = array
        self._key = next(_keys)

    @property
    def value(self) -> np.ndarray:
        """The elements. Do not write to it."""
        return self._value

    @property
    def dtype(self) -> str:
        """Name of the dtype."""
        return dtypes.canonical(self._value.dtype)

    @property
    def shape(self) -> tuple[int, ...]:
        """Lengths of the axes."""
        return self._value.shape

    @property
    def ndim(self) -> int:
        """Number of axes."""
        return self._value.ndim

    @property
    def size(self) -> int:
        """Number of elements."""
        return self._value.size

    @property
    def gradient_dtype(self) -> str:
        """Name of the dtype in which a gradient with respect to this is computed."""
        return self.dtype

    def numpy(self) -> np.ndarray:
        """Return a copy of the elements."""
        return self.value.copy()

    def __array__(
        self, dtype: np.dtype | None = None, copy: bool | None = None
    ) -> np.ndarray:
        """Return the elements as an ndarray; NumPy calls this."""
        return np.array(self.value, dtype=dtype, copy=copy)

    def __float__(self) -> float:
        """Return the only element as a float."""
        return float(self.value.item())

    def __int__(self) -> int:
        """Return the only element as an int."""
        return int(self.value.item())

    def __bool__(self) -> bool:
        """Return the truth of the only element."""
        return bool(self.value.item())

    def __len__(self) -> int:
        """Return the length of the first axis."""
        return len(self.value)

    def __reduce__(self) -> tuple[Any, ...]:
        """Copy and pickle by value: the copy is a new tensor to every tape."""
        return type(self), (self.value,)

    def __repr__(self) -> str:
        """Show shape, dtype, and elements."""
        return f"<Tensor shape={self.shape} dtype={self.dtype} value={self.value}>"


def install_operators(operators: Mapping[str, Callable[..., object]]) -> None:
    """Give Tensor operators that know more than this file does.

    Parameters
    ----------
    operators : mapping from names such as ``"__add__"`` to functions
        They become methods of Tensor.
    """
    for name, function in operators.items():
        setattr(Tensor, name, function)


def unwrap(x: object) -> np.ndarray:
    """Return the array in `x`: `.value` of a Tensor, else ``numpy.asarray(x)``.

    A Variable is read in the dtype of the autocast scope. A subclass of ndarray counts
    as the plain array it holds, except one whose mask would be lost.

    Raises
    ------
    TypeError
        If `x` is a masked array.
    """
    if isinstance(x, Tensor):
        return x.value
    if type(x) is not np.ndarray and "numpy.ma" in sys.modules:
        _refuse_mask(x)
    return np.asarray(x)


def _refuse_mask(x: object) -> None:
    if isinstance(x, np.ma.MaskedArray):
        raise TypeError(
            "Masked arrays are not supported, since the mask would be lost. Fill them "
            f"first, as in x.filled(0). Received: dtype={x.dtype}, shape={x.shape}"
        )


def gradient_dtype(x: object) -> np.dtype:
    """Return the dtype a backward function must give the gradient of `x`."""
    if isinstance(x, Tensor):
        return dtypes.numpy_dtype(x.gradient_dtype)
    return np.asarray(x).dtype
