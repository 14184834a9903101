"""Recurrent layers' arithmetic: a whole sequence as one op."""

from typing import Any, NamedTuple

import numpy as np

from mpcore._core import gemm, nn
from mpcore.ops.activations import LINEAR, SIGMOID, TANH
from mpcore.ops.arrays import (
    F32,
    as_array,
    contiguous,
    empty,
    require_kernel_dtype,
    zeros,
)
from mpcore.ops.cast import full_precision, to_dtype
from mpcore.tape import Gradients, Tensor, gradient_dtype, record


class _Kept(NamedTuple):
    """What backward needs of each step, (batch, steps, ...) in float32."""

    update: np.ndarray  # z
    reset: np.ndarray  # r
    candidate: np.ndarray  # c
    recurrent: np.ndarray  # U_c h + b
    before: np.ndarray  # h of the step before, in the compute dtype


def gru(
    x: Any, kernel: Any, recurrent_kernel: Any, bias: Any = None, initial: Any = None
) -> np.ndarray | Tensor:
    """Run a gated recurrent unit over sequences.

    With [x_z, x_r, x_c] = x_t W + b_0 and [h_z, h_r, h_c] = h U + b_1::

        z = sigmoid(x_z + h_z)    r = sigmoid(x_r + h_r)
        c = tanh(x_c + r h_c)     h = z h + (1 - z) c

    Parameters
    ----------
    x : array_like of shape (batch, steps, features)
        float32, float16, or bfloat16: the compute dtype.
    kernel : array_like of shape (features, 3 units)
        W; read in the compute dtype.
    recurrent_kernel : array_like of shape (units, 3 units)
        U; read in the compute dtype.
    bias : array_like of shape (2, 3 units), optional
        Read in float32, whatever the autocast scope.
    initial : array_like of shape (batch, units), optional
        The first h; zeros by default.

    Returns
    -------
    ndarray or Tensor of shape (batch, steps, units), compute dtype
        h after each step.

    Raises
    ------
    TypeError
        If the dtype of `x` is not supported.
    ValueError
        If shapes do not fit.

    Notes
    -----
    Everything within a step is float32 with unfused operations; h is rounded once per
    step, and so are the gradients that multiply W and U. The bits depend on neither
    level nor threads, where those of a matrix product do not.
    """
    source = contiguous(as_array(x))
    require_kernel_dtype("gru", source)
    dtype = source.dtype
    w, u = (
        contiguous(to_dtype(as_array(k), dtype)) for k in (kernel, recurrent_kernel)
    )
    b = None if bias is None else full_precision(bias)
    _check_shapes(source, w, u, b)
    batch, steps, features = source.shape
    units = u.shape[0]
    first = (
        zeros((batch, units), dtype)
        if initial is None
        else contiguous(to_dtype(as_array(initial), dtype))
    )
    if first.shape != (batch, units):
        raise ValueError(
            f"`initial` must have shape {(batch, units)}. Received: {first.shape}"
        )
    flat = source.reshape(batch * steps, features)
    inputs = empty((batch * steps, 3 * units), F32)
    gemm.gemm(flat, w, inputs, None if b is None else b[0])
    inputs = inputs.reshape(batch, steps, 3 * units)
    y = empty((batch, steps, units), dtype)
    kept = _run(inputs, u, None if b is None else b[1], first, y)

    dtypes = [
        gradient_dtype(item) if isinstance(item, Tensor) else F32
        for item in (x, kernel, recurrent_kernel, bias, initial)
    ]

    def backward(gradient: np.ndarray, wanted: tuple[bool, ...]) -> Gradients:
        d_inputs, d_recurrent, d_first = _run_back(to_dtype(gradient, F32), u, kept)
        rows = (batch * steps, 3 * units)
        d_inputs, d_recurrent = d_inputs.reshape(rows), d_recurrent.reshape(rows)
        narrow = to_dtype(d_inputs, dtype)
        dx = _product(narrow, w.T).reshape(source.shape) if wanted[0] else None
        dw = _product(flat.T, narrow) if wanted[1] else None
        du = None
        if wanted[2]:
            before = kept.before.reshape(batch * steps, units)
            du = _product(before.T, to_dtype(d_recurrent, dtype))
        db = None
        if wanted[3]:
            db = empty((2, 3 * units), F32)
            for sums, terms in zip(db, (d_inputs, d_recurrent), strict=True):
                nn.dense_backward(LINEAR, None, terms, None, sums)
        results = (dx, dw, du, db, d_first)
        return tuple(
            None if r is None else to_dtype(r, own)
            for r, own in zip(results, dtypes, strict=True)
        )

    return record(y, (x, kernel, recurrent_kernel, bias, initial), backward)


