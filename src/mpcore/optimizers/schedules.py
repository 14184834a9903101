"""Learning-rate schedules: functions of the number of steps already taken.

All arithmetic is in double. Step s is the raw counter before it is increased: the
first update sees s = 0.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, fields
from itertools import pairwise
from typing import Any, Self, SupportsFloat

from mpcore.optimizers.arguments import flag, optional_real, real
from mpcore.serialization import register

__all__ = [
    "CosineDecay",
    "CosineDecayRestarts",
    "ExponentialDecay",
    "InverseTimeDecay",
    "LearningRateSchedule",
    "PiecewiseConstantDecay",
    "PolynomialDecay",
]


class LearningRateSchedule:
    """Base of schedules: define `__call__(step)` and `get_config()`."""

    def __call__(self, step: SupportsFloat) -> float:
        """Return the learning rate of step `step` (>= 0)."""
        raise NotImplementedError(
            f"Learning rate schedule '{type(self).__name__}' must override "
            "`__call__(self, step)`"
        )

    def get_config(self) -> dict[str, Any]:
        """Return the constructor's arguments."""
        raise NotImplementedError(
            f"Learning rate schedule '{type(self).__name__}' must override "
            "`get_config()` to be serializable"
        )

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> Self:
        """Make a schedule from what `get_config` returned."""
        return cls(**config)


@dataclass(eq=False)
class _Decay(LearningRateSchedule):
    """A schedule that starts from a rate; its fields are its arguments and config."""

    initial_learning_rate: float

    def __post_init__(self) -> None:
        """Check the arguments every decay has."""
        self.initial_learning_rate = real(
            "initial_learning_rate", self.initial_learning_rate
        )
        for name in ("decay_steps", "first_decay_steps"):
            if hasattr(self, name):
                real(name, getattr(self, name), "(0, inf)")
        for name in ("staircase", "cycle"):
            if hasattr(self, name):
                flag(name, getattr(self, name))

    def get_config(self) -> dict[str, Any]:
        """Return the constructor's arguments."""
        return {field.name: getattr(self, field.name) for field in fields(self)}


@dataclass(eq=False)
class _PeriodicDecay(_Decay):
    """A decay by the number of periods that have passed, whole ones if `staircase`."""

    decay_steps: float
    decay_rate: float
    staircase: bool = False

    def _periods(self, step: SupportsFloat) -> float:
        p = float(step) / self.decay_steps
        return math.floor(p) if self.staircase else p


@register("schedules")
@dataclass(eq=False)
class ExponentialDecay(_PeriodicDecay):
    """Multiplies the rate by `decay_rate` in every `decay_steps` steps.

    rate(s) = initial_learning_rate * decay_rate ** p, with p = s / decay_steps or, if
    `staircase`, the floor of it.

    Parameters
    ----------
    initial_learning_rate : float
    decay_steps : float, > 0
    decay_rate : float
    staircase : bool, default False
    name : str
    """

    name: str = "ExponentialDecay"

    def __call__(self, step: SupportsFloat) -> float:
        """Return the learning rate of step `step`."""
        p = self._periods(step)
        return self.initial_learning_rate * math.pow(self.decay_rate, p)


@register("schedules")
@dataclass(eq=False)
class InverseTimeDecay(_PeriodicDecay):
    """Divides the rate by a number that grows linearly.

    rate(s) = initial_learning_rate / (1 + decay_rate * p), with p = s / decay_steps or,
    if `staircase`, the floor of it.

    Parameters
    ----------
    initial_learning_rate : float
    decay_steps : float, > 0
    decay_rate : float
    staircase : bool, default False
    name : str
    """

    name: str = "InverseTimeDecay"

    def __call__(self, step: SupportsFloat) -> float:
        """Return the learning rate of step `step`."""
        p = self._periods(step)
        return self.initial_learning_rate / (1.0 + self.decay_rate * p)


@register("schedules")
@dataclass(eq=False)
class PolynomialDecay(_Decay):
    """Goes to `end_learning_rate` along a polynomial.

    rate(s) = (initial - end) * (1 - min(s, D) / D) ** power + end, with D = decay_steps
    or, if `cycle`, its smallest multiple that is >= s (and not 0).

    Parameters
    ----------
    initial_learning_rate : float
    decay_steps : float, > 0
    end_learning_rate : float, default 1e-4
    power : float, default 1
    cycle : bool, default False
    name : str
    """

    decay_steps: float
    end_learning_rate: float = 0.0001
    power: float = 1.0
    cycle: bool = False
    name: str = "PolynomialDecay"

    def __call__(self, step: SupportsFloat) -> float:
        """Return the learning rate of step `step`."""
        s, steps = float(step), float(self.decay_steps)
        if self.cycle:
            steps *= max(1, math.ceil(s / steps))
        left = 1.0 - min(s, steps) / steps
        span = self.initial_learning_rate - self.end_learning_rate
        return span * math.pow(left, self.power) + self.end_learning_rate


