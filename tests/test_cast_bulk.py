"""Casts of many random bit patterns, against NumPy and ml_dtypes."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest
from reference import BF16, F16, F32, assert_same_bits, with_nan_rule

import mpcore

CHUNK = 1 << 20


def patterns(count: int, seed: int) -> Iterator[np.ndarray]:
    """Yield chunks of `count` float32 of random bits."""
    generator = np.random.default_rng(seed)
    for first in range(0, count, CHUNK):
        size = min(CHUNK, count - first)
        yield generator.integers(0, 1 << 32, size, dtype=np.uint32).view(F32)


def assert_equal_reference(count: int, half: np.dtype, seed: int) -> None:
    for x in patterns(count, seed):
        with np.errstate(all="ignore"):
            expected = x.astype(half)
        assert_same_bits(mpcore.cast(x, half), with_nan_rule(x, expected))


@pytest.mark.parametrize("half", [F16, BF16], ids=lambda d: d.name)
def test_cast_of_a_hundred_million_random_patterns_equals_reference(
    half: np.dtype,
) -> None:
    assert_equal_reference(100_000_000, half, 31)


@pytest.mark.parametrize("half", [F16, BF16], ids=lambda d: d.name)
def test_cast_of_a_million_random_patterns_equals_reference_at_each_level(
    isa: str, half: np.dtype
) -> None:
    assert_equal_reference(1_000_000, half, 37)
