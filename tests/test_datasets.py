"""Laws of the data sets."""

import sys

import numpy as np
import pytest

from mpcore import datasets, random

pytest.importorskip("sklearn")


def rows(x):
    return sorted(row.tobytes() for row in x)


def test_load_digits_shapes_dtypes_and_range():
    (x, y), (x_test, y_test) = datasets.load_digits()
    assert (x.shape, x_test.shape) == ((1438, 64), (359, 64))
    assert (y.shape, y_test.shape) == ((1438,), (359,))
    assert x.dtype == x_test.dtype == np.float32
    assert y.dtype == y_test.dtype == np.int64
    assert (x.min(), x.max()) == (0.0, 1.0)
    assert set(y) == set(y_test) == set(range(10))


def test_load_digits_sides_are_a_partition_of_the_data_with_its_labels():
    from sklearn.datasets import load_digits

    images, labels = load_digits(return_X_y=True)
    (x, y), (x_test, y_test) = datasets.load_digits(test_fraction=0.5, seed=3)
    both = np.concatenate([x, x_test])
    assert rows(both) == rows((images / 16).astype(np.float32))
    label_of = {}
    for row, label in zip((images / 16).astype(np.float32), labels, strict=True):
        label_of.setdefault(row.tobytes(), set()).add(label)
    for row, label in zip(both, np.concatenate([y, y_test]), strict=True):
        assert label in label_of[row.tobytes()]


def test_load_digits_split_depends_on_the_seed_alone():
    (first, _), _ = datasets.load_digits(seed=1)
    (again, _), _ = datasets.load_digits(seed=1)
    (other, _), _ = datasets.load_digits(seed=2)
    assert first.tobytes() == again.tobytes()
    assert first.tobytes() != other.tobytes()
    random.set_random_seed(8)
    (drawn, _), _ = datasets.load_digits(seed=None)
    random.set_random_seed(8)
    assert datasets.load_digits(seed=None)[0][0].tobytes() == drawn.tobytes()


@pytest.mark.parametrize("fraction", [0.0, 1.0, -0.5, 1.5])
def test_load_digits_empty_side_raises(fraction):
    with pytest.raises(ValueError, match=f"test_fraction={fraction}"):
        datasets.load_digits(test_fraction=fraction)


def test_load_digits_without_scikit_learn_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "sklearn", None)
    with pytest.raises(ModuleNotFoundError, match="pip install scikit-learn"):
        datasets.load_digits()
