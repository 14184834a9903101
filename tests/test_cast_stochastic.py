"""Stochastic rounding: the generator, the rule to the bit, the mean, the arguments."""

from __future__ import annotations

import numpy as np
import pytest
from philox import philox4x32, random_bits, stochastic
from reference import BF16, F16, F32, F64, all_halves, assert_same_bits, bits, is_nan

import mpcore
from mpcore import GradientTape, Variable, random
from mpcore._core import cast as kernel

HALVES = pytest.mark.parametrize("half", [F16, BF16], ids=lambda d: d.name)


def rounded(x: np.ndarray, half: np.dtype, seed: int) -> np.ndarray:
    return mpcore.cast(x, half, rounding="stochastic", seed=seed)


def test_philox_reference_gives_the_published_vectors() -> None:
    # kat_vectors of Random123, the authors' own code.
    table = [
        ([0] * 4, (0, 0), "6627e8d5 e169c58d bc57ac4c 9b00dbd8"),
        ([0xFFFFFFFF] * 4, (0xFFFFFFFF,) * 2, "408f276d 41c83b0e a20bc7c6 6d5451fd"),
        (
            [0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344],
            (0xA4093822, 0x299F31D0),
            "d16cfe09 94fdcceb 5001e420 24126ea1",
        ),
    ]
    for counter, key, expected in table:
        (block,) = philox4x32(np.array([counter]), key)
        assert " ".join(f"{word:08x}" for word in block) == expected


def test_stochastic_bits_of_seed_zero_are_the_published_vector(isa: str) -> None:
    # Subnormal float32 m * 2^-149 rounds up to bfloat16 2^-133 if m + r >= 2^16.
    words = [0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8]
    for w, word in enumerate(words):
        for h in range(2):
            r = word >> (16 * h) & 0xFFFF
            x = np.zeros(128, F32)
            for m, expected in ((0xFFFF - r, 0), (0x10000 - r, 1)):
                bits(x)[32 * w + 16 * h] = m
                y = rounded(x, BF16, 0)
                assert bits(y)[32 * w + 16 * h] == expected


def patterns(count: int) -> np.ndarray:
    """Return random bit patterns, f16's range and subnormals, and what is special."""
    generator = np.random.default_rng(23)
    wild = generator.integers(0, 1 << 32, count, dtype=np.uint32).view(F32)
    scale = np.exp2(generator.integers(-44, 18, count))
    tame = (generator.standard_normal(count) * scale).astype(F32)
    special = [0.0, -0.0, np.inf, -np.inf, np.nan, 65504, 65519, 65535, 65536, 1e-45]
    special += [3.3895314e38, 3.4e38, -3.4028235e38, 2.0**-14, 2.0**-24, 2.0**-25]
    signaling = np.array([0x7F800001, 0xFFBFFFFF], np.uint32).view(F32)
    return np.concatenate([wild, tame, np.array(special, F32), signaling])


@HALVES
def test_stochastic_equals_the_documented_rule(
    isa: str, num_threads: int, half: np.dtype
) -> None:
    x = patterns(40000)
    seed = 0x0123456789ABCDEF
    assert_same_bits(rounded(x, half, seed), stochastic(x, half, seed))


def test_stochastic_subnormal_f16_compares_every_bit_of_the_fraction(isa: str) -> None:
    # Units of 2^-40: up if the number of them, rounded up, carries into bit 16.
    r = random_bits(0, 4096, 21).astype(F64)
    for units, expected in ((65535 - r, 0), (65535.5 - r, 1), (65536 - r, 1)):
        x = np.ldexp(units, -40).astype(F32)
        assert np.array_equal(np.ldexp(x.astype(F64), 40), units)
        y = rounded(x, F16, 21)
        assert (bits(y) == expected).all()
        assert (bits(rounded(-x, F16, 21)) == 0x8000 + expected).all()


