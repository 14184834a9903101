"""Norm clipping as a factor per gradient: no gradient is written."""

import math
import sys
from collections.abc import Sequence

import numpy as np

from mpcore import ops
from mpcore.variable import Variable


def _is_on(limit: float | None) -> bool:
    """Tell whether a clipping limit clips: None, 0 and less do not."""
    return limit is not None and limit > 0


def norm_limit(clipnorm: float | None, global_clipnorm: float | None) -> float | None:
    """Return the limit in force, that of each gradient first; None: no limit."""
    return next(filter(_is_on, (clipnorm, global_clipnorm)), None)


def value_limit(clipvalue: float | None) -> float:
    """Return what the kernels take: the limit of each element, or 0 for none."""
    return clipvalue if clipvalue is not None and clipvalue > 0 else 0.0


def _check_finite(values: list[float], variables: Sequence[Variable]) -> None:
    """Raise for the first norm that is not finite."""
    for value, variable in zip(values, variables, strict=True):
        if not math.isfinite(value):
            raise FloatingPointError(
                f"The gradient of variable '{variable.path}' must be finite to be "
                f"clipped by norm. Received a norm of {value}; nothing was updated. "
                "`LossScaleOptimizer` skips such steps"
            )


def check_finite(gradients: list[np.ndarray], variables: Sequence[Variable]) -> None:
    """Raise FloatingPointError, naming the variable, if a gradient is not finite."""
    if not ops.all_finite(gradients):
        _check_finite(ops.norms(gradients).tolist(), variables)


def _to_norm(
    gradient: np.ndarray, norm: float, limit: float
) -> tuple[np.ndarray, float]:
    """Return a gradient and the factor that gives it the norm `limit` instead."""
    # limit / norm, not factor * (limit / (factor * norm)): one rounding, no underflow.
    factor = limit / norm
    if factor < sys.float_info.min and gradient.dtype == np.float64:
        # It has lost digits, and the kernels take it for 0; its two parts have not.
        return gradient / norm, limit
    return gradient, factor


def by_norm(
    gradients: list[np.ndarray],
    variables: Sequence[Variable],
    factor: float,
    clipnorm: float | None,
    global_clipnorm: float | None,
) -> tuple[list[np.ndarray], list[float]]:
    """Return gradients, each with the factor that unscales it and clips it by norm.

    With c the limit and n the norm of factor * g (of one gradient for `clipnorm`, of
    all for `global_clipnorm`), their product is g * factor * c / max(n, c).

    Raises
    ------
    FloatingPointError
        If a norm is not finite, naming the variable.
    """
    limit = norm_limit(clipnorm, global_clipnorm)
    if limit is None:
        return gradients, [factor] * len(gradients)
    each: list[float] = ops.norms(gradients).tolist()
    _check_finite(each, variables)
    if not _is_on(clipnorm):
        each = [math.hypot(*each)] * len(gradients)
        _check_finite(each, variables)
    clipped = [
        (gradient, factor)
        if norm * factor <= limit
        else _to_norm(gradient, norm, limit)
        for gradient, norm in zip(gradients, each, strict=True)
    ]
    return [g for g, _ in clipped], [f for _, f in clipped]
