"""Optimizers, their base, and learning-rate schedules."""

from collections.abc import Mapping
from typing import Any

from mpcore import serialization
from mpcore.optimizers import schedules
from mpcore.optimizers.adadelta import Adadelta
from mpcore.optimizers.adafactor import Adafactor
from mpcore.optimizers.adagrad import Adagrad
from mpcore.optimizers.adam import Adam
from mpcore.optimizers.adamax import Adamax
from mpcore.optimizers.adamw import AdamW
from mpcore.optimizers.ftrl import Ftrl
from mpcore.optimizers.lamb import Lamb
from mpcore.optimizers.lion import Lion
from mpcore.optimizers.muon import Muon
from mpcore.optimizers.nadam import Nadam
from mpcore.optimizers.optimizer import Optimizer
from mpcore.optimizers.rmsprop import RMSprop
from mpcore.optimizers.schedule_free_adamw import ScheduleFreeAdamW
from mpcore.optimizers.sgd import SGD

__all__ = [
    "SGD",
    "Adadelta",
    "Adafactor",
    "Adagrad",
    "Adam",
    "AdamW",
    "Adamax",
    "Ftrl",
    "Lamb",
    "Lion",
    "Muon",
    "Nadam",
    "Optimizer",
    "RMSprop",
    "ScheduleFreeAdamW",
    "deserialize",
    "get",
    "schedules",
    "serialize",
]


def serialize(optimizer: Optimizer) -> dict[str, Any]:
    """Return class name and configuration of an optimizer, without its state."""
    config: dict[str, Any] = serialization.serialize(optimizer)
    return config


def deserialize(
    config: Mapping[str, Any], custom_objects: Mapping[str, Any] | None = None
) -> Optimizer:
    """Make an optimizer from what `serialize` returned.

    Parameters
    ----------
    config : mapping
        With "class_name" (case does not count) and "config"; left as it is.
    custom_objects : mapping from names to classes, optional

    Raises
    ------
    ValueError
        If the class is unknown or no optimizer.
    """
    made = serialization.deserialize(config, custom_objects, kind="optimizers")
    if not isinstance(made, Optimizer):
        raise ValueError(f"Not the configuration of an optimizer. Received: {config!r}")
    return made


def get(identifier: Any) -> Optimizer | None:
    """Return an optimizer given as such, by name, or by configuration.

    Parameters
    ----------
    identifier : Optimizer, str, mapping, or None
        A name is that of a class, in any case: "adamw". None gives None.

    Raises
    ------
    ValueError
        If it is none of these, or unknown.
    """
    if identifier is None or isinstance(identifier, Optimizer):
        return identifier
    if isinstance(identifier, Mapping):
        return deserialize(identifier)
    if isinstance(identifier, str):
        made: Optimizer = serialization.lookup("optimizers", identifier)()
        return made
    raise ValueError(f"Could not interpret optimizer identifier: {identifier!r}")
