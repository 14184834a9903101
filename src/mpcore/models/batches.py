"""Arrays of a data set, checked once, and their batches."""

import operator
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from mpcore import dtypes
from mpcore.tape import unwrap

Array = np.ndarray[Any, Any]


@dataclass(frozen=True, slots=True)
class Arrays:
    """Samples, their targets and their weights; the first dimensions agree."""

    x: Array
    y: Array | None = None
    sample_weight: Array | None = None

    def __len__(self) -> int:
        """Return the number of samples."""
        return len(self.x)

    def select(self, rows: slice | Array) -> "Arrays":
        """Return the given rows: views for a slice, copies for indices."""
        return Arrays(
            self.x[rows],
            None if self.y is None else self.y[rows],
            None if self.sample_weight is None else self.sample_weight[rows],
        )

    def count(self, batch_size: int) -> int:
        """Return the number of batches."""
        return -(-len(self) // batch_size)

    def batches(
        self, batch_size: int, order: Array | None = None
    ) -> Iterator["Arrays"]:
        """Yield batches in the given order; the last may be smaller."""
        for start in range(0, len(self), batch_size):
            rows = slice(start, start + batch_size)
            yield self.select(rows if order is None else order[rows])


def _array(value: object, name: str) -> Array:
    array = unwrap(value)
    try:
        dtypes.canonical(array.dtype)
    except ValueError:
        raise TypeError(
            f"`{name}` must hold real numbers. Received: dtype={array.dtype}"
        ) from None
    if array.ndim == 0:
        raise ValueError(
            f"`{name}` must have a first, batch dimension. Received: a scalar"
        )
    return array


def checked(x: object, y: object = None, sample_weight: object = None) -> Arrays:
    """Return the arrays of a data set.

    Raises
    ------
    TypeError
        If one does not hold numbers, or is a masked array.
    ValueError
        If lengths differ, or there is no sample.
    """
    x = _array(x, "x")
    if not len(x):
        raise ValueError(
            f"`x` must hold at least one sample. Received: shape={x.shape}"
        )
    others: dict[str, Array | None] = {"y": None, "sample_weight": None}
    for name, value in (("y", y), ("sample_weight", sample_weight)):
        if value is None:
            continue
        array = others[name] = _array(value, name)
        if len(array) != len(x):
            raise ValueError(
                f"`x` and `{name}` must have the same length. "
                f"Received: len(x)={len(x)}, len({name})={len(array)}"
            )
    return Arrays(x, **others)


def unpacked(data: object, name: str) -> Arrays:
    """Return the arrays of a tuple (x, y) or (x, y, sample_weight)."""
    if not isinstance(data, tuple | list) or len(data) not in (2, 3):
        raise ValueError(
            f"`{name}` must be (x, y) or (x, y, sample_weight). "
            f"Received: {type(data).__name__}"
        )
    return checked(*data)


def split(arrays: Arrays, fraction: float) -> tuple[Arrays, Arrays]:
    """Return all but the last `fraction` of the samples, and these.

    Raises
    ------
    ValueError
        If the fraction is not in (0, 1), or leaves one side empty.
    """
    if not 0.0 < fraction < 1.0:
        raise ValueError(f"`validation_split` must be in [0, 1). Received: {fraction}")
    cut = int(len(arrays) * (1.0 - fraction))
    if not 0 < cut < len(arrays):
        raise ValueError(
            f"`validation_split`={fraction} of {len(arrays)} samples leaves no sample "
            "to train or to validate on."
        )
    return arrays.select(slice(cut)), arrays.select(slice(cut, None))


def size(batch_size: int | None) -> int:
    """Return the number of samples in a batch; None stands for 32."""
    return 32 if batch_size is None else at_least(batch_size, "batch_size", 1)


def at_least(value: int, name: str, minimum: int) -> int:
    """Return `value` as an int; TypeError if it is none, ValueError below `minimum`."""
    if isinstance(value, bool) or not hasattr(value, "__index__"):
        raise TypeError(f"`{name}` must be an integer. Received: {name}={value!r}")
    number = operator.index(value)
    if number < minimum:
        raise ValueError(
            f"`{name}` must be at least {minimum}. Received: {name}={value}"
        )
    return number
