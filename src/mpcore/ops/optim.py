"""Optimizer updates over any number of tensors at once.

A low-level interface: the classes in `mpcore.optimizers` prepare what it takes.
"""

import math
from collections.abc import Sequence
from typing import Any, TypeGuard

import numpy as np

from mpcore._core import optim as kernel
from mpcore.ops.arrays import contiguous

# The integers of the core, and the largest of each; its own errors name no argument.
_INTEGERS = {"step": 2**63 - 1, "warmup_steps": 2**63 - 1, "seed": 2**64 - 1}


def optim_step(
    optimizer: str,
    params: Sequence[np.ndarray],
    grads: Sequence[np.ndarray],
    copies: Sequence[np.ndarray | None],
    states: Sequence[tuple[np.ndarray, ...]],
    grad_multipliers: Sequence[float] | float = 1.0,
    weight_decays: Sequence[float] | float = 0.0,
    *,
    learning_rate: float,
    clipvalue: float = 0.0,
    remainders: Sequence[np.ndarray | None] | None = None,
    indices: Sequence[int] | None = None,
    **scalars: float,
) -> None:
    """Update parameters by the rule of an optimizer, in place.

    For each element: g = clip(grad * multiplier), w -= w * decay * lr, and then the
    rule; the class of the optimizer says which.

    Parameters
    ----------
    optimizer : str
        "sgd", "adam", "adamax", "nadam", "rmsprop", "adagrad", "adadelta", "ftrl",
        "lion", "lamb", or "schedule_free_adamw".
    params : sequence of ndarray
        w: float32, float16, bfloat16, or float64; contiguous, writable.
    grads : sequence of ndarray
        Of the shapes of `params`; float32, float16, or bfloat16 (float64 for float64).
    copies : sequence of ndarray or None
        float16 or bfloat16 copies of the parameters, written in the same pass.
    states : sequence of tuples of ndarray
        The slots of each parameter in the order of the rule: float32, or bfloat16,
        which is rounded stochastically; float64 for float64 parameters.
    grad_multipliers, weight_decays : float or sequence of float
        One for all tensors, or one each.
    learning_rate : float
    clipvalue : float
        Bound of |g|; 0: none.
    remainders : sequence of ndarray or None, optional
        bfloat16, for bfloat16 parameters: what rounding them has left over.
    indices : sequence of int, optional
        What tells the random numbers of one tensor from those of another; default:
        0, 1, ...
    **scalars
        What the rule reads: `step` (1 for the first update), `beta_1`, `beta_2`,
        `epsilon`, `momentum`, `nesterov`, `amsgrad`, `rho`, `centered`,
        `learning_rate_power`, `l1`, `l2`, `l2_shrinkage`, `beta`, `momentum_product`,
        `warmup_steps`; `stochastic` and `seed` for the rounding of 16-bit parameters.

    Raises
    ------
    TypeError, ValueError
        If an argument is not valid. Nothing has been written then.

    Notes
    -----
    Arithmetic is float32 (float64 for float64) with one rounding at the end. Infinite
    and NaN gradients are not looked for. That parameters, copies, states, and
    remainders of different parameters share no memory is up to the caller.
    """
    _require_finite(learning_rate=learning_rate, clipvalue=clipvalue)
    for name in _INTEGERS.keys() & scalars.keys():
        if not 0 <= scalars[name] <= _INTEGERS[name]:
            raise ValueError(
                f"`{name}` must be in [0, {_INTEGERS[name]}]. "
                f"Received: {name}={scalars[name]}"
            )
    fitting = _checked(params, grads, copies, states)
    fitting_step(
        optimizer,
        params,
        fitting,
        copies,
        states,
        _factors("grad_multipliers", grad_multipliers, len(fitting)),
        _factors("weight_decays", weight_decays, len(fitting)),
        remainders,
        indices,
        learning_rate=learning_rate,
        clipvalue=clipvalue,
        **scalars,  # type: ignore[arg-type]
    )


# `optim_step` for arrays whose shapes fit, contiguous and in native byte order, and
# lists of finite factors: without a second look at each of them.
fitting_step = kernel.step


def can_read(
    grads: list[object], params: list[np.ndarray]
) -> TypeGuard[list[np.ndarray]]:
    """Tell whether `fitting_step` can read all gradients as they are.

    They are writable float32 arrays then, of the shapes of their parameters.
    """
    return kernel.can_read(grads, params)


def sgd_step(
    *tensors: Any, learning_rate: float, momentum: float = 0.0, **rest: Any
) -> None:
    """Update parameters by stochastic gradient descent, in place; see `optim_step`.

    `states` holds () for each parameter, or (velocity,) with momentum.
    """
    rest |= {"learning_rate": learning_rate, "momentum": momentum}
    optim_step("sgd", *tensors, **rest)


def adam_step(
    *tensors: Any,
    learning_rate: float,
    beta_1: float = 0.9,
    beta_2: float = 0.999,
    epsilon: float = 1e-7,
    step: int,
    **rest: Any,
) -> None:
    """Update parameters by Adam, in place; see `optim_step`.

    `states` holds (m, v) for each parameter, or (m, v, largest v) with amsgrad.
    """
    rest |= {"beta_1": beta_1, "beta_2": beta_2, "epsilon": epsilon}
    optim_step("adam", *tensors, learning_rate=learning_rate, step=step, **rest)


def _require_finite(**scalars: float) -> None:
    for name, value in scalars.items():
        if not math.isfinite(value):
            raise ValueError(f"`{name}` must be finite. Received: {name}={value}")


def _factors(
    name: str, factors: Sequence[float] | float, count: int
) -> list[float] | float:
    """Return one finite factor, or one for each tensor."""
    if not isinstance(factors, Sequence):
        _require_finite(**{name: factors})
        return float(factors)
    if len(factors) != count:
        raise ValueError(
            f"`{name}` must hold one number for each of {count} tensors. Received: "
            f"{len(factors)}"
        )
    # A sum of finite numbers may overflow; one with another number never is finite.
    if not math.isfinite(sum(factors)):
        for factor in factors:
            _require_finite(**{name: factor})
    return [float(factor) for factor in factors]


def _checked(
    params: Sequence[np.ndarray],
    grads: Sequence[np.ndarray],
    copies: Sequence[np.ndarray | None],
    states: Sequence[tuple[np.ndarray, ...]],
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
        shape = param.shape
        for other in (grad, *state) if copy is None else (grad, copy, *state):
            if other.shape != shape:
                raise ValueError(
                    "A gradient, a copy, and a state must have the shape of their "
                    f"parameter. Received: {other.shape} for shape {shape}"
                )
        fitting.append(contiguous(grad))
    return fitting
