"""Losses: scalars to minimise, evaluated in float32 whatever the compute dtype."""

from typing import Any

from mpcore import serialization
from mpcore.losses.crossentropy import (
    BinaryCrossentropy,
    CategoricalCrossentropy,
    SparseCategoricalCrossentropy,
)
from mpcore.losses.loss import FunctionLoss, Loss
from mpcore.losses.regression import MeanAbsoluteError, MeanSquaredError

__all__ = [
    "BinaryCrossentropy",
    "CategoricalCrossentropy",
    "Loss",
    "MeanAbsoluteError",
    "MeanSquaredError",
    "SparseCategoricalCrossentropy",
    "get",
]


def get(identifier: object) -> Loss:
    """Return the loss that a name, config, Loss, its class or function stands for.

    Raises
    ------
    ValueError
        For an unknown name.
    TypeError
        For anything else.
    """
    made: Any = identifier
    if isinstance(made, str):
        made = serialization.lookup("losses", made)
    elif isinstance(made, dict):
        made = serialization.deserialize(made, kind="losses")
    if isinstance(made, type) and issubclass(made, Loss):
        made = made()
    if isinstance(made, Loss):
        return made
    if callable(made) and not isinstance(made, type):
        return FunctionLoss(made)
    raise TypeError(
        "`loss` must be a name, a config, a Loss or a function. "
        f"Received: loss={identifier!r}"
    )
