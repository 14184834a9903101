"""Products on AMX tiles: the bits of the level below, and rows that stay by themselves.

Page edges, precisions of float32, and the configuration of the tiles are tested in
csrc/tests/test_gemm_tiles.cpp; error bounds and orders on every level in test_gemm.py.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest
import reference
from reference import BF16, F16, F32, assert_same_bits, operands

import mpcore

HALVES = pytest.mark.parametrize("dtype", [BF16, F16], ids=lambda d: d.name)
RESIDUES = (1, 15, 16, 17, 31, 32, 33, 63, 64, 65)


@pytest.fixture(autouse=True)
def _amx() -> Iterator[None]:
    if "amx" not in mpcore.available_isas():
        reason = mpcore.cpu_info()["levels"][-1]["reason"]
        pytest.skip(f"no AMX here: {reason}")
    mpcore.set_isa("amx")
    yield


def below(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Return the product as the level below amx computes it."""
    mpcore.set_isa("avx512_fp16")
    y = mpcore.matmul(a, b, out_dtype="float32")
    mpcore.set_isa("amx")
    return y


@pytest.mark.parametrize("m", RESIDUES)
@pytest.mark.parametrize("n", RESIDUES)
def test_matmul_bf16_at_every_residue_has_the_bits_of_the_level_below(
    m: int, n: int
) -> None:
    for k in RESIDUES:
        a, b = operands(m, k, n, BF16, seed=k)
        assert_same_bits(mpcore.matmul(a, b, out_dtype="float32"), below(a, b))


@pytest.mark.parametrize(
    "shape",
    [(300, 1056, 129), (129, 1500, 600), (513, 96, 1100), (40, 5000, 70)],
    ids=str,
)
def test_matmul_bf16_any_blocking_has_the_bits_of_the_level_below(
    shape: tuple[int, int, int],
) -> None:
    a, b = operands(*shape, BF16)
    expected = below(a, b)
    for threads in (1, 2):
        mpcore.set_num_threads(threads)
        assert_same_bits(mpcore.matmul(a, b, out_dtype="float32"), expected)


@pytest.mark.parametrize("layout", ["a.T", "b.T", "reversed", "repeated", "strided"])
def test_matmul_bf16_any_layout_has_the_bits_of_a_plain_array(layout: str) -> None:
    a, b = operands(70, 96, 65, BF16)
    if layout == "a.T":
        a = np.asfortranarray(a)
    elif layout == "b.T":
        b = np.asfortranarray(b)
    elif layout == "reversed":
        a, b = a[::-1, ::-1], b[::-1, ::-1]
    elif layout == "repeated":
        a = np.broadcast_to(a[:1], a.shape)
    else:
        a, b = np.repeat(a, 2, axis=1)[:, ::2], np.repeat(b, 3, axis=1)[:, ::3]
    assert_same_bits(
        mpcore.matmul(a, b, out_dtype="float32"), below(a.copy(), b.copy())
    )


@HALVES
@pytest.mark.parametrize("k", [32, 96, 1056])
def test_matmul_row_has_the_same_bits_whatever_the_number_of_rows(
    dtype: np.dtype, k: int
) -> None:
    a, b = operands(300, k, 130, dtype)
    whole = mpcore.matmul(a, b, out_dtype="float32")
    for m in (1, 16, 17, 32, 128, 129):
        part = mpcore.matmul(a[:m], b, out_dtype="float32")
        assert_same_bits(part, whole[:m])


@HALVES
@pytest.mark.parametrize("k", [64, 1056])
@pytest.mark.parametrize("special", ["inf", "nan", "subnormal"])
def test_matmul_special_row_has_exact_bits_and_leaves_the_others_alone(
    dtype: np.dtype, k: int, special: str
) -> None:
    a, b = operands(100, k, 130, dtype)
    clean = mpcore.matmul(a, b, out_dtype="float32")
    rows = [3, 40, 41, 99]
    tiny = reference.TINIEST[dtype]
    a[rows, 5] = {"inf": np.inf, "nan": np.nan, "subnormal": tiny}[special]
    y = mpcore.matmul(a, b, out_dtype="float32")
    others = np.delete(np.arange(100), rows)
    assert_same_bits(y[others], clean[others])
    if dtype == BF16 or special != "subnormal":  # those of float16 are split exactly
        assert_same_bits(y[rows], below(a, b)[rows])


@HALVES
def test_matmul_special_column_has_exact_bits_and_leaves_other_blocks_alone(
    dtype: np.dtype,
) -> None:
    a, b = operands(50, 96, 200, dtype)
    clean = mpcore.matmul(a, b, out_dtype="float32")
    b[7, 70] = np.inf
    y = mpcore.matmul(a, b, out_dtype="float32")
    others = np.r_[0:64, 128:200]
    assert_same_bits(y[:, others], clean[:, others])
    assert_same_bits(y[:, 64:128], below(a, b)[:, 64:128])


@pytest.mark.parametrize("order", ["C", "F"])
@pytest.mark.parametrize("m", [5, 16, 32])
@pytest.mark.parametrize("k", [64, 45, 4096])
def test_matmul_thin_with_a_special_column_has_the_bits_of_the_level_below(
    m: int, k: int, order: str
) -> None:
    # A tile would flush the column to zeros.
    a, b = operands(m, k, 240, BF16)
    a = (a.astype(F32) * np.float32(1e20)).astype(BF16)
    for column in (0, 31, 32, 95, 130, 192, 239):
        w = (b.astype(F32) * np.float32(1e-20)).astype(BF16)
        w[:, column] = (b[:, column].astype(F32) * np.float32(1e-39)).astype(BF16)
        w = np.array(w, order=order)
        for width in (column + 1, 240):
            y = mpcore.matmul(a, w[:, :width], out_dtype="float32")
            assert_same_bits(y, below(a, w[:, :width]))


def test_matmul_f16_on_tiles_is_as_accurate_as_a_float32_chain() -> None:
    a, b = operands(64, 2048, 64, F16)
    # A chain of 16 in a block of 32 k, the sum of two, four blocks added per 32 k. High
    # and low halves have one sign, so their products add up to |a| |b|.
    roundings = 16 + 1 + 4 * (2048 // 32)
    expected, bound = reference.gemm_error_bound(a, b, F32, roundings)
    y = mpcore.matmul(a, b, out_dtype="float32")
    assert (np.abs(y - expected) <= bound).all()
