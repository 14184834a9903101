"""Optimizer updates over any number of tensors at once.

A low-level interface: the classes in `mpcore.optimizers` prepare what it takes.
"""

import math
from collections.abc import Sequence

import numpy as np

from mpcore._core import optim as kernel
from mpcore.ops.arrays import contiguous


def sgd_step(
    params: Sequence[np.ndarray],
    grads: Sequence[np.ndarray],
    copies: Sequence[np.ndarray | None],
    states: Sequence[tuple[np.ndarray, ...]],
    grad_multipliers: Sequence[float] | float = 1.0,
    weight_decays: Sequence[float] | float = 0.0,
    *,
    learning_rate: float,
    momentum: float = 0.0,
    nesterov: bool = False,
    clipvalue: float = 0.0,
) -> None:
    """Update parameters by stochastic gradient descent, in place.

    For each element: g = clip(grad * multiplier), w -= w * decay * lr, and then
    w -= lr * g; or with momentum v = momentum * v - lr * g and w += v (nesterov:
    w += momentum * v - lr * g).

    Parameters
    ----------
    params : sequence of ndarray
        w: float32, float16, bfloat16, or float64; contiguous, writable.
    grads : sequence of ndarray
        Of the shapes of `params`; float32, float16, or bfloat16 (float64 for float64).
    copies : sequence of ndarray or None
        float16 or bfloat16 copies of the parameters, written in the same pass.
    states : sequence of tuples of ndarray
        (v,) with momentum, else (): float32, or float64 for float64 parameters.
    grad_multipliers, weight_decays : float or sequence of float
        One for all tensors, or one each.
    learning_rate : float
    momentum : float in [0, 1]
    nesterov : bool
    clipvalue : float
        Bound of |g|; 0: none.

    Raises
    ------
    TypeError, ValueError
        If an argument is not valid. Nothing has been written then.

    Notes
    -----
    Arithmetic is float32 (float64 for float64) with one rounding at the end. Infinite
    and NaN gradients are not looked for.
    """
    _require_finite(learning_rate=learning_rate, clipvalue=clipvalue)
    if not 0 <= momentum <= 1:
        raise ValueError(f"`momentum` must be in [0, 1]. Received: momentum={momentum}")
    _require_not_negative(clipvalue=clipvalue)
    fitting = _checked(params, grads, copies, states, 1 if momentum else 0)
    kernel.sgd_step(
        list(params),
        fitting,
        list(copies),
        list(states),
        _factors("grad_multipliers", grad_multipliers, len(fitting)),
        _factors("weight_decays", weight_decays, len(fitting)),
        float(learning_rate),
        float(momentum),
        bool(nesterov),
        float(clipvalue),
    )


def adam_step(
    params: Sequence[np.ndarray],
    grads: Sequence[np.ndarray],
    copies: Sequence[np.ndarray | None],
    states: Sequence[tuple[np.ndarray, ...]],
    grad_multipliers: Sequence[float] | float = 1.0,
    weight_decays: Sequence[float] | float = 0.0,
    *,
    learning_rate: float,
    beta_1: float = 0.9,
    beta_2: float = 0.999,
    epsilon: float = 1e-7,
    step: int,
    amsgrad: bool = False,
    clipvalue: float = 0.0,
) -> None:
    """Update parameters by Adam, in place.

    For each element: g = clip(grad * multiplier), w -= w * decay * lr, and then
    m += (g - m)(1 - beta_1), v += (g^2 - v)(1 - beta_2),
    w -= alpha * m / (sqrt(v) + epsilon) with
    alpha = lr * sqrt(1 - beta_2^step) / (1 - beta_1^step). With amsgrad the largest v
    so far takes the place of v in the last line.

    Parameters
    ----------
    params, grads, copies, grad_multipliers, weight_decays
        As for `sgd_step`.
    states : sequence of tuples of ndarray
        (m, v), or (m, v, largest v) with amsgrad.
    learning_rate : float
    beta_1, beta_2 : float in [0, 1)
    epsilon : float, >= 0
    step : int, >= 1
        t; 1 for the first update.
    amsgrad : bool
    clipvalue : float
        Bound of |g|; 0: none.

    Raises
    ------
    TypeError, ValueError
        If an argument is not valid. Nothing has been written then.

    References
    ----------
    D. P. Kingma and J. Ba, "Adam: a method for stochastic optimization", 2015: the
    "epsilon hat" form, before section 2.1. S. J. Reddi et al., "On the convergence of
    Adam and beyond", 2018, for amsgrad.
    """
    _require_finite(learning_rate=learning_rate, epsilon=epsilon, clipvalue=clipvalue)
    for name, beta in (("beta_1", beta_1), ("beta_2", beta_2)):
        if not 0 <= beta < 1:
            raise ValueError(f"`{name}` must be in [0, 1). Received: {name}={beta}")
    _require_not_negative(epsilon=epsilon, clipvalue=clipvalue)
    if step < 1:
        raise ValueError(f"`step` must be >= 1. Received: step={step}")
    fitting = _checked(params, grads, copies, states, 3 if amsgrad else 2)
    kernel.adam_step(
        list(params),
        fitting,
        list(copies),
        list(states),
        _factors("grad_multipliers", grad_multipliers, len(fitting)),
        _factors("weight_decays", weight_decays, len(fitting)),
        float(learning_rate),
        float(beta_1),
        float(beta_2),
        float(epsilon),
        int(step),
        bool(amsgrad),
        float(clipvalue),
    )


def _require_finite(**scalars: float) -> None:
    for name, value in scalars.items():
        if not math.isfinite(value):
            raise ValueError(f"`{name}` must be finite. Received: {name}={value}")


def _require_not_negative(**scalars: float) -> None:
    for name, value in scalars.items():
        if value < 0:
            raise ValueError(f"`{name}` must be >= 0. Received: {name}={value}")


def _factors(
    name: str, factors: Sequence[float] | float, count: int
) -> list[float] | float:
    """Return one finite factor, or one for each tensor."""
    if isinstance(factors, Sequence):
        if len(factors) != count:
            raise ValueError(
                f"`{name}` must hold one number for each of {count} tensors. Received: "
                f"{len(factors)}"
            )
        values = [float(factor) for factor in factors]
        for value in values:
            _require_finite(**{name: value})
        return values
    _require_finite(**{name: factors})
    return float(factors)


def _checked(
    params: Sequence[np.ndarray],
    grads: Sequence[np.ndarray],
    copies: Sequence[np.ndarray | None],
    states: Sequence[tuple[np.ndarray, ...]],
    slots: int,
) -> list[np.ndarray]:
    """Return the gradients in C order, after a look at what belongs together."""
    lengths = {len(params), len(grads), len(copies), len(states)}
    if len(lengths) != 1:
        raise ValueError(
            "`params`, `grads`, `copies`, and `states` must be equally long. Received: "
            f"lengths {len(params)}, {len(grads)}, {len(copies)}, {len(states)}"
        )
    fitting = []
    for param, grad, copy, state in zip(params, grads, copies, states, strict=True):
        if len(state) != slots:
            raise ValueError(
                f"Each entry of `states` must hold {slots} arrays. Received: "
                f"{len(state)}"
            )
        others = [grad, *state] if copy is None else [grad, copy, *state]
        for other in others:
            if other.shape != param.shape:
                raise ValueError(
                    "A gradient, a copy, and a state must have the shape of their "
                    f"parameter. Received: {other.shape} for shape {param.shape}"
                )
        fitting.append(contiguous(grad))
    return fitting
