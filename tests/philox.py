"""Philox4x32-10 and the rule of stochastic rounding in NumPy, as cast.h says it."""

from __future__ import annotations

import numpy as np
from reference import BF16, F32, bits, with_nan_rule


def philox4x32(counter: np.ndarray, key: tuple[int, int]) -> np.ndarray:
    """Return the blocks of counters, both of shape (n, 4) (Salmon et al., SC 2011)."""
    x = counter.astype(np.uint64).T
    key0, key1 = key
    low = np.uint64(0xFFFFFFFF)
    for _ in range(10):
        p0, p1 = np.uint64(0xD2511F53) * x[0], np.uint64(0xCD9E8D57) * x[2]
        x = np.stack(
            [
                (p1 >> np.uint64(32)) ^ x[1] ^ np.uint64(key0),
                p1 & low,
                (p0 >> np.uint64(32)) ^ x[3] ^ np.uint64(key1),
                p0 & low,
            ]
        )
        key0, key1 = (key0 + 0x9E3779B9) % 2**32, (key1 + 0xBB67AE85) % 2**32
    return x.T.astype(np.uint32)


def random_bits(first: int, count: int, seed: int) -> np.ndarray:
    """Return the 16 bits of the elements `first` to `first + count - 1`."""
    e = [(first + i) % 2**64 for i in range(count)]
    block = [16 * (i // 128) + i % 16 for i in e]
    counter = np.array([[b % 2**32, b >> 32, 0, 0] for b in block], np.uint64)
    counter = counter.reshape(-1, 4)
    words = philox4x32(counter, (seed % 2**32, seed >> 32))
    word = words[np.arange(count), [i % 128 // 32 for i in e]]
    half = np.array([i // 16 % 2 for i in e], np.uint32)
    return (word >> (16 * half)) & 0xFFFF


def stochastic(
    x: np.ndarray, dtype: np.dtype, seed: int, offset: int = 0
) -> np.ndarray:
    """Return float32 numbers of one axis rounded by the documented rule."""
    assert x.dtype == F32
    u = bits(x).astype(np.int64)
    sign, a = u >> 31 << 15, u & 0x7FFFFFFF
    r = random_bits(offset, x.size, seed).astype(np.int64)
    if dtype == BF16:
        result = np.where(a < 0x7F800000, a + r, a) >> 16
    else:
        with np.errstate(all="ignore"):
            units = np.ceil(np.ldexp(abs(x).astype(np.float64), 40))
        units = np.where(a < 0x38800000, units, 0).astype(np.int64)
        normal = (a + (r >> 3) - 0x38000000) >> 13
        result = np.where(a < 0x38800000, (units + r) >> 16, normal)
        result = np.where(a >= 0x47800000, 0x7C00, result)
    return with_nan_rule(x, (sign | result).astype(np.uint16).view(dtype))
