"""The epilogue and the batches of the core's product, below the public functions."""

from __future__ import annotations

import numpy as np
import pytest
import reference
from reference import BF16, F16, F32, F64, KERNEL_DTYPES, assert_same_bits, operands

import mpcore
from mpcore._core import gemm as kernel

DTYPES = pytest.mark.parametrize("dtype", KERNEL_DTYPES, ids=lambda d: d.name)
OUT_DTYPES = pytest.mark.parametrize(
    "out_dtype", KERNEL_DTYPES, ids=lambda d: f"to_{d.name}"
)
LEVELS = mpcore.available_isas()
SHAPES = [(1, 5, 7), (3, 40, 33), (16, 33, 64), (21, 600, 35), (40, 0, 5)]


def random(shape: tuple[int, ...], dtype: np.dtype, seed: int) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape).astype(dtype)


@DTYPES
@OUT_DTYPES
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_gemm_applies_its_terms_in_the_documented_order(
    isa: str, shape: tuple[int, int, int], dtype: np.dtype, out_dtype: np.dtype
) -> None:
    m, k, n = shape
    a, b = operands(m, k, n, dtype, seed=1)
    d, residual = random((m, n), out_dtype, 2), random((m, n), F16, 3)
    bias, z = random((n,), F32, 4), np.empty((m, n), F32)
    product = np.zeros((m, n), F32)
    kernel.gemm(a, b, product)
    expected = reference.fma(
        np.full((m, n), -0.75, F32), d.astype(F32), product * F32.type(1.5)
    )
    expected = expected + bias
    kernel.gemm(
        a, b, d, bias, 1, alpha=1.5, beta=-0.75, residual=residual, pre_activation=z
    )
    assert_same_bits(z, expected)
    expected = np.where(expected < 0, F32.type(0), expected) + residual.astype(F32)
    assert_same_bits(d, expected.astype(out_dtype))


@DTYPES
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_gemm_beta_zero_does_not_read_the_output(
    isa: str, shape: tuple[int, int, int], dtype: np.dtype
) -> None:
    m, k, n = shape
    a, b = operands(m, k, n, dtype, seed=5)
    clean, dirty = np.zeros((m, n), dtype), np.full((m, n), np.nan, dtype)
    kernel.gemm(a, b, clean, alpha=2.0)
    kernel.gemm(a, b, dirty, alpha=2.0)
    assert_same_bits(dirty, clean)


@DTYPES
def test_gemm_residual_may_be_the_output_itself(isa: str, dtype: np.dtype) -> None:
    a, b = operands(19, 33, 21, dtype, seed=6)
    before = random((19, 21), dtype, 7)
    apart, inside = np.empty_like(before), before.copy()
    kernel.gemm(a, b, apart, residual=before)
    kernel.gemm(a, b, inside, residual=inside)
    assert_same_bits(inside, apart)


def test_gemm_strided_epilogue_operands_give_the_same_bits(isa: str) -> None:
    a, b = operands(19, 33, 21, BF16, seed=8)
    residual = random((19, 21), F32, 9)
    plain = [np.empty((19, 21), BF16), np.empty((19, 21), F16)]
    kernel.gemm(a, b, plain[0], residual=residual, pre_activation=plain[1])
    wide = [np.empty((21, 38), BF16).T[::2], np.empty((38, 42), F16)[::2, ::2]]
    kernel.gemm(
        a,
        b,
        wide[0],
        residual=np.asfortranarray(residual),
        pre_activation=wide[1],
    )
    for strided, contiguous in zip(wide, plain, strict=True):
        assert_same_bits(np.ascontiguousarray(strided), contiguous)


