"""Activations, softmax, cross-entropy, dropout: float64 bounds, bits, gradients."""

from __future__ import annotations

import numpy as np
import pytest
import reference
from reference import BF16, F16, F32, F64, KERNEL_DTYPES, all_halves, assert_same_bits

import mpcore
from mpcore import GradientTape, Variable, ops, random

DTYPES = pytest.mark.parametrize("dtype", KERNEL_DTYPES, ids=lambda d: d.name)
ACTIVATIONS = pytest.mark.parametrize("name", ["relu", "sigmoid", "tanh"])
LEVELS = mpcore.available_isas()


def half_ulp(values: np.ndarray, dtype: np.dtype) -> np.ndarray:
    """Return a bound of the error of rounding to a dtype."""
    return (
        2.0 ** -reference.PRECISION[dtype] * np.abs(values)
        + reference.TINIEST[dtype] / 2
    )


def spread(shape: tuple[int, ...], dtype: np.dtype, seed: int = 0) -> np.ndarray:
    generator = np.random.default_rng(seed)
    return (generator.standard_normal(shape) * 4).astype(dtype)


@DTYPES
@ACTIVATIONS
def test_activation_is_within_a_few_units_of_float64(
    isa: str, dtype: np.dtype, name: str
) -> None:
    if dtype == F32:
        x = np.concatenate(
            [np.linspace(-110, 110, 40001), np.geomspace(1e-38, 1, 5001)]
        ).astype(F32)
        x = np.concatenate([x, -x])
    else:
        x = all_halves(dtype)
        x = x[~reference.is_nan(x)]
    y = ops.activation(x, name).astype(F64)
    expected = reference.activation(name, x)
    # 4 units in the last place of float32, then one rounding; sigmoid(-100) is tiny.
    error = 4 * 2.0**-23 * np.abs(expected) + 2.0**-126
    if name == "relu":
        error = np.zeros_like(error)
    elif dtype != F32:
        error = error + half_ulp(np.abs(expected) + error, dtype)
    with np.errstate(invalid="ignore"):
        assert ((np.abs(y - expected) <= error) | (y == expected)).all()


@DTYPES
def test_relu_has_the_bits_of_max_and_keeps_nan(isa: str, dtype: np.dtype) -> None:
    x = np.array([-1, -0.0, 0.0, 2, -np.inf, np.inf, np.nan], dtype)
    y = ops.relu(x)
    assert y[:6].tolist() == [0, 0, 0, 2, 0, np.inf]
    assert reference.is_nan(y[6:]).all()


@DTYPES
@ACTIVATIONS
def test_activation_saturates_and_keeps_nan(
    isa: str, dtype: np.dtype, name: str
) -> None:
    y = ops.activation(np.array([-np.inf, np.inf, np.nan], dtype), name).astype(F64)
    ends = {"relu": [0, np.inf], "sigmoid": [0, 1], "tanh": [-1, 1]}[name]
    assert y[:2].tolist() == ends
    assert np.isnan(y[2])


@DTYPES
@ACTIVATIONS
def test_activation_and_backward_same_bits_on_every_level_and_length(
    dtype: np.dtype, name: str
) -> None:
    for length in (*range(50), 1000):
        x, dy = spread((length,), dtype, 1), spread((length,), dtype, 2)
        results = []
        for level in LEVELS:
            mpcore.set_isa(level)
            with GradientTape() as tape:
                source = tape.watch(x)
                y = ops.activation(source, name)
            results.append((y.value, tape.gradient(y, source, dy)))
        for y, dx in results[1:]:
            assert_same_bits(y, results[0][0])
            assert_same_bits(dx, results[0][1])


@DTYPES
@ACTIVATIONS
def test_activation_gradient_is_the_derivative_of_its_output(
    isa: str, dtype: np.dtype, name: str
) -> None:
    x, dy = spread((301,), dtype, 3), spread((301,), dtype, 4)
    with GradientTape() as tape:
        source = tape.watch(x)
        y = ops.activation(source, name)
    dx = tape.gradient(y, source, dy)
    slope = reference.activation_derivative(name, y.value)
    expected = dy.astype(F64) * slope
    # A few float32 roundings of factors of at most 1.
    error = np.abs(dy.astype(F64)) * 2.0**-21
    error += half_ulp(np.abs(expected) + error, dtype)
    assert dx.dtype == dtype
    assert (np.abs(dx.astype(F64) - expected) <= error).all()


@pytest.mark.parametrize("name", [None, "linear"])
def test_activation_linear_gives_the_values_and_the_gradient(name: str | None) -> None:
    v = Variable([1.0, -2.0])
    with GradientTape() as tape:
        y = ops.activation(v, name)
    assert_same_bits(y, v.value)
    assert tape.gradient(y, v, [3.0, 4.0]).tolist() == [3, 4]


def test_activation_unknown_name_raises() -> None:
    with pytest.raises(ValueError, match="linear, relu, sigmoid, tanh"):
        ops.activation(np.ones(1, F32), "swish")


