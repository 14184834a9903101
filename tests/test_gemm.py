"""Matrix products: error bounds, and orders of summation in bits."""

from __future__ import annotations

import numpy as np
import pytest
import reference
from reference import BF16, F16, F32, F64, KERNEL_DTYPES, assert_same_bits, operands

import mpcore

DTYPES = pytest.mark.parametrize("dtype", KERNEL_DTYPES, ids=lambda d: d.name)
OUT_DTYPES = pytest.mark.parametrize(
    "out_dtype", KERNEL_DTYPES, ids=lambda d: f"to_{d.name}"
)
SHAPES = [
    (1, 1, 1),
    (1, 1, 5),
    (3, 1, 2),
    (2, 3, 5),
    (1, 33, 1),
    (7, 31, 17),
    (16, 32, 16),
    (17, 33, 49),
    (3, 70, 5),
    (33, 64, 31),
    (65, 257, 35),
    (129, 100, 65),
]
LEVELS = mpcore.available_isas()


def assert_within_bound(
    actual: np.ndarray, a: np.ndarray, b: np.ndarray, out_dtype: np.dtype
) -> None:
    # One rounding per k, and one more where two chains are added.
    roundings = a.shape[-1] + 1
    expected, bound = reference.gemm_error_bound(a, b, out_dtype, roundings)
    assert actual.dtype == out_dtype
    assert actual.shape == expected.shape
    assert (np.abs(actual.astype(F64) - expected) <= bound).all()


@DTYPES
@OUT_DTYPES
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_matmul_any_shape_is_within_the_derived_bound(
    isa: str, shape: tuple[int, int, int], dtype: np.dtype, out_dtype: np.dtype
) -> None:
    a, b = operands(*shape, dtype)
    assert_within_bound(mpcore.matmul(a, b, out_dtype=out_dtype), a, b, out_dtype)


@DTYPES
def test_matmul_small_integers_are_exact(isa: str, dtype: np.dtype) -> None:
    generator = np.random.default_rng(1)
    for m, k, n in SHAPES:
        a = generator.integers(-4, 5, (m, k)).astype(dtype)
        b = generator.integers(-4, 5, (k, n)).astype(dtype)
        expected = a.astype(F64) @ b.astype(F64)
        assert_same_bits(mpcore.matmul(a, b, out_dtype="float32"), expected.astype(F32))


@pytest.mark.parametrize("dtype", [F16, BF16], ids=lambda d: d.name)
def test_matmul_of_halves_accumulates_in_float32(isa: str, dtype: np.dtype) -> None:
    a = np.ones((4, 1024), dtype)
    assert (mpcore.matmul(a, a.T).astype(F32) == 1024).all()


def test_matmul_f16_products_beyond_65504_overflow_only_when_rounded(isa: str) -> None:
    a = np.full((1, 8), 300, F16)
    assert mpcore.matmul(a, a.T, out_dtype="float32").item() == 720000
    assert np.isinf(mpcore.matmul(a, a.T)).all()


@pytest.mark.parametrize("shape", [*SHAPES, (5, 1000, 3)], ids=str)
def test_matmul_bf16_sums_in_the_documented_order(
    isa: str, shape: tuple[int, int, int]
) -> None:
    a, b = operands(*shape, BF16, seed=2)
    # Magnitudes that make every rounding count.
    a *= np.exp2(np.random.default_rng(4).integers(-6, 7, a.shape)).astype(BF16)
    exact = reference.bfloat16_product(a, b)
    assert_same_bits(mpcore.matmul(a, b, out_dtype="float32"), exact)
    assert_same_bits(mpcore.matmul(a, b), exact.astype(BF16))


def test_matmul_bf16_flushes_tiny_sums_and_only_sums(isa: str) -> None:
    # Rows: two sums of 2^-127; what is left of 1.5 - 1 times 2^-126; even beside odd.
    u = 2.0**-63
    a = np.array([[u / 2, 0, u / 2], [1.5 * u, 0, -u], [u, -u / 2, 0]]).astype(BF16)
    b = np.full((3, 1), u, BF16)
    y = mpcore.matmul(a, b, out_dtype="float32")
    assert_same_bits(y, np.array([[0], [0], [2.0**-126]], F32))
    assert_same_bits(y, reference.bfloat16_product(a, b))


@pytest.mark.parametrize("dtype", [F32, F16], ids=lambda d: d.name)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_matmul_f32_and_f16_sum_in_the_documented_order(
    isa: str, shape: tuple[int, int, int], dtype: np.dtype
) -> None:
    a, b = operands(*shape, dtype, seed=3)
    a *= np.exp2(np.random.default_rng(4).integers(-6, 5, a.shape)).astype(dtype)
    if (isa, dtype) == ("amx", F16):
        expected = reference.float16_product_on_tiles(a, b)
    else:
        expected = reference.fma_chain_product(a, b)
    assert_same_bits(mpcore.matmul(a, b, out_dtype="float32"), expected)


