"""Initializers, regularizers, and constraints."""

from __future__ import annotations

import json
import math
from typing import Any

import numpy as np
import pytest
import reference
from reference import BF16, F16, F32, F64, assert_same_bits

import mpcore
from mpcore import GradientTape, Variable, constraints, initializers, regularizers

RANDOM: dict[str, tuple[Any, float, float]] = {
    # name: initializer, standard deviation for shape (300, 200), bound
    "uniform": (initializers.RandomUniform(-0.5, 0.25), 0.75 / math.sqrt(12), 0.5),
    "normal": (initializers.RandomNormal(stddev=0.5), 0.5, math.inf),
    "truncated": (initializers.TruncatedNormal(stddev=0.5), 0.5 * 0.879626, 1.0),
    "glorot_uniform": (initializers.GlorotUniform(), math.sqrt(2 / 500), 0.10955),
    "glorot_normal": (initializers.GlorotNormal(), math.sqrt(2 / 500), 0.1439),
    "he_uniform": (initializers.HeUniform(), math.sqrt(2 / 300), 0.14143),
    "he_normal": (initializers.HeNormal(), math.sqrt(2 / 300), 0.18567),
    "lecun_uniform": (initializers.LecunUniform(), math.sqrt(1 / 300), 0.10001),
    "lecun_normal": (initializers.LecunNormal(), math.sqrt(1 / 300), 0.1313),
    "untruncated": (
        initializers.VarianceScaling(3.0, "fan_out", "untruncated_normal"),
        math.sqrt(3 / 200),
        math.inf,
    ),
}


@pytest.mark.parametrize("name", list(RANDOM))
def test_random_initializer_has_the_stated_spread_and_bound(name: str) -> None:
    mpcore.set_random_seed(1)
    initializer, stddev, bound = RANDOM[name]
    x = initializer((300, 200))
    assert x.dtype == F32
    assert np.abs(x).max() <= bound
    if bound < math.inf:
        assert np.abs(x).max() > 0.97 * bound
    # The deviation of 60,000 draws errs by about 0.3 percent.
    assert abs(x.astype(F64).std() / stddev - 1) < 0.015


@pytest.mark.parametrize("name", list(RANDOM))
def test_random_initializer_repeats_with_a_seed_and_only_then(name: str) -> None:
    initializer = RANDOM[name][0]
    assert (initializer((9,)) != initializer((9,))).any()
    mpcore.set_random_seed(5)
    first = initializer((9,))
    mpcore.set_random_seed(5)
    assert_same_bits(initializer((9,)), first)
    fixed = type(initializer).from_config(initializer.get_config() | {"seed": 3})
    assert_same_bits(fixed((9,)), fixed((9,)))


@pytest.mark.parametrize("dtype", [F16, BF16, F64], ids=lambda d: d.name)
def test_random_initializer_rounds_float32_draws_once(dtype: np.dtype) -> None:
    initializer = initializers.GlorotUniform(seed=2)
    x = initializer((40, 30), dtype)
    assert x.dtype == dtype
    if dtype != F64:
        assert_same_bits(x, initializer((40, 30)).astype(dtype))
    else:
        assert (x.astype(F32).astype(F64) != x).any()


def test_random_initializer_of_integers_raises() -> None:
    with pytest.raises(ValueError, match="makes floating numbers"):
        initializers.RandomNormal()((2,), "int32")


def test_fans_count_the_receptive_field() -> None:
    shapes = [(), (5,), (3, 4), (2, 3, 4, 5)]
    expected = [(1, 1), (5, 5), (3, 4), (24, 30)]
    assert [initializers.fans(s) for s in shapes] == expected


def test_constants_fill_any_dtype() -> None:
    for dtype in (F32, F16, BF16, F64, np.dtype(np.int32)):
        assert_same_bits(initializers.Zeros()((2, 3), dtype), np.zeros((2, 3), dtype))
        assert_same_bits(initializers.Ones()((2, 3), dtype), np.ones((2, 3), dtype))
        seven = initializers.Constant(7)((2,), dtype)
        assert_same_bits(seven, np.full(2, 7, dtype))
    row = initializers.Constant([1.0, 2.0])((3, 2), "bfloat16")
    row[0, 0] = 5
    assert row.astype(F32).tolist() == [[5, 2], [1, 2], [1, 2]]


@pytest.mark.parametrize(
    ("identifier", "kind"),
    [
        ("zeros", initializers.Zeros),
        ("glorot_uniform", initializers.GlorotUniform),
        ("HeNormal", initializers.HeNormal),
        (initializers.Ones, initializers.Ones),
        ({"class_name": "Constant", "config": {"value": 2.0}}, initializers.Constant),
    ],
    ids=str,
)
def test_get_initializer_by_any_identifier(identifier: object, kind: type) -> None:
    assert type(initializers.get(identifier)) is kind


def test_get_passes_functions_and_none_and_refuses_others() -> None:
    def function(shape: Any, dtype: Any) -> None: ...

    for module in (initializers, regularizers, constraints):
        assert module.get(None) is None
        assert module.get(function) is function
        with pytest.raises(ValueError, match="Unknown name 'nothing'"):
            module.get("nothing")
        for bad in (3, int, [1]):
            with pytest.raises(ValueError, match="Could not interpret"):
                module.get(bad)