@pytest.mark.parametrize("function", [ops.relu, ops.softmax], ids=["relu", "softmax"])
@pytest.mark.parametrize("dtype", [np.float64, np.int32])
def test_unsupported_dtype_raises(function: object, dtype: type) -> None:
    with pytest.raises(TypeError, match="Supported dtypes: float32, float16, bfloat16"):
        function(np.ones(2, dtype))


@DTYPES
@pytest.mark.parametrize("shape", [(1, 1), (3, 10), (7, 33), (2, 1000)], ids=str)
def test_softmax_is_within_the_bound_of_float64(
    isa: str, dtype: np.dtype, shape: tuple[int, int]
) -> None:
    x = spread(shape, dtype, 5)
    y = ops.softmax(x)
    expected = reference.softmax(x)
    # exp of an exact difference, a sum of n numbers, a division.
    error = reference.gamma(shape[1] + 16) * expected + 2.0**-126
    if dtype != F32:
        error += half_ulp(expected + error, dtype)
    assert y.dtype == dtype
    assert (np.abs(y.astype(F64) - expected) <= error).all()


def test_softmax_large_logits_do_not_overflow(isa: str) -> None:
    x = np.array([[3e38, 0.0, -3e38], [-3e38, -3e38, -3e38]], F32)
    y = ops.softmax(x)
    assert y[0].tolist() == [1, 0, 0]
    assert np.allclose(y[1], 1 / 3)


@DTYPES
def test_softmax_same_bits_on_every_level_and_thread_count(dtype: np.dtype) -> None:
    x, dy = spread((37, 53), dtype, 6), spread((37, 53), dtype, 7)
    results = []
    for level in LEVELS:
        for count in (1, 2):
            mpcore.set_isa(level)
            mpcore.set_num_threads(count)
            with GradientTape() as tape:
                source = tape.watch(x)
                y = ops.softmax(source)
            results.append((y.value, tape.gradient(y, source, dy)))
    for y, dx in results[1:]:
        assert_same_bits(y, results[0][0])
        assert_same_bits(dx, results[0][1])


@DTYPES
@pytest.mark.parametrize("axis", [0, 1, -1])
def test_softmax_gradient_along_any_axis_equals_formula(
    dtype: np.dtype, axis: int
) -> None:
    x, dy = spread((3, 4, 5), dtype, 8), spread((3, 4, 5), dtype, 9)
    with GradientTape() as tape:
        source = tape.watch(x)
        y = ops.softmax(source, axis=axis)
    dx = tape.gradient(y, source, dy)
    p, g = y.numpy().astype(F64), dy.astype(F64)
    expected = p * (g - (p * g).sum(axis, keepdims=True))
    error = (
        reference.gamma(32) * p * (np.abs(g) + np.abs(p * g).sum(axis, keepdims=True))
    )
    error += half_ulp(np.abs(expected) + error, dtype)
    assert (np.abs(dx.astype(F64) - expected) <= error).all()


@pytest.mark.parametrize("shape", [(0, 3), (3, 0), (2, 0, 4)], ids=str)
def test_softmax_of_nothing_is_nothing(shape: tuple[int, ...]) -> None:
    with GradientTape() as tape:
        x = tape.watch(np.ones(shape, F32))
        y = ops.softmax(x)
    assert y.shape == shape
    assert tape.gradient(y, x).shape == shape


def test_softmax_axis_out_of_range_raises() -> None:
    with pytest.raises(np.exceptions.AxisError):
        ops.softmax(np.ones((2, 3), F32), axis=2)
    with pytest.raises(np.exceptions.AxisError):
        ops.softmax(np.float32(1))


@DTYPES
@pytest.mark.parametrize("shape", [(1, 1), (5, 10), (33, 257)], ids=str)
def test_cross_entropy_and_gradient_are_within_bounds_of_float64(
    isa: str, dtype: np.dtype, shape: tuple[int, int]
) -> None:
    x = spread(shape, dtype, 10)
    labels = np.random.default_rng(11).integers(0, shape[1], shape[0])
    scale = np.exp2(np.arange(shape[0]) % 11 - 5).astype(F32)
    with GradientTape() as tape:
        logits = tape.watch(x)
        loss = ops.sparse_softmax_cross_entropy(labels, logits)
    dx = tape.gradient(loss, logits, output_gradients=scale)
    expected = reference.cross_entropy(labels, x)
    size = np.abs(x.astype(F64)).max() + np.log(shape[1]) + 1
    error = reference.gamma(shape[1] + 16) * size
    assert loss.dtype == "float32"
    assert (np.abs(loss.value - expected) <= error).all()
    p = reference.softmax(x)
    difference = p - (labels[:, None] == np.arange(shape[1]))
    wide_scale = scale[:, None].astype(F64)
    gradient = wide_scale * difference
    # The error of the probability, and the roundings of difference and product.
    error = reference.gamma(shape[1] + 16) * p + 2.0**-22 * np.abs(difference)
    error = wide_scale * error + 2.0**-120
    if dtype != F32:
        error += half_ulp(np.abs(gradient) + error, dtype)
    assert dx.dtype == dtype
    assert (np.abs(dx.astype(F64) - gradient) <= error).all()


