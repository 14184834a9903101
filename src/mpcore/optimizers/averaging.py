"""Exponential moving average of the weights, kept in fp32 (f64 for f64 variables)."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from mpcore import autocast, ops
from mpcore.variable import Variable


def move(
    averages: Sequence[Variable],
    variables: Sequence[Variable],
    momentum: float,
) -> None:
    """Set each average to momentum * average + (1 - momentum) * variable.

    One pass over all of them; momentum 0 copies the variables.
    """
    with autocast.scope(None):
        weights = [variable.value for variable in variables]
    ops.lerp([average.stored for average in averages], weights, momentum)


def overwrite(averages: Sequence[Variable], variables: Sequence[Variable]) -> None:
    """Set each variable to its average, rounded once to the variable's dtype."""
    for average, variable in zip(averages, variables, strict=True):
        if not variable.overwrite_with_gradient:
            variable.assign(average)


@contextmanager
def swapped(
    averages: Sequence[Variable], variables: Sequence[Variable]
) -> Iterator[None]:
    """Let variables hold their averages inside the context, and restore them."""
    saved = [variable.numpy() for variable in variables]
    try:
        overwrite(averages, variables)
        yield
    finally:
        for variable, value in zip(variables, saved, strict=True):
            variable.assign(value)
