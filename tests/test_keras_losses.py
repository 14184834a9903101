"""Losses and metrics against real Keras on its NumPy backend, where it is installed."""

import os
import warnings

import numpy as np
import pytest

os.environ["KERAS_BACKEND"] = "numpy"
with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    keras = pytest.importorskip("keras", reason="needs keras (with jax installed)")

from mpcore import losses, metrics

if keras.backend.backend() != "numpy":
    pytest.skip("keras runs on another backend", allow_module_level=True)

# Keras itself uses what NumPy has deprecated.
pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning:keras")

RNG = np.random.default_rng(3)
LOGITS = (RNG.standard_normal((8, 5)) * 4).astype(np.float32)
SCORES = np.exp(LOGITS)  # Positive, but no distribution yet.
UNIT = RNG.random((8, 5)).astype(np.float32)
UNIT[0, :2] = 0.0, 1.0
LABELS = RNG.integers(0, 5, 8)
SOFT = RNG.dirichlet(np.ones(5), 8).astype(np.float32)
BITS = RNG.integers(0, 2, (8, 5)).astype(np.float32)
WEIGHTS = RNG.random(8).astype(np.float32)

LOSSES = {
    "sparse": ("SparseCategoricalCrossentropy", {}, LABELS, SCORES),
    "sparse-column": ("SparseCategoricalCrossentropy", {}, LABELS[:, None], SCORES),
    "sparse-logits": (
        "SparseCategoricalCrossentropy",
        {"from_logits": True},
        LABELS,
        LOGITS,
    ),
    "categorical": ("CategoricalCrossentropy", {}, SOFT, SCORES),
    "categorical-zero": ("CategoricalCrossentropy", {}, SOFT, np.eye(8, 5, dtype="f")),
    "categorical-logits": (
        "CategoricalCrossentropy",
        {"from_logits": True, "label_smoothing": 0.2},
        SOFT,
        LOGITS,
    ),
    "binary": ("BinaryCrossentropy", {}, BITS, UNIT),
    "binary-logits": ("BinaryCrossentropy", {"from_logits": True}, BITS, LOGITS),
    "squared": ("MeanSquaredError", {}, SOFT, LOGITS),
    "squared-column": ("MeanSquaredError", {}, SOFT[:, 0], LOGITS[:, :1]),
    "absolute": ("MeanAbsoluteError", {}, SOFT, LOGITS),
}
# categorical-zero needs rows that sum to something.
LOSSES["categorical-zero"][3][5:, 0] = 1.0

METRICS = {
    "sparse": ("SparseCategoricalAccuracy", LABELS, LOGITS),
    "categorical": ("CategoricalAccuracy", SOFT, LOGITS),
    "binary": ("BinaryAccuracy", BITS[:, 0], UNIT[:, :1]),
    "squared": ("MeanSquaredError", SOFT, LOGITS),
}


@pytest.mark.parametrize("reduction", ["sum_over_batch_size", "sum", None])
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("case", LOSSES)
def test_loss_follows_keras(case, reduction, weighted):
    name, arguments, y_true, y_pred = LOSSES[case]
    ours = getattr(losses, name)(reduction=reduction, **arguments)
    theirs = getattr(keras.losses, name)(reduction=reduction, **arguments)
    weight = WEIGHTS if weighted else None
    np.testing.assert_allclose(
        ours(y_true, y_pred, weight),
        np.asarray(theirs(y_true, y_pred, weight)),
        rtol=1e-5,
        atol=1e-6,
    )
    assert ours.name == theirs.name


@pytest.mark.parametrize("case", METRICS)
def test_metric_follows_keras_over_batches_and_weights(case):
    name, y_true, y_pred = METRICS[case]
    ours, theirs = getattr(metrics, name)(), getattr(keras.metrics, name)()
    for rows, weight in ((slice(0, 5), None), (slice(5, 8), WEIGHTS[5:])):
        ours.update_state(y_true[rows], y_pred[rows], weight)
        theirs.update_state(y_true[rows], y_pred[rows], weight)
    assert ours.result() == pytest.approx(float(theirs.result()), rel=1e-6)
    assert ours.name == theirs.name
