"""gelu and silu: values and derivatives against float64, bits, limits."""

from __future__ import annotations

import numpy as np
import pytest
import reference
from reference import BF16, F16, F32, F64, KERNEL_DTYPES, assert_same_bits

import mpcore
from mpcore import GradientTape, ops

DTYPES = pytest.mark.parametrize("dtype", KERNEL_DTYPES, ids=lambda d: d.name)
NAMES = pytest.mark.parametrize("name", ["gelu", "gelu_tanh", "silu"])
LEVELS = mpcore.available_isas()


def inputs(dtype: np.dtype) -> np.ndarray:
    """Return all finite halves, or float32 numbers of every magnitude."""
    if dtype != F32:
        x = reference.all_halves(dtype)
        return x[np.isfinite(x.astype(F32))]
    generator = np.random.default_rng(1)
    near = generator.uniform(-15, 15, 20000)
    scale = 2.0 ** generator.integers(-140, 100, 20000)
    wide = generator.standard_normal(20000) * scale
    return np.concatenate([near, wide]).astype(F32)


def steepness(name: str, x: np.ndarray) -> np.ndarray:
    """Return how much a relative error of what stands in e^... is magnified."""
    if name == "gelu":
        return np.ones_like(x)  # the exponent is kept in two parts
    z = np.minimum(np.abs(x), 32)
    return 1 + (z if name == "silu" else 1.6 * (z + 0.044715 * z**3))


@DTYPES
@NAMES
def test_gated_activation_is_within_float32_accuracy(
    isa: str, dtype: np.dtype, name: str
) -> None:
    x = inputs(dtype)
    y = ops.activation(x, name)
    exact = reference.activation(name, x)
    # A dozen roundings, those of the exponent magnified; e^x below 2^-126 counts as 0.
    error = 12 * 2.0**-24 * steepness(name, x.astype(F64)) * np.abs(exact)
    error += np.minimum(np.abs(x.astype(F64)), 128) * 2.0**-125 + reference.TINIEST[F32]
    if dtype != F32:
        error += 2.0 ** -reference.PRECISION[dtype] * (np.abs(exact) + error)
        error += reference.TINIEST[dtype] / 2
    assert y.dtype == dtype
    assert (np.abs(y.astype(F64) - exact) <= error).all()


@DTYPES
@NAMES
def test_gated_activation_gradient_is_within_float32_accuracy(
    isa: str, dtype: np.dtype, name: str
) -> None:
    x = inputs(dtype)
    dy = np.random.default_rng(2).standard_normal(x.shape).astype(dtype)
    with GradientTape() as tape:
        source = tape.watch(x)
        y = ops.activation(source, name)
    dx = tape.gradient(y, source, output_gradients=dy)
    slope = reference.gated_derivative(name, np.clip(x.astype(F64), -40, 40))
    # The sum of two terms may cancel: the bound is on their magnitudes, at most 1.2,
    # and what is in the exponent falls off faster than its error grows.
    exact = dy.astype(F64) * slope
    error = np.abs(dy.astype(F64)) * 2.0**-19
    error += reference.TINIEST[dtype]
    if dtype != F32:
        error += 2.0 ** -reference.PRECISION[dtype] * (np.abs(exact) + error)
    assert (np.abs(dx.astype(F64) - exact) <= error).all()


@NAMES
def test_gated_activation_takes_its_limits_and_keeps_nan(isa: str, name: str) -> None:
    x = np.array([np.inf, -np.inf, np.nan, 0.0, -0.0, 3e38, -3e38, 2.0**-140], F32)
    with GradientTape() as tape:
        source = tape.watch(x)
        y = ops.activation(source, name)
    expected = np.array([np.inf, -0.0, np.nan, 0, -0.0, 3e38, -0.0, 2.0**-141], F32)
    assert np.array_equal(y.value, expected, equal_nan=True)
    assert np.signbit(y.value[[1, 4, 6]]).all()
    dx = tape.gradient(y, source)
    slopes = np.array([1, 0, np.nan, 0.5, 0.5, 1, 0, 0.5], F32)
    assert np.array_equal(dx, slopes, equal_nan=True)


@DTYPES
@NAMES
def test_gated_activation_same_bits_on_every_level(dtype: np.dtype, name: str) -> None:
    x = inputs(dtype)
    results = []
    for level in LEVELS:
        mpcore.set_isa(level)
        with GradientTape() as tape:
            source = tape.watch(x)
            y = ops.activation(source, name)
        results.append((y.value, tape.gradient(y, source)))
    for value, gradient in results[1:]:
        assert_same_bits(value, results[0][0])
        assert_same_bits(gradient, results[0][1])


def test_gelu_approximate_is_the_tanh_form() -> None:
    x = inputs(BF16)
    assert_same_bits(ops.gelu(x, approximate=True), ops.activation(x, "gelu_tanh"))
    assert_same_bits(ops.gelu(x), ops.activation(x, "gelu"))
    assert_same_bits(ops.silu(x), ops.activation(x, "silu"))
    assert (ops.gelu(x) != ops.gelu(x, approximate=True)).any()


@NAMES
def test_dense_gated_derivative_is_taken_at_the_rounded_argument(name: str) -> None:
    x, w = reference.operands(9, 17, 11, F16, seed=3)
    with GradientTape() as tape:
        bias = tape.watch(np.full(11, 0.25, F32))
        y = ops.dense(x, w, bias, name)
    z = (mpcore.matmul(x, w, out_dtype="float32") + F32.type(0.25)).astype(F16)
    db = tape.gradient(y, bias)
    slope = reference.gated_derivative(name, z)
    assert (np.abs(db - slope.sum(0)) <= 9 * 2.0**-19).all()
