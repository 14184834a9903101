"""Casts: bits against NumPy and ml_dtypes, and every kind of array."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest
from reference import (
    BF16,
    F16,
    F32,
    F64,
    TINIEST,
    all_halves,
    assert_same_bits,
    bits,
    is_nan,
    rounded,
    with_nan_rule,
)

import mpcore
from mpcore import GradientTape, Tensor, Variable

HALVES = pytest.mark.parametrize("half", [F16, BF16], ids=lambda d: d.name)
TARGETS = pytest.mark.parametrize("target", [F32, F16, BF16, F64], ids=lambda d: d.name)


def float32(*patterns: int) -> np.ndarray:
    return np.array(patterns, np.uint32).view(F32)


@HALVES
@TARGETS
def test_cast_every_half_is_exact_or_rounded_once(
    isa: str, half: np.dtype, target: np.dtype
) -> None:
    x = all_halves(half)
    number = x[~is_nan(x)]
    expected = rounded(number.astype(F64), target)
    assert_same_bits(mpcore.cast(number, target), expected)


@HALVES
@TARGETS
def test_cast_every_half_nan_stays_quiet_with_its_sign(
    isa: str, half: np.dtype, target: np.dtype
) -> None:
    x = all_halves(half)
    x = x[is_nan(x)]
    y = mpcore.cast(x, target)
    assert is_nan(y).all()
    assert np.array_equal(np.signbit(y), np.signbit(x))
    quiet = {F32: 1 << 22, F16: 1 << 9, BF16: 1 << 6, F64: 1 << 51}[target]
    assert (bits(y) & quiet).all()
    if target in (F16, BF16):
        assert_same_bits(y, with_nan_rule(x, y))


@HALVES
def test_cast_f32_random_bit_patterns_equal_reference(
    isa: str, num_threads: int, half: np.dtype
) -> None:
    generator = np.random.default_rng(7)
    x = generator.integers(0, 1 << 32, 1_000_000, dtype=np.uint32).view(F32)
    with np.errstate(all="ignore"):
        expected = with_nan_rule(x, x.astype(half))
    assert_same_bits(mpcore.cast(x, half), expected)


@HALVES
def test_cast_f32_neighbours_of_every_half_and_tie_equal_reference(
    isa: str, half: np.dtype
) -> None:
    # Every half, every midpoint of two of them, and the float32 on each side.
    exact = all_halves(half)
    exact = np.sort(exact[~is_nan(exact)].astype(F64))
    exact = exact[np.isfinite(exact)]
    middle = (exact[1:] + exact[:-1]) / 2
    with np.errstate(over="ignore"):
        points = np.concatenate([exact, middle]).astype(F32)
        around = [np.nextafter(points, F32.type(side)) for side in (-np.inf, np.inf)]
        x = np.concatenate([points, *around])
        expected = x.astype(half)
    assert_same_bits(mpcore.cast(x, half), expected)


def test_cast_f32_to_f16_edges_have_known_bits(isa: str) -> None:
    u = 2.0**-24
    table = [
        (65504.0, 0x7BFF),
        (65519.996, 0x7BFF),
        (65520.0, 0x7C00),
        (65536.0, 0x7C00),
        (-65520.0, 0xFC00),
        (u, 1),
        (u / 2, 0),
        (u / 2 * (1 + 2**-20), 1),
        (1.5 * u, 2),
        (u * (1.5 - 2**-22), 1),
        (-u / 2 * (1 + 2**-20), 0x8001),
        (-0.0, 0x8000),
        (1 + 2**-11, 0x3C00),
        (1 + 3 * 2**-11, 0x3C02),
        (2.0**-14 * (1 - 2**-12), 0x0400),
        (float("inf"), 0x7C00),
        (1e-45, 0),
    ]
    values, patterns = zip(*table, strict=True)
    y = mpcore.cast(np.array(values, F32), "float16")
    assert_same_bits(y, np.array(patterns, np.uint16).view(F16))


def test_cast_f32_to_bf16_edges_have_known_bits(isa: str) -> None:
    x = float32(
        *(0x7F7F0000, 0x7F7F7FFF, 0x7F7F8000, 0x7F7FFFFF, 0x3F808000, 0x3F818000),
        *(0x3F808001, 0x00000001, 0x00008000, 0x00008001, 0x80018000, 0x80000000),
        *(0xFF800000, 0x7F800001, 0xFF800001, 0x7FC12345, 0xFFFFFFFF),
    )
    patterns = [
        *(0x7F7F, 0x7F7F, 0x7F80, 0x7F80, 0x3F80, 0x3F82),
        *(0x3F81, 0x0000, 0x0000, 0x0001, 0x8002, 0x8000),
        *(0xFF80, 0x7FC0, 0xFFC0, 0x7FC0, 0xFFC0),
    ]
    y = mpcore.cast(x, "bfloat16")
    assert_same_bits(y, np.array(patterns, np.uint16).view(BF16))


def test_cast_f32_nan_to_f16_keeps_top_payload_bits(isa: str) -> None:
    x = float32(0x7F800001, 0xFF800001, 0x7FA46000, 0x7FFFFFFF, 0xFFC02000)
    y = mpcore.cast(x, "float16")
    patterns = [0x7E00, 0xFE00, 0x7F23, 0x7FFF, 0xFE01]
    assert_same_bits(y, np.array(patterns, np.uint16).view(F16))


@pytest.mark.parametrize("target", [F32, F16, BF16], ids=lambda d: d.name)
def test_cast_f64_rounds_once(isa: str, target: np.dtype) -> None:
    # A tie of the target, off by less than float32 can see: rounding through float32
    # lands on the tie and goes the wrong way.
    generator = np.random.default_rng(3)
    precision = {F32: 24, F16: 11, BF16: 8}[target]
    low = {F32: -150, F16: -26, BF16: -134}[target]
    high = {F32: 127, F16: 15, BF16: 127}[target]
    whole = generator.integers(1 << (precision - 1), 1 << precision, 20000) + 0.5
    exponent = generator.integers(low - precision, high - precision + 2, 20000)
    tie = np.ldexp(whole, exponent)
    x = np.concatenate(
        [tie, tie * (1 + 2.0**-50), tie * (1 - 2.0**-50), -tie * (1 + 2.0**-40)]
    )
    expected = rounded(x, target)
    if target != F32:
        with np.errstate(over="ignore"):
            twice = x.astype(F32).astype(target)
        assert (bits(twice) != bits(expected)).any()
    assert_same_bits(mpcore.cast(x, target), expected)


@pytest.mark.parametrize("target", [F32, F16, BF16], ids=lambda d: d.name)
def test_cast_f64_subnormal_ties_round_once(isa: str, target: np.dtype) -> None:
    # Ties between subnormals of the target, and doubles beside them that no float32 is.
    tie = np.ldexp(np.arange(300) + 0.5, int(np.log2(TINIEST[target])))
    x = np.concatenate([tie, tie * (1 + 2.0**-50), tie * (1 - 2.0**-50), tie * 2])
    x = np.concatenate([x, -x])
    assert_same_bits(mpcore.cast(x, target), rounded(x, target))


@pytest.mark.parametrize("target", [F32, F16, BF16], ids=lambda d: d.name)
def test_cast_f64_random_bit_patterns_equal_reference(
    isa: str, target: np.dtype
) -> None:
    generator = np.random.default_rng(11)
    wild = generator.integers(0, 1 << 64, 200_000, dtype=np.uint64).view(F64)
    tame = generator.standard_normal(200_000) * np.exp2(
        generator.integers(-160, 140, 200_000)
    )
    x = np.concatenate([wild, tame])
    number = x[~is_nan(x)]
    assert_same_bits(mpcore.cast(number, target), rounded(number, target))


def test_cast_f64_nan_follows_rule(isa: str) -> None:
    x = np.array(
        [0x7FF0000000000001, 0xFFF0000000000001, 0x7FF8C00000000000], np.uint64
    ).view(F64)
    assert bits(mpcore.cast(x, "bfloat16")).tolist() == [0x7FC0, 0xFFC0, 0x7FC0]
    assert bits(mpcore.cast(x, "float16")).tolist() == [0x7E00, 0xFE00, 0x7E30]
    assert is_nan(mpcore.cast(x, "float32")).all()


@TARGETS
@pytest.mark.parametrize(
    "source", ["i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8", "?"]
)
def test_cast_integer_rounds_once(isa: str, source: str, target: np.dtype) -> None:
    dtype = np.dtype(source)
    if dtype == np.bool_:
        x = np.array([True, False] * 20)
    else:
        info = np.iinfo(dtype)
        generator = np.random.default_rng(5)
        x = generator.integers(info.min, info.max, 4000, dtype=dtype, endpoint=True)
        shift = generator.integers(0, info.bits, 4000).astype(dtype)
        edges = np.array([0, 1, info.min, info.max, info.max - 1], dtype)
        x = np.concatenate([x, x >> shift, edges, _near_ties(dtype)])
    assert_same_bits(mpcore.cast(x, target), rounded(x, target))


def _near_ties(dtype: np.dtype) -> np.ndarray:
    """Return ties of 8, 11, 24, and 53 bits, and the integers beside them."""
    found = []
    top = np.iinfo(dtype).bits - (1 if dtype.kind == "i" else 0)
    for precision in (8, 11, 24, 53):
        for length in range(precision + 2, top + 1):
            half = 1 << (length - precision - 1)
            base = (1 << (length - 1)) + half
            found += [base - 1, base, base + 1, base + 2 * half, base + 2 * half + 1]
    return np.array([n for n in found if n < 1 << top], dtype)


def test_cast_int64_beyond_float32_is_no_double_rounding() -> None:
    # 2^24 + 1 + 2^-something is what float32 would have seen.
    x = np.array([(1 << 54) + (1 << 46) + 1], np.int64)
    assert float(mpcore.cast(x, "bfloat16")[0]) == 2.0**54 * (1 + 2**-7)


@HALVES
@pytest.mark.parametrize("length", [*range(50), 1000])
def test_cast_every_length_and_offset_equals_reference(
    isa: str, length: int, half: np.dtype
) -> None:
    raw = np.random.default_rng(length).standard_normal(length + 3).astype(F32)
    for offset in range(3):
        x = raw[offset : offset + length]
        assert_same_bits(mpcore.cast(x, half), x.astype(half))
        back = x.astype(half)
        assert_same_bits(mpcore.cast(back, "float32"), back.astype(F32))


def _arrays() -> dict[str, np.ndarray]:
    x = np.arange(24, dtype=F32).reshape(4, 6) - 7.25
    misaligned = np.frombuffer(bytearray(x.nbytes + 1), np.uint8)[1:].view(F32)
    misaligned[:] = x.ravel()
    read_only = x.copy()
    read_only.flags.writeable = False
    return {
        "c": x,
        "fortran": np.asfortranarray(x),
        "transposed": x.T,
        "strided": x[::2, ::3],
        "negative": x[::-1, ::-2],
        "swapped": x.astype(">f4"),
        "swapped_strided": x.astype(">f4")[:, ::2],
        "misaligned": misaligned,
        "read_only": read_only,
        "zero_stride": np.broadcast_to(x[0], (5, 6)),
        "scalar": np.array(1.5, F32),
        "numpy_scalar": F32.type(2.5),
        "empty": np.ones((2, 0, 1), F32),
    }


@HALVES
@pytest.mark.parametrize("kind", list(_arrays()))
def test_cast_any_array_gives_its_values_in_its_shape(
    kind: str, half: np.dtype
) -> None:
    x = _arrays()[kind]
    y = mpcore.cast(x, half)
    assert isinstance(y, np.ndarray)
    assert_same_bits(y, np.asarray(x, F32).astype(half))


def test_cast_python_floats_round_once_from_float64() -> None:
    x = [1 + 2.0**-11 + 2.0**-40, [2.0][0]]
    assert mpcore.cast(x, "float16").tolist() == [1 + 2.0**-10, 2.0]


def test_cast_same_dtype_returns_a_copy() -> None:
    x = np.ones(3, F32)
    y = mpcore.cast(x, "float32")
    y[0] = 5
    assert x[0] == 1


@pytest.mark.parametrize(
    "dtype", ["bfloat16", BF16, ml_dtypes.bfloat16], ids=["name", "dtype", "type"]
)
def test_cast_dtype_may_be_name_dtype_or_type(dtype: object) -> None:
    assert mpcore.cast(np.ones(1, F32), dtype).dtype == BF16


def test_cast_bf16_bytes_are_little_endian() -> None:
    y = mpcore.cast(np.array([1.0, -2.0], F32), "bfloat16")
    assert y.tobytes() == b"\x80\x3f\x00\xc0"


@pytest.mark.parametrize("x", [np.ones(2, complex), np.array(["a"]), [object()]])
def test_cast_unsupported_source_raises(x: object) -> None:
    with pytest.raises(TypeError, match="Cannot cast"):
        mpcore.cast(x, "float16")


def test_cast_unknown_dtype_raises() -> None:
    with pytest.raises(ValueError, match="Unknown dtype 'float8'"):
        mpcore.cast(np.ones(2, F32), "float8")


@pytest.mark.parametrize("kind", ["c", "fortran", "strided", "negative"])
def test_cast_out_of_any_strides_is_written(kind: str) -> None:
    x = np.arange(12, dtype=F32).reshape(3, 4)
    base = np.full((6, 8), np.nan, F16)
    out = {
        "c": np.full((3, 4), np.nan, F16),
        "fortran": np.full((3, 4), np.nan, F16, order="F"),
        "strided": base[::2, ::2],
        "negative": base[2::-1, 3::-1],
    }[kind]
    assert mpcore.cast(x, "float16", out=out) is out
    assert_same_bits(out, x.astype(F16))


def test_cast_out_that_overlaps_the_source_gets_the_right_values() -> None:
    buffer = np.arange(8, dtype=F32)
    expected = buffer.astype(F16)
    out = buffer.view(F16)[:8]
    mpcore.cast(buffer, "float16", out=out)
    assert_same_bits(out, expected)
    buffer = np.arange(8, dtype=F32)
    mpcore.cast(buffer[::-1], "float32", out=buffer)
    assert buffer.tolist() == [7, 6, 5, 4, 3, 2, 1, 0]


@pytest.mark.parametrize(
    ("out", "error"),
    [
        (np.zeros(3, F16), ValueError),
        (np.zeros((2, 1), F16), ValueError),
        (np.zeros(2, F32), ValueError),
        (np.zeros(2, ">f2"), ValueError),
        (np.broadcast_to(np.zeros(1, F16), (2,)), ValueError),
        ([0, 0], TypeError),
    ],
    ids=["size", "ndim", "dtype", "order", "read_only", "list"],
)
def test_cast_out_that_does_not_fit_raises(out: object, error: type) -> None:
    before = np.array(out)
    with pytest.raises(error, match="`out` must"):
        mpcore.cast(np.ones(2, F32), "float16", out=out)
    assert np.array_equal(np.asarray(out), before)


def test_cast_of_tensor_is_tensor_and_of_variable_is_array() -> None:
    assert isinstance(mpcore.cast(Tensor([1.0]), "float16"), Tensor)
    assert isinstance(mpcore.cast(Variable([1.0]), "float16"), np.ndarray)


def test_cast_gradient_comes_back_in_the_source_dtype() -> None:
    v = Variable(np.array([1.0, 2.0], F64))
    with GradientTape() as tape:
        x = tape.watch(np.array([1.0, 2.0], F16))
        y = mpcore.cast(x, "float32") * 3.0 + mpcore.cast(v, "bfloat16")
    dx, dv = tape.gradient(y, [x, v])
    assert_same_bits(dx, np.array([3.0, 3.0], F16))
    assert_same_bits(dv, np.array([1.0, 1.0], F64))
