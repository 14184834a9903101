"""The optimizers' formulas in extended precision, with a bound on fp32 arithmetic.

`Bounded` carries a value and how far arithmetic with unit roundoff u may be from it, by
running error analysis: an operation adds u * |result|, and the smallest normal number,
since a kernel may flush subnormals. So the formulas are at once the oracle and the
derivation of the tolerance.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
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

    def norm(self) -> tuple[Real, Real]:
        value = np.sqrt(np.sum(np.square(self.value)))
        return value, np.sqrt(np.sum(np.square(self.error)))


def double(value: Any) -> Bounded:
    return Bounded.exact(value, np.float64)


def double_power(base: float, exponent: int) -> Bounded:
    power = double(Real(base) ** exponent)
    return power.rounded(power.value, power.error)


Slots = dict[str, Bounded]


def sgd(
    w: Bounded, g: Bounded, slots: Slots, lr: Real, t: int, *, momentum=0.0,
    nesterov=False,
) -> Bounded:  # fmt: skip
    if not momentum:
        return w - g * lr
    v = slots["momentum"] = slots["momentum"] * momentum - g * lr
    return w + (v * momentum - g * lr) if nesterov else w + v


def adam(
    w: Bounded, g: Bounded, slots: Slots, lr: Real, t: int, *, beta_1=0.9,
    beta_2=0.999, epsilon=1e-7, amsgrad=False,
) -> Bounded:  # fmt: skip
    m, v = moments(g, slots, beta_1, beta_2)
    if amsgrad:
        v = slots["velocity_hat"] = slots["velocity_hat"].maximum(v)
    bias_1 = double(1) - double_power(beta_1, t)
    bias_2 = double(1) - double_power(beta_2, t)
    alpha = double(lr) * bias_2.sqrt() / bias_1
    return w - m * alpha / (v.sqrt() + epsilon)


def moments(
    g: Bounded, slots: Slots, beta_1: float, beta_2: float
) -> tuple[Bounded, Bounded]:
    m, v = slots["momentum"], slots["velocity"]
    slots["momentum"] = m + (g - m) * (1 - Real(beta_1))
    slots["velocity"] = v + (g * g - v) * (1 - Real(beta_2))
    return slots["momentum"], slots["velocity"]


def correction(beta: float, t: int) -> Bounded:
    return double(1) / (double(1) - double_power(beta, t))


def adamax(
    w: Bounded, g: Bounded, slots: Slots, lr: Real, t: int, *, beta_1=0.9,
    beta_2=0.999, epsilon=1e-7,
) -> Bounded:  # fmt: skip
    m, u = slots["momentum"], slots["norm"]
    m = slots["momentum"] = m + (g - m) * (1 - Real(beta_1))
    u = slots["norm"] = (u * beta_2).maximum(g.abs())
    return w - m * (double(lr) * correction(beta_1, t)) / (u + epsilon)


def nadam(
    w: Bounded, g: Bounded, slots: Slots, lr: Real, t: int, *, beta_1=0.9,
    beta_2=0.999, epsilon=1e-7,
) -> Bounded:  # fmt: skip
    def mu(step: int) -> Bounded:
        return (double(1) - double_power(0.96, step) * 0.5) * beta_1

    product = double(1)
    for step in range(1, t + 1):
        product = product * mu(step)
    m, v = moments(g, slots, beta_1, beta_2)
    ahead = m * (mu(t + 1) / (double(1) - product * mu(t + 1)))
    now = g * ((double(1) - mu(t)) / (double(1) - product))
    return w - (ahead + now) * lr / ((v * correction(beta_2, t)).sqrt() + epsilon)


def rmsprop(
    w: Bounded, g: Bounded, slots: Slots, lr: Real, t: int, *, rho=0.9, momentum=0.0,
    epsilon=1e-7, centered=False,
) -> Bounded:  # fmt: skip
    v = slots["velocity"] = slots["velocity"] * rho + g * g * (1 - Real(rho))
    if centered:
        a = slots["average_gradient"]
        a = slots["average_gradient"] = a * rho + g * (1 - Real(rho))
        v = v - a * a
    step = g * lr / (v + epsilon).sqrt()
    if momentum:
        step = slots["momentum"] = slots["momentum"] * momentum + step
    return w - step


def adagrad(
    w: Bounded, g: Bounded, slots: Slots, lr: Real, t: int, *, epsilon=1e-7,
    initial_accumulator_value=0.1,
) -> Bounded:  # fmt: skip
    n = slots["accumulator"] = slots["accumulator"] + g * g
    return w - g * lr / (n + epsilon).sqrt()


def adadelta(
    w: Bounded, g: Bounded, slots: Slots, lr: Real, t: int, *, rho=0.95, epsilon=1e-7,
) -> Bounded:  # fmt: skip
    s, d = slots["accumulated_grad"], slots["accumulated_delta_var"]
    s = slots["accumulated_grad"] = s * rho + g * g * (1 - Real(rho))
    x = (d + epsilon).sqrt() * g / (s + epsilon).sqrt()
    slots["accumulated_delta_var"] = d * rho + x * x * (1 - Real(rho))
    return w - x * lr


def ftrl(
    w: Bounded, g: Bounded, slots: Slots, lr: Real, t: int, *,
    learning_rate_power=-0.5, initial_accumulator_value=0.1,
    l1_regularization_strength=0.0, l2_regularization_strength=0.0,
    l2_shrinkage_regularization_strength=0.0, beta=0.0,
) -> Bounded:  # fmt: skip
    n, z, p = slots["accumulator"], slots["linear"], -learning_rate_power
    new = n + g * g
    per_rate = double(1) / double(lr)
    shrunk = g + w * (2 * Real(l2_shrinkage_regularization_strength))
    step = (new.power(p) - n.power(p)) * per_rate * w
    z = slots["linear"] = z + (shrunk - step)
    slots["accumulator"] = new
    l2 = double(2 * Real(l2_regularization_strength)) + per_rate * beta
    clipped = z.clip(l1_regularization_strength)
    return (clipped - z) / (new.power(p) * per_rate + l2)


def lion(
    w: Bounded, g: Bounded, slots: Slots, lr: Real, t: int, *, beta_1=0.9, beta_2=0.99,
) -> Bounded:  # fmt: skip
    m = slots["momentum"]
    slots["momentum"] = m * beta_2 + g * (1 - Real(beta_2))
    return w - (m * beta_1 + g * (1 - Real(beta_1))).sign() * lr


def lamb(
    w: Bounded, g: Bounded, slots: Slots, lr: Real, t: int, *, beta_1=0.9,
    beta_2=0.999, epsilon=1e-7,
) -> Bounded:  # fmt: skip
    m, v = moments(g, slots, beta_1, beta_2)
    root = (v * correction(beta_2, t)).sqrt()
    u = m * correction(beta_1, t) / (root + epsilon)
    (norm_w, error_w), (norm_u, error_u) = w.norm(), u.norm()
    ratio, error = Real(1), Real(0)
    if norm_w > 0 and norm_u > 0:
        assert norm_u > error_u
        ratio = norm_w / norm_u
        error = (error_w + ratio * error_u) / (norm_u - error_u)
        error = error + Real(2**-48) * ratio  # sums in double
    scalar = Bounded(lr * ratio, lr * error, np.dtype(np.float64))
    return w - u * scalar


def schedule_free_adamw(
    w: Bounded, g: Bounded, slots: Slots, lr: Real, t: int, *, beta_1=0.9,
    beta_2=0.999, epsilon=1e-8, warmup_steps=0,
) -> Bounded:  # fmt: skip
    z, v = slots["momentum"], slots["velocity"]
    v = slots["velocity"] = v + (g * g - v) * (1 - Real(beta_2))
    x = (w - z * (1 - Real(beta_1))) * (double(1) / double(beta_1))
    rate = lr * min(1, Real(t) / warmup_steps) if warmup_steps else lr
    root = (v * correction(beta_2, t)).sqrt()
    z = slots["momentum"] = z - g * rate / (root + epsilon)
    x = x * (1 - 1 / Real(t)) + z * (1 / Real(t))
    return z * (1 - Real(beta_1)) + x * beta_1


@dataclass
class Reference:
    """Unscale, accumulate, clip, decay, rule, average: in this order, per `apply`."""

    rule: Callable[..., Bounded]
    names: tuple[str, ...]
    weights: list[np.ndarray]
    hyper: dict[str, Any] = field(default_factory=dict)
    learning_rate: Any = 0.01
    weight_decay: float | None = None
    clipnorm: float | None = None
    clipvalue: float | None = None
    global_clipnorm: float | None = None
    use_ema: bool = False
    ema_momentum: float = 0.99
    ema_overwrite_frequency: int | None = None
    loss_scale_factor: float | None = None
    gradient_accumulation_steps: int | None = None
    # What slots start with that do not start with zeros: a number, or None for w.
    starts: dict[str, float | None] = field(default_factory=dict)
    calls: int = 0

    def __post_init__(self) -> None:
        self.dtypes = [w.dtype for w in self.weights]
        self.w = [Bounded.exact(w, arithmetic(w.dtype)) for w in self.weights]
        self.slots: list[Slots] = [
            {name: self.start(name, w) for name in self.names}
            for w in self.weights
        ]  # fmt: skip
        self.sums = [Bounded.exact(np.zeros_like(w.value), w.dtype) for w in self.w]
        self.averages = list(self.sums)

    def start(self, name: str, w: np.ndarray) -> Bounded:
        value = self.starts.get(name, 0.0)
        if value is None:
            return Bounded.exact(w, arithmetic(w.dtype))
        stored = np.full(w.shape, value, arithmetic(w.dtype))
        return Bounded.exact(stored, stored.dtype)

    def rate(self) -> Real:
        rate = self.learning_rate
        return Real(rate(self.calls) if callable(rate) else rate)

    def apply(self, grads: list[np.ndarray]) -> None:
        n = self.gradient_accumulation_steps or 1
        g = [
            Bounded.exact(x, arithmetic(d))
            for x, d in zip(grads, self.dtypes, strict=True)
        ]
        if self.loss_scale_factor:
            g = [x * (1 / Real(self.loss_scale_factor)) for x in g]
        if n > 1:
            g = [s + x for s, x in zip(self.sums, g, strict=True)]
        self.sums = g
        lr = self.rate()
        self.calls += 1
        if self.calls % n:
            return
        g = self.clipped([s * (1 / Real(n)) for s in self.sums] if n > 1 else g)
        self.sums = [Bounded.exact(np.zeros(x.value.shape), x.dtype) for x in g]
        t = self.calls // n
        for i, (w, x, slots) in enumerate(zip(self.w, g, self.slots, strict=True)):
            if self.weight_decay:
                w = w - w * (Real(self.weight_decay) * lr)
            w = self.rule(w, x, slots, lr, t, **self.hyper)
            self.w[i] = w.stored(self.dtypes[i])
        if self.use_ema:
            self.average(t)

    def clipped(self, g: list[Bounded]) -> list[Bounded]:
        if self.clipvalue:
            return [x.clip(self.clipvalue) for x in g]
        limit = self.clipnorm or self.global_clipnorm
        if not limit:
            return g
        norms = [x.norm() for x in g]
        if self.global_clipnorm:
            n, e = (np.sqrt(sum(v[i] ** 2 for v in norms)) for i in (0, 1))
            norms = [(n, e)] * len(g)
        return [
            self.by_norm(x, n, e, limit) for x, (n, e) in zip(g, norms, strict=True)
        ]

    @staticmethod
    def by_norm(x: Bounded, norm: Real, error: Real, limit: float) -> Bounded:
        factor = Real(limit) / np.maximum(norm, limit)
        scalar = Bounded.exact(factor, x.dtype)
        return x * scalar.rounded(factor, factor * error / np.maximum(norm, limit))

    def average(self, t: int) -> None:
        m = Real(self.ema_momentum if t > 1 else 0.0)
        pairs = zip(self.averages, self.w, strict=True)
        self.averages = [a * m + w * (1 - m) for a, w in pairs]
        if self.ema_overwrite_frequency and t % self.ema_overwrite_frequency == 0:
            pairs = zip(self.averages, self.dtypes, strict=True)
            self.w = [average.stored(dtype) for average, dtype in pairs]


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