OBJECTS = [
    initializers.Constant(2.5),
    initializers.VarianceScaling(2.0, "fan_avg", "uniform", seed=3),
    initializers.GlorotNormal(seed=1),
    initializers.RandomUniform(0.0, 1.0, 4),
    initializers.TruncatedNormal(0.1, 0.2, 5),
    regularizers.L1(0.5),
    regularizers.L2(0.25),
    regularizers.L1L2(0.5, 0.25),
    constraints.NonNeg(),
    constraints.MaxNorm(3.0, axis=[0, 1]),
    constraints.UnitNorm(axis=1),
    constraints.MinMaxNorm(0.5, 2.0, 0.5, 1),
]


@pytest.mark.parametrize("thing", OBJECTS, ids=lambda x: type(x).__name__)
def test_config_round_trips_through_json(thing: Any) -> None:
    module = {
        "initializers": initializers,
        "regularizers": regularizers,
        "constraints": constraints,
    }[type(thing).__module__.rpartition(".")[2]]
    config = json.loads(json.dumps(module.serialize(thing)))
    made = module.get(config)
    assert type(made) is type(thing)
    assert made.get_config() == thing.get_config()


@pytest.mark.parametrize(
    "make",
    [
        lambda: initializers.VarianceScaling(scale=0.0),
        lambda: initializers.VarianceScaling(mode="fan"),
        lambda: initializers.VarianceScaling(distribution="cauchy"),
        lambda: initializers.RandomNormal(seed=-1),
        lambda: regularizers.L1(-1.0),
        lambda: regularizers.L2(math.nan),
        lambda: constraints.MaxNorm(-1.0),
        lambda: constraints.MinMaxNorm(2.0, 1.0),
        lambda: constraints.MinMaxNorm(rate=1.5),
    ],
    ids=range(9),
)
def test_arguments_out_of_range_raise(make: Any) -> None:
    with pytest.raises(ValueError, match=r"must (be|satisfy)"):
        make()


@pytest.mark.parametrize("dtype", [F32, F16, F64], ids=lambda d: d.name)
@pytest.mark.parametrize(
    ("regularizer", "l1", "l2"),
    [
        (regularizers.L1(), 0.01, 0.0),
        (regularizers.L2(), 0.0, 0.01),
        (regularizers.L1L2(0.5, 0.25), 0.5, 0.25),
    ],
    ids=["l1", "l2", "l1_l2"],
)
def test_regularizer_value_and_gradient_equal_formula(
    regularizer: Any, l1: float, l2: float, dtype: np.dtype
) -> None:
    v = Variable(np.array([[1.5, -2.0], [0.5, 3.0]], dtype))
    with GradientTape() as tape:
        penalty = regularizer(v)
    w = v.numpy().astype(F64)
    unit = 2.0 ** (2 - reference.PRECISION[dtype])
    assert penalty.shape == ()
    value = l1 * np.abs(w).sum() + l2 * (w**2).sum()
    assert abs(float(penalty) - value) <= unit * value
    gradient = l1 * np.sign(w) + 2 * l2 * w
    assert np.allclose(tape.gradient(penalty, v), gradient, rtol=unit)


def test_regularizer_of_nothing_is_zero() -> None:
    assert float(regularizers.L1L2()(Variable([1.0]))) == 0


def test_non_neg_keeps_nan_and_zeros_negatives() -> None:
    y = constraints.NonNeg()(np.array([-1.0, 2.0, np.nan, -np.inf], F32))
    assert y[[0, 1, 3]].tolist() == [0, 2, 0]
    assert np.isnan(y[2])


@pytest.mark.parametrize("dtype", [F32, F16, BF16, F64], ids=lambda d: d.name)
def test_norm_constraints_bound_the_norms_of_columns(dtype: np.dtype) -> None:
    w = np.array([[3, 0.3, 0], [4, 0.4, 0]]).astype(dtype)
    unit = 2.0 ** (2 - min(reference.PRECISION[dtype], 22))

    def norms(y: np.ndarray) -> list[float]:
        assert y.dtype == dtype
        return np.sqrt((y.astype(F64) ** 2).sum(0)).tolist()

    cases = [
        (constraints.MaxNorm(2.0), [2, 0.5, 0]),
        (constraints.UnitNorm(), [1, 1, 0]),
        (constraints.MinMaxNorm(1.0, 2.0), [2, 1, 0]),
        (constraints.MinMaxNorm(1.0, 2.0, rate=0.5), [3.5, 0.75, 0]),
    ]
    for constraint, expected in cases:
        assert norms(constraint(w)) == pytest.approx(expected, rel=2 * unit)


def test_norm_constraint_takes_several_axes() -> None:
    w = np.ones((2, 2, 4), F32)
    y = constraints.UnitNorm(axis=[0, 1])(w)
    assert np.allclose((y**2).sum((0, 1)), 1, rtol=1e-6)
