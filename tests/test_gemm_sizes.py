"""Matrix products of every size around the tiles, blocks, and paths, in bits."""

from __future__ import annotations

import numpy as np
import pytest
import reference
from reference import BF16, F16, F32, F64, KERNEL_DTYPES, assert_same_bits, operands

import mpcore

DTYPES = pytest.mark.parametrize("dtype", KERNEL_DTYPES, ids=lambda d: d.name)
# Tiles are up to 16 rows by 32 columns; up to 16 rows of A have a way of their own.
HEIGHTS = range(1, 36)
WIDTHS = range(1, 70)


def exact_order(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Return the float32 product in the documented order of the dtype and level."""
    if a.dtype == BF16:
        return reference.bfloat16_product(a, b)
    if a.dtype == F16 and mpcore.get_isa() == "amx":
        return reference.float16_product_on_tiles(a, b)
    return reference.fma_chain_product(a, b)


def by_columns(x: np.ndarray) -> np.ndarray:
    return np.asfortranarray(x)


@DTYPES
@pytest.mark.parametrize("a_order", [np.asarray, by_columns], ids=["a_rows", "a_cols"])
@pytest.mark.parametrize("b_order", [np.asarray, by_columns], ids=["b_rows", "b_cols"])
def test_matmul_every_residue_of_the_tiles_gives_the_documented_bits(
    isa: str, dtype: np.dtype, a_order: object, b_order: object
) -> None:
    a, b = operands(max(HEIGHTS), 45, max(WIDTHS), dtype, seed=1)
    expected = exact_order(a, b)
    a, b = a_order(a), b_order(b)
    shapes = [(m, n) for m in HEIGHTS for n in (1, 16, 33, 69)]
    shapes += [(m, n) for m in (1, 5, 17, 35) for n in WIDTHS]
    for m, n in shapes:
        y = mpcore.matmul(a[:m], b[:, :n], out_dtype="float32")
        assert_same_bits(y, expected[:m, :n])


@DTYPES
def test_matmul_every_depth_gives_the_documented_bits(
    isa: str, dtype: np.dtype
) -> None:
    for k in (*range(1, 67), 191, 193, 511, 513, 1030):
        for m in (3, 19):
            a, b = operands(m, k, 37, dtype, seed=k)
            y = mpcore.matmul(a, b, out_dtype="float32")
            assert_same_bits(y, exact_order(a, b))


@DTYPES
@pytest.mark.parametrize("isa_name", ["avx2", "avx512"])
def test_matmul_beyond_a_super_block_gives_the_documented_bits(
    dtype: np.dtype, isa_name: str
) -> None:
    if isa_name not in mpcore.available_isas():
        pytest.skip(f"this CPU cannot run {isa_name}")
    mpcore.set_isa(isa_name)
    # Super blocks end at 2048 in each direction; a few rows and columns say enough.
    a, b = operands(2060, 2100, 2070, dtype, seed=2)
    y = mpcore.matmul(a, b, out_dtype="float32")
    rows, columns = [0, 167, 168, 2047, 2048, 2059], [0, 511, 512, 2047, 2048, 2069]
    assert_same_bits(y[np.ix_(rows, columns)], exact_order(a[rows], b[:, columns]))


@DTYPES
@pytest.mark.parametrize("m", [3, 16, 40, 200])
def test_matmul_ill_scaled_operands_are_within_the_derived_bound(
    isa: str, m: int, dtype: np.dtype
) -> None:
    a, b = operands(m, 131, 67, dtype, seed=3)
    reach = 5 if dtype == F16 else 40
    generator = np.random.default_rng(4)
    a *= np.exp2(generator.integers(-reach, reach + 1, a.shape)).astype(dtype)
    b *= np.exp2(generator.integers(-reach, reach + 1, (1, b.shape[1]))).astype(dtype)
    expected, bound = reference.gemm_error_bound(a, b, F32, a.shape[1] + 1)
    y = mpcore.matmul(a, b, out_dtype="float32")
    assert (np.abs(y.astype(F64) - expected) <= bound).all()


@DTYPES
def test_matmul_cancelling_sums_are_within_the_derived_bound(
    isa: str, dtype: np.dtype
) -> None:
    # Every sum passes through about k and comes back to about 0.
    a, b = operands(33, 128, 35, dtype, seed=5)
    a, b = np.abs(a), np.abs(b)
    a = np.concatenate([a, a], axis=1)
    b = np.concatenate([b, -b + b * dtype.type(2.0**-7)]).astype(dtype)
    expected, bound = reference.gemm_error_bound(a, b, F32, a.shape[1] + 1)
    y = mpcore.matmul(a, b, out_dtype="float32")
    assert (np.abs(y.astype(F64) - expected) <= bound).all()
    assert (np.abs(expected) < 0.02 * (np.abs(a.astype(F64)) @ np.abs(b))).all()


@DTYPES
def test_matmul_does_not_read_beyond_its_operands(isa: str, dtype: np.dtype) -> None:
    # What lies around the operands is NaN: a number that is read would show.
    for m, k, n in ((1, 5, 7), (3, 33, 17), (17, 31, 33), (15, 64, 1)):
        a, b = operands(m, k, n, dtype, seed=6)
        wide_a = np.full((m + 2, k + 20), np.nan, dtype)
        wide_b = np.full((k + 2, n + 20), np.nan, dtype)
        wide_a[1:-1, 3 : 3 + k], wide_b[1:-1, 3 : 3 + n] = a, b
        y = mpcore.matmul(wide_a[1:-1, 3 : 3 + k], wide_b[1:-1, 3 : 3 + n])
        assert_same_bits(y, mpcore.matmul(a, b))
