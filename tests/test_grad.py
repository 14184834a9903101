"""Finite checks, unscaling, norms, and the state of dynamic loss scaling."""

from __future__ import annotations

import math

import numpy as np
import pytest
from reference import BF16, F16, F32, F64, assert_same_bits

import mpcore
from mpcore import Tensor, Variable, ops

DTYPES = pytest.mark.parametrize("dtype", [F32, F16, BF16, F64], ids=lambda d: d.name)
LEVELS = mpcore.available_isas()


@DTYPES
@pytest.mark.parametrize("bad", [np.inf, -np.inf, np.nan])
def test_all_finite_sees_every_position(
    isa: str, num_threads: int, dtype: np.dtype, bad: float
) -> None:
    for length in (*range(1, 70), 5000):
        x = np.ones(length, dtype)
        assert mpcore.all_finite(x)
        positions = range(length) if length < 70 else (0, 63, 64, 4095, 4096, 4999)
        for i in positions:
            x[i] = bad
            assert not mpcore.all_finite(x)
            x[i] = 1


@DTYPES
def test_all_finite_is_not_fooled_by_sums(isa: str, dtype: np.dtype) -> None:
    largest = np.full(1000, 65504 if dtype == F16 else 3e38, dtype)
    assert mpcore.all_finite(largest)
    cancelling = np.array([np.inf, -np.inf, np.inf, -np.inf], dtype)
    assert not mpcore.all_finite(cancelling)


def test_all_finite_takes_nested_structures() -> None:
    fine = [np.ones(2, F16), None, (np.arange(3), [Tensor([1.0]), Variable([2.0])])]
    assert mpcore.all_finite(fine) is True
    assert mpcore.all_finite([*fine, [[np.array([1.0, np.inf], BF16)]]]) is False
    assert mpcore.all_finite([])
    assert mpcore.all_finite(None)
    assert mpcore.all_finite(np.array(3.0))
    assert mpcore.all_finite([1.0, 2])
    assert not mpcore.all_finite([1.0, math.nan])
    assert mpcore.all_finite(np.ones((2, 0, 1), F32))


def test_all_finite_takes_any_memory_layout() -> None:
    x = np.ones((6, 8), F32)
    x[1, 1] = np.inf
    assert mpcore.all_finite(x[::2, ::2])
    assert not mpcore.all_finite(x[::-1].T)
    assert not mpcore.all_finite(x.astype(">f4"))
    assert mpcore.all_finite(np.ones(3, ">f8"))


def test_all_finite_of_other_dtypes_raises() -> None:
    with pytest.raises(TypeError, match="complex128"):
        mpcore.all_finite([np.ones(2, complex)])


@DTYPES
def test_unscale_multiplies_in_float32_and_rounds_once(
    isa: str, dtype: np.dtype
) -> None:
    generator = np.random.default_rng(1)
    work = F64 if dtype == F64 else F32
    for length in (0, 1, 15, 16, 17, 33, 1000):
        x = generator.standard_normal(length).astype(dtype)
        (y,), finite = ops.unscale([x], 1 / 3)
        assert finite
        expected = (x.astype(work) * work.type(1 / 3)).astype(dtype)
        assert_same_bits(y, expected)


def test_unscale_reports_overflow_of_the_results(isa: str) -> None:
    x = np.array([60000.0], F16)
    results, finite = ops.unscale([x, None, np.ones(1, F32)], 2.0)
    assert not finite
    assert results[0].item() == np.inf
    assert results[1] is None
    assert results[2].item() == 2
    assert x.item() == 60000


@pytest.mark.parametrize("bad", [np.inf, np.nan])
def test_unscale_reports_what_was_not_finite(isa: str, bad: float) -> None:
    assert not ops.unscale([np.ones(9, F32), np.array([1, bad], BF16)], 0.5)[1]


def test_unscale_out_may_be_the_arrays_themselves() -> None:
    x, y = np.array([2.0], F32), np.arange(6, dtype=F16)[::2]
    results, _ = ops.unscale([x, y], 0.5, out=[x, y])
    assert results[0] is x
    assert results[1] is y
    assert (x.tolist(), y.tolist()) == ([1.0], [0.0, 1.0, 2.0])


def test_unscale_out_that_overlaps_gets_the_right_values() -> None:
    base = np.arange(5, dtype=F32)
    ops.unscale([base[:4]], 2.0, out=[base[1:]])
    assert base.tolist() == [0, 0, 2, 4, 6]