@HALVES
@pytest.mark.parametrize("offset", [0, 1, 127, 128, 1000, 2**36 + 5, 2**64 - 70])
def test_stochastic_pieces_at_any_offset_have_the_bits_of_the_whole(
    isa: str, half: np.dtype, offset: int
) -> None:
    x = patterns(300)
    expected = stochastic(x, half, 99, offset)
    for piece in (1, 13, 128, 200, x.size):
        y = np.zeros(x.size, half)
        for i in range(0, x.size, piece):
            place = (offset + i) % 2**64
            kernel.cast_stochastic(x[i : i + piece], y[i : i + piece], 99, place)
        assert_same_bits(y, expected)


@HALVES
def test_stochastic_keeps_what_the_half_holds(isa: str, half: np.dtype) -> None:
    every = all_halves(half)
    number = every[~is_nan(every)]
    for seed in range(3):
        assert_same_bits(rounded(number.astype(F32), half, seed), number)


@HALVES
def test_stochastic_infinity_and_nan_are_as_rounding_to_nearest(
    isa: str, half: np.dtype
) -> None:
    x = np.array(
        [0x7F800000, 0xFF800000, 0x7F800001, 0xFFC12345, 0x7FBFE000], np.uint32
    )
    expected = mpcore.cast(x.view(F32), half)
    for seed in range(20):
        assert_same_bits(rounded(x.view(F32), half, seed), expected)


UNIT = {F16: 2.0**-24, BF16: 2.0**-133}
# Values with what is above and below them in the format, where the upper one of the
# largest numbers stands for infinity.
BETWEEN = {
    F16: [1.0003, -1.0003, 1.9999, 3.3e-5, 1e-6, -4e-7, 2e-8, 6.1e-5, 65510.0, 65530.0],
    BF16: [1.003, -1.003, 1.999, 1e-39, -1e-40, 3e-41, 1.17e-38, 3.39e38, -3.4e38],
}


@HALVES
def test_stochastic_mean_is_the_value(half: np.dtype) -> None:
    # n draws of a two-point distribution have a mean within 5 standard deviations of
    # the value, but for one run in 1.7 million; a subnormal f16 adds 2^-16 of its unit.
    count = 1 << 16
    for value in BETWEEN[half]:
        x = np.full(count, value, F32)
        y = rounded(x, half, 7).astype(F64)
        top = 2.0**16 if half == F16 else 2.0**128
        y = np.where(np.isinf(y), np.copysign(top, y), y)
        low, high = y.min(), y.max()
        exact = float(x[0])
        assert low < exact < high
        assert np.unique(y).size == 2
        up = (exact - low) / (high - low)
        sigma = np.sqrt(up * (1 - up) / count)
        assert abs((y == high).mean() - up) < 5 * sigma + 2.0**-16


@HALVES
def test_stochastic_mean_over_seeds_is_the_value(half: np.dtype) -> None:
    x = np.array(BETWEEN[half][:7], F32)
    count = 4000
    sums = np.zeros(x.size)
    near = rounded(x, half, 0).astype(F64)
    low, high = near.copy(), near.copy()
    for seed in range(count):
        y = rounded(x, half, seed).astype(F64)
        sums += y
        low, high = np.minimum(low, y), np.maximum(high, y)
    sigma = (high - low) / 2 / np.sqrt(count)
    assert (high > low).all()
    assert (abs(sums / count - x.astype(F64)) < 5 * sigma + UNIT[half] * 2.0**-16).all()


def test_stochastic_near_the_largest_number_rounds_to_it_or_to_infinity() -> None:
    y = rounded(np.full(4096, 65520, F32), F16, 3)
    assert set(bits(y).tolist()) == {0x7BFF, 0x7C00}
    y = rounded(np.full(4096, 65536, F32), F16, 3)
    assert set(bits(y).tolist()) == {0x7C00}
    y = rounded(np.full(4096, 3.4e38, F32), BF16, 3)
    assert set(bits(y).tolist()) == {0x7F7F, 0x7F80}


