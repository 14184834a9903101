"""Numbers in extended precision with a bound on what fp32 arithmetic makes of them.

`Bounded` carries a value and how far arithmetic with unit roundoff u may be from it, by
running error analysis: an operation adds u * |result|, and the smallest normal number,
since a kernel may flush subnormals. So a formula written with such numbers is at once
the oracle and the derivation of the tolerance.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import ml_dtypes
import numpy as np

Real = np.longdouble


def unit(dtype: Any) -> float:
    """Largest relative error of one rounding to `dtype`."""
    return float(ml_dtypes.finfo(np.dtype(dtype)).eps) / 2


def smallest(dtype: Any) -> float:
    return float(ml_dtypes.finfo(np.dtype(dtype)).smallest_normal)


def arithmetic(dtype: Any) -> np.dtype:
    """What the update of a variable of `dtype` is computed in."""
    return np.dtype(np.float64 if np.dtype(dtype) == np.float64 else np.float32)


@dataclass
class Bounded:
    value: np.ndarray
    error: np.ndarray
    dtype: np.dtype

    @classmethod
    def exact(cls, value: Any, dtype: Any) -> Bounded:
        value = np.asarray(value).astype(Real)
        return cls(value, np.zeros_like(value), np.dtype(dtype))

    def rounded(self, value: Any, error: Any, dtype: Any = None) -> Bounded:
        """The result of an operation that also rounds."""
        dtype = np.dtype(dtype or self.dtype)
        reach = np.abs(value) + error
        error = error + Real(unit(dtype)) * reach + Real(smallest(dtype))
        return Bounded(value, error, self.dtype)

    def other(self, other: Any) -> Bounded:
        if isinstance(other, Bounded) and other.dtype == self.dtype:
            return other
        # A scalar, known in double and rounded once to the arithmetic's dtype.
        scalar = other if isinstance(other, Bounded) else double(other)
        return Bounded(scalar.value, scalar.error, self.dtype).rounded(
            scalar.value, scalar.error
        )

    def __add__(self, other: Any) -> Bounded:
        b = self.other(other)
        return self.rounded(self.value + b.value, self.error + b.error)

    def __sub__(self, other: Any) -> Bounded:
        b = self.other(other)
        return self.rounded(self.value - b.value, self.error + b.error)

    def __mul__(self, other: Any) -> Bounded:
        b = self.other(other)
        error = (
            np.abs(self.value) * b.error
            + np.abs(b.value) * self.error
            + self.error * b.error
        )
        return self.rounded(self.value * b.value, error)

    def __truediv__(self, other: Any) -> Bounded:
        b = self.other(other)
        least = np.abs(b.value) - b.error
        assert np.all(least > 0)
        value = self.value / b.value
        return self.rounded(value, (self.error + np.abs(value) * b.error) / least)

    __radd__, __rmul__ = __add__, __mul__

    def sqrt(self) -> Bounded:
        value = np.sqrt(self.value)
        below = np.sqrt(np.maximum(self.value - self.error, 0))
        above = np.sqrt(self.value + self.error)
        return self.rounded(value, np.maximum(value - below, above - value))

    def maximum(self, other: Bounded) -> Bounded:
        error = np.maximum(self.error, other.error)
        return Bounded(np.maximum(self.value, other.value), error, self.dtype)

    def clip(self, limit: float) -> Bounded:
        reach = self.error + Real(unit(self.dtype) * limit)
        return Bounded(np.clip(self.value, -limit, limit), reach, self.dtype)

    def stored(self, dtype: Any) -> Bounded:
        """The value after it was rounded to `dtype` to be kept there."""
        if np.dtype(dtype) == self.dtype:
            return self
        return self.rounded(self.value, self.error, dtype)

    def abs(self) -> Bounded:
        return Bounded(np.abs(self.value), self.error, self.dtype)

    def sign(self) -> Bounded:
        unsure = (np.abs(self.value) <= self.error) & (self.error > 0)
        error = np.where(unsure, 1 + np.abs(np.sign(self.value)), 0)
        return Bounded(np.sign(self.value), error.astype(Real), self.dtype)

    def power(self, exponent: float) -> Bounded:  # of x >= 0
        value = self.value ** Real(exponent)
        below = np.maximum(self.value - self.error, 0) ** Real(exponent)
        above = (self.value + self.error) ** Real(exponent)
        error = np.maximum(value - below, above - value)
        return self.rounded(value, error + Real(2**-50) * value)

    def __getitem__(self, index: Any) -> Bounded:
        return Bounded(self.value[index], self.error[index], self.dtype)

    def transposed(self) -> Bounded:
        return Bounded(self.value.T, self.error.T, self.dtype)

    def mean(self, axis: int) -> Bounded:  # summed in double
        count = Real(max(self.value.shape[axis], 1))
        value = self.value.sum(axis=axis) / count
        reach = np.abs(self.value).sum(axis=axis) / count
        error = self.error.sum(axis=axis) / count + count * Real(2**-53) * reach
        return self.rounded(value, error)

    def __matmul__(self, other: Bounded) -> Bounded:
        """A product whose sums, in any order, round once per term."""
        a, b = np.abs(self.value), np.abs(other.value)
        terms = self.value.shape[1]
        rounding = terms * Real(unit(self.dtype)) / (1 - terms * Real(2**-24))
        error = (a + self.error) @ (b + other.error) * (1 + rounding) - a @ b
        error = error + terms * Real(smallest(self.dtype))
        return Bounded(self.value @ other.value, error, self.dtype)

    def norm(self) -> tuple[Real, Real]:
        value = np.sqrt(np.sum(np.square(self.value)))
        return value, np.sqrt(np.sum(np.square(self.error)))


def double(value: Any) -> Bounded:
    return Bounded.exact(value, np.float64)


def double_power(base: float, exponent: int) -> Bounded:
    power = double(Real(base) ** exponent)
    return power.rounded(power.value, power.error)


def assert_within(actual: np.ndarray, expected: Bounded, what: str) -> None:
    """Compare with the bound; shows the worst element."""
    off = np.abs(actual.astype(Real) - expected.value)
    bad = ~(off <= expected.error)
    if bad.any():
        i = np.unravel_index(np.argmax(off / expected.error), off.shape)
        raise AssertionError(
            f"{what}{list(map(int, i))}: {actual[i]} is {float(off[i]):.3g} from "
            f"{float(expected.value[i])}, allowed {float(expected.error[i]):.3g}"
        )
