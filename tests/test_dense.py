"""dense: the fused epilogue, its backward, and what it takes."""

from __future__ import annotations

import numpy as np
import pytest
import reference
from reference import F16, F32, F64, KERNEL_DTYPES, assert_same_bits, operands

import mpcore
from mpcore import GradientTape, Variable, autocast, ops

DTYPES = pytest.mark.parametrize("dtype", KERNEL_DTYPES, ids=lambda d: d.name)
LEVELS = mpcore.available_isas()


def random(shape: tuple[int, ...], dtype: np.dtype, seed: int) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape).astype(dtype)


@DTYPES
@pytest.mark.parametrize("name", [None, "linear", "relu", "sigmoid", "tanh"])
@pytest.mark.parametrize("with_bias", [False, True], ids=["no_bias", "bias"])
def test_dense_applies_bias_and_activation_before_the_one_rounding(
    isa: str, dtype: np.dtype, name: str | None, with_bias: bool
) -> None:
    x, w = operands(19, 33, 21, dtype, seed=14)
    bias = random((21,), F32, 15) if with_bias else None
    y = ops.dense(x, w, bias, name)
    z = mpcore.matmul(x, w, out_dtype="float32")
    if bias is not None:
        z = z + bias
    expected = reference.activation(name or "linear", z)
    # The kernel's activations are good to a few float32 units in the last place.
    error = 2.0**-20 * np.abs(expected) + 2.0**-120
    if dtype != F32:
        error += 2.0 ** -reference.PRECISION[dtype] * np.abs(expected)
        error += reference.TINIEST[dtype] / 2
    assert (np.abs(y.astype(F64) - expected) <= error).all()
    if name in (None, "linear", "relu"):
        assert_same_bits(y, expected.astype(F32).astype(dtype))


def test_dense_relu_keeps_nan(isa: str) -> None:
    x = np.array([[np.nan], [-1.0], [2.0]], F32)
    y = ops.dense(x, np.ones((1, 1), F32), None, "relu")
    assert np.isnan(y[0, 0])
    assert y[1:].tolist() == [[0], [2]]


@DTYPES
@pytest.mark.parametrize("name", [None, "relu", "sigmoid", "tanh"])
def test_dense_gradients_are_within_derived_bounds(
    isa: str, dtype: np.dtype, name: str | None
) -> None:
    x, w = operands(9, 17, 11, dtype, seed=16)
    kernel, bias = Variable(w.astype(F32)), Variable(random((11,), F32, 17))
    dy = random((9, 11), dtype, 18)
    with autocast.scope(dtype.name), GradientTape() as tape:
        source = tape.watch(x)
        y = ops.dense(source, kernel, bias, name)
    dx, dw, db = tape.gradient(y, [source, kernel, bias], output_gradients=dy)
    assert (dx.dtype, dw.dtype, db.dtype) == (dtype, F32, F32)
    slope = reference.activation_derivative(name or "linear", y.value)
    exact = dy.astype(F64) * slope
    # y (1 - y) and 1 - y * y: a few float32 roundings of numbers of at most 1.
    wide = np.abs(dy.astype(F64)) * 2.0**-21
    half = 0.0 if dtype == F32 else 2.0 ** -reference.PRECISION[dtype]
    dz_error = wide + half * (np.abs(exact) + wide) + reference.TINIEST[dtype]
    magnitude = np.abs(exact) + dz_error
    x64, w64 = np.abs(x.astype(F64)), np.abs(w.astype(F64))
    g = reference.gamma(100)
    assert (np.abs(db - exact.sum(0)) <= wide.sum(0) + g * magnitude.sum(0)).all()
    assert (
        np.abs(dw - x.astype(F64).T @ exact)
        <= x64.T @ dz_error + g * (x64.T @ magnitude)
    ).all()
    dx_exact = exact @ w.astype(F64).T
    bound = dz_error @ w64.T + g * (magnitude @ w64.T)
    bound += half * (np.abs(dx_exact) + bound) + reference.TINIEST[dtype]
    assert (np.abs(dx.astype(F64) - dx_exact) <= bound).all()


