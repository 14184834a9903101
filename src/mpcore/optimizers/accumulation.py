"""Gradient accumulation: the sum of the gradients of a window, kept in fp32 (f64)."""

from collections.abc import Sequence

import numpy as np

from mpcore import ops
from mpcore.optimizers.gradients import with_normal_factors
from mpcore.variable import Variable


def add(
    accumulators: Sequence[Variable],
    gradients: Sequence[np.ndarray],
    factor: float,
) -> None:
    """Add factor * gradient to each accumulator, in one pass over all."""
    _add([total.stored for total in accumulators], gradients, factor, accumulators)


def mean(
    accumulators: Sequence[Variable],
    gradients: Sequence[np.ndarray],
    factor: float,
    steps: int,
) -> list[np.ndarray]:
    """Return (accumulator + factor * gradient) / steps as new arrays."""
    means = [total.numpy() for total in accumulators]
    _add(means, gradients, factor, accumulators)
    with np.errstate(over="ignore", invalid="ignore", under="ignore"):
        for current in means:
            current /= current.dtype.type(steps)
    return means


def _add(
    totals: list[np.ndarray],
    gradients: Sequence[np.ndarray],
    factor: float,
    accumulators: Sequence[Variable],
) -> None:
    """Add to arrays of the accumulators' dtypes."""
    factors = [factor] * len(totals)
    fitting, done = with_normal_factors(list(gradients), factors, accumulators)
    ops.accumulate(totals, fitting, done[0] if done else 1.0)
