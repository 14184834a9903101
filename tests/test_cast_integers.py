"""Casts to integers and bool: cut, saturated, wrapped; against exact arithmetic."""

from __future__ import annotations

import numpy as np
import pytest
from reference import BF16, F16, F32, F64, all_halves, assert_same_bits, is_nan

import mpcore
from mpcore import GradientTape, Tensor, dtypes

INTEGERS = [np.dtype(code) for code in ("i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8")]
BOOL = np.dtype(bool)
FLOATS = [F32, F16, BF16, F64]
FROM_FLOATS = pytest.mark.parametrize("source", FLOATS, ids=lambda d: d.name)
TO_INTEGERS = pytest.mark.parametrize("target", INTEGERS, ids=lambda d: d.name)


def cut(x: np.ndarray, target: np.dtype) -> np.ndarray:
    """Return floats cut toward zero and saturated, NaN as 0, by Python's integers."""
    info = np.iinfo(target)
    return np.array([_cut(float(value), info) for value in x.ravel()], target)


def _cut(value: float, info: np.iinfo) -> int:
    if value != value:
        return 0
    if np.isinf(value):
        return info.max if value > 0 else info.min
    return min(max(int(value), info.min), info.max)


def edges(source: np.dtype) -> np.ndarray:
    """Return floats around the ends of every integer type, and what is special."""
    ends = [2.0**k for k in (0, 7, 8, 15, 16, 23, 24, 31, 32, 52, 53, 62, 63, 64)]
    near = np.array([e + d for e in ends for d in (-1.5, -1, -0.5, 0, 0.5, 1, 1.5)])
    tiny = np.finfo(F64).smallest_subnormal
    special = [0.0, 0.25, 0.999, tiny, 1e-40, 1e30, 1e300, np.inf, np.nan]
    with np.errstate(over="ignore"):
        x = np.concatenate([near, special]).astype(source)
    around = [x]
    if source != F16 and source != BF16:
        around += [
            np.nextafter(x, source.type(0)),
            np.nextafter(x, source.type(np.inf)),
        ]
    x = np.concatenate(around)
    return np.concatenate([x, -x])


def random_bits(source: np.dtype) -> np.ndarray:
    """Return floats of random bits, and some around the ranges of integers."""
    generator = np.random.default_rng(13)
    wild = generator.integers(0, 256, 4000 * source.itemsize, np.uint8).view(source)
    scale = np.exp2(generator.integers(-3, 66, 8000))
    with np.errstate(over="ignore"):
        tame = (generator.standard_normal(8000) * scale).astype(source)
    return np.concatenate([wild, tame])


@FROM_FLOATS
@TO_INTEGERS
def test_cast_float_to_integer_cuts_saturates_and_makes_nan_zero(
    isa: str, source: np.dtype, target: np.dtype
) -> None:
    many = all_halves if source.itemsize == 2 else random_bits
    x = np.concatenate([edges(source), many(source)])
    assert_same_bits(mpcore.cast(x, target), cut(x, target))


@FROM_FLOATS
def test_cast_float_to_integer_in_range_equals_numpy(
    isa: str, source: np.dtype
) -> None:
    x = np.random.default_rng(2).uniform(-120, 120, 1000).astype(source)
    for target in (t for t in INTEGERS if t.kind == "i"):
        assert_same_bits(mpcore.cast(x, target), x.astype(target))
        assert_same_bits(mpcore.cast(abs(x), target), abs(x).astype(target))


@pytest.mark.parametrize("source", [*INTEGERS, BOOL], ids=lambda d: d.name)
@pytest.mark.parametrize("target", [*INTEGERS, BOOL], ids=lambda d: d.name)
def test_cast_integer_to_integer_wraps_as_numpy(
    isa: str, source: np.dtype, target: np.dtype
) -> None:
    generator = np.random.default_rng(17)
    x = generator.integers(0, 256, 1000 * source.itemsize, np.uint8)
    x = x % 2 == 0 if source == BOOL else x.view(source)
    if source != BOOL:
        info = np.iinfo(source)
        x = np.concatenate([x, np.array([0, 1, info.min, info.max], source)])
    assert_same_bits(mpcore.cast(x, target), x.astype(target))


@FROM_FLOATS
def test_cast_float_to_bool_is_whether_it_is_not_zero(
    isa: str, source: np.dtype
) -> None:
    x = all_halves(source) if source.itemsize == 2 else edges(source)
    assert x[is_nan(x)].size > 0
    y = mpcore.cast(x, bool)
    assert y.dtype == BOOL
    assert np.array_equal(y, [float(value) != 0 for value in x])
    assert y[is_nan(x)].all()


def test_cast_of_bool_bytes_other_than_one_are_true(isa: str) -> None:
    x = np.arange(256, dtype=np.uint8).view(bool)
    for target in (F32, F16, BF16, F64, *INTEGERS, BOOL):
        y = mpcore.cast(x, target)
        assert y.astype(F64).tolist() == [0.0, *[1.0] * 255]


