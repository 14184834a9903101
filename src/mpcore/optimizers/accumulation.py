"""Gradient accumulation: the sum of the gradients of a window, kept in fp32 (f64)."""

from collections.abc import Sequence

import numpy as np

from mpcore.optimizers.gradients import scaled
from mpcore.variable import Variable


def add(
    accumulators: Sequence[Variable],
    gradients: Sequence[np.ndarray],
    factor: float,
) -> None:
    """Add factor * gradient to each accumulator."""
    for total, gradient in zip(accumulators, gradients, strict=True):
        total.assign_add(scaled(gradient, factor, total))


def mean(
    accumulators: Sequence[Variable],
    gradients: Sequence[np.ndarray],
    factor: float,
    steps: int,
) -> list[np.ndarray]:
    """Return (accumulator + factor * gradient) / steps as new arrays."""
    means = []
    with np.errstate(over="ignore", invalid="ignore"):
        for total, gradient in zip(accumulators, gradients, strict=True):
            current = scaled(gradient, factor, total)
            current += total.numpy()
            current /= current.dtype.type(steps)
            means.append(current)
    return means