def documented_sum_of_squares(d: np.ndarray) -> float:
    """Sum squares in the order of mpcore/gemm.h."""

    def halved(x: np.ndarray) -> np.ndarray:
        while x.shape[-1] > 1:
            half = x.shape[-1] // 2
            x = x[..., :half] + x[..., half:]
        return x[..., 0]

    rows, columns = d.shape
    squares = np.zeros((rows, -(-columns // 64) * 64))
    squares[:, :columns] = d.astype(F64) ** 2
    sixteens = halved(squares.reshape(-1, 4, 16))
    leaves = np.zeros(len(sixteens))
    for i in range(4):
        leaves += sixteens[:, i]
    sums = np.zeros(16)
    for i, leaf in enumerate(leaves):
        sums[i % 16] += leaf
    return float(halved(sums))


@DTYPES
@OUT_DTYPES
@pytest.mark.parametrize("shape", [*SHAPES, (300, 40, 300)], ids=str)
def test_gemm_gathers_squares_in_one_order_on_every_level_and_thread_count(
    shape: tuple[int, int, int], dtype: np.dtype, out_dtype: np.dtype
) -> None:
    a, b = operands(*shape, dtype, seed=10)
    d = np.empty((shape[0], shape[2]), out_dtype)
    for level in LEVELS:
        mpcore.set_isa(level)
        for count in (1, 2):
            mpcore.set_num_threads(count)
            finite, squares = kernel.gemm_gathering(a, b, d)
            assert finite
            assert squares == documented_sum_of_squares(d)


@DTYPES
@pytest.mark.parametrize("value", [np.inf, -np.inf, np.nan])
def test_gemm_finds_a_single_element_that_is_not_finite(
    isa: str, value: float, dtype: np.dtype
) -> None:
    for i in (0, 17, 63, 199):
        tall, one = np.ones((200, 1), dtype), np.ones((1, 1), dtype)
        for a, b in ((tall, one), (one, tall.T)):
            d = np.empty((a.shape[0], b.shape[1]), F32)
            assert kernel.gemm_gathering(a, b, d) == (True, 200.0)
            tall[i] = value
            finite, squares = kernel.gemm_gathering(a, b, d)
            tall[i] = 1
            assert not finite
            assert not np.isfinite(squares)


def test_gemm_overflow_in_the_rounding_is_not_finite(isa: str) -> None:
    a = np.full((1, 8), 300, F16)
    wide, narrow = np.empty((1, 1), F32), np.empty((1, 1), F16)
    assert kernel.gemm_gathering(a, a.T, wide) == (True, 720000.0**2)
    assert kernel.gemm_gathering(a, a.T, narrow)[0] is False


@DTYPES
@pytest.mark.parametrize("shape", [(1, 3, 4), (7, 40, 33), (40, 33, 70)], ids=str)
@pytest.mark.parametrize("count", [1, 2, 9])
def test_gemm_batch_has_the_bits_of_its_products(
    isa: str,
    num_threads: int,
    count: int,
    shape: tuple[int, int, int],
    dtype: np.dtype,
) -> None:
    m, k, n = shape
    a, b = random((count, m, k), dtype, 12), random((count, k, n), dtype, 13)
    residual = random((count, m, n), dtype, 14)
    d = np.empty((count, m, n), dtype)
    kernel.gemm(a, b, d, residual=residual, activation=3)
    for i in range(count):
        single = np.empty((m, n), dtype)
        kernel.gemm(a[i], b[i], single, residual=residual[i], activation=3)
        assert_same_bits(d[i], single)


@DTYPES
def test_gemm_stacks_of_any_strides_are_walked(isa: str, dtype: np.dtype) -> None:
    a = random((3, 1, 5, 4, 6), dtype, 15)[:, :, ::-2]
    b = random((2, 3, 6, 7), dtype, 16)
    d = np.empty((3, 7, 4, 2, 3), dtype).transpose(0, 3, 4, 2, 1)
    kernel.gemm(a, b, d)
    for index in np.ndindex(3, 2, 3):
        single = np.empty((4, 7), dtype)
        kernel.gemm(a[index[0], 0, index[2]], b[index[1:]], single)
        assert_same_bits(np.ascontiguousarray(d[index]), single)


def test_gemm_large_products_of_a_batch_share_the_threads() -> None:
    a, b = random((2, 300, 310), F32, 17), random((2, 310, 320), F32, 18)
    d = np.empty((2, 300, 320), F32)
    results = []
    for count in (1, 2):
        mpcore.set_num_threads(count)
        kernel.gemm(a, b, d)
        results.append(d.copy())
    assert_same_bits(results[1], results[0])
    assert_same_bits(results[0][1], mpcore.matmul(a[1], b[1]))
