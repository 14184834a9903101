"""Laws of losses: float64 formulas are the oracle, float32 the arithmetic."""

import json
import math

import numpy as np
import pytest
from ml_dtypes import bfloat16

from mpcore import GradientTape, losses
from mpcore.losses import (
    BinaryCrossentropy,
    CategoricalCrossentropy,
    MeanAbsoluteError,
    MeanSquaredError,
    SparseCategoricalCrossentropy,
)

RNG = np.random.default_rng(0)
LOGITS = (RNG.standard_normal((6, 5)) * 3).astype(np.float32)
LABELS = RNG.integers(0, 5, 6)
ONE_HOT = np.eye(5)[LABELS]
SOFT = RNG.dirichlet(np.ones(5), 6)
BITS = RNG.integers(0, 2, (6, 5)).astype(np.float64)
WEIGHTS = np.array([0.0, 1.0, 2.0, 0.5, 1.0, 3.0])
HALVES = [np.float16, bfloat16]


def softmax(x):
    e = np.exp(x - x.max(axis=-1, keepdims=True))
    return e / e.sum(axis=-1, keepdims=True)


def log_softmax(x):
    shifted = x - x.max(axis=-1, keepdims=True)
    return shifted - np.log(np.exp(shifted).sum(axis=-1, keepdims=True))


def clipped(p):
    return np.clip(p, 1e-7, 1 - 1e-7)


X = LOGITS.astype(np.float64)
P = softmax(X).astype(np.float32)
P64 = clipped(P.astype(np.float64) / P.astype(np.float64).sum(-1, keepdims=True))
S = (1 / (1 + np.exp(-X))).astype(np.float32)
S64 = clipped(S.astype(np.float64))

# loss, targets, predictions, float64 values per sample, and the gradient of each
# sample's value (None: checked by differences instead).
CASES = {
    "sparse-logits": (
        SparseCategoricalCrossentropy(from_logits=True),
        LABELS,
        LOGITS,
        -(ONE_HOT * log_softmax(X)).sum(-1),
    ),
    "sparse-probabilities": (
        SparseCategoricalCrossentropy(),
        LABELS,
        P,
        -(ONE_HOT * np.log(P64)).sum(-1),
    ),
    "categorical-logits": (
        CategoricalCrossentropy(from_logits=True),
        SOFT,
        LOGITS,
        -(SOFT * log_softmax(X)).sum(-1),
    ),
    "categorical-smoothed": (
        CategoricalCrossentropy(from_logits=True, label_smoothing=0.1),
        ONE_HOT,
        LOGITS,
        -((0.9 * ONE_HOT + 0.02) * log_softmax(X)).sum(-1),
    ),
    "categorical-probabilities": (
        CategoricalCrossentropy(),
        SOFT,
        P,
        -(SOFT * np.log(P64)).sum(-1),
    ),
    "binary-logits": (
        BinaryCrossentropy(from_logits=True),
        BITS,
        LOGITS,
        (np.logaddexp(0, X) - BITS * X).mean(-1),
    ),
    "binary-probabilities": (
        BinaryCrossentropy(),
        BITS,
        S,
        -(BITS * np.log(S64) + (1 - BITS) * np.log(1 - S64)).mean(-1),
    ),
    "squared": (MeanSquaredError(), SOFT, LOGITS, np.square(X - SOFT).mean(-1)),
    "absolute": (MeanAbsoluteError(), SOFT, LOGITS, np.abs(X - SOFT).mean(-1)),
}
# Tens of float32 roundings of values of magnitude <= 20.
CLOSE = {"rtol": 32 * 2.0**-24, "atol": 20 * 16 * 2.0**-24}


def with_reduction(loss, reduction):
    return type(loss).from_config({**loss.get_config(), "reduction": reduction})


@pytest.mark.parametrize("case", CASES)
def test_loss_values_and_reductions_equal_float64_formula(case):
    loss, y_true, y_pred, values = CASES[case]
    each = with_reduction(loss, None)(y_true, y_pred)
    assert each.dtype == np.float32
    np.testing.assert_allclose(each, values, **CLOSE)
    np.testing.assert_allclose(loss(y_true, y_pred), values.mean(), **CLOSE)
    total = with_reduction(loss, "sum")(y_true, y_pred)
    np.testing.assert_allclose(total, values.sum(), rtol=1e-5)


