"""Float64 formulas of convolution, pooling, and attention, and their gradients."""

from __future__ import annotations

import numpy as np
from reference import F64


def start_and_count(
    length: int, size: int, stride: int, dilation: int, padding: str
) -> tuple[int, int]:
    """Return the padding before an axis, and the number of windows, by definition."""
    reach = (size - 1) * dilation + 1
    if padding == "valid":
        return 0, len(range(0, length - reach + 1, stride))
    count = len(range(0, length, stride))
    if padding == "causal":
        return reach - 1, count
    return max((count - 1) * stride + reach - length, 0) // 2, count


def taps(
    shape: tuple[int, ...],
    size: tuple[int, int],
    strides: tuple[int, int],
    dilation: tuple[int, int],
    padding: str,
) -> tuple[np.ndarray, np.ndarray, tuple[int, int]]:
    """Return the pixel (-1: outside) of each window (rows) and element (columns)."""
    axes = []
    counts = []
    for axis in range(2):
        before, count = start_and_count(
            shape[axis], size[axis], strides[axis], dilation[axis], padding
        )
        counts.append(count)
        at = np.arange(count)[:, None] * strides[axis] - before
        at = at + np.arange(size[axis])[None] * dilation[axis]
        axes.append(np.where((at >= 0) & (at < shape[axis]), at, -1))
    rows, columns = axes
    r, c = rows[:, None, :, None], columns[None, :, None, :]
    pixel = np.where((r < 0) | (c < 0), -1, r * shape[1] + c)
    flat = pixel.reshape(counts[0] * counts[1], size[0] * size[1])
    return flat, flat >= 0, (counts[0], counts[1])


class Convolution:
    """y = x * w with everything in float64; images are (batch, height, width, c)."""

    def __init__(
        self,
        x: np.ndarray,
        w: np.ndarray,
        strides: tuple[int, int],
        dilation: tuple[int, int],
        padding: str,
    ) -> None:
        self.x, self.w = x.astype(F64), w.astype(F64)
        self.pixel, _, self.counts = taps(
            x.shape[1:3], w.shape[:2], strides, dilation, padding
        )
        self.groups = x.shape[3] // w.shape[2]

    def _windows(self, x: np.ndarray) -> np.ndarray:
        n, h, w, c = x.shape
        flat = np.concatenate([x.reshape(n, h * w, c), np.zeros((n, 1, c))], axis=1)
        found = flat[:, self.pixel]  # batch, window, element, channel
        return found.reshape(*found.shape[:3], self.groups, c // self.groups)

    def _kernel(self, w: np.ndarray) -> np.ndarray:
        size, filters = w.shape[0] * w.shape[1], w.shape[3]
        return w.reshape(size, w.shape[2], self.groups, filters // self.groups)

    def output(self, absolute: bool = False) -> np.ndarray:
        """Return y, or the sum of the magnitudes of its terms."""
        x, w = (np.abs(self.x), np.abs(self.w)) if absolute else (self.x, self.w)
        y = np.einsum("nwtgc,tcgf->nwgf", self._windows(x), self._kernel(w))
        return y.reshape(len(x), *self.counts, self.w.shape[3])

    def gradients(
        self, dz: np.ndarray, absolute: bool = False
    ) -> tuple[np.ndarray, np.ndarray]:
        """Return dx and dw, or the sums of the magnitudes of their terms."""
        x, w, dz = self.x, self.w, dz.astype(F64)
        if absolute:
            x, w, dz = np.abs(x), np.abs(w), np.abs(dz)
        own = self.w.shape[3] // self.groups
        g = dz.reshape(len(x), self.pixel.shape[0], self.groups, own)
        dw = np.einsum("nwtgc,nwgf->tcgf", self._windows(x), g).reshape(w.shape)
        terms = np.einsum("nwgf,tcgf->nwtgc", g, self._kernel(w))
        n, height, width, channels = x.shape
        dx = np.zeros((n, height * width + 1, channels))
        flat = terms.reshape(n, *self.pixel.shape, channels)
        for image in range(n):
            np.add.at(dx[image], self.pixel, flat[image])
        return dx[:, :-1].reshape(x.shape), dw


def pool(
    x: np.ndarray,
    kind: str,
    size: tuple[int, int],
    strides: tuple[int, int],
    padding: str,
    dy: np.ndarray | None = None,
) -> tuple[np.ndarray, np.ndarray]:
    """Return the maxima or means of windows, and the gradient of x for dy (ones)."""
    pixel, inside, counts = taps(x.shape[1:3], size, strides, (1, 1), padding)
    n, h, w, c = x.shape
    flat = x.astype(F64).reshape(n, h * w, c)
    y = np.zeros((n, len(pixel), c))
    dx = np.zeros_like(flat)
    g = np.ones_like(y) if dy is None else dy.astype(F64).reshape(y.shape)
    for i, (places, live) in enumerate(zip(pixel, inside, strict=True)):
        found = flat[:, places[live]]
        if kind == "average":
            y[:, i] = found.mean(axis=1)
            dx[:, places[live]] += g[:, i, None] / live.sum()
        else:
            y[:, i] = found.max(axis=1)
            first = places[live][found.argmax(axis=1)]
            for image in range(n):
                dx[image, first[image], np.arange(c)] += g[image, i]
    return y.reshape(n, *counts, c), dx.reshape(x.shape)


def attention(
    q: np.ndarray,
    k: np.ndarray,
    v: np.ndarray,
    bias: np.ndarray | None = None,
    mask: np.ndarray | None = None,
    causal: bool = False,
) -> tuple[np.ndarray, np.ndarray]:
    """Return the result and the probabilities (batch, heads, queries, keys)."""
    q, k, v = (x.astype(F64) for x in (q, k, v))
    scores = np.einsum("bihd,bjhd->bhij", q, k) / np.sqrt(q.shape[-1])
    if bias is not None:
        scores = scores + bias
    seen = (
        np.ones(scores.shape, bool)
        if mask is None
        else mask & np.ones_like(scores, bool)
    )
    if causal:
        seen = seen & np.tri(*scores.shape[-2:], dtype=bool)
    scores = np.where(seen, scores, np.where(seen.any(-1, keepdims=True), -np.inf, 0.0))
    e = np.exp(scores - scores.max(axis=-1, keepdims=True))
    p = e / e.sum(axis=-1, keepdims=True)
    return np.einsum("bhij,bjhd->bihd", p, v), p


def attention_gradients(
    q: np.ndarray, k: np.ndarray, v: np.ndarray, p: np.ndarray, dy: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return dq, dk, dv from the probabilities."""
    q, k, v, dy = (x.astype(F64) for x in (q, k, v, dy))
    dp = np.einsum("bihd,bjhd->bhij", dy, v)
    ds = p * (dp - (p * dp).sum(-1, keepdims=True)) / np.sqrt(q.shape[-1])
    return (
        np.einsum("bhij,bjhd->bihd", ds, k),
        np.einsum("bhij,bihd->bjhd", ds, q),
        np.einsum("bhij,bihd->bjhd", p, dy),
    )
