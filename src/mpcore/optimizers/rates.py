"""The learning rate in its three forms: a number, a schedule, a callable."""

import math
from collections.abc import Callable
from typing import Any, SupportsFloat

from mpcore.optimizers.arguments import is_real, real
from mpcore.optimizers.schedules import LearningRateSchedule
from mpcore.variable import Variable

LearningRate = SupportsFloat | LearningRateSchedule | Callable[[], Any]
Stored = Variable | LearningRateSchedule | Callable[[], Any]


def checked(
    value: Any, interval: str
) -> float | LearningRateSchedule | Callable[[], Any]:
    """Return a learning rate as a float, or as the schedule or callable it is.

    Raises
    ------
    ValueError
        If it is none of these, or a number that is not in the interval.
    """
    if is_real(value):
        return real("learning_rate", value, interval)
    if isinstance(value, LearningRateSchedule) or callable(value):
        return value  # type: ignore[no-any-return]
    raise ValueError(
        "`learning_rate` must be a real number, a LearningRateSchedule, or a callable "
        f"without arguments. Received: learning_rate={value!r}"
    )


def current(rate: Stored, iterations: Variable) -> Any:
    """Return the Variable, or what a schedule or callable says at this point."""
    if isinstance(rate, Variable):
        return rate
    if isinstance(rate, LearningRateSchedule):
        return rate(int(iterations))
    return rate()


def finite(rate: SupportsFloat) -> float:
    """Return the rate of a step as a float after checking that it is finite."""
    number = float(rate)
    if not math.isfinite(number):
        raise ValueError(f"The learning rate must be finite. Received: {number}")
    return number
