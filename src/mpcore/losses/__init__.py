"""Losses: scalars to minimise, evaluated in float32 whatever the compute dtype."""

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
    """Return the loss that a name, config, Loss or function stands for.

    Raises
    ------
    ValueError
        For an unknown name.
    TypeError
        For anything else.
    """
    if isinstance(identifier, Loss):
        return identifier
    if isinstance(identifier, str):
        loss: Loss = serialization.lookup("losses", identifier)()
        return loss
    if isinstance(identifier, dict):
        return get(serialization.deserialize(identifier, kind="losses"))
    if callable(identifier):
        return FunctionLoss(identifier)
    raise TypeError(
        "`loss` must be a name, a config, a Loss or a function. "
        f"Received: loss={identifier!r}"
    )
