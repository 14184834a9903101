"""Rows of a table, with a gradient that names them."""

from typing import Any

import numpy as np

from mpcore.indexed_slices import IndexedSlices
from mpcore.ops.arrays import as_array, empty
from mpcore.ops.elementwise import checked
from mpcore.tape import Gradients, Tensor, gradient_dtype, record


def embedding(indices: Any, table: Any) -> np.ndarray | Tensor:
    """Return table[indices], row by row.

    Parameters
    ----------
    indices : array_like of any shape, integers in [0, rows)
    table : array_like of shape (rows, ...), floating

    Returns
    -------
    ndarray or Tensor of shape (*indices.shape, ...), dtype of the table

    Raises
    ------
    TypeError
        If `indices` are no integers.
    ValueError
        If an index is out of range, or the table has no rows.

    Notes
    -----
    The gradient of the table is an `IndexedSlices`: the rows of the result's gradient,
    which optimizers take, summing those of one index first. It becomes dense where
    another op read the table too, or on its way through the op that made the table.
    """
    rows = checked(table)
    places = as_array(indices)
    if places.dtype.kind not in "iu":
        raise TypeError(f"`indices` must be integers. Received: dtype={places.dtype}")
    if rows.ndim == 0:
        raise ValueError("`table` must have rows. Received: shape=()")
    limit = rows.shape[0]
    if places.size and not (0 <= places.min() and places.max() < limit):
        raise ValueError(
            f"`indices` must be in [0, {limit}). Received: indices from "
            f"{places.min()} to {places.max()}"
        )
    flat = places.reshape(-1).astype(np.int64)  # a copy: the backward keeps it
    picked = empty((flat.size, *rows.shape[1:]), rows.dtype)
    if flat.size:
        np.take(rows, flat, axis=0, out=picked, mode="clip")  # in range: unbuffered
    table_shape = rows.shape
    dtype = gradient_dtype(table) if isinstance(table, Tensor) else rows.dtype

    def backward(gradient: np.ndarray, wanted: tuple[bool, ...]) -> Gradients:
        values = np.array(gradient, dtype=dtype, order="C")
        values = values.reshape(flat.size, *table_shape[1:])
        return None, IndexedSlices(values, flat, table_shape)

    return record(
        picked.reshape(places.shape + table_shape[1:]), (indices, table), backward
    )