def _arrays() -> dict[str, np.ndarray]:
    x = (np.arange(24, dtype=F64).reshape(4, 6) - 7.25) * 30
    misaligned = np.frombuffer(bytearray(x.nbytes + 1), np.uint8)[1:].view(F64)
    misaligned[:] = x.ravel()
    return {
        "c": x,
        "fortran": np.asfortranarray(x),
        "strided": x[::2, ::3],
        "negative": x[::-1, ::-2],
        "swapped": x.astype(">f8"),
        "misaligned": misaligned,
        "zero_stride": np.broadcast_to(x[0], (5, 6)),
        "scalar": np.array(-1.5),
        "empty": np.ones((2, 0, 1)),
        "int64": x.astype(np.int64)[:, ::-1],
        "uint16": x.astype(np.int16).view(np.uint16),
        "bool": x > 0,
        "float16": x.T.astype(F16),
    }


@pytest.mark.parametrize("kind", list(_arrays()))
@pytest.mark.parametrize(
    "target", [np.dtype("i2"), np.dtype("u8"), F16, F64, BOOL], ids=str
)
def test_cast_any_array_to_any_dtype_keeps_shape_and_values(
    kind: str, target: np.dtype
) -> None:
    x = _arrays()[kind]
    plain = np.ascontiguousarray(x.astype(x.dtype.newbyteorder("=")))
    if target == BOOL:
        expected = plain != 0
    elif target.kind in "iu" and x.dtype.kind == "f":
        expected = cut(plain, target)
    else:
        with np.errstate(over="ignore"):
            expected = plain.astype(target)
    assert_same_bits(mpcore.cast(x, target), expected.reshape(x.shape))


@pytest.mark.parametrize("length", [*range(70), 128, 200])
def test_cast_every_length_and_offset_of_mixed_widths(isa: str, length: int) -> None:
    raw = np.random.default_rng(length).integers(-99, 99, length + 3)
    for offset in range(3):
        x = raw[offset : offset + length]
        for target in (np.dtype("i1"), np.dtype("u4"), F16, BF16, F32, F64, BOOL):
            assert_same_bits(mpcore.cast(x, target), x.astype(target))


def test_cast_into_itself_and_over_itself_gets_the_right_values(isa: str) -> None:
    values = np.linspace(-300, 300, 301)
    for source, target in ((F64, np.int64), (F32, np.uint32), (F16, BF16)):
        x = values.astype(source)
        expected = mpcore.cast(x, target)
        out = x.view(target)
        assert mpcore.cast(x, target, out=out) is out
        assert_same_bits(out, expected)
    x = values.astype(F32)
    expected = cut(x, np.dtype(np.int16))
    out = x.view(np.int16)[1 : 1 + x.size]
    mpcore.cast(x, np.int16, out=out)
    assert_same_bits(out, expected)


LARGE_PAIRS = [
    ("float32", "bfloat16"),
    ("bfloat16", "float32"),
    ("float64", "float16"),
    ("float32", "int64"),
    ("int64", "float32"),
    ("uint8", "float64"),
    ("bool", "int32"),
]


@pytest.mark.parametrize(("source", "target"), LARGE_PAIRS)
def test_cast_of_arrays_beyond_the_caches_has_the_same_bits(
    isa: str, source: str, target: str
) -> None:
    # Large results take another path to memory; short pieces never do.
    to = dtypes.numpy_dtype(target)
    size = (1 << 23) // to.itemsize + 129
    x = mpcore.cast(np.arange(size) % 1009 - 300, source)
    whole = mpcore.cast(x, to)
    pieces = [mpcore.cast(x[i : i + 65536], to) for i in range(0, size, 65536)]
    assert_same_bits(whole, np.concatenate(pieces))
    out = np.zeros(size, to)[5:]
    assert_same_bits(mpcore.cast(x[5:], to, out=out), whole[5:])


def test_cast_to_misaligned_memory_beyond_the_caches(isa: str) -> None:
    size = (1 << 22) + 77
    x = (np.arange(size) % 2003 - 1000).astype(F32)
    raw = np.zeros(2 * size + 1, np.uint8)
    out = raw[1:].view(BF16)
    assert_same_bits(mpcore.cast(x, "bfloat16", out=out), x.astype(BF16))


def test_cast_to_integer_has_no_gradient() -> None:
    with GradientTape() as tape:
        x = tape.watch(np.array([1.5, -2.5], F32))
        y = mpcore.cast(x, "int32")
        z = mpcore.cast(y, "float32") * 2.0
    assert isinstance(y, Tensor)
    assert y.numpy().tolist() == [1, -2]
    assert tape.gradient(z, [x]) == [None]


@pytest.mark.parametrize("x", [np.ones(2, complex), np.array(["a"]), [object()]])
def test_cast_unsupported_source_to_integer_raises(x: object) -> None:
    with pytest.raises(TypeError, match=r"Cannot cast .*int8 \.\.\. int64"):
        mpcore.cast(x, "int8")
