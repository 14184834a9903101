"""Float64 formulas of normalisation, and error bounds of kernels in fp32."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from reference import F32, F64, PRECISION, TINIEST, gamma


def half_ulp(values: np.ndarray, dtype: np.dtype) -> np.ndarray:
    """Return a bound of the error of rounding to a dtype."""
    return 2.0 ** -PRECISION[dtype] * np.abs(values) + TINIEST[dtype] / 2


def assert_within(
    actual: np.ndarray, expected: np.ndarray, error: np.ndarray, dtype: np.dtype
) -> None:
    """Fail unless actual is expected, up to an error and the rounding to its dtype."""
    assert actual.dtype == dtype
    assert actual.shape == expected.shape
    bound = error + half_ulp(np.abs(expected) + error, dtype)
    far = np.abs(actual.astype(F64) - expected) - bound
    assert (far <= 0).all(), f"{far.max()} beyond the bound"


class Normalized(NamedTuple):
    """What normalisation makes of an array, and the size errors are measured by."""

    h: np.ndarray  # normalized, before gamma and beta
    rstd: np.ndarray
    size: np.ndarray  # an fp32 rounding of h costs at most u times this


def normalized(
    x: np.ndarray, axis: int, epsilon: float, center: bool = True
) -> Normalized:
    """Normalize along an axis in float64."""
    x = x.astype(F64)
    mean = x.mean(axis, keepdims=True) if center else np.zeros(())
    variance = np.square(x - mean).mean(axis, keepdims=True)
    rstd = 1 / np.sqrt(variance + epsilon)
    h = (x - mean) * rstd
    return Normalized(h, rstd, np.abs(h) + 1 + rstd * np.abs(mean))


def norm_error(of: Normalized, scale: np.ndarray, terms: float) -> np.ndarray:
    """Return the error bound of h * scale + beta, up to its own last rounding."""
    return gamma(terms + 16) * np.abs(scale) * of.size


class NormGradients(NamedTuple):
    """Gradients and their error bounds, before the rounding to the result's dtype."""

    dx: np.ndarray
    dx_error: np.ndarray
    dscale: np.ndarray
    dscale_error: np.ndarray
    doffset: np.ndarray
    doffset_error: np.ndarray


def norm_gradients(
    of: Normalized,
    scale: np.ndarray,
    dy: np.ndarray,
    axis: int,
    center: bool = True,
    constant: bool = False,
) -> NormGradients:
    """Differentiate sum(dy * (h scale + offset)); parameters vary along the other axis.

    `axis` is what the statistics are taken over; `scale` broadcasts to x.
    """
    dy = dy.astype(F64)
    g = dy * scale
    dx, size = g, np.abs(g)
    if not constant:
        slope = (g * of.h).mean(axis, keepdims=True)
        spread = (np.abs(g) * of.size).mean(axis, keepdims=True)
        dx, size = dx - of.h * slope, size + of.size * spread
        if center:
            dx = dx - g.mean(axis, keepdims=True)
            size = size + np.abs(g).mean(axis, keepdims=True)
    terms = of.h.shape[axis] / 64 + 96
    over = 0  # parameters are summed over the rows
    return NormGradients(
        dx * of.rstd,
        gamma(terms) * size * of.rstd,
        (dy * of.h).sum(over),
        gamma(terms) * (np.abs(dy) * of.size).sum(over),
        dy.sum(over),
        gamma(terms) * np.abs(dy).sum(over),
    )


def as_parameters(cols: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Return a gamma and a beta."""
    generator = np.random.default_rng(seed)
    scale, offset = generator.standard_normal((2, cols))
    return (scale + 1.5).astype(F32), offset.astype(F32)
