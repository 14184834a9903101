"""Softmax, its logarithm, and its cross-entropy from logits, with gradients.

Arithmetic is float32 with one rounding per result; float32, float16, and bfloat16 are
supported.
"""

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from mpcore._core import nn as kernel
from mpcore.ops.arrays import (
    F32,
    as_array,
    contiguous,
    empty,
    require_kernel_dtype,
)
from mpcore.ops.cast import to_dtype
from mpcore.tape import Gradients, Tensor, needs_gradient, record


def softmax(x: Any, axis: int = -1) -> np.ndarray | Tensor:
    """Return exp(x) / sum(exp(x)) along an axis, without overflow.

    Parameters
    ----------
    x : array_like of at least 1 dimension
        float32, float16, or bfloat16.
    axis : int, default -1

    Returns
    -------
    ndarray or Tensor of the shape and dtype of `x`
        float32 arithmetic, rounded once. A row that holds a NaN or +inf, or nothing but
        -inf, is NaN.

    Raises
    ------
    TypeError
        If the dtype is not supported.
    numpy.exceptions.AxisError
        If there is no such axis.
    """
    return _along("softmax", x, axis, kernel.softmax, kernel.softmax_backward)


def log_softmax(x: Any, axis: int = -1) -> np.ndarray | Tensor:
    """Return log(softmax(x)) along an axis: x - max - log(sum(exp(x - max))).

    Parameters
    ----------
    x : array_like of at least 1 dimension
    axis : int, default -1

    Raises
    ------
    TypeError, numpy.exceptions.AxisError
        See `softmax`.

    Notes
    -----
    The gradient takes the probabilities from the result, rounded as it is.
    """
    forward, back = kernel.log_softmax, kernel.log_softmax_backward
    return _along("log_softmax", x, axis, forward, back)


def _along(
    name: str,
    x: Any,
    axis: int,
    forward: Callable[[np.ndarray, np.ndarray], None],
    back: Callable[[np.ndarray, np.ndarray, np.ndarray], None],
) -> np.ndarray | Tensor:
    """Apply a kernel of rows along an axis; its backward reads the result."""
    array = as_array(x)
    require_kernel_dtype(name, array)
    axis = np.lib.array_utils.normalize_axis_index(axis, array.ndim)
    source = contiguous(np.moveaxis(array, axis, -1))
    dtype = source.dtype
    y = empty(source.shape, dtype)
    if source.size:
        forward(_rows(source), _rows(y))

    def backward(gradient: np.ndarray, wanted: tuple[bool, ...]) -> Gradients:
        dy = contiguous(np.moveaxis(to_dtype(gradient, dtype), axis, -1))
        dx = empty(source.shape, dtype)
        if source.size:
            back(_rows(y), _rows(dy), _rows(dx))
        return (np.moveaxis(dx, -1, axis),)

    return record(np.moveaxis(y, -1, axis), (x,), backward)


def _rows(array: np.ndarray) -> np.ndarray:
    return array.reshape(math.prod(array.shape[:-1]), array.shape[-1])