def test_stochastic_bits_have_no_visible_correlation() -> None:
    # Neighbouring elements and words round independently: correlations of 2^16 pairs
    # have a standard deviation of 2^-8.
    r = random_bits(0, 1 << 16, 5)
    x = np.zeros(1 << 16, F32)
    bits(x)[:] = 0x8000
    up = bits(rounded(x, BF16, 5)).astype(F64)
    assert np.array_equal(up, (r >= 0x8000).astype(F64))
    centred = up - 0.5
    for lag in (1, 16, 32, 128):
        assert abs((centred[lag:] * centred[:-lag]).mean() * 4) < 5 * 2.0**-8


@HALVES
def test_stochastic_seed_none_is_the_next_stream(half: np.dtype) -> None:
    x = np.linspace(0, 1, 1000).astype(F32)
    mpcore.set_random_seed(5)
    first = mpcore.cast(x, half, rounding="stochastic")
    second = mpcore.cast(x, half, rounding="stochastic")
    assert random.get_state() == (5, 2)
    assert not np.array_equal(bits(first), bits(second))
    mpcore.set_random_seed(5)
    assert_same_bits(mpcore.cast(x, half, rounding="stochastic"), first)
    before = random.get_state()
    rounded(x, half, 1)
    with pytest.raises(ValueError, match="`out` must have shape"):
        mpcore.cast(x, half, np.empty(3, half), rounding="stochastic")
    assert random.get_state() == before


@HALVES
def test_stochastic_any_array_is_taken_in_c_order(half: np.dtype) -> None:
    x = np.random.default_rng(1).standard_normal((20, 30)).astype(F32)
    for view in (x.T, x[::-1, ::-2], x.astype(">f4"), x[:0], np.asfortranarray(x)):
        plain = np.ascontiguousarray(view, F32).ravel()
        y = rounded(view, half, 4)
        assert_same_bits(y, stochastic(plain, half, 4).reshape(view.shape))
    out = np.zeros((20, 60), half)[:, ::2]
    assert mpcore.cast(x, half, out, rounding="stochastic", seed=4) is out
    assert_same_bits(out, rounded(x, half, 4))
    assert rounded(np.array(1.5, F32), half, 4).shape == ()


def test_stochastic_gradient_is_cast_back() -> None:
    v = Variable(np.array([1.0, 2.0], F32))
    with GradientTape() as tape:
        y = mpcore.cast(v, "bfloat16", rounding="stochastic", seed=1)
    assert_same_bits(tape.gradient(y, [v])[0], np.array([1.0, 1.0], F32))


@pytest.mark.parametrize(
    ("source", "target"),
    [(F64, F16), (F16, BF16), (np.dtype("i4"), F16), (F32, F32), (F32, np.dtype("i1"))],
    ids=str,
)
def test_stochastic_other_dtypes_raise(source: np.dtype, target: np.dtype) -> None:
    with pytest.raises(TypeError, match="from float32 to float16 or bfloat16"):
        mpcore.cast(np.ones(2, source), target, rounding="stochastic", seed=1)


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        (
            {"rounding": "up"},
            ValueError,
            "`rounding` must be 'nearest' or 'stochastic'",
        ),
        ({"seed": 1}, ValueError, "`seed` must be None unless"),
        ({"rounding": "stochastic", "seed": -1}, ValueError, r"in \[0, 2\*\*64\)"),
        ({"rounding": "stochastic", "seed": 2**64}, ValueError, r"in \[0, 2\*\*64\)"),
        (
            {"rounding": "stochastic", "seed": 1.0},
            TypeError,
            "`seed` must be an integer",
        ),
        ({"rounding": "stochastic", "seed": True}, TypeError, "must be an integer"),
    ],
)
def test_stochastic_bad_arguments_raise_and_write_nothing(
    arguments: dict[str, object], error: type, message: str
) -> None:
    out = np.full(2, 3, BF16)
    state = random.get_state()
    with pytest.raises(error, match=message):
        mpcore.cast(np.ones(2, F32), "bfloat16", out, **arguments)
    assert out.tolist() == [3, 3]
    assert random.get_state() == state