@pytest.mark.parametrize("case", CASES)
def test_loss_sample_weight_multiplies_and_does_not_normalise(case):
    loss, y_true, y_pred, values = CASES[case]
    expected = (values * WEIGHTS).sum() / len(values)
    got = loss(y_true, y_pred, WEIGHTS)
    assert got.dtype == np.float32
    np.testing.assert_allclose(got, expected, rtol=1e-5)
    column = loss(y_true, y_pred, WEIGHTS[:, None])
    assert float(column) == float(got)


@pytest.mark.parametrize("case", CASES)
def test_loss_gradient_equals_central_differences_of_the_formula(case):
    loss, y_true, y_pred, _ = CASES[case]
    with GradientTape() as tape:
        x = tape.watch(y_pred)
        value = loss(y_true, x, WEIGHTS)
    gradient = tape.gradient(value, x)
    assert gradient.dtype == np.float32
    # float64 predictions keep float64 throughout, except in the fused kernel.
    if case == "sparse-logits":
        exact = (softmax(X) - ONE_HOT) * WEIGHTS[:, None] / len(X)
    else:
        wide = y_pred.astype(np.float64)
        exact = np.empty_like(wide)
        for index in np.ndindex(wide.shape):
            h = np.zeros_like(wide)
            h[index] = 1e-6
            up = loss(y_true, wide + h, WEIGHTS)
            down = loss(y_true, wide - h, WEIGHTS)
            exact[index] = (float(up) - float(down)) / 2e-6
    np.testing.assert_allclose(gradient, exact, rtol=2e-4, atol=2e-6)


@pytest.mark.parametrize("dtype", HALVES)
@pytest.mark.parametrize("case", CASES)
def test_loss_of_halves_is_the_float32_loss_of_the_widened_predictions(case, dtype):
    loss, y_true, y_pred, _ = CASES[case]
    half = y_pred.astype(dtype)
    got = loss(y_true, half)
    assert got.dtype == np.float32
    assert float(got) == float(loss(y_true, half.astype(np.float32)))


@pytest.mark.parametrize("dtype", HALVES)
def test_loss_gradient_of_half_predictions_is_in_their_dtype(dtype):
    for loss, y_true, y_pred, _ in CASES.values():
        with GradientTape() as tape:
            x = tape.watch(y_pred.astype(dtype))
            value = loss(y_true, x)
        assert tape.gradient(value, x).dtype == dtype


@pytest.mark.parametrize("dtype", [np.float32, *HALVES])
def test_crossentropy_of_probability_zero_is_clipped_and_finite(dtype):
    p = np.array([[1.0, 0.0]], dtype)
    expected = -math.log(1e-7)
    got = CategoricalCrossentropy()(np.array([[0.0, 1.0]]), p)
    assert float(got) == pytest.approx(expected, rel=1e-5)
    got = SparseCategoricalCrossentropy()([1], p)
    assert float(got) == pytest.approx(expected, rel=1e-5)
    got = BinaryCrossentropy()(np.array([[0.0, 1.0]]), p)
    assert float(got) == pytest.approx(expected, rel=2e-2)


@pytest.mark.parametrize("from_logits", ["sparse", "categorical", "binary"])
def test_crossentropy_of_huge_logits_is_exact_and_its_gradient_finite(from_logits):
    x = np.float32([[30000.0, -30000.0]])
    loss, y_true = {
        "sparse": (SparseCategoricalCrossentropy(from_logits=True), [1]),
        "categorical": (CategoricalCrossentropy(from_logits=True), [[0.0, 1.0]]),
        "binary": (BinaryCrossentropy(from_logits=True), [[0.0, 0.0]]),
    }[from_logits]
    with GradientTape() as tape:
        watched = tape.watch(x)
        value = loss(np.array(y_true), watched)
    expected = {"sparse": 60000.0, "categorical": 60000.0, "binary": 15000.0}
    assert float(value) == expected[from_logits]
    gradient = tape.gradient(value, watched)
    np.testing.assert_array_equal(
        gradient, [[0.5, 0.0]] if from_logits == "binary" else [[1.0, -1.0]]
    )


def test_binary_crossentropy_gradient_at_logit_zero_is_half_minus_target():
    with GradientTape() as tape:
        x = tape.watch(np.zeros((1, 1), np.float32))
        value = BinaryCrossentropy(from_logits=True)(np.ones((1, 1)), x)
    assert float(value) == pytest.approx(math.log(2), rel=1e-6)
    assert tape.gradient(value, x)[0, 0] == -0.5


