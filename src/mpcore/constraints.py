"""Projections of Variables after an update, with the names and defaults of Keras.

A constraint maps an array to one of the same shape; halves are computed in float32.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Self

import numpy as np

from mpcore import serialization
from mpcore.ops.cast import to_dtype
from mpcore.ops.elementwise import checked, widened, work_dtype
from mpcore.serialization import register

__all__ = [
    "Constraint",
    "MaxNorm",
    "MinMaxNorm",
    "NonNeg",
    "UnitNorm",
    "deserialize",
    "get",
    "serialize",
]

_KIND = "constraints"
Axis = int | Sequence[int]

# Keeps a division by the norm of zeros finite; Keras' value.
_EPSILON = 1e-7


class Constraint:
    """Base of constraints: subclasses define `project`, and `get_config`."""

    def __call__(self, w: Any) -> np.ndarray:
        """Return the constrained value, of the dtype of `w`."""
        array = checked(w)
        wide = self.project(widened(array, work_dtype(array.dtype)))
        return to_dtype(wide, array.dtype)

    def project(self, w: np.ndarray) -> np.ndarray:
        """Return the constrained value of a float32 or float64 array."""
        raise NotImplementedError(f"{type(self).__name__} must define `project`.")

    def get_config(self) -> dict[str, Any]:
        """Return the constructor's arguments."""
        return {}

    @classmethod
    def from_config(cls, config: Mapping[str, Any]) -> Self:
        """Make a constraint from what `get_config` returned."""
        return cls(**config)


def _axes(axis: Axis) -> int | tuple[int, ...]:
    return axis if isinstance(axis, int) else tuple(axis)


def _norms(w: np.ndarray, axis: Axis) -> np.ndarray:
    norms: np.ndarray = np.sqrt(np.sum(np.square(w), _axes(axis), keepdims=True))
    return norms


def _scaled(w: np.ndarray, wanted: Any, norms: np.ndarray) -> np.ndarray:
    """Return slices of these norms scaled to the wanted ones."""
    scaled: np.ndarray = w * (wanted / (norms + w.dtype.type(_EPSILON)))
    return scaled


@register(_KIND)
class NonNeg(Constraint):
    """Sets negative elements to 0."""

    def project(self, w: np.ndarray) -> np.ndarray:
        """Return the constrained value."""
        return np.where(w < 0, w.dtype.type(0), w)


@register(_KIND)
class MaxNorm(Constraint):
    """Scales slices down to a norm of at most `max_value`.

    Parameters
    ----------
    max_value : float, >= 0, default 2
    axis : int or sequence of int, default 0
        The axes a norm runs over; 0: the weights into each unit of a Dense layer.
    """

    def __init__(self, max_value: float = 2.0, axis: Axis = 0) -> None:
        if not max_value >= 0:
            raise ValueError(
                f"`max_value` must be >= 0. Received: max_value={max_value}"
            )
        self.max_value, self.axis = max_value, axis

    def project(self, w: np.ndarray) -> np.ndarray:
        """Return the constrained value."""
        norms = _norms(w, self.axis)
        wanted = np.clip(norms, 0, w.dtype.type(self.max_value))
        return _scaled(w, wanted, norms)

    def get_config(self) -> dict[str, Any]:
        """Return the constructor's arguments."""
        return {"max_value": self.max_value, "axis": self.axis}


@register(_KIND)
class UnitNorm(Constraint):
    """Scales slices to a norm of 1.

    Parameters
    ----------
    axis : int or sequence of int, default 0
        The axes a norm runs over.
    """

    def __init__(self, axis: Axis = 0) -> None:
        self.axis = axis

    def project(self, w: np.ndarray) -> np.ndarray:
        """Return the constrained value."""
        return _scaled(w, w.dtype.type(1), _norms(w, self.axis))

    def get_config(self) -> dict[str, Any]:
        """Return the constructor's arguments."""
        return {"axis": self.axis}


@register(_KIND)
class MinMaxNorm(Constraint):
    """Moves the norms of slices into a range.

    Parameters
    ----------
    min_value, max_value : float, 0 <= min_value <= max_value, default 0 and 1
    rate : float in [0, 1], default 1
        How much of the way a norm is moved in one step.
    axis : int or sequence of int, default 0
        The axes a norm runs over.
    """

    def __init__(
        self,
        min_value: float = 0.0,
        max_value: float = 1.0,
        rate: float = 1.0,
        axis: Axis = 0,
    ) -> None:
        if not 0 <= min_value <= max_value:
            raise ValueError(
                "`min_value` and `max_value` must satisfy 0 <= min_value <= max_value. "
                f"Received: min_value={min_value}, max_value={max_value}"
            )
        if not 0 <= rate <= 1:
            raise ValueError(f"`rate` must be in [0, 1]. Received: rate={rate}")
        self.min_value, self.max_value = min_value, max_value
        self.rate, self.axis = rate, axis

    def project(self, w: np.ndarray) -> np.ndarray:
        """Return the constrained value."""
        one = w.dtype.type
        norms = _norms(w, self.axis)
        inside = np.clip(norms, one(self.min_value), one(self.max_value))
        wanted = one(self.rate) * inside + one(1 - self.rate) * norms
        return _scaled(w, wanted, norms)

    def get_config(self) -> dict[str, Any]:
        """Return the constructor's arguments."""
        return {
            "min_value": self.min_value,
            "max_value": self.max_value,
            "rate": self.rate,
            "axis": self.axis,
        }


def get(identifier: Any) -> Any:
    """Return a constraint.

    Parameters
    ----------
    identifier : str, dict, callable, class, or None
        A name such as "max_norm", a serialized constraint, a callable, or a subclass of
        Constraint. None gives None.

    Raises
    ------
    ValueError
        If it is none of these, or unknown.
    """
    return serialization.resolve(_KIND, identifier, Constraint)


def serialize(constraint: Any) -> Any:
    """Return a constraint as a dict."""
    return serialization.serialize(constraint)


def deserialize(config: Any, custom_objects: Mapping[str, Any] | None = None) -> Any:
    """Make a constraint from what `serialize` returned."""
    return serialization.deserialize(config, custom_objects, _KIND)
