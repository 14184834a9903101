"""Gradients of which most rows are zero."""

from typing import Any, Self

import numpy as np


class SparseGradient:
    """What a backward function may return for an array; `IndexedSlices` is one.

    It reaches a source as it is if nothing else does, or others of its kind; on the way
    through another op, or where a dense gradient is added, it becomes dense.
    """

    shape: tuple[int, ...]
    values: Any

    def to_dense(self) -> np.ndarray:
        """Return the array it stands for, in float32 (float64 for float64 values)."""
        raise NotImplementedError

    def joined(self, other: Self) -> Self:
        """Return the sum of two for the same array."""
        raise NotImplementedError