def test_sparse_crossentropy_takes_label_columns_and_sequences():
    loss = SparseCategoricalCrossentropy(from_logits=True)
    flat = float(loss(LABELS, LOGITS))
    assert float(loss(LABELS[:, None], LOGITS)) == flat
    assert float(loss(LABELS.astype(np.float32), LOGITS)) == flat
    sequence = loss(LABELS.reshape(2, 3), LOGITS.reshape(2, 3, 5))
    assert float(sequence) == flat


@pytest.mark.parametrize("from_logits", [True, False])
@pytest.mark.parametrize(
    ("labels", "message"),
    [
        ([0, 1, 2, 3, 4, 5], r"\[0, 5\)"),
        ([0, 1, 2, 3, 4, -1], r"\[0, 5\)"),
        ([0, 1, 2], r"\(6,\).*\(3,\)"),
        ([0.5, 1, 2, 3, 4, 4], r"whole numbers.*0\.5"),
        ([np.nan, 1, 2, 3, 4, 4], "whole numbers.*nan"),
        (np.eye(6)[:, :5], r"\(6,\).*\(6, 5\)"),
    ],
)
def test_sparse_crossentropy_bad_labels_raise(labels, message, from_logits):
    loss = SparseCategoricalCrossentropy(from_logits=from_logits)
    with pytest.raises(ValueError, match=message):
        loss(np.asarray(labels), LOGITS if from_logits else P)


@pytest.mark.parametrize(
    "loss",
    [MeanSquaredError(), MeanAbsoluteError(), BinaryCrossentropy(from_logits=True)],
)
def test_loss_never_broadcasts_all_against_all(loss):
    y, x = np.zeros(4, np.float32), np.ones((4, 1), np.float32)
    column = float(loss(y[:, None], x))
    assert float(loss(y, x)) == column
    assert float(loss(y[:, None], x[:, 0])) == column
    assert loss(y, x[:, 0]).shape == ()
    with pytest.raises(ValueError, match=r"\(4,\).*\(4, 4\)"):
        loss(y, np.ones((4, 4), np.float32))
    with pytest.raises(ValueError, match=r"\(3,\)"):
        loss(np.zeros(3), x)


def test_loss_of_one_dimensional_predictions_has_a_value_per_sample():
    y, x = np.float32([0, 0, 0]), np.float32([1, 2, 3])
    values = MeanSquaredError(reduction="none")(y, x)
    np.testing.assert_array_equal(values, [1, 4, 9])


def test_loss_mean_over_more_than_65504_half_samples_is_exact():
    y = np.zeros((70000, 1), np.float16)
    assert float(MeanSquaredError()(y, np.ones_like(y))) == 1.0


def test_loss_bad_weights_or_arguments_raise():
    with pytest.raises(ValueError, match=r"sample_weight.*\(6,\).*\(5,\)"):
        MeanSquaredError()(SOFT, LOGITS, np.ones(5))
    with pytest.raises(ValueError, match="reduction='average'"):
        MeanSquaredError(reduction="average")
    with pytest.raises(ValueError, match="label_smoothing=2"):
        CategoricalCrossentropy(label_smoothing=2)


@pytest.mark.parametrize("case", CASES)
def test_loss_config_round_trips_through_json(case):
    loss = CASES[case][0]
    config = json.loads(json.dumps(loss.get_config()))
    again = type(loss).from_config(config)
    assert again.get_config() == config


def test_losses_get_takes_names_losses_configs_and_functions():
    assert isinstance(losses.get("mse"), MeanSquaredError)
    assert isinstance(losses.get("MeanSquaredError"), MeanSquaredError)
    name = "sparse_categorical_crossentropy"
    assert isinstance(losses.get(name), SparseCategoricalCrossentropy)
    loss = BinaryCrossentropy(from_logits=True)
    assert losses.get(loss) is loss
    config = {"class_name": "BinaryCrossentropy", "config": loss.get_config()}
    assert losses.get(config).from_logits
    function = losses.get(lambda y_true, y_pred: y_pred * 2.0)
    assert float(function(np.zeros(2), np.float16([1.0, 2.0]))) == 3.0
    with pytest.raises(ValueError, match="MeanSquaredError"):
        losses.get("nonsense")
    assert isinstance(losses.get(MeanSquaredError), MeanSquaredError)
    for nothing in (5, {}, dict):
        with pytest.raises(TypeError, match=r"`loss` must be a name.*loss="):
            losses.get(nothing)
