"""Matrix products: which arrays they take, shapes, outputs, gradients, errors."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
import reference
from reference import BF16, F16, F32, F64, KERNEL_DTYPES, assert_same_bits, operands

import mpcore
from mpcore import GradientTape

DTYPES = pytest.mark.parametrize("dtype", KERNEL_DTYPES, ids=lambda d: d.name)
OUT_DTYPES = pytest.mark.parametrize(
    "out_dtype", KERNEL_DTYPES, ids=lambda d: f"to_{d.name}"
)


@DTYPES
@OUT_DTYPES
def test_matmul_k_zero_gives_zeros(
    isa: str, dtype: np.dtype, out_dtype: np.dtype
) -> None:
    out = np.full((3, 4), np.nan, out_dtype)
    a, b = np.ones((3, 0), dtype), np.ones((0, 4), dtype)
    mpcore.matmul(a, b, out_dtype=out_dtype, out=out)
    assert_same_bits(out, np.zeros((3, 4), out_dtype))


@DTYPES
@pytest.mark.parametrize("shape", [(0, 3, 4), (3, 4, 0), (0, 0, 0), (0, 5, 0)], ids=str)
def test_matmul_empty_gives_empty(
    isa: str, shape: tuple[int, int, int], dtype: np.dtype
) -> None:
    a, b = operands(*shape, dtype)
    assert mpcore.matmul(a, b).shape == (shape[0], shape[2])


def layouts(x: np.ndarray) -> dict[str, np.ndarray]:
    """Return arrays equal to `x` in other memory layouts."""
    wide = np.zeros((2 * x.shape[0], 3 * x.shape[1]), x.dtype)
    wide[::2, 1::3] = x
    backwards = x[::-1, ::-1].copy()
    misaligned = np.frombuffer(bytearray(x.nbytes + 1), np.uint8)[1:].view(x.dtype)
    misaligned = misaligned.reshape(x.shape)
    misaligned[...] = x
    record = np.zeros(x.shape, [("tag", np.int8), ("x", x.dtype)])
    record["x"] = x
    read_only = x.copy()
    read_only.flags.writeable = False
    return {
        "c": x,
        "fortran": np.asfortranarray(x),
        "strided": wide[::2, 1::3],
        "negative": backwards[::-1, ::-1],
        "misaligned": misaligned,
        "odd_stride": record["x"],
        "read_only": read_only,
    }


@DTYPES
def test_matmul_every_pair_of_layouts_gives_the_same_bits(
    isa: str, dtype: np.dtype
) -> None:
    a, b = operands(19, 37, 21, dtype, seed=9)
    expected = mpcore.matmul(a, b)
    for x, y in itertools.product(layouts(a).values(), layouts(b).values()):
        assert_same_bits(mpcore.matmul(x, y), expected)


@DTYPES
def test_matmul_zero_strides_repeat_a_row(isa: str, dtype: np.dtype) -> None:
    a, b = operands(1, 37, 21, dtype, seed=10)
    repeated = np.broadcast_to(a, (5, 37))
    assert_same_bits(mpcore.matmul(repeated, b), mpcore.matmul(repeated.copy(), b))
    column = np.broadcast_to(b[:, :1], (37, 4))
    assert_same_bits(mpcore.matmul(a, column), mpcore.matmul(a, column.copy()))


def test_matmul_byte_swapped_operands_give_their_values() -> None:
    a, b = operands(3, 4, 5, F32)
    y = mpcore.matmul(a.astype(">f4"), b.astype(">f4"))
    assert_same_bits(y, mpcore.matmul(a, b))


@pytest.mark.parametrize(
    ("left", "right"),
    [
        ((3,), (3,)),
        ((2, 3), (3,)),
        ((3,), (3, 2)),
        ((4, 2, 3), (3, 5)),
        ((4, 2, 3), (4, 3, 5)),
        ((1, 2, 3), (4, 3, 5)),
        ((6, 1, 2, 3), (4, 3, 5)),
        ((3,), (4, 3, 5)),
        ((4, 2, 3), (3,)),
        ((0, 2, 3), (3, 4)),
        ((2, 3), (0, 3, 4)),
    ],
    ids=str,
)
@DTYPES
def test_matmul_shapes_and_gradients_follow_numpy(
    left: tuple[int, ...], right: tuple[int, ...], dtype: np.dtype
) -> None:
    # Small integers: products, gradients, and their sums are exact.
    generator = np.random.default_rng(12)
    a = generator.integers(-3, 4, left).astype(dtype)
    b = generator.integers(-3, 4, right).astype(dtype)
    expected = np.matmul(a.astype(F64), b.astype(F64))
    weights = generator.integers(-3, 4, expected.shape).astype(F64)
    with GradientTape() as tape:
        x, w = tape.watch(a), tape.watch(b)
        y = mpcore.matmul(x, w)
    assert_same_bits(y, expected.astype(dtype))
    dx, dw = tape.gradient(y, [x, w], output_gradients=weights)

    def value(p: np.ndarray, q: np.ndarray) -> float:
        return float((np.matmul(p, q) * weights).sum())

    a64, b64 = a.astype(F64), b.astype(F64)
    # The function is linear in each operand, so differences are exact but for rounding.
    da = reference.finite_difference(lambda p: value(p, b64), a64, 0.5)
    db = reference.finite_difference(lambda q: value(a64, q), b64, 0.5)
    assert_same_bits(dx, da.astype(dtype))
    assert_same_bits(dw, db.astype(dtype))


def test_matmul_wide_result_of_halves_has_a_wide_gradient() -> None:
    # 2^20 is not a float16: the gradient must not pass through one.
    a = np.full((1, 2), 2.0**-10, F16)
    b = np.full((2, 1), 2.0**-10, F16)
    with GradientTape() as tape:
        x = tape.watch(a)
        y = mpcore.matmul(x, b, out_dtype="float32")
    dx = tape.gradient(y, x, output_gradients=np.full((1, 1), 2.0**20, F32))
    assert_same_bits(dx, np.full((1, 2), 2.0**10, F16))


def test_matmul_python_numbers_take_the_dtype_of_the_array() -> None:
    y = mpcore.matmul(np.ones((1, 2), BF16), [[1.0], [2.0]])
    assert_same_bits(y, np.array([[3]], BF16))
    assert mpcore.matmul([[1.0]], [[2.0]]).dtype == F32


@pytest.mark.parametrize(
    ("a", "b", "error", "message"),
    [
        (np.ones((2, 2)), np.ones((2, 2)), TypeError, "float32, float16, bfloat16"),
        (np.ones((2, 2), int), np.ones((2, 2), int), TypeError, "'int64'"),
        (np.ones((2, 2), F16), np.ones((2, 2), BF16), TypeError, "one dtype"),
        (np.ones((2, 3), F32), np.ones((2, 3), F32), ValueError, "as long as"),
        (np.ones((), F32), np.ones((2, 3), F32), ValueError, "at least 1 dim"),
        (np.ones((2, 1, 3), F32), np.ones((5, 3, 1), F32), ValueError, "broadcast"),
    ],
    ids=["float64", "int", "mixed", "shape", "scalar", "stack"],
)
def test_matmul_operands_that_do_not_fit_raise(
    a: np.ndarray, b: np.ndarray, error: type, message: str
) -> None:
    with pytest.raises(error, match=message):
        mpcore.matmul(a, b)


@pytest.mark.parametrize("out_dtype", ["float64", "int32"])
def test_matmul_unsupported_out_dtype_raises(out_dtype: str) -> None:
    with pytest.raises(TypeError, match="`out_dtype` must be float32"):
        mpcore.matmul(np.ones((1, 1), F32), np.ones((1, 1), F32), out_dtype=out_dtype)


@DTYPES
def test_matmul_out_of_any_layout_is_overwritten(isa: str, dtype: np.dtype) -> None:
    a, b = operands(18, 33, 17, dtype, seed=13)
    expected = mpcore.matmul(a, b)
    wide = np.full((36, 51), np.nan, dtype)
    for out in (
        np.full((18, 17), np.nan, dtype),
        np.full((18, 17), np.nan, dtype, order="F"),
        wide[::2, ::3],
        np.full((18, 17), np.nan, dtype)[::-1, ::-1],
    ):
        assert mpcore.matmul(a, b, out=out) is out
        assert_same_bits(out, expected)
    assert np.isnan(wide[1::2].astype(F32)).all()


def test_matmul_out_that_is_an_operand_gets_the_right_values() -> None:
    a, b = operands(8, 8, 8, F32)
    expected = mpcore.matmul(a, b)
    mpcore.matmul(a, b, out=a)
    assert_same_bits(a, expected)


def test_matmul_out_that_does_not_fit_raises_and_is_untouched() -> None:
    a, b = operands(2, 3, 4, F32)
    for out in (np.zeros((2, 3), F32), np.zeros((2, 4), F16), np.zeros(8, F32)):
        with pytest.raises(ValueError, match="`out` must have shape"):
            mpcore.matmul(a, b, out=out)
        assert not out.any()
