"""log_softmax, and cross-entropy with distributions and label smoothing."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import reference
from reference import BF16, F16, F32, F64, KERNEL_DTYPES, assert_same_bits
from reference_nn import assert_within

import mpcore
from mpcore import GradientTape, ops
from mpcore.losses import BinaryCrossentropy, CategoricalCrossentropy

DTYPES = pytest.mark.parametrize("dtype", KERNEL_DTYPES, ids=lambda d: d.name)
SHAPES = [(1, 1), (3, 2), (5, 16), (7, 33), (33, 257)]
SMOOTHING = pytest.mark.parametrize("smoothing", [0.0, 0.1, 1.0])


def logits_of(shape: tuple[int, ...], dtype: np.dtype, seed: int) -> np.ndarray:
    return (np.random.default_rng(seed).standard_normal(shape) * 4).astype(dtype)


def log_softmax(x: np.ndarray) -> np.ndarray:
    x = x.astype(F64)
    shifted = x - x.max(-1, keepdims=True)
    return shifted - np.log(np.exp(shifted).sum(-1, keepdims=True))


def cross_entropy(x: np.ndarray, t: np.ndarray) -> np.ndarray:
    return -(t * log_softmax(x)).sum(-1)


def test_gradient_formulas_are_finite_differences() -> None:
    x, dy = logits_of((4,), F64, 1), logits_of((4,), F64, 2)
    t = np.random.default_rng(3).random(4)
    gradient = dy - np.exp(log_softmax(x)) * dy.sum()
    numeric = reference.finite_difference(lambda p: float(dy @ log_softmax(p)), x)
    assert np.allclose(gradient, numeric)
    gradient = reference.softmax(x) * t.sum() - t
    numeric = reference.finite_difference(lambda p: float(cross_entropy(p, t)), x)
    assert np.allclose(gradient, numeric)


@DTYPES
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_log_softmax_and_gradient_are_within_bounds_of_float64(
    isa: str, dtype: np.dtype, shape: tuple[int, int]
) -> None:
    x, dy = logits_of(shape, dtype, 4), logits_of(shape, dtype, 5)
    with GradientTape() as tape:
        source = tape.watch(x)
        y = ops.log_softmax(source)
    dx = tape.gradient(y, source, output_gradients=dy)
    exact = log_softmax(x)
    # exp of exact differences, a sum of n numbers; two subtractions and a logarithm.
    error = reference.gamma(shape[1] + 16) + reference.gamma(4) * (np.abs(exact) + 8)
    assert_within(y.value, exact, error, dtype)
    p = np.exp(y.value.astype(F64))
    wide = dy.astype(F64)
    total = np.abs(wide).sum(-1, keepdims=True)
    error = reference.gamma(shape[1] + 16) * (p * total + np.abs(wide)) + 2.0**-120
    assert_within(dx, wide - p * wide.sum(-1, keepdims=True), error, dtype)


def test_log_softmax_of_large_logits_does_not_overflow(isa: str) -> None:
    y = ops.log_softmax(np.array([[3e38, 0.0], [-1e30, -1e30]], F32))
    assert y[0].tolist() == [0, F32.type(-3e38)]
    assert np.allclose(y[1], -np.log(2))
    y = ops.log_softmax(np.array([[0, -np.inf, 0], [np.nan, 0, 0]], BF16)).astype(F32)
    assert y[0, 1] == -np.inf
    assert np.isnan(y[1]).all()


@pytest.mark.parametrize("axis", [0, 1, -1])
def test_log_softmax_along_any_axis_is_that_of_the_moved_array(axis: int) -> None:
    x, dy = logits_of((3, 4, 5), F16, 6), logits_of((3, 4, 5), F16, 7)
    with GradientTape() as tape:
        source = tape.watch(x)
        y = ops.log_softmax(source, axis)
        moved = tape.watch(np.moveaxis(x, axis, -1))
        z = ops.log_softmax(moved)
    dx, dz = tape.gradient([y, z], [source, moved], [dy, np.moveaxis(dy, axis, -1)])
    assert_same_bits(np.moveaxis(y.value, axis, -1), z.value)
    assert_same_bits(np.moveaxis(dx, axis, -1), dz)


@pytest.mark.parametrize("shape", [(0, 3), (3, 0), (2, 0, 4)], ids=str)
def test_log_softmax_of_nothing_is_nothing(shape: tuple[int, ...]) -> None:
    with GradientTape() as tape:
        x = tape.watch(np.ones(shape, F32))
        y = ops.log_softmax(x)
    assert tape.gradient(y, x).shape == y.shape == shape


def smoothed(t: np.ndarray, smoothing: float) -> np.ndarray:
    smoothing = float(F32.type(smoothing))
    return t.astype(F64) * (1 - smoothing) + smoothing / t.shape[-1]


@SMOOTHING
@DTYPES
@pytest.mark.parametrize("kind", ["labels", "one_hot", "soft"])
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_cross_entropy_and_gradient_are_within_bounds_of_float64(
    isa: str, shape: tuple[int, int], kind: str, dtype: np.dtype, smoothing: float
) -> None:
    x = logits_of(shape, dtype, 8)
    generator = np.random.default_rng(9)
    labels = generator.integers(0, shape[1], shape[0])
    t = np.eye(shape[1], dtype=F32)[labels]
    if kind == "soft":
        t = generator.random(shape).astype(F32)  # sums to whatever it does
    scale = np.exp2(np.arange(shape[0]) % 11 - 5).astype(F32)
    with GradientTape() as tape:
        source = tape.watch(x)
        if kind == "labels":
            loss = ops.sparse_softmax_cross_entropy(labels, source, smoothing)
        else:
            loss = ops.softmax_cross_entropy(t, source, smoothing)
    dx = tape.gradient(loss, source, output_gradients=scale)
    wanted = smoothed(t, smoothing)
    mass = wanted.sum(-1)
    span = np.abs(log_softmax(x)).max() + np.log(shape[1]) + 1
    error = reference.gamma(shape[1] + 20) * (span + 1) * mass
    assert_within(loss.value, cross_entropy(x, wanted), error, F32)
    p = reference.softmax(x)
    factor = scale[:, None].astype(F64)
    exact = factor * (p * mass[:, None] - wanted)
    error = reference.gamma(2 * shape[1] + 24) * (p * mass[:, None] + wanted)
    assert_within(dx, exact, factor * error + 2.0**-120, dtype)


@SMOOTHING
def test_cross_entropy_of_labels_is_that_of_their_one_hot_rows(
    isa: str, smoothing: float
) -> None:
    x = logits_of((40, 19), BF16, 10)
    labels = np.arange(40) % 19
    one_hot = np.eye(19)[labels]
    results = []
    for op, target in (
        (ops.sparse_softmax_cross_entropy, labels),
        (ops.softmax_cross_entropy, one_hot),
    ):
        with GradientTape() as tape:
            source = tape.watch(x)
            loss = op(target, source, smoothing)
        results.append((loss.value, tape.gradient(loss, source)))
    assert np.allclose(results[0][0], results[1][0], rtol=1e-6)
    difference = results[0][1].astype(F32) - results[1][1].astype(F32)
    assert np.abs(difference).max() <= 2.0**-8


@DTYPES
def test_cross_entropy_same_bits_on_every_level_and_thread_count(
    dtype: np.dtype,
) -> None:
    x = logits_of((700, 101), dtype, 11)
    t = np.random.default_rng(12).random(x.shape)
    labels = np.arange(700) % 101
    results = []
    for level in mpcore.available_isas():
        for count in (1, 2):
            mpcore.set_isa(level)
            mpcore.set_num_threads(count)
            with GradientTape(persistent=True) as tape:
                source = tape.watch(x)
                outputs = (
                    ops.softmax_cross_entropy(t, source, 0.1),
                    ops.sparse_softmax_cross_entropy(labels, source, 0.1),
                    ops.log_softmax(source),
                )
            results.append(
                [*(y.value for y in outputs)]
                + [tape.gradient(y, source) for y in outputs]
            )
    for result in results[1:]:
        for array, first in zip(result, results[0], strict=True):
            assert_same_bits(array, first)


def test_cross_entropy_ignores_masked_classes_without_a_target(isa: str) -> None:
    x = np.array([[0, -np.inf, 0]], F32)
    with GradientTape() as tape:
        source = tape.watch(x)
        loss = ops.softmax_cross_entropy([[1.0, 0.0, 0.0]], source)
    assert np.allclose(loss.value, np.log(2))
    assert tape.gradient(loss, source).tolist() == [[-0.5, 0, 0.5]]
    assert ops.softmax_cross_entropy([[0.0, 1.0, 0.0]], x).tolist() == [np.inf]
    assert np.isnan(ops.softmax_cross_entropy([[np.nan, 0.0, 0.0]], x)).all()


def test_cross_entropy_of_no_rows_and_of_any_leading_axes() -> None:
    assert ops.softmax_cross_entropy(np.ones((0, 3)), np.ones((0, 3), F32)).shape == (
        0,
    )
    t = np.full((2, 3, 4), 0.25)
    loss = ops.softmax_cross_entropy(t, np.zeros((2, 3, 4), F16))
    assert loss.dtype == F32
    assert np.allclose(loss, np.full((2, 3), np.log(4)))


def test_cross_entropy_arguments_that_do_not_fit_raise() -> None:
    x = np.zeros((2, 3), F32)
    with pytest.raises(ValueError, match=r"label_smoothing=1\.5"):
        ops.softmax_cross_entropy(x, x, 1.5)
    with pytest.raises(ValueError, match="label_smoothing=nan"):
        ops.sparse_softmax_cross_entropy([0, 1], x, np.nan)
    with pytest.raises(ValueError, match="shape of `logits`"):
        ops.softmax_cross_entropy(x[:1], x)
    with pytest.raises(TypeError, match="Supported dtypes"):
        ops.softmax_cross_entropy(x, x.astype(F64))
    with GradientTape() as tape, pytest.raises(ValueError, match="constants"):
        ops.softmax_cross_entropy(tape.watch(x), x)


@SMOOTHING
def test_cross_entropy_and_log_softmax_agree_with_pytorch(smoothing: float) -> None:
    torch = pytest.importorskip("torch")
    x = logits_of((21, 50), F32, 13)
    labels = np.arange(21) % 50
    t = np.random.default_rng(14).dirichlet(np.ones(50), 21).astype(F32)
    functional = torch.nn.functional
    for op, target in (
        (ops.sparse_softmax_cross_entropy, labels),
        (ops.softmax_cross_entropy, t),
    ):
        theirs = torch.tensor(x, requires_grad=True)
        their_loss = functional.cross_entropy(
            theirs, torch.tensor(target), reduction="none", label_smoothing=smoothing
        )
        their_loss.sum().backward()
        with GradientTape() as tape:
            source = tape.watch(x)
            loss = op(target, source, smoothing)
        bound = reference.gamma(160) * 40
        assert np.abs(loss.value - their_loss.detach().numpy()).max() <= bound
        gradient = tape.gradient(loss, source)
        assert np.abs(gradient - theirs.grad.numpy()).max() <= reference.gamma(160)
    theirs = functional.log_softmax(torch.tensor(x), -1).numpy()
    assert np.abs(ops.log_softmax(x) - theirs).max() <= reference.gamma(160)


# --- Losses ---------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [F32, F16, BF16], ids=lambda d: d.name)
def test_categorical_loss_from_logits_is_the_fused_op(dtype: np.dtype) -> None:
    x = logits_of((6, 5), dtype, 15)
    t = np.eye(5)[[0, 1, 2, 3, 4, 0]]
    loss = CategoricalCrossentropy(
        from_logits=True, label_smoothing=0.2, reduction=None
    )
    assert_same_bits(loss(t, x), ops.softmax_cross_entropy(t, x, 0.2))


def test_h56_mean_over_more_samples_than_a_half_can_count() -> None:
    model = mpcore.models.Sequential(
        [mpcore.layers.Dense(1, kernel_initializer="zeros", dtype="mixed_float16")]
    )
    model.compile(optimizer="sgd", loss="mse")
    x, y = np.ones((70000, 1), F32), np.ones((70000, 1), F32)
    model.build((None, 1))
    loss = model.evaluate(x, y, batch_size=70000, verbose=0)
    assert (loss[0] if isinstance(loss, list) else loss) == 1.0
    assert float(ops.mean(np.ones(70000, F16))) == 1.0


def test_h58_probability_zero_of_the_true_class_in_half_costs_16() -> None:
    p = np.array([[1.0, 0.0]], F16)
    loss = CategoricalCrossentropy()(np.array([[0.0, 1.0]]), p)
    assert float(loss) == pytest.approx(-np.log(1e-7), rel=1e-5)


@pytest.mark.parametrize("from_logits", [False, True])
def test_binary_loss_smooths_its_labels(from_logits: bool) -> None:
    y_pred: Any = np.array([[0.25, 0.5], [0.75, 0.125]], F32)
    labels = np.array([[0.0, 1.0], [1.0, 0.0]])
    loss = BinaryCrossentropy(from_logits=from_logits, label_smoothing=0.2)
    plain = BinaryCrossentropy(from_logits=from_logits)
    expected = float(plain(labels * 0.8 + 0.1, y_pred))
    assert float(loss(labels, y_pred)) == pytest.approx(expected, rel=1e-6)
    assert loss.get_config()["label_smoothing"] == 0.2
    with pytest.raises(ValueError, match="label_smoothing=-1"):
        BinaryCrossentropy(label_smoothing=-1)