def _run(
    inputs: np.ndarray,
    u: np.ndarray,
    b: np.ndarray | None,
    first: np.ndarray,
    y: np.ndarray,
) -> _Kept:
    """Write h after each step to y."""
    batch, steps, units = y.shape
    dtypes = (F32, F32, F32, F32, y.dtype)
    kept = _Kept._make(empty(y.shape, dtype) for dtype in dtypes)
    h = first
    recurrent = empty((batch, 3 * units), F32)
    gates = empty((batch, 2 * units), F32)
    candidate = empty((batch, units), F32)
    with np.errstate(all="ignore"):
        for t in range(steps):
            kept.before[:, t] = h
            gemm.gemm(h, u, recurrent, b)
            np.add(inputs[:, t, : 2 * units], recurrent[:, : 2 * units], out=gates)
            nn.activation_forward(SIGMOID, gates, gates)
            z, r = gates[:, :units], gates[:, units:]
            np.multiply(r, recurrent[:, 2 * units :], out=candidate)
            candidate += inputs[:, t, 2 * units :]
            nn.activation_forward(TANH, candidate, candidate)
            wide = z * to_dtype(h, F32) + (1 - z) * candidate
            for array, value in zip(
                kept, (z, r, candidate, recurrent[:, 2 * units :]), strict=False
            ):
                array[:, t] = value
            h = to_dtype(wide, y.dtype)
            y[:, t] = h
    return kept


def _run_back(
    dy: np.ndarray, u: np.ndarray, kept: _Kept
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return the gradients of x W + b, of h U + b, and of the first h, in float32."""
    batch, steps, units = dy.shape
    d_inputs, d_recurrent = (empty((batch, steps, 3 * units), F32) for _ in range(2))
    dh = zeros((batch, units), F32)
    with np.errstate(all="ignore"):
        for t in reversed(range(steps)):
            z, r, c, recurrent = (array[:, t] for array in kept[:4])
            total = dh + dy[:, t]
            d_c = total * (1 - z) * (1 - c * c)
            d_z = total * (to_dtype(kept.before[:, t], F32) - c) * z * (1 - z)
            d_r = d_c * recurrent * r * (1 - r)
            np.concatenate([d_z, d_r, d_c], axis=1, out=d_inputs[:, t])
            step = np.concatenate([d_z, d_r, d_c * r], axis=1)
            d_recurrent[:, t] = step
            dh = _product(to_dtype(step, u.dtype), u.T)
            dh += total * z
    return d_inputs, d_recurrent, dh


def _product(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Return a @ b in float32."""
    d = empty((a.shape[0], b.shape[1]), F32)
    gemm.gemm(a, b, d)
    return d


def _check_shapes(
    x: np.ndarray, w: np.ndarray, u: np.ndarray, b: np.ndarray | None
) -> None:
    gates = 3 * u.shape[0] if u.ndim == 2 else 0
    if (
        x.ndim != 3
        or not gates
        or u.shape != (gates // 3, gates)
        or w.shape != (x.shape[-1], gates)
    ):
        raise ValueError(
            "gru needs `x` of shape (batch, steps, features), a kernel of shape "
            "(features, 3 units), and a recurrent kernel of shape (units, 3 units). "
            f"Received: shapes {x.shape}, {w.shape}, and {u.shape}"
        )
    if b is not None and b.shape != (2, gates):
        raise ValueError(f"`bias` must have shape {(2, gates)}. Received: {b.shape}")