@pytest.mark.parametrize(
    ("arrays", "multiplier", "out", "error"),
    [
        ([np.ones(2, int)], 1.0, None, TypeError),
        ([np.ones(2, F32)], math.inf, None, ValueError),
        ([np.ones(2, F32)], math.nan, None, ValueError),
        ([np.ones(2, F32)], 1.0, [], ValueError),
        ([np.ones(2, F32)], 1.0, [np.ones(2, F16)], ValueError),
        ([np.ones(2, F32)] * 2, 2.0, [np.ones(2, F32), np.ones(3, F32)], ValueError),
    ],
    ids=["int", "inf", "nan", "length", "dtype", "second_out"],
)
def test_unscale_arguments_that_do_not_fit_raise_and_nothing_is_written(
    arrays: list, multiplier: float, out: list | None, error: type
) -> None:
    with pytest.raises(error):
        ops.unscale(arrays, multiplier, out=out)
    assert all((x == 1).all() for x in [*arrays, *(out or [])])


@DTYPES
def test_norms_equal_float64_formula(
    isa: str, num_threads: int, dtype: np.dtype
) -> None:
    generator = np.random.default_rng(2)
    arrays = [generator.standard_normal(n).astype(dtype) for n in (0, 1, 17, 5000)]
    exact = np.array([np.sqrt(math.fsum(x.astype(F64) ** 2)) for x in arrays])
    # One rounding per square and per addition of a tree or chain.
    error = 5000 * 2.0**-53 * exact
    assert (np.abs(ops.norms(arrays) - exact) <= error).all()
    whole = math.sqrt(math.fsum(exact**2))
    assert abs(ops.global_norm([*arrays, None]) - whole) <= 5000 * 2.0**-53 * whole


def test_norms_neither_overflow_nor_underflow(isa: str) -> None:
    big, tiny = np.full(4, 3e38, F32), np.full(4, 1e-40, F32)
    assert ops.norms([big, tiny]) == pytest.approx([6e38, 2e-40], rel=1e-6)
    assert ops.global_norm([np.full(4, 2.0**-24, F16)]) == 2.0**-23


def test_norms_of_what_is_not_finite_are_not(isa: str) -> None:
    norms = ops.norms([np.array([np.inf, 1], F16), np.array([np.nan], F32)])
    assert norms[0] == np.inf
    assert np.isnan(norms[1])


@DTYPES
def test_norms_and_unscale_same_bits_on_every_level_and_thread_count(
    dtype: np.dtype,
) -> None:
    generator = np.random.default_rng(3)
    arrays = [generator.standard_normal(n).astype(dtype) for n in (7, 100_003)]
    found = []
    for level in LEVELS:
        for count in (1, 2):
            mpcore.set_isa(level)
            mpcore.set_num_threads(count)
            unscaled, _ = ops.unscale(arrays, 0.1)
            norms = ops.norms(arrays), np.float64(ops.global_norm(arrays))
            found.append([*norms, *unscaled])
    for results in found[1:]:
        for result, first in zip(results, found[0], strict=True):
            assert_same_bits(result, first)


def test_norms_of_nothing() -> None:
    assert ops.norms([]).shape == (0,)
    assert ops.global_norm([]) == 0


def test_loss_scale_grows_after_the_growth_steps_and_halves_on_overflow() -> None:
    scale, counter = 8.0, 0
    history = []
    for finite in (True, True, True, False, True, False, False):
        scale, counter = ops.loss_scale_update(scale, counter, 3, 1.0, 64.0, finite)
        history.append((scale, counter))
    assert history == [
        *((8, 1), (8, 2), (16, 0), (8, 0)),
        *((8, 1), (4, 0), (2, 0)),
    ]


def test_loss_scale_stays_within_its_bounds() -> None:
    assert ops.loss_scale_update(64.0, 0, 1, 1.0, 64.0, True) == (64.0, 0)
    assert ops.loss_scale_update(1.0, 5, 9, 1.0, 64.0, False) == (1.0, 0)
    assert ops.loss_scale_update(33.0, 0, 1, 1.0, 64.0, True)[0] == 33.0


@pytest.mark.parametrize(
    ("scale", "counter", "growth", "low", "high"),
    [
        (0.0, 0, 1, 1.0, 2.0),
        (math.nan, 0, 1, 1.0, 2.0),
        (1.0, -1, 1, 1.0, 2.0),
        (1.0, 0, 0, 1.0, 2.0),
        (1.0, 0, 1, 0.0, 2.0),
        (1.0, 0, 1, 1.0, math.inf),
    ],
)
def test_loss_scale_state_that_is_not_valid_raises(
    scale: float, counter: int, growth: int, low: float, high: float
) -> None:
    with pytest.raises(ValueError, match="must"):
        ops.loss_scale_update(scale, counter, growth, low, high, True)
