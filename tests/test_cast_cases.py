"""Conversions that went wrong in other systems."""

from __future__ import annotations

import numpy as np
from reference import BF16, F16, F32, assert_same_bits, bits, is_nan

import mpcore


def f32(*values: float) -> np.ndarray:
    return np.array(values, F32)


def test_cast_f16_subnormal_ties_see_all_bits(isa: str) -> None:
    u = 2.0**-24
    x = f32(
        u / 2 * (1 + 2**-20), u / 2, 1.5 * u, u * (1.5 - 2**-22), -u / 2 * (1 + 2**-20)
    )
    assert bits(mpcore.cast(x, "float16")).tolist() == [1, 0, 2, 1, 0x8001]


def test_cast_bf16_rounds_and_has_no_bias(isa: str) -> None:
    assert float(mpcore.cast(f32(0.2691408770292272), "bfloat16")[0]) == 0.26953125
    # Errors are uniform within 2^-8; the mean of n has a deviation of 2^-8/sqrt(3 n).
    x = np.random.default_rng(0).uniform(1, 2, 100_000).astype(F32)
    error = mpcore.cast(x, "bfloat16").astype(float) - x
    assert abs(error.mean()) < 5 * 2.0**-8 / np.sqrt(3 * x.size)


def test_cast_f64_carry_reaches_the_exponent(isa: str) -> None:
    x = np.array([0.4999999902343750, 1.9999999902343750, 1023.9999999])
    x = np.append(x, 2.0**-14 * (1 - 2.0**-30))
    y = mpcore.cast(x, "float16").astype(float)
    assert y.tolist() == [0.5, 2.0, 1024.0, 2.0**-14]


def test_cast_f16_equals_numpy_on_random_values(isa: str) -> None:
    generator = np.random.default_rng(1)
    scale = np.exp2(generator.integers(-26, 17, 400_000))
    x = (generator.standard_normal(400_000) * scale).astype(F32)
    with np.errstate(over="ignore"):
        expected = x.astype(F16)
    assert_same_bits(mpcore.cast(x, "float16"), expected)


def test_cast_f16_overflows_at_the_midpoint(isa: str) -> None:
    x = f32(65504, 65519.996, 65520, 65536, -65520)
    expected = [0x7BFF, 0x7BFF, 0x7C00, 0x7C00, 0xFC00]
    assert bits(mpcore.cast(x, "float16")).tolist() == expected


def test_cast_bf16_overflows_at_the_midpoint(isa: str) -> None:
    below = np.nextafter(F32.type(3.3961775e38), F32.type(0))
    x = f32(3.3895314e38, below, 3.3961775e38, 3.4028235e38)
    expected = [0x7F7F, 0x7F7F, 0x7F80, 0x7F80]
    assert bits(mpcore.cast(x, "bfloat16")).tolist() == expected


def test_cast_bf16_subnormals_are_kept_both_ways(isa: str) -> None:
    y = mpcore.cast(f32(1e-40, -1e-40, 2.0**-127), "bfloat16")
    assert bits(y).tolist() == [1, 0x8001, 0x0040]
    back = mpcore.cast(y, "float32")
    assert back.astype(float).tolist() == [2.0**-133, -(2.0**-133), 2.0**-127]


def test_cast_bf16_nan_stays_nan(isa: str) -> None:
    x = np.array([0x7FC0, 0x7F81, 0xFFC0, 0xFF81], np.uint16).view(BF16)
    for target in ("float32", "float16", "float64", "bfloat16"):
        assert is_nan(mpcore.cast(x, target)).all()


def test_cast_bf16_bytes_are_little_endian(isa: str) -> None:
    # One of 64 elements as well: blocks take another path than the rest.
    assert mpcore.cast(f32(1.0, -2.0), "bfloat16").tobytes() == b"\x80\x3f\x00\xc0"
    y = mpcore.cast(f32(1.0, -2.0).repeat(64), "bfloat16").tobytes()
    assert y == b"\x80\x3f" * 64 + b"\x00\xc0" * 64
