"""Operands packed ahead, and the precision of float32 products."""

from __future__ import annotations

import array_table
import numpy as np
import pytest
from reference import F16, F32, F64, KERNEL_DTYPES, assert_same_bits, operands

import mpcore
from mpcore import GradientTape
from mpcore.ops import PackedMatrix

DTYPES = pytest.mark.parametrize("dtype", KERNEL_DTYPES, ids=lambda d: d.name)
LEVELS = mpcore.available_isas()


@DTYPES
@pytest.mark.parametrize("m", [1, 5, 16, 17, 40, 200])
@pytest.mark.parametrize(
    "shape", [(1, 1), (33, 35), (64, 32), (600, 70), (0, 3), (3, 0)], ids=str
)
def test_packed_product_has_the_bits_of_the_plain_one(
    isa: str, shape: tuple[int, int], m: int, dtype: np.dtype
) -> None:
    k, n = shape
    a, b = operands(m, k, n, dtype, seed=1)
    expected = mpcore.matmul(a, b)
    assert_same_bits(mpcore.matmul(a, PackedMatrix(b)), expected)
    assert_same_bits(mpcore.matmul(a, PackedMatrix(np.asfortranarray(b))), expected)


@DTYPES
def test_packed_product_across_super_blocks(isa: str, dtype: np.dtype) -> None:
    if isa == "scalar":
        pytest.skip("the same text, and slow")
    a, b = operands(180, 2100, 40, dtype, seed=2)
    assert_same_bits(mpcore.matmul(a, PackedMatrix(b)), mpcore.matmul(a, b))


def test_packed_product_keeps_leading_axes_and_takes_out(num_threads: int) -> None:
    a, b = operands(24, 7, 5, F16, seed=3)
    packed = PackedMatrix(b)
    expected = mpcore.matmul(a, b)
    stacked = mpcore.matmul(a.reshape(2, 3, 4, 7), packed)
    assert_same_bits(stacked, expected.reshape(2, 3, 4, 5))
    assert_same_bits(mpcore.matmul(a[0], packed), expected[0])
    strided = mpcore.matmul(a.reshape(2, 3, 4, 7)[::-1, :, ::2], packed)
    assert_same_bits(strided, expected.reshape(2, 3, 4, 5)[::-1, :, ::2])
    out = np.empty((24, 5), F32)
    assert mpcore.matmul(a, packed, out_dtype="float32", out=out) is out
    assert_same_bits(out, mpcore.matmul(a, b, out_dtype="float32"))


@pytest.mark.parametrize("layout", array_table.LAYOUTS)
def test_packed_matrix_of_any_layout(layout: str) -> None:
    a, b = operands(5, 9, 7, F16, seed=8)
    packed = PackedMatrix(array_table.LAYOUTS[layout](b))
    assert_same_bits(mpcore.matmul(a, packed), mpcore.matmul(a, b))


def test_packed_matrix_is_a_copy_with_shape_and_dtype() -> None:
    a, b = operands(3, 4, 5, F32, seed=4)
    packed, expected = PackedMatrix(b), mpcore.matmul(a, b)
    b[...] = 0
    assert_same_bits(mpcore.matmul(a, packed), expected)
    assert (packed.shape, packed.dtype) == ((4, 5), F32)
    assert repr(packed) == "<PackedMatrix shape=(4, 5) dtype=float32>"


def test_packed_matrix_of_another_level_or_precision_raises() -> None:
    a, b = operands(3, 4, 5, F32, seed=5)
    mpcore.set_isa("scalar")
    packed = PackedMatrix(b)
    mpcore.set_float32_matmul_precision("high")
    with pytest.raises(ValueError, match=r"precision=2 \(got scalar"):
        mpcore.matmul(a, packed)
    mpcore.set_float32_matmul_precision("highest")
    mpcore.matmul(a, packed)
    if len(LEVELS) > 1:
        mpcore.set_isa(LEVELS[1])
        with pytest.raises(ValueError, match="level avx2"):
            mpcore.matmul(a, packed)


@pytest.mark.parametrize(
    ("left", "right", "error", "message"),
    [
        (np.ones((2, 3), F32), np.ones((4, 5), F32), ValueError, "as long as"),
        (np.ones((), F32), np.ones((4, 5), F32), ValueError, "as long as"),
        (np.ones((2, 4), F16), np.ones((4, 5), F32), TypeError, "one dtype"),
        (np.ones((2, 4), F32), np.ones((4, 5), F64), TypeError, "float32, float16"),
        (np.ones((2, 4), F32), np.ones(4, F32), ValueError, "2 dimensions"),
    ],
    ids=["shape", "scalar", "mixed", "float64", "vector"],
)
def test_packed_operands_that_do_not_fit_raise(
    left: np.ndarray, right: np.ndarray, error: type, message: str
) -> None:
    with pytest.raises(error, match=message):
        mpcore.matmul(left, PackedMatrix(right))


def test_packed_product_on_a_tape_raises() -> None:
    a, b = operands(3, 4, 5, F32, seed=6)
    with GradientTape() as tape:
        x = tape.watch(a)
        with pytest.raises(ValueError, match="no gradient"):
            mpcore.matmul(x, PackedMatrix(b))


@pytest.mark.parametrize("precision", ["highest", "high", "medium"])
def test_float32_matmul_precision_is_kept_and_never_less_exact(
    isa: str, precision: str
) -> None:
    assert mpcore.get_float32_matmul_precision() == "highest"
    a, b = operands(40, 65, 33, F32, seed=7)
    expected = a.astype(F64) @ b.astype(F64)
    mpcore.set_float32_matmul_precision(precision)
    assert mpcore.get_float32_matmul_precision() == precision
    bits = {"highest": 24, "high": 22, "medium": 8}[precision]
    scale = np.abs(a.astype(F64)) @ np.abs(b.astype(F64))
    y = mpcore.matmul(a, b)
    assert (np.abs(y - expected) <= (2.0 ** (1 - bits) + 66 * 2.0**-24) * scale).all()


@pytest.mark.parametrize(
    ("precision", "error"), [("low", ValueError), (1, TypeError), (None, TypeError)]
)
def test_float32_matmul_precision_unknown_raises(
    precision: object, error: type
) -> None:
    with pytest.raises(error, match="`precision` must be"):
        mpcore.set_float32_matmul_precision(precision)
    assert mpcore.get_float32_matmul_precision() == "highest"