@DTYPES
def test_dense_backward_same_bits_on_every_level(dtype: np.dtype) -> None:
    x, w = operands(33, 40, 21, dtype, seed=19)
    results = []
    for level in LEVELS:
        mpcore.set_isa(level)
        with GradientTape() as tape:
            sources = [tape.watch(x), tape.watch(w), tape.watch(np.ones(21, F32))]
            y = ops.dense(*sources, "tanh")
        results.append([y.value, *tape.gradient(y, sources)])
    for result in results[1:]:
        for array, first in zip(result, results[0], strict=True):
            assert_same_bits(array, first)


def test_dense_casts_kernel_and_reads_bias_unrounded_under_autocast() -> None:
    kernel, bias = Variable([[1 + 2.0**-12]]), Variable([2.0**-12])
    x = np.ones((1, 1), F16)
    with autocast.scope("float16"):
        y = ops.dense(x, kernel, bias)
    # 1 + 2^-12 rounds to 1; the bias does not come back through float16.
    assert_same_bits(y, np.ones((1, 1), F16))
    bias.assign([1 + 2.0**-11 + 2.0**-13])
    with autocast.scope("float16"):
        y = ops.dense(x, kernel, bias)
    assert y.item() == 2.0
    assert ops.dense(x, kernel, [2.0**-10 + 2.0**-12]).item() == 1 + 2.0**-10


@pytest.mark.parametrize("shape", [(5,), (2, 3, 5), (0, 5), (2, 0, 5)], ids=str)
def test_dense_leading_axes_are_kept(shape: tuple[int, ...]) -> None:
    x = np.ones(shape, F32)
    kernel = Variable(np.ones((5, 2), F32))
    with GradientTape() as tape:
        source = tape.watch(x)
        y = ops.dense(source, kernel, np.zeros(2, F32))
    assert y.shape == (*shape[:-1], 2)
    dx, dw = tape.gradient(y, [source, kernel])
    assert dx.shape == shape
    assert_same_bits(dw, np.full((5, 2), np.prod(shape[:-1]), F32))


def test_dense_reads_transposed_and_strided_gradients() -> None:
    x, w = operands(4, 3, 5, F32, seed=20)
    kernel = Variable(w)
    with GradientTape() as tape:
        y = ops.transpose(ops.dense(x, kernel))
        total = ops.sum(y * np.arange(4, dtype=F32))
    dw = tape.gradient(total, kernel)
    expected = np.repeat((np.arange(4) @ x.astype(F64))[:, None], 5, 1)
    assert np.allclose(dw, expected, rtol=1e-6)


@pytest.mark.parametrize(
    ("x", "w", "b", "activation", "error"),
    [
        (np.ones((2, 3)), np.ones((3, 2)), None, None, TypeError),
        (np.ones((2, 3), F32), np.ones((2, 3), F32), None, None, ValueError),
        (np.ones((2, 3), F32), np.ones((3, 2), F32), np.ones(3), None, ValueError),
        (np.ones((2, 3), F32), np.ones((3, 2), F32), None, "softplus", ValueError),
        (np.ones((2, 3), F32), np.ones((3, 2), F32), None, 1, TypeError),
    ],
    ids=["float64", "shape", "bias", "activation", "activation_type"],
)
def test_dense_arguments_that_do_not_fit_raise(
    x: np.ndarray, w: np.ndarray, b: object, activation: object, error: type
) -> None:
    with pytest.raises(error):
        ops.dense(x, w, b, activation)


def test_dense_over_several_axes_is_that_over_one() -> None:
    x, w = random((2, 3, 4, 5), F32, 21), random((4, 5, 6, 7), F32, 22)
    b, dy = random((6, 7), F32, 23), random((2, 3, 6, 7), F32, 24)
    with GradientTape() as tape:
        sources = [tape.watch(a) for a in (x, w, b)]
        y = ops.dense(*sources, "tanh", axes=2)
    results = [y.value, *tape.gradient(y, sources, dy)]
    with GradientTape() as tape:
        flat = [x.reshape(6, 20), w.reshape(20, 42), b.reshape(42)]
        sources = [tape.watch(a) for a in flat]
        y = ops.dense(*sources, "tanh")
    expected = [y.value, *tape.gradient(y, sources, dy.reshape(6, 42))]
    for array, want in zip(results, expected, strict=True):
        assert_same_bits(array.reshape(want.shape), want)
    assert results[0].shape == (2, 3, 6, 7)
    for axes in (0, 4):
        with pytest.raises(ValueError, match="dense needs"):
            ops.dense(x, w, axes=axes)
