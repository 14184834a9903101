"""Laws of metrics."""

import copy
import json
import threading

import numpy as np
import pytest
from ml_dtypes import bfloat16

from mpcore import metrics
from mpcore.metrics import (
    Accuracy,
    BinaryAccuracy,
    CategoricalAccuracy,
    Mean,
    MeanSquaredError,
    SparseCategoricalAccuracy,
)

SCORES = np.float32([[0.1, 0.9], [0.8, 0.2], [0.4, 0.6]])


def test_mean_is_weighted_over_all_batches_until_reset():
    mean = Mean()
    assert mean.result() == 0.0
    mean.update_state([1.0, 3.0])
    mean.update_state(8.0)
    assert mean.result() == 4.0
    mean.update_state([10.0, 0.0], sample_weight=[1.0, 0.0])
    assert mean.result() == 22.0 / 4.0
    mean.reset_state()
    assert mean([5.0]) == 5.0


@pytest.mark.parametrize(
    ("metric", "y_true", "y_pred", "hits"),
    [
        (Accuracy, [1, 2, 3], np.array([1, 2, 4]), [1, 1, 0]),
        (SparseCategoricalAccuracy, [1, 0, 0], SCORES, [1, 1, 0]),
        (SparseCategoricalAccuracy, [[1], [0], [0]], SCORES, [1, 1, 0]),
        (CategoricalAccuracy, np.eye(2)[[1, 1, 1]], SCORES, [1, 0, 1]),
        (BinaryAccuracy, [1, 1, 0], np.float32([[0.5], [0.7], [0.2]]), [0, 1, 1]),
        (BinaryAccuracy, [[1, 0]], np.float32([[0.9, 0.9]]), [0.5]),
        (MeanSquaredError, [[0, 0]], np.float32([[1, 3]]), [5]),
    ],
)
def test_metric_equals_mean_of_hand_made_values(metric, y_true, y_pred, hits):
    assert metric()(np.array(y_true), y_pred) == np.mean(hits)
    weights = np.arange(1, len(hits) + 1)
    expected = np.average(hits, weights=weights)
    got = metric()(np.array(y_true), y_pred, sample_weight=weights)
    assert got == pytest.approx(expected, rel=1e-15)


@pytest.mark.parametrize("dtype", [np.float16, bfloat16])
def test_metric_counts_beyond_the_range_of_halves(dtype):
    metric = SparseCategoricalAccuracy()
    scores = np.zeros((70001, 2), dtype)
    scores[:, 1] = 1
    labels = np.ones(70001, int)
    labels[0] = 0
    assert metric(labels, scores) == 70000 / 70001
    assert MeanSquaredError()(np.full((70000, 1), 300.0), scores[:70000, :1]) == 90000


@pytest.mark.parametrize(
    ("y_true", "y_pred", "like"),
    [
        ([0, 1, 1], SCORES[:, :1], BinaryAccuracy),
        ([0, 1, 1], SCORES, SparseCategoricalAccuracy),
        ([[0], [1], [1]], SCORES, SparseCategoricalAccuracy),
        (np.eye(2)[[0, 1, 1]], SCORES, CategoricalAccuracy),
    ],
)
def test_accuracy_by_name_follows_the_shapes(y_true, y_pred, like):
    metric = metrics.get("accuracy")
    assert metric.name == "accuracy"
    y_true = np.array(y_true)
    assert metric(y_true, y_pred) == like()(y_true, y_pred)
    assert 0 < metric.result() <= 1
    assert metrics.get("acc").name == "acc"


def test_metric_shapes_that_differ_raise():
    with pytest.raises(ValueError, match=r"\(2,\).*\(3,\)"):
        SparseCategoricalAccuracy()(np.array([1, 0]), SCORES)
    with pytest.raises(ValueError, match=r"\(3, 1\)|\(3,\)"):
        CategoricalAccuracy()(np.array([1, 0, 1]), SCORES)
    with pytest.raises(ValueError, match="sample_weight"):
        Mean().update_state([1.0, 2.0], sample_weight=[1.0])


def test_metrics_get_takes_names_metrics_configs_and_functions():
    assert isinstance(metrics.get("mse"), MeanSquaredError)
    metric = BinaryAccuracy(threshold=0.0)
    assert metrics.get(metric) is metric
    config = json.loads(json.dumps(metric.get_config()))
    again = metrics.get({"class_name": "BinaryAccuracy", "config": config})
    assert again.threshold == 0.0

    def largest(y_true, y_pred):
        return y_pred.max(axis=-1)

    made = metrics.get(largest)
    assert made.name == "largest"
    assert made(np.zeros(3), SCORES.astype(np.float16)) == pytest.approx(
        2.3 / 3, abs=1e-3
    )
    with pytest.raises(ValueError, match="SparseCategoricalAccuracy"):
        metrics.get("nonsense")
    assert isinstance(metrics.get(MeanSquaredError), MeanSquaredError)
    for nothing in (5, {}, dict):
        with pytest.raises(TypeError, match="A metric must be a name"):
            metrics.get(nothing)


class Judge:
    """A function with memory, which cannot be copied."""

    def __init__(self):
        self.lock = threading.Lock()
        self.calls = 0

    def agrees(self, y_true, y_pred):
        with self.lock:
            self.calls += 1
        return np.ones(len(y_true))


def test_metric_copy_shares_the_object_of_its_function_but_no_totals():
    judge = Judge()
    metric = metrics.get(judge.agrees)
    metric.update_state(np.zeros(2), np.zeros(2))
    other = copy.deepcopy(metric)
    other.reset_state()
    other.update_state(np.zeros(3), np.zeros(3))
    assert judge.calls == 2
    assert (metric._weight, other._weight) == (2, 3)


def test_metric_copy_of_accuracy_by_shape_chooses_for_itself():
    metric = metrics.get("accuracy")
    other = copy.deepcopy(metric)
    other(np.array([1, 0, 1]), SCORES)
    assert metric._chosen is None
    assert other._chosen is not None
