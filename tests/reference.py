"""Float64 formulas and correctly rounded conversions to hold the kernels against."""

from __future__ import annotations

import math
from collections.abc import Callable

import ml_dtypes
import numpy as np

F32 = np.dtype(np.float32)
F16 = np.dtype(np.float16)
BF16 = np.dtype(ml_dtypes.bfloat16)
F64 = np.dtype(np.float64)
KERNEL_DTYPES = (F32, F16, BF16)

# Bits of precision, and the smallest subnormal number.
PRECISION = {F32: 24, F16: 11, BF16: 8, F64: 53}
TINIEST = {F32: 2.0**-149, F16: 2.0**-24, BF16: 2.0**-133, F64: 2.0**-1074}


def bits(array: np.ndarray) -> np.ndarray:
    """Return the bit patterns."""
    array = np.ascontiguousarray(array)
    return array.view(np.dtype(f"u{array.itemsize}"))


def assert_same_bits(actual: np.ndarray, expected: np.ndarray) -> None:
    """Fail unless dtype, shape, and all bits agree."""
    actual, expected = np.asarray(actual), np.asarray(expected)
    assert actual.dtype == expected.dtype
    assert actual.shape == expected.shape
    different = np.flatnonzero(bits(actual).ravel() != bits(expected).ravel())
    if different.size:
        i = different[0]
        raise AssertionError(
            f"{different.size} of {actual.size} differ, first at {i}: "
            f"{actual.ravel()[i]!r} ({bits(actual).ravel()[i]:#x}) for "
            f"{expected.ravel()[i]!r} ({bits(expected).ravel()[i]:#x})"
        )


def all_halves(dtype: np.dtype) -> np.ndarray:
    """Return all 65,536 numbers of a 16-bit dtype."""
    return np.arange(1 << 16, dtype=np.uint16).view(dtype)


def is_nan(x: np.ndarray) -> np.ndarray:
    """Return where NaNs are; signaling ones are no reason for a warning."""
    with np.errstate(invalid="ignore"):
        return np.isnan(x)


def operands(
    m: int, k: int, n: int, dtype: np.dtype, seed: int = 0
) -> tuple[np.ndarray, np.ndarray]:
    """Return normally distributed matrices of shapes (m, k) and (k, n)."""
    generator = np.random.default_rng(seed)
    a, b = generator.standard_normal((m, k)), generator.standard_normal((k, n))
    return a.astype(dtype), b.astype(dtype)


def _round_to_odd(x: np.ndarray, dtype: np.dtype) -> np.ndarray:
    """Round so that a second rounding to nearest, two bits narrower, is the only one.

    Exact numbers stay; others are cut off and get their last bit set (S. Boldo and
    G. Melquiond, "When double rounding is odd", 2004).
    """
    with np.errstate(all="ignore"):
        near = x.astype(dtype)
        back = near.astype(x.dtype)
        cut = np.where(
            np.abs(back) > np.abs(x), np.nextafter(near, dtype.type(0)), near
        )
    inexact = np.isfinite(x) & (back != x)
    sticky = (bits(cut) | inexact.astype(bits(cut).dtype)).view(dtype)
    return sticky.reshape(x.shape)


def rounded(x: np.ndarray, dtype: np.dtype) -> np.ndarray:
    """Round float64 or integer numbers once, to nearest with ties to even."""
    x = np.asarray(x)
    if x.dtype.kind in "biu":
        # 64 bits of precision or more.
        wide = x.astype(np.longdouble)
        assert np.array_equal(wide.astype(x.dtype), x)
        if dtype == F64:
            return wide.astype(F64)
        x = _round_to_odd(wide, F64)
    with np.errstate(all="ignore"):
        if dtype == BF16 and x.dtype == F64:
            x = _round_to_odd(x, F32)
        return x.astype(dtype)


