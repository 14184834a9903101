"""Scaled dot-product attention."""

import math
from typing import Any

import numpy as np

from mpcore._core import nn_attention as core
from mpcore.ops.arrays import F32, as_array, contiguous, empty, require_kernel_dtype
from mpcore.ops.cast import to_dtype
from mpcore.tape import Gradients, Tensor, needs_gradient, record


def dot_product_attention(
    query: Any,
    key: Any,
    value: Any,
    bias: Any = None,
    mask: Any = None,
    scale: float | None = None,
    is_causal: bool = False,
) -> np.ndarray | Tensor:
    """Compute softmax(scale q k^T + bias) v for each head.

    Parameters
    ----------
    query : array_like of shape (batch, queries, heads, depth)
        float32, float16, or bfloat16.
    key : array_like of shape (batch, keys, heads, depth), dtype of `query`
    value : array_like of shape (batch, keys, heads, value_depth), dtype of `query`
    bias : array_like, optional
        Added to the scores, in float32. Broadcasts to (batch, heads, queries, keys).
        It has no gradient.
    mask : array_like of bool, optional
        Which scores count, likewise.
    scale : float, optional
        Default: 1 / sqrt(depth).
    is_causal : bool, default False
        Query i sees the keys j <= i alone.

    Returns
    -------
    ndarray or Tensor of shape (batch, queries, heads, value_depth), dtype of `query`

    Raises
    ------
    TypeError
        If a dtype is not supported, dtypes differ, or a mask is not boolean.
    ValueError
        If shapes do not fit, there are no keys, or a gradient of `bias` is wanted.

    Notes
    -----
    Scores and softmax are float32, and exist for 64 queries of a head at a time;
    probabilities are rounded to the dtype before they multiply v. If no score of a
    query counts, all keys have the same share. Backward computes the probabilities
    again; gradients of k and v are summed in float32 and rounded once.
    """
    arrays = [as_array(x) for x in (query, key, value)]
    for array in arrays:
        require_kernel_dtype("dot_product_attention", array)
    q, k, v = map(contiguous, arrays)
    if not q.dtype == k.dtype == v.dtype:
        raise TypeError(
            "`query`, `key`, and `value` must have one dtype. Received: "
            f"{q.dtype.name}, {k.dtype.name}, and {v.dtype.name}"
        )
    _check_shapes(q, k, v)
    if needs_gradient(bias):
        raise ValueError(
            "The bias of dot_product_attention has no gradient. Received: a tensor "
            "that a GradientTape follows"
        )
    full = (q.shape[0], q.shape[2], q.shape[1], k.shape[1])
    added = None if bias is None else _full(to_dtype(as_array(bias), F32), full, "bias")
    counts = None if mask is None else _full(_boolean(mask), full, "mask")
    factor = 1 / math.sqrt(q.shape[-1]) if scale is None else float(scale)
    settings = (added, counts, factor, bool(is_causal))
    y = empty((*q.shape[:-1], v.shape[-1]), q.dtype)
    core.attention(q, k, v, *settings, y)

    def backward(gradient: np.ndarray, wanted: tuple[bool, ...]) -> Gradients:
        dy = contiguous(to_dtype(gradient, q.dtype))
        dq, dk, dv = (empty(x.shape, x.dtype) for x in (q, k, v))
        core.attention_backward(q, k, v, *settings, dy, dq, dk, dv)
        return dq, dk, dv

    return record(y, (query, key, value), backward)


def _check_shapes(q: np.ndarray, k: np.ndarray, v: np.ndarray) -> None:
    if (
        not q.ndim == k.ndim == v.ndim == 4
        or q.shape[0] != k.shape[0]
        or q.shape[2:] != k.shape[2:]
        or k.shape[:3] != v.shape[:3]
        or not q.shape[-1]
        or not k.shape[1]
    ):
        raise ValueError(
            "dot_product_attention needs `query` of shape (batch, queries, heads, "
            "depth), `key` of (batch, keys, heads, depth), and `value` of (batch, "
            "keys, heads, value_depth), with at least one key and depth. Received: "
            f"shapes {q.shape}, {k.shape}, and {v.shape}"
        )


def _boolean(mask: Any) -> np.ndarray:
    array = as_array(mask)
    if array.dtype != np.bool_:
        raise TypeError(f"`mask` must be boolean. Received: dtype={array.dtype.name}")
    return array


def _full(array: np.ndarray, shape: tuple[int, ...], name: str) -> np.ndarray:
    """Return a view of the shape that is contiguous along its last axis."""
    try:
        if array.shape[-1:] != shape[-1:]:
            array = np.broadcast_to(array, (*array.shape[:-1], shape[-1]))
        return np.broadcast_to(contiguous(array), shape)
    except ValueError:
        raise ValueError(
            f"`{name}` must broadcast to (batch, heads, queries, keys) = {shape}. "
            f"Received: shape={array.shape}"
        ) from None
