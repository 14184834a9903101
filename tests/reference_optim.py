"""The optimizers' formulas, with a bound on what fp32 arithmetic makes of them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from bounded import Bounded, Real, arithmetic, double, double_power

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


def adafactor(
    w: Bounded, g: Bounded, slots: Slots, lr: Real, t: int, *, beta_2_decay=-0.8,
    epsilon_1=1e-30, epsilon_2=1e-3, clip_threshold=1.0, relative_step=True,
) -> Bounded:  # fmt: skip
    kept = 1 - Real(t) ** Real(beta_2_decay)

    def moved(name: str, value: Bounded) -> Bounded:
        # At t = 1 nothing is kept of what slots start with.
        old = slots[name] * kept + value * (1 - kept) if t > 1 else value
        slots[name] = old
        return old

    squares = g * g + epsilon_1
    if g.value.ndim < 2:
        v = moved("velocity", squares)
        # v >= (1 - kept) * g**2, however little is known of a g that is nearly 0.
        u = divided(g, v.sqrt(), 1.01 / np.sqrt(1 - kept))
    else:
        rows = moved("rows", squares.mean(-1))
        columns = moved("columns", squares.mean(-2))
        shares = rows / rows.mean(-1)[..., None]
        v = slots["velocity"] = shares[..., :, None] * columns[..., None, :]
        u = g / v.sqrt()
    size = double(Real(min(lr, 1 / np.sqrt(Real(t))))) * rms(w).maximum(
        double(epsilon_2)
    )
    size = size / (rms(u) / double(clip_threshold)).maximum(double(1))
    return w - u * size


def divided(x: Bounded, y: Bounded, largest: Real) -> Bounded:
    """x / y, where y > 0 and |x / y| is at most `largest` whatever the errors."""
    sure = y.value > 2 * y.error
    one = np.ones_like(y.value)
    divisor = np.where(sure, y.value, one), np.where(sure, y.error, 0 * one)
    ratio = x / Bounded(*divisor, y.dtype)
    value = np.where(sure, ratio.value, 0)
    return Bounded(value, np.where(sure, ratio.error, largest), x.dtype)


def rms(x: Bounded) -> Bounded:
    """The root of the mean square, of sums in double."""
    value, error = (part / np.sqrt(Real(max(x.value.size, 1))) for part in x.norm())
    rounding = x.value.size * Real(2**-53) * value
    return Bounded(np.asarray(value), np.asarray(error + rounding), np.dtype(float))


def muon(
    w: Bounded, g: Bounded, slots: Slots, lr: Real, t: int, *, adam_beta_1=0.9,
    adam_beta_2=0.999, epsilon=1e-7, adam_lr_ratio=1.0, adam_weight_decay=0.004,
    momentum=0.95, nesterov=True, rms_rate=0.2, **iteration,
) -> Bounded:  # fmt: skip
    if g.value.ndim != 2:
        betas = {"beta_1": adam_beta_1, "beta_2": adam_beta_2}
        return adam(w, g, slots, lr * Real(adam_lr_ratio), t, epsilon=epsilon, **betas)
    m = slots["momentum"] = slots["momentum"] * momentum + g
    x = g + m * momentum if nesterov else m
    size = Real(1)
    if rms_rate is not None:
        size = Real(rms_rate) * np.sqrt(Real(max(g.value.shape)))
    return w - orthogonal(x, **iteration) * (lr * size)


def orthogonal(
    x: Bounded, *, muon_a=3.4445, muon_b=-4.775, muon_c=2.0315, ns_steps=5
) -> Bounded:
    """Newton-Schulz iterations with a bound in the Frobenius norm.

    An iteration maps each singular value s to p(s) = a s + b s^3 + c s^5. With e the
    distance of what it is given from the exact x, it returns what is off by at most
    D e + max|p''| e^2 / sqrt(2), D being the largest divided difference of p between
    singular values of x, taken with both signs and, unless x is square, with 0 (of the
    symmetric matrix made of 0, x, x.T, 0, whose eigenvalues these are). To that its own
    rounding is added, from the running analysis.
    """
    if x.value.shape[0] > x.value.shape[1]:
        wide = {"muon_a": muon_a, "muon_b": muon_b, "muon_c": muon_c}
        return orthogonal(x.transposed(), **wide, ns_steps=ns_steps).transposed()
    norm, error = x.norm()
    length = Bounded(np.asarray(norm), np.asarray(error), np.dtype(float)) + 1e-7
    x = x * (double(1) / length)
    off = frobenius(x.error)
    for _ in range(ns_steps):
        slope, bend = derivatives(x.value.astype(float), off, muon_a, muon_b, muon_c)
        # What rounding adds, to an operand that may itself be off by so much.
        assert off <= 0.05 * frobenius(x.value)
        x = Bounded(x.value, np.zeros_like(x.value), x.dtype)
        gram = x @ x.transposed()
        x = x * muon_a + (gram * muon_b + (gram @ gram) * muon_c) @ x
        off = slope * off + bend * off**2 + frobenius(x.error) * 1.05**5
    # No element is further off than the matrix.
    return Bounded(x.value, np.full(x.value.shape, Real(off)), x.dtype)


def derivatives(
    x: np.ndarray, off: float, a: float, b: float, c: float
) -> tuple[float, float]:
    """D and max|p''| / sqrt(2) of `orthogonal`."""
    s = np.linalg.svd(x)[1]
    s = np.concatenate([s, -s, [0.0] * (x.shape[0] != x.shape[1])])
    p = a * s + b * s**3 + c * s**5
    tangent = a + 3 * b * s**2 + 5 * c * s**4
    with np.errstate(invalid="ignore", divide="ignore"):
        quotient = (p[:, None] - p) / (s[:, None] - s)
    near = np.abs(s[:, None] - s) < 1e-6
    slopes = np.where(near, tangent, quotient)
    slopes[np.ix_(s == 0, s == 0)] = 0  # both vectors lie on the longer side of x
    radius = np.max(np.abs(s), initial=0) + off
    bend = 6 * abs(b) * radius + 20 * abs(c) * radius**3
    return float(np.max(np.abs(slopes), initial=0)) * 1.001, bend / np.sqrt(2)


def frobenius(x: np.ndarray) -> float:
    return float(np.linalg.norm(x.astype(float)))


@dataclass
class Reference:
    """Unscale, accumulate, clip, decay, rule, average: in this order, per `apply`."""

    rule: Callable[..., Bounded]
    names: tuple[str, ...]
    weights: list[np.ndarray]
    hyper: dict[str, Any] = field(default_factory=dict)
    learning_rate: Any = 0.01
    weight_decay: float | None = None
    # Of what is no matrix, if that has one of its own.
    other_decay: float | None = None
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
            decay = self.weight_decay
            if w.value.ndim != 2 and self.other_decay is not None:
                decay = self.other_decay
            if decay:
                w = w - w * (Real(decay) * lr)
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