def with_nan_rule(x: np.ndarray, expected: np.ndarray) -> np.ndarray:
    """Replace the NaNs of a conversion by what the rule says.

    Sign kept, quiet; to float16 the top payload bits, to bfloat16 0x7fc0.
    """
    expected = expected.copy()
    nan = is_nan(x)
    sign = np.signbit(x[nan]).astype(np.uint16) << np.uint16(15)
    if expected.dtype == BF16:
        bits(expected)[nan] = 0x7FC0 | sign
    elif expected.dtype == F16:
        mantissa = PRECISION[x.dtype] - 1
        pattern = bits(x)[nan].astype(np.uint64)
        top = (pattern & np.uint64((1 << mantissa) - 1)) << np.uint64(64 - mantissa)
        payload = (top >> np.uint64(54)).astype(np.uint16)
        bits(expected)[nan] = 0x7E00 | payload | sign
    return expected


def gamma(n: float) -> float:
    """Return the relative error bound of n fp32 roundings (Higham, section 3.1)."""
    return n * 2.0**-24 / (1 - n * 2.0**-24)


def gemm_error_bound(
    a: np.ndarray, b: np.ndarray, out_dtype: np.dtype, roundings: float
) -> tuple[np.ndarray, np.ndarray]:
    """Return the float64 product and the largest error its kernel may have.

    Each product passes through at most `roundings` fp32 roundings. In the order of
    bfloat16 a partial sum below 2^-126 may be flushed, once per rounding.
    """
    a64, b64 = a.astype(F64), b.astype(F64)
    product = a64 @ b64
    error = gamma(roundings) * (np.abs(a64) @ np.abs(b64))
    if a.dtype == BF16:
        error += roundings * 2.0**-126
    if out_dtype != F32:
        error += 2.0 ** -PRECISION[out_dtype] * (np.abs(product) + error)
        error += TINIEST[out_dtype] / 2
    else:
        error += a.shape[-1] * TINIEST[F32]
    return product, error


def fma(a: np.ndarray, b: np.ndarray, c: np.ndarray) -> np.ndarray:
    """Return the correctly rounded float32 a * b + c of float32 arrays."""
    # The product is exact. The sum is rounded to odd in float64, by its exact error
    # (Knuth's TwoSum), and then to nearest.
    p, c64 = a.astype(F64) * b.astype(F64), c.astype(F64)
    s = p + c64
    t = s - p
    error = (p - (s - t)) + (c64 - t)
    even = (bits(s) & 1) == 0
    toward = np.nextafter(s, np.where(error > 0, np.inf, -np.inf))
    return np.where((error != 0) & even, toward, s).astype(F32)


def _flushed(x: np.ndarray) -> np.ndarray:
    return np.where(np.abs(x) < 2.0**-126, np.copysign(F32.type(0), x), x)


def fma_chain_product(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Return a @ b in float32 as one FMA chain in increasing k."""
    total = np.zeros((a.shape[0], b.shape[1]), F32)
    a, b = a.astype(F32), b.astype(F32)
    for k in range(a.shape[1]):
        total = fma(a[:, k : k + 1], b[k : k + 1], total)
    return total


def bfloat16_product(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Return a @ b in float32 in the order the kernels document for bfloat16.

    For each block of 32 k one FMA chain over the even and one over the odd k; their sum
    is added to the total. Results below 2^-126 become zero.
    """
    total = np.zeros((a.shape[0], b.shape[1]), F32)
    a, b = a.astype(F32), b.astype(F32)
    for first in range(0, a.shape[1], 32):
        chains = [np.zeros_like(total), np.zeros_like(total)]
        for k in range(first, min(first + 32, a.shape[1])):
            chain = fma(a[:, k : k + 1], b[k : k + 1], chains[k % 2])
            chains[k % 2] = _flushed(chain)
        total = _flushed(total + _flushed(chains[0] + chains[1]))
    return total


def _normal_distribution(x: np.ndarray) -> np.ndarray:
    """Return Phi(x) in float64, exact to its last bits in both tails."""
    return np.vectorize(lambda v: math.erfc(-v / math.sqrt(2)) / 2, otypes=[F64])(x)


def _gelu_argument(x: np.ndarray) -> np.ndarray:
    return 2 * math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)