def test_cross_entropy_applies_the_loss_scale_before_rounding(isa: str) -> None:
    # The gradient 2^-30 is no float16; times 2^15 it is.
    x = np.array([[0.0, -30 * np.log(2)]]).astype(F16)
    for scale, low in ((1.0, True), (2.0**15, False)):
        with GradientTape() as tape:
            logits = tape.watch(x)
            loss = ops.sparse_softmax_cross_entropy([0], logits)
        dx = tape.gradient(loss, logits, output_gradients=np.array([scale], F32))
        assert (dx[0, 1] == 0) is np.bool_(low)


def test_cross_entropy_of_a_variable_has_a_float32_gradient() -> None:
    logits = Variable(np.zeros((2, 4), F16))
    with GradientTape() as tape:
        loss = ops.sparse_softmax_cross_entropy([1, 2], logits)
    gradient = tape.gradient(loss, logits)
    assert gradient.dtype == F32
    assert gradient[0].tolist() == [0.25, -0.75, 0.25, 0.25]


def test_cross_entropy_same_bits_on_every_level_and_thread_count() -> None:
    x = spread((70, 37), BF16, 12)
    labels = np.arange(70, dtype=np.int32) % 37
    results = []
    for level in LEVELS:
        for count in (1, 2):
            mpcore.set_isa(level)
            mpcore.set_num_threads(count)
            with GradientTape() as tape:
                logits = tape.watch(x)
                loss = ops.sparse_softmax_cross_entropy(labels, logits)
            results.append((loss.value, tape.gradient(loss, logits)))
    for loss, dx in results[1:]:
        assert_same_bits(loss, results[0][0])
        assert_same_bits(dx, results[0][1])


@pytest.mark.parametrize("shape", [(), (2,), (2, 3), (0,)], ids=str)
def test_cross_entropy_takes_any_leading_axes(shape: tuple[int, ...]) -> None:
    labels = np.zeros(shape, np.uint8)
    with GradientTape() as tape:
        logits = tape.watch(np.zeros((*shape, 4), F32))
        loss = ops.sparse_softmax_cross_entropy(labels, logits)
    assert np.allclose(loss.value, np.full(shape, np.log(4)))
    assert tape.gradient(loss, logits).shape == (*shape, 4)


@pytest.mark.parametrize(
    ("labels", "error"),
    [
        ([0, 4], ValueError),
        ([0, -1], ValueError),
        ([0], ValueError),
        ([[0], [1]], ValueError),
        ([0.0, 1.0], TypeError),
        ([True, False], TypeError),
        (np.array([0, 2**63], np.uint64), ValueError),
    ],
    ids=str,
)
def test_cross_entropy_labels_that_do_not_fit_raise(
    labels: object, error: type
) -> None:
    with pytest.raises(error, match="`labels` must"):
        ops.sparse_softmax_cross_entropy(labels, np.zeros((2, 4), F32))


@pytest.mark.parametrize("dtype", [F32, F16, BF16, F64], ids=lambda d: d.name)
def test_dropout_zeros_a_share_and_scales_the_rest(dtype: np.dtype) -> None:
    x = np.ones((100, 100), dtype)
    y = ops.dropout(x, 0.25, random.generator(1))
    assert y.dtype == dtype
    kept = np.array(4 / 3).astype(F32 if dtype != F64 else F64).astype(dtype)
    assert set(np.unique(y.astype(F64))) == {0.0, float(kept)}
    # Five standard deviations of a binomial distribution.
    assert abs(int((y == 0).sum()) - 2500) < 5 * np.sqrt(10000 * 0.25 * 0.75)


def test_dropout_gradient_passes_where_the_value_did() -> None:
    v = Variable(np.full(1000, 2.0, F32))
    with GradientTape() as tape:
        y = ops.dropout(v, 0.5, random.generator(2))
    assert_same_bits(tape.gradient(y, v) * F32.type(2), y.value)


def test_dropout_of_infinity_is_zero_and_extremes_are_all_or_nothing() -> None:
    x = np.full(50, np.inf, F16)
    assert set(ops.dropout(x, 0.5, random.generator(3)).tolist()) == {0.0, np.inf}
    assert not ops.dropout(x, 1, random.generator(3)).any()
    assert_same_bits(ops.dropout(x, 0, random.generator(3)), x)


def test_dropout_repeats_with_its_generator() -> None:
    x = np.ones(100, F32)
    first = ops.dropout(x, 0.5, random.generator(4))
    assert_same_bits(ops.dropout(x, 0.5, random.generator(4)), first)
    assert (ops.dropout(x, 0.5, random.generator(5)) != first).any()


@pytest.mark.parametrize("rate", [-0.1, 1.5, float("nan")])
def test_dropout_rate_out_of_range_raises(rate: float) -> None:
    with pytest.raises(ValueError, match=r"`rate` must be in \[0, 1\]"):
        ops.dropout(np.ones(2, F32), rate, random.generator(0))


def test_dropout_of_integers_raises() -> None:
    with pytest.raises(TypeError, match="not floating"):
        ops.dropout(np.arange(3), 0.5, random.generator(0))