@register("schedules")
@dataclass(eq=False)
class CosineDecay(_Decay):
    """Goes down along half a cosine, after an optional linear warm-up.

    With x = min(s, D) / D and D = decay_steps:
    rate(s) = top * ((1 - alpha) * (1 + cos(pi * x)) / 2 + alpha), top the initial rate.
    With `warmup_target`, the first `warmup_steps` steps go linearly from the initial
    rate to the target, which then is the top; the decay starts after them.

    Parameters
    ----------
    initial_learning_rate : float
    decay_steps : float, > 0
        Steps of the decay, without the warm-up.
    alpha : float, default 0
        What is left at the end, as a fraction of the top.
    name : str
    warmup_target : float, optional
    warmup_steps : float, >= 0, default 0

    References
    ----------
    Loshchilov & Hutter, "SGDR: Stochastic Gradient Descent with Warm Restarts", eq. 5.
    """

    decay_steps: float
    alpha: float = 0.0
    name: str = "CosineDecay"
    warmup_target: float | None = None
    warmup_steps: float = 0

    def __post_init__(self) -> None:
        """Check the arguments."""
        super().__post_init__()
        optional_real("warmup_target", self.warmup_target)
        real("warmup_steps", self.warmup_steps, "[0, inf)")

    def __call__(self, step: SupportsFloat) -> float:
        """Return the learning rate of step `step`."""
        s, top = float(step), self.initial_learning_rate
        if self.warmup_target is not None:
            if s < self.warmup_steps:
                return (self.warmup_target - top) * s / self.warmup_steps + top
            s, top = s - self.warmup_steps, self.warmup_target
        x = min(s, self.decay_steps) / self.decay_steps
        cosine = 0.5 * (1.0 + math.cos(math.pi * x))
        return top * ((1.0 - self.alpha) * cosine + self.alpha)


@register("schedules")
@dataclass(eq=False)
class CosineDecayRestarts(_Decay):
    """Repeats a cosine decay, each time longer and from a lower start.

    Period i is first_decay_steps * t_mul ** i steps long and starts from
    initial_learning_rate * m_mul ** i. With x the fraction of the period that is over:
    rate(s) = initial * ((1 - alpha) * m_mul ** i * (1 + cos(pi * x)) / 2 + alpha).

    Parameters
    ----------
    initial_learning_rate : float
    first_decay_steps : float, > 0
    t_mul : float, >= 1, default 2
    m_mul : float, default 1
    alpha : float, default 0
    name : str

    References
    ----------
    Loshchilov & Hutter, "SGDR: Stochastic Gradient Descent with Warm Restarts", sec. 3.
    """

    first_decay_steps: float
    t_mul: float = 2.0
    m_mul: float = 1.0
    alpha: float = 0.0
    name: str = "SGDRDecay"

    def __post_init__(self) -> None:
        """Check the arguments."""
        super().__post_init__()
        real("t_mul", self.t_mul, "[1, inf)")

    def _start(self, period: int) -> float:
        """Return the start of a period, in lengths of the first one."""
        if self.t_mul == 1.0:
            return float(period)
        return (math.pow(self.t_mul, period) - 1.0) / (self.t_mul - 1.0)

    def __call__(self, step: SupportsFloat) -> float:
        """Return the learning rate of step `step`."""
        x = float(step) / self.first_decay_steps
        if self.t_mul == 1.0:
            period = math.floor(x)
        else:
            period = math.floor(
                math.log1p(x * (self.t_mul - 1.0)) / math.log(self.t_mul)
            )
            # The logarithm may fall on the wrong side of an exact restart.
            if x >= self._start(period + 1):
                period += 1
            elif x < self._start(period):
                period -= 1
        x = (x - self._start(period)) / math.pow(self.t_mul, period)
        cosine = 0.5 * math.pow(self.m_mul, period) * (1.0 + math.cos(math.pi * x))
        return self.initial_learning_rate * ((1.0 - self.alpha) * cosine + self.alpha)


@register("schedules")
class PiecewiseConstantDecay(LearningRateSchedule):
    """Takes one value up to and including each boundary, the last value beyond.

    Parameters
    ----------
    boundaries : sequence of n numbers, increasing
    values : sequence of n + 1 floats
        values[i] holds for boundaries[i - 1] < s <= boundaries[i].
    name : str

    Raises
    ------
    ValueError
        If the lengths do not fit or the boundaries do not increase.
    """

    def __init__(
        self,
        boundaries: Sequence[float],
        values: Sequence[float],
        name: str = "PiecewiseConstant",
    ) -> None:
        if len(values) != len(boundaries) + 1:
            raise ValueError(
                "The length of `boundaries` must be 1 less than the length of "
                f"`values`. Received: boundaries={boundaries}, values={values}"
            )
        for boundary in boundaries:
            real("boundaries", boundary)
        if any(b <= a for a, b in pairwise(boundaries)):
            raise ValueError(
                f"`boundaries` must increase. Received: boundaries={boundaries}"
            )
        self.boundaries = list(boundaries)
        self.values = [real("values", value) for value in values]
        self.name = name

    def __call__(self, step: SupportsFloat) -> float:
        """Return the learning rate of step `step`."""
        return self.values[sum(float(step) > b for b in self.boundaries)]

    def get_config(self) -> dict[str, Any]:
        """Return the constructor's arguments."""
        return {
            "boundaries": list(self.boundaries),
            "values": list(self.values),
            "name": self.name,
        }