def float16_product_on_tiles(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Return a @ b in float32 in the order that amx documents for float16.

    x is high + low, both bfloat16; for each block of 32 k, the products high high, high
    low, low low, low high of the halves of a and b are blocks of the order of bfloat16.
    """
    padding = -a.shape[1] % 32
    a = np.pad(a, ((0, 0), (0, padding))).astype(F32)
    b = np.pad(b, ((0, padding), (0, 0))).astype(F32)
    halves = []
    for x in (a, b):
        high = (x.view(np.uint32) & np.uint32(0xFFFF0000)).view(F32)
        halves.append((high, x - high))
    (a_high, a_low), (b_high, b_low) = halves
    terms = [(a_high, b_high), (a_high, b_low), (a_low, b_low), (a_low, b_high)]
    blocks = range(0, a.shape[1], 32)
    a_blocks = [x[:, k : k + 32] for k in blocks for x, _ in terms]
    b_blocks = [y[k : k + 32] for k in blocks for _, y in terms]
    return bfloat16_product(
        np.hstack([a[:, :0], *a_blocks]), np.vstack([b[:0], *b_blocks])
    )


def activation(name: str, x: np.ndarray) -> np.ndarray:
    """Apply an activation in float64."""
    x = x.astype(F64)
    with np.errstate(all="ignore"):
        if name == "relu":
            return np.where(x < 0, 0, x)
        if name == "gelu":
            return x * _normal_distribution(x)
        if name == "gelu_tanh":
            return x * activation("sigmoid", _gelu_argument(x))
        if name == "silu":
            return x * activation("sigmoid", x)
        if name == "sigmoid":
            return np.where(x < 0, np.exp(x) / (1 + np.exp(x)), 1 / (1 + np.exp(-x)))
        return np.tanh(x) if name == "tanh" else x


def activation_derivative(name: str, y: np.ndarray) -> np.ndarray:
    """Return the derivative of an activation from its output, in float64."""
    y = y.astype(F64)
    if name == "relu":
        return (y > 0).astype(F64)
    if name == "sigmoid":
        return y * (1 - y)
    return 1 - y * y if name == "tanh" else np.ones_like(y)


def gated_derivative(name: str, z: np.ndarray) -> np.ndarray:
    """Return the derivative of gelu, gelu_tanh, or silu at z, in float64."""
    z = z.astype(F64)
    if name == "gelu":
        density = np.exp(-z * z / 2) / math.sqrt(2 * math.pi)
        return _normal_distribution(z) + z * density
    inner, slope = z, np.ones_like(z)
    if name == "gelu_tanh":
        inner = _gelu_argument(z)
        slope = 2 * math.sqrt(2 / math.pi) * (1 + 3 * 0.044715 * z * z)
    s, rest = activation("sigmoid", inner), activation("sigmoid", -inner)
    return s + z * s * rest * slope


def softmax(x: np.ndarray) -> np.ndarray:
    """Return the softmax along the last axis in float64."""
    x = x.astype(F64)
    e = np.exp(x - x.max(axis=-1, keepdims=True))
    return e / e.sum(axis=-1, keepdims=True)


def cross_entropy(labels: np.ndarray, logits: np.ndarray) -> np.ndarray:
    """Return logsumexp(logits) - logits[label] in float64."""
    x = logits.astype(F64)
    top = x.max(axis=-1, keepdims=True)
    total = np.log(np.exp(x - top).sum(axis=-1)) + top[..., 0]
    return total - np.take_along_axis(x, labels[..., None], axis=-1)[..., 0]


def finite_difference(
    function: Callable[[np.ndarray], float], x: np.ndarray, step: float = 1e-6
) -> np.ndarray:
    """Return the gradient of a scalar function of a float64 array."""
    gradient = np.empty_like(x)
    for index in np.ndindex(x.shape):
        ahead, behind = x.copy(), x.copy()
        ahead[index] += step
        behind[index] -= step
        gradient[index] = (function(ahead) - function(behind)) / (2 * step)
    return gradient
