"""Inputs, references, and comparisons that suites share."""

import numpy as np

from mpcore.bench.suite import Need, Probe

SAMPLE = 1 << 16


def normal(
    generator: np.random.Generator,
    shape: tuple[int, ...],
    dtype: np.dtype,
    scale: float = 1.0,
) -> np.ndarray:
    """Return ordinary numbers; beyond some 65 thousand they repeat."""
    size = int(np.prod(shape))
    some = generator.standard_normal(min(size, SAMPLE), dtype=np.float32) * scale
    some = np.abs(some) if dtype.kind == "u" else some
    return np.resize(some.astype(dtype), size).reshape(shape)


def touched(shape: tuple[int, ...], dtype: np.dtype) -> np.ndarray:
    """Return an array whose pages are in memory already."""
    array = np.empty(shape, dtype)
    array.view(np.uint8).fill(0)
    return array


def memory_need(amount: float, footprint: int, *streams: str) -> Need:
    """Return the need to move `amount` bytes, as fast as the best of the streams."""
    return Need(tuple((Probe(name, footprint), amount) for name in streams))


def differing(got: np.ndarray, expected: np.ndarray, what: str) -> str | None:
    """Say how many elements have other bits than expected, or None if all agree."""
    kind = np.dtype(f"u{expected.dtype.itemsize}")
    wrong = int(np.count_nonzero(got.view(kind) != expected.view(kind)))
    return f"{wrong} of {expected.size} elements of {what} are wrong" if wrong else None


def beyond(
    got: np.ndarray, expected: np.ndarray, bound: np.ndarray | float, what: str
) -> str | None:
    """Say by how much elements miss a bound on the error, or None if none does."""
    error = np.abs(got.astype(np.float64) - expected)
    excess = error - bound
    if np.all(excess <= 0):
        return None
    at = np.unravel_index(np.argmax(np.nan_to_num(excess, nan=np.inf)), excess.shape)
    where = tuple(int(i) for i in at)
    return (
        f"{what}{list(where)} is {float(got[at]):.9g} in place of "
        f"{float(expected[at]):.9g}, "
        f"further off than {float(np.broadcast_to(bound, excess.shape)[at]):.3g}"
    )