@DTYPES
@OUT_DTYPES
def test_matmul_same_bits_on_every_level(dtype: np.dtype, out_dtype: np.dtype) -> None:
    a, b = operands(37, 129, 51, dtype, seed=5)
    results = []
    # The tiles sum the products of float16 in an order of their own.
    for level in LEVELS if dtype != F16 else set(LEVELS) - {"amx"}:
        mpcore.set_isa(level)
        results.append(mpcore.matmul(a, b, out_dtype=out_dtype))
    for result in results[1:]:
        assert_same_bits(result, results[0])


@DTYPES
@pytest.mark.parametrize(
    "shape", [(5, 33, 300), (257, 64, 129), (300, 257, 5)], ids=str
)
def test_matmul_same_bits_on_one_thread_and_two(
    isa: str, shape: tuple[int, int, int], dtype: np.dtype
) -> None:
    a, b = operands(*shape, dtype, seed=6)
    results = []
    for count in (1, 2):
        mpcore.set_num_threads(count)
        results.append(mpcore.matmul(a, b))
    assert_same_bits(results[1], results[0])


@DTYPES
@pytest.mark.parametrize("k", [1, 33, 300])
def test_matmul_row_has_the_same_bits_alone_and_in_a_batch(
    isa: str, k: int, dtype: np.dtype
) -> None:
    a, b = operands(67, k, 35, dtype, seed=7)
    whole = mpcore.matmul(a, b, out_dtype="float32")
    for first, last in ((0, 1), (5, 6), (66, 67), (3, 19), (32, 67)):
        part = mpcore.matmul(a[first:last], b, out_dtype="float32")
        assert_same_bits(part, whole[first:last])


@DTYPES
def test_matmul_row_does_not_depend_on_special_rows_beside_it(
    isa: str, dtype: np.dtype
) -> None:
    a, b = operands(20, 40, 24, dtype, seed=8)
    clean = mpcore.matmul(a, b, out_dtype="float32")
    a[3, 5], a[4, 0], a[5, 39] = np.inf, np.nan, reference.TINIEST[dtype]
    dirty = mpcore.matmul(a, b, out_dtype="float32")
    others = [i for i in range(20) if i not in (3, 4, 5)]
    assert_same_bits(dirty[others], clean[others])


@DTYPES
def test_matmul_inf_and_nan_propagate(isa: str, dtype: np.dtype) -> None:
    a, b = np.ones((6, 40), dtype), np.ones((40, 3), dtype)
    a[0, 7] = np.inf
    a[1, 7] = -np.inf
    a[2, 7], a[2, 8] = np.inf, -np.inf
    a[3, 39] = np.nan
    b[7, 2] = 0
    y = mpcore.matmul(a, b, out_dtype="float32")
    assert y[0].tolist()[:2] == [np.inf, np.inf]
    assert y[1].tolist()[:2] == [-np.inf, -np.inf]
    assert np.isnan(y[0, 2])
    assert np.isnan(y[1, 2])
    assert np.isnan(y[2]).all()
    assert np.isnan(y[3]).all()
    assert y[4].tolist() == [40, 40, 39]


@DTYPES
def test_matmul_subnormal_operands_count_in_full(isa: str, dtype: np.dtype) -> None:
    tiny = reference.TINIEST[dtype]
    large = 2.0**100 if dtype != F16 else 2.0**15
    a = np.array([[3 * tiny, 0, 5 * tiny] * 12, [1, 2, 3] * 12]).astype(dtype)
    b = np.full((36, 5), large, dtype)
    expected = a.astype(F64) @ b.astype(F64)
    assert_same_bits(mpcore.matmul(a, b, out_dtype="float32"), expected.astype(F32))
    swapped = mpcore.matmul(b.T, a.T, out_dtype="float32")
    assert_same_bits(swapped, expected.T.astype(F32))


@pytest.mark.parametrize("dtype", [F32, F16], ids=lambda d: d.name)
def test_matmul_f32_and_f16_keep_subnormal_sums(isa: str, dtype: np.dtype) -> None:
    a = np.array([[2.0**-20, 2.0**-20]]).astype(dtype)
    b = np.array([[2.0**-20 * 3], [0]]).astype(dtype)
    if dtype == F32:
        a, b = a * F32.type(2.0**-60), b * F32.type(2.0**-45)
    expected = a.astype(F64) @ b.astype(F64)
    assert expected.item() > 0
    y = mpcore.matmul(a, b, out_dtype="float32")
    assert_same_bits(y, expected.astype(F32))
