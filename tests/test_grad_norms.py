"""Norms: the fixed tree to the bit, and entries whose squares leave float32."""

from __future__ import annotations

import math

import numpy as np
import pytest
from reference import BF16, F16, F32, F64, assert_same_bits

import mpcore
from mpcore import ops

DTYPES = pytest.mark.parametrize("dtype", [F32, F16, BF16, F64], ids=lambda d: d.name)
LEAF, LANES = 8192, 16
# Below and above a leaf, leaves side by side, tasks.
SIZES = (0, 1, 15, 17, 8191, 8192, 8193, 32767, 32768, 40961, 131072, 300_001)


def leaf_sum(x: np.ndarray) -> np.float64:
    """Sum squares as documented: sixteen lanes, then halves."""
    rows = np.zeros((-(-x.size // LANES), LANES))
    rows.ravel()[: x.size] = x
    lanes = np.zeros(LANES)
    for row in rows:
        lanes = lanes + row * row
    while lanes.size > 1:
        half = lanes.size // 2
        lanes = lanes[:half] + lanes[half:]
    return lanes[0]


def tree_sum(x: np.ndarray) -> np.float64:
    total = np.float64(0)
    for at in range(0, x.size, LEAF):
        total = total + leaf_sum(x[at : at + LEAF].astype(F64))
    return total


@DTYPES
def test_norms_follow_the_documented_tree_to_the_bit(dtype: np.dtype) -> None:
    generator = np.random.default_rng(7)
    arrays = [
        (generator.standard_normal(n) * 2.0 ** generator.integers(-9, 9, n)).astype(
            dtype
        )
        for n in SIZES
    ]
    squares = [tree_sum(x) for x in arrays]
    expected = np.sqrt(np.array(squares))
    whole = np.float64(0)
    for square in squares:
        whole = whole + square
    for level in mpcore.available_isas():
        for threads in (1, 2, 3):
            mpcore.set_isa(level)
            mpcore.set_num_threads(threads)
            assert_same_bits(ops.norms(arrays), expected)
            assert ops.global_norm(arrays) == np.sqrt(whole)


@pytest.mark.parametrize("dtype", [F32, BF16, F64], ids=lambda d: d.name)
def test_norms_hold_entries_of_1e30_and_1e_minus_30(
    isa: str, num_threads: int, dtype: np.dtype
) -> None:
    n = 50_000
    large, small = np.full(n, 1e30, dtype), np.full(n, 1e-30, dtype)
    mixed = small.copy()
    mixed[::1000] = large[0]
    exact = [
        math.sqrt(n) * float(large[0]),
        math.sqrt(n) * float(small[0]),
        math.sqrt(n // 1000) * float(large[0]),
    ]
    # Chains of at most 512 in a lane, 4 halvings, 7 leaves; half of it after the root.
    bound = (512 + 4 + 7) * 2.0**-53
    assert ops.norms([large, small, mixed]) == pytest.approx(exact, rel=bound, abs=0)
    whole = math.hypot(*exact)
    assert ops.global_norm([large, small, mixed]) == pytest.approx(
        whole, rel=bound, abs=0
    )
    # One small entry is not lost among zeros, wherever it stands.
    for at in (0, 8191, 8192, n - 1):
        alone = np.zeros(n, dtype)
        alone[at] = small[0]
        assert ops.norms([alone]).item() == float(small[0])


@DTYPES
def test_norms_show_what_is_not_finite_wherever_it_stands(
    isa: str, num_threads: int, dtype: np.dtype
) -> None:
    x = np.ones(40_961, dtype)
    for at in (0, 1, 8191, 8192, 20_000, 32_767, 32_768, 40_959, 40_960):
        for bad in (np.inf, np.nan):
            x[at] = bad
            norm = ops.norms([x]).item()
            assert norm == np.inf if bad == np.inf else math.isnan(norm)
        x[at] = 1


@pytest.mark.parametrize("exponent", [1020, 600, 520, -440, -470, -600, -1070])
def test_norms_of_doubles_lose_nothing_at_either_end(
    isa: str, num_threads: int, exponent: int
) -> None:
    n = 20_000
    x = np.full(n, math.ldexp(1.0, exponent))
    exact = math.ldexp(1.0, exponent) * math.sqrt(n) if exponent < 1017 else math.inf
    assert ops.norms([x, np.zeros(3)]).tolist() == pytest.approx(
        [exact, 0.0], rel=1e-15
    )
    assert ops.global_norm([x]) == pytest.approx(exact, rel=1e-15)


def test_global_norm_of_doubles_far_apart_is_that_of_all() -> None:
    # Two of each size, so that each matters only beside its like.
    for exponent in (700, 0, -449, -451, -700):
        size = math.ldexp(1.0, exponent)
        arrays = [
            np.array([3 * size]),
            np.array([4 * size]),
            np.array([size * 2.0**-300]),
        ]
        assert ops.global_norm(arrays) == 5 * size
    below, above = np.array([3 * 2.0**-453]), np.array([4 * 2.0**-448])
    assert ops.global_norm([below, above]) == pytest.approx(
        math.hypot(below[0], above[0]), rel=1e-15, abs=0
    )


def test_norms_of_doubles_pass_infinity_and_nan_on() -> None:
    got = ops.norms([np.array([1e200, math.inf]), np.array([1e-200, math.nan])])
    assert got[0] == math.inf
    assert math.isnan(got[1])
    assert math.isnan(ops.global_norm([np.array([1e200]), np.array([math.nan])]))
