"""IndexedSlices: the gradient of a few rows of a variable."""

from typing import Any, Self

import numpy as np

from mpcore import dtypes
from mpcore.tape import SparseGradient, unwrap

__all__ = ["IndexedSlices"]


class IndexedSlices(SparseGradient):
    """Rows that stand for an array whose other rows are zero.

    An optimizer takes it for a gradient: rows given twice are summed first, then it is
    the dense gradient, so that all rows decay and all moments move.

    Parameters
    ----------
    values : array-like of shape (n, ...)
        The rows, of a floating dtype.
    indices : array-like of int, of shape (n,)
        Which rows of the array they are, in [0, dense_shape[0]).
    dense_shape : tuple of int
        Shape of the array.

    Raises
    ------
    TypeError
        If `indices` are not integers, or `values` not floating.
    ValueError
        If a shape does not fit, an index is out of range, or `values` are of no dtype
        that mpcore knows.

    Examples
    --------
    >>> IndexedSlices([[1.0], [2.0], [4.0]], [2, 0, 2], (3, 1)).to_dense().tolist()
    [[2.0], [0.0], [5.0]]
    """

    def __init__(self, values: Any, indices: Any, dense_shape: tuple[int, ...]) -> None:
        self.values = unwrap(values)
        self.indices = unwrap(indices)
        self.dense_shape = self.shape = tuple(int(dim) for dim in dense_shape)
        if not self.dense_shape:
            raise ValueError(
                "`dense_shape` must have at least 1 dimension. Received: dense_shape=()"
            )
        if self.indices.size == 0:  # the dtype of an empty list says nothing
            self.indices = self.indices.astype(np.int64)
        if self.indices.dtype.kind not in "iu":
            raise TypeError(
                f"`indices` must be integers. Received: dtype={self.indices.dtype}"
            )
        if not dtypes.is_floating(dtypes.of_array(self.values)):
            raise TypeError(
                f"`values` must be floating. Received: dtype={self.values.dtype}"
            )
        rows = (*self.indices.shape, *self.dense_shape[1:])
        if self.indices.ndim != 1 or self.values.shape != rows:
            raise ValueError(
                "`values` must have one row of `dense_shape` per index. Received: "
                f"values of shape {self.values.shape}, indices of shape "
                f"{self.indices.shape}, dense_shape={self.dense_shape}"
            )
        limit = self.dense_shape[0]
        if self.indices.size and not (
            0 <= self.indices.min() and self.indices.max() < limit
        ):
            raise ValueError(
                f"`indices` must be in [0, {limit}). Received: {self.indices}"
            )

    def joined(self, other: Self) -> Self:
        """Return the sum of two for the same array: the rows of both."""
        values = np.concatenate([self.values, other.values])
        indices = np.concatenate([self.indices, other.indices])
        return type(self)(values, indices, self.dense_shape)

    def to_dense(self) -> np.ndarray:
        """Return the array, in float32 (float64 for float64 values)."""
        name = dtypes.gradient_dtype(dtypes.of_array(self.values))
        dense = np.zeros(self.dense_shape, dtypes.numpy_dtype(name))
        with np.errstate(over="ignore", invalid="ignore"):
            np.add.at(dense, self.indices, self.values.astype(dense.dtype))
        return dense

    def __repr__(self) -> str:
        """Show shapes and dtype."""
        return (
            f"<IndexedSlices {len(self.indices)} rows of shape={self.dense_shape} "
            f"dtype={self.values.dtype}>"
        )