def sparse_softmax_cross_entropy(
    labels: Any, logits: Any, label_smoothing: float = 0.0
) -> np.ndarray | Tensor:
    """Return the cross-entropy of softmax(logits) and class indices.

    Parameters
    ----------
    labels : array_like of shape (...), integers in [0, classes)
    logits : array_like of shape (..., classes)
    label_smoothing : float in [0, 1], default 0
        s: each label stands for 1 - s of itself and s / classes of every class.

    Returns
    -------
    ndarray or Tensor of shape (...), float32
        logsumexp(logits) - logits[label], whatever the dtype of the logits.

    Raises
    ------
    TypeError
        If labels are no integers, or the dtype of the logits is not supported.
    ValueError
        If shapes do not fit, or a label or `label_smoothing` is out of range.

    Notes
    -----
    The gradient of each loss, which may carry a loss scale, multiplies
    softmax(logits) - onehot(label) in float32 before the one rounding to the dtype of
    the logits.
    """
    scores = as_array(logits)
    require_kernel_dtype("sparse_softmax_cross_entropy", scores)
    classes = as_array(labels)
    if classes.dtype.kind not in "iu":
        raise TypeError(f"`labels` must be integers. Received: dtype={classes.dtype}")
    if scores.ndim == 0 or classes.shape != scores.shape[:-1]:
        raise ValueError(
            "`labels` must have the shape of `logits` without its last axis. Received: "
            f"shapes {classes.shape} and {scores.shape}"
        )
    _check_range(classes, scores.shape[-1])
    indices = np.ascontiguousarray(classes, dtype=np.int64).reshape(classes.size)
    return _cross_entropy(labels, logits, scores, indices, None, label_smoothing)


def softmax_cross_entropy(
    targets: Any, logits: Any, label_smoothing: float = 0.0
) -> np.ndarray | Tensor:
    """Return the cross-entropy of softmax(logits) and distributions, such as one-hot.

    Parameters
    ----------
    targets : array_like of the shape of `logits`
        Read in float32. Constants: no gradient flows into them.
    logits : array_like of shape (..., classes)
    label_smoothing : float in [0, 1], default 0
        s: targets become t (1 - s) + s / classes.

    Returns
    -------
    ndarray or Tensor of shape (...), float32
        sum(t (logsumexp(logits) - logits)), whatever the dtype of the logits. Where t
        is 0, a logit of -inf counts for nothing.

    Raises
    ------
    TypeError
        If the dtype of the logits is not supported.
    ValueError
        If shapes differ, `label_smoothing` is out of range, or a tape that records
        follows `targets`.

    Notes
    -----
    See `sparse_softmax_cross_entropy` for the gradient.
    """
    if needs_gradient(targets):
        raise ValueError(
            "`targets` of softmax_cross_entropy are constants. Received: a tensor that "
            "a tape follows"
        )
    scores = as_array(logits)
    require_kernel_dtype("softmax_cross_entropy", scores)
    wanted = contiguous(to_dtype(as_array(targets), F32))
    if scores.ndim == 0 or wanted.shape != scores.shape:
        raise ValueError(
            "`targets` must have the shape of `logits`. Received: shapes "
            f"{wanted.shape} and {scores.shape}"
        )
    return _cross_entropy(targets, logits, scores, None, wanted, label_smoothing)


def _cross_entropy(
    labels: Any,
    logits: Any,
    scores: np.ndarray,
    indices: np.ndarray | None,
    targets: np.ndarray | None,
    smoothing: float,
) -> np.ndarray | Tensor:
    if not 0 <= smoothing <= 1:
        raise ValueError(
            "`label_smoothing` must be in [0, 1]. Received: "
            f"label_smoothing={smoothing}"
        )
    x = _rows(contiguous(scores))
    loss = empty((x.shape[0],), F32)
    if x.size:
        kernel.softmax_xent(x, indices, targets, smoothing, None, loss, None)
    elif x.shape[0]:
        loss.fill(np.nan)  # of no classes

    def backward(gradient: np.ndarray, wanted: tuple[bool, ...]) -> Gradients:
        dx = empty(x.shape, x.dtype)
        if x.size:
            scale = contiguous(to_dtype(gradient, F32)).reshape(x.shape[0])
            kernel.softmax_xent(x, indices, targets, smoothing, scale, None, dx)
        return None, dx.reshape(scores.shape)

    return record(loss.reshape(scores.shape[:-1]), (labels, logits), backward)


def _check_range(labels: np.ndarray, classes: int) -> None:
    if labels.size and not (0 <= labels.min() and labels.max() < classes):
        raise ValueError(
            f"`labels` must be in [0, {classes}). Received: labels from "
            f"{labels.min()} to {labels.max()}"
        )
