"""Penalties on Variables, with the names and defaults of Keras.

A regularizer is a callable that maps a Variable to a scalar Tensor or array, which is
added to the loss. It sees the value in the stored dtype.
"""

import math
from collections.abc import Mapping
from typing import Any, Self

import numpy as np

from mpcore import ops, serialization
from mpcore.serialization import register
from mpcore.tape import Tensor

__all__ = ["L1", "L1L2", "L2", "Regularizer", "deserialize", "get", "serialize"]

_KIND = "regularizers"


class Regularizer:
    """Base of regularizers: subclasses define `__call__` and `get_config`."""

    def __call__(self, x: Any) -> np.ndarray | Tensor:
        """Return the penalty on a Variable, a scalar."""
        raise NotImplementedError("A Regularizer must define `__call__(self, x)`.")

    def get_config(self) -> dict[str, Any]:
        """Return the constructor's arguments."""
        raise NotImplementedError(f"{type(self).__name__} must define `get_config`.")

    @classmethod
    def from_config(cls, config: Mapping[str, Any]) -> Self:
        """Make a regularizer from what `get_config` returned."""
        return cls(**config)


def _factor(name: str, value: float) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float | np.number):
        raise TypeError(f"`{name}` must be a number. Received: {name}={value!r}")
    if not (value >= 0 and math.isfinite(value)):
        raise ValueError(f"`{name}` must be finite and >= 0. Received: {name}={value}")
    return float(value)


@register(_KIND, "l1_l2")
class L1L2(Regularizer):
    """The penalty l1 * sum(|x|) + l2 * sum(x^2).

    Parameters
    ----------
    l1, l2 : float, >= 0, default 0
    """

    def __init__(self, l1: float = 0.0, l2: float = 0.0) -> None:
        self.l1 = _factor("l1", 0.0 if l1 is None else l1)
        self.l2 = _factor("l2", 0.0 if l2 is None else l2)

    def __call__(self, x: Any) -> np.ndarray | Tensor:
        """Return the penalty, a scalar."""
        return _penalty(x, self.l1, self.l2)

    def get_config(self) -> dict[str, Any]:
        """Return the constructor's arguments."""
        return {"l1": self.l1, "l2": self.l2}


@register(_KIND)
class L1(Regularizer):
    """The penalty l1 * sum(|x|)."""

    def __init__(self, l1: float = 0.01) -> None:
        self.l1 = _factor("l1", 0.01 if l1 is None else l1)

    def __call__(self, x: Any) -> np.ndarray | Tensor:
        """Return the penalty, a scalar."""
        return _penalty(x, self.l1, 0.0)

    def get_config(self) -> dict[str, Any]:
        """Return the constructor's arguments."""
        return {"l1": self.l1}


@register(_KIND)
class L2(Regularizer):
    """The penalty l2 * sum(x^2)."""

    def __init__(self, l2: float = 0.01) -> None:
        self.l2 = _factor("l2", 0.01 if l2 is None else l2)

    def __call__(self, x: Any) -> np.ndarray | Tensor:
        """Return the penalty, a scalar."""
        return _penalty(x, 0.0, self.l2)

    def get_config(self) -> dict[str, Any]:
        """Return the constructor's arguments."""
        return {"l2": self.l2}


def _penalty(x: Any, l1: float, l2: float) -> np.ndarray | Tensor:
    total: Any = None
    if l1:
        total = ops.multiply(ops.sum(ops.abs(x)), l1)
    if l2:
        squares = ops.multiply(ops.sum(ops.square(x)), l2)
        total = squares if total is None else ops.add(total, squares)
    return np.zeros((), np.float32) if total is None else total


def get(identifier: Any) -> Any:
    """Return a regularizer.

    Parameters
    ----------
    identifier : str, dict, callable, class, or None
        A name such as "l2", a serialized regularizer, a callable, or a subclass of
        Regularizer. None gives None.

    Raises
    ------
    ValueError
        If it is none of these, or unknown.
    """
    return serialization.resolve(_KIND, identifier, Regularizer)


def serialize(regularizer: Any) -> Any:
    """Return a regularizer as a dict."""
    return serialization.serialize(regularizer)


def deserialize(config: Any, custom_objects: Mapping[str, Any] | None = None) -> Any:
    """Make a regularizer from what `serialize` returned."""
    return serialization.deserialize(config, custom_objects, _KIND)
