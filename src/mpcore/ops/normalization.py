"""Layer, RMS, and batch normalisation, with gradients.

Statistics are float32, whatever the dtype; results are rounded once. float32, float16,
and bfloat16 are supported.
"""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from mpcore._core import nn_norm as kernel
from mpcore.ops.arrays import F32, as_array, contiguous, empty, require_kernel_dtype
from mpcore.ops.cast import full_precision, to_dtype
from mpcore.tape import Gradients, Tensor, gradient_dtype, needs_gradient, record

Axis = int | Sequence[int]


def layer_normalization(
    x: Any,
    gamma: Any = None,
    beta: Any = None,
    axis: Axis = -1,
    epsilon: float = 1e-7,
) -> np.ndarray | Tensor:
    """Return (x - mean) / sqrt(variance + epsilon) * gamma + beta.

    Parameters
    ----------
    x : array_like of at least 1 dimension
    gamma, beta : array_like of the lengths of the axes, optional
        Read in float32, whatever the autocast scope. None: 1 and 0.
    axis : int or sequence of int, default -1
        The axes that mean and variance are taken over.
    epsilon : float, > 0

    Raises
    ------
    TypeError
        If the dtype is not supported.
    ValueError
        If `gamma` or `beta` has another shape, or `epsilon` is not positive.
    numpy.exceptions.AxisError
        If there is no such axis.

    Notes
    -----
    Equal elements (below 2^80) give exactly beta, whatever epsilon. The bits are the
    same on every ISA level, for any number of threads, and whatever the other rows are.

    Examples
    --------
    >>> layer_normalization(np.float32([[1, 3], [5, 5]])).round(3).tolist()
    [[-1.0, 1.0], [0.0, 0.0]]
    """
    rows = _Rows("layer_normalization", x, axis)
    g = rows.parameter("gamma", gamma)
    b = rows.parameter("beta", beta)
    inputs = (x, gamma, beta)
    y = empty(rows.source.shape, rows.source.dtype)
    mean, rstd = (empty(y.shape[:1], F32) for _ in range(2))
    if y.size:
        kernel.layer_norm(rows.source, g, b, _positive(epsilon), y, mean, rstd)

    def backward(gradient: np.ndarray, wanted: tuple[bool, ...]) -> Gradients:
        dx, dgamma, dbeta = rows.gradients(wanted)
        if y.size:
            dy = rows.of(gradient)
            kernel.layer_norm_backward(
                rows.source, g, mean, rstd, dy, dx, dgamma, dbeta
            )
        return rows.results(inputs, dx, dgamma, dbeta)

    return record(rows.restored(y), inputs, backward)


def rms_normalization(
    x: Any, scale: Any = None, axis: Axis = -1, epsilon: float = 1e-7
) -> np.ndarray | Tensor:
    """Return x / sqrt(mean(x ** 2) + epsilon) * scale.

    Parameters
    ----------
    x : array_like of at least 1 dimension
    scale : array_like of the lengths of the axes, optional
        Read in float32, whatever the autocast scope. None: 1.
    axis : int or sequence of int, default -1
        The axes that the mean is taken over.
    epsilon : float, > 0

    Raises
    ------
    TypeError, ValueError, numpy.exceptions.AxisError
        See `layer_normalization`.
    """
    rows = _Rows("rms_normalization", x, axis)
    g = rows.parameter("scale", scale)
    inputs = (x, scale)
    y = empty(rows.source.shape, rows.source.dtype)
    rstd = empty(y.shape[:1], F32)
    if y.size:
        kernel.rms_norm(rows.source, g, _positive(epsilon), y, rstd)

    def backward(gradient: np.ndarray, wanted: tuple[bool, ...]) -> Gradients:
        dx, dscale = rows.gradients(wanted)
        if y.size:
            dy = rows.of(gradient)
            kernel.rms_norm_backward(rows.source, g, rstd, dy, dx, dscale)
        return rows.results(inputs, dx, dscale)

    return record(rows.restored(y), inputs, backward)


def batch_normalization(
    x: Any,
    mean: Any,
    variance: Any,
    axis: int = -1,
    offset: Any = None,
    scale: Any = None,
    epsilon: float = 1e-3,
) -> np.ndarray | Tensor:
    """Return (x - mean) / sqrt(variance + epsilon) * scale + offset.

    Parameters
    ----------
    x : array_like of at least 1 dimension
    mean, variance : array_like of shape (channels,)
        Constants: no gradient flows into them.
    axis : int, default -1
        The axis of the channels.
    offset, scale : array_like of shape (channels,), optional
        Read in float32, whatever the autocast scope. None: 0 and 1.
    epsilon : float, > 0

    Raises
    ------
    TypeError, ValueError, numpy.exceptions.AxisError
        See `layer_normalization`. ValueError also where a tape that records follows
        `mean` or `variance`: see `train_batch_normalization`.
    """
    if needs_gradient(mean) or needs_gradient(variance):
        raise ValueError(
            "`mean` and `variance` of batch_normalization are constants. Use "
            "train_batch_normalization for those of `x` itself. Received: a tensor "
            "that a tape follows"
        )
    rows = _Rows("batch_normalization", x, axis, channels=True)
    moments = rows.vector("mean", mean), rows.vector("variance", variance)
    inputs = (x, scale, offset, mean, variance)
    return _batch(rows, inputs, moments, epsilon, constant=True)


def train_batch_normalization(
    x: Any,
    axis: int = -1,
    offset: Any = None,
    scale: Any = None,
    epsilon: float = 1e-3,
) -> tuple[np.ndarray | Tensor, np.ndarray, np.ndarray]:
    """Normalize a batch by its own mean and variance in each channel.

    Parameters
    ----------
    x, axis, offset, scale, epsilon
        See `batch_normalization`.

    Returns
    -------
    y : ndarray or Tensor
        Its gradient goes through mean and variance.
    mean, variance : ndarray of shape (channels,), float32
        The variance is that of the population: divided by the number of elements.

    Raises
    ------
    TypeError, ValueError, numpy.exceptions.AxisError
        See `layer_normalization`. ValueError also for a batch of no elements.
    """
    rows = _Rows("train_batch_normalization", x, axis, channels=True)
    source = rows.source
    if source.shape[0] == 0:
        raise ValueError(
            "Batch normalization needs elements to take the statistics of. Received: "
            f"shape={rows.moved_shape}"
        )
    mean, variance = (empty(source.shape[1:], F32) for _ in range(2))
    if source.size:
        kernel.batch_norm_moments(source, mean, variance)
    inputs = (x, scale, offset)
    y = _batch(rows, inputs, (mean, variance), epsilon, constant=False)
    return y, mean, variance


def _batch(
    rows: "_Rows",
    inputs: tuple[Any, ...],
    moments: tuple[np.ndarray, np.ndarray],
    epsilon: float,
    constant: bool,
) -> np.ndarray | Tensor:
    """Normalize columns; inputs are x, scale, offset, and what else was read."""
    g, b = rows.parameter("scale", inputs[1]), rows.parameter("offset", inputs[2])
    positive = _positive(epsilon)
    y = empty(rows.source.shape, rows.source.dtype)
    if y.size:
        kernel.batch_norm(rows.source, *moments, positive, g, b, y)

    def backward(gradient: np.ndarray, wanted: tuple[bool, ...]) -> Gradients:
        gradients = rows.gradients(wanted[:3])
        if y.size:
            dy = rows.of(gradient)
            kernel.batch_norm_backward(
                rows.source, *moments, positive, g, dy, constant, *gradients
            )
        return (*rows.results(inputs, *gradients), None, None)[: len(inputs)]

    return record(rows.restored(y), inputs, backward)


def _positive(epsilon: float) -> float:
    if not 0 < epsilon < math.inf:
        raise ValueError(f"`epsilon` must be > 0. Received: epsilon={epsilon}")
    return max(float(epsilon), 2.0**-149)


class _Rows:
    """An array as the matrix the kernels take, and the way back.

    Columns are the axes that parameters belong to.
    """

    def __init__(self, name: str, x: Any, axis: Axis, channels: bool = False) -> None:
        array = as_array(x)
        require_kernel_dtype(name, array)
        axes = np.lib.array_utils.normalize_axis_tuple(axis, array.ndim, "axis")
        if not axes or (channels and len(axes) > 1):
            one = "one axis" if channels else "at least one axis"
            raise ValueError(f"{name} needs {one}. Received: axis={axis}")
        self._from = tuple(sorted(axes))
        self._to = tuple(range(-len(axes), 0))
        moved = contiguous(np.moveaxis(array, self._from, self._to))
        self.moved_shape = moved.shape
        self._axes_shape = moved.shape[-len(axes) :]
        cols = math.prod(self._axes_shape)
        self.source = moved.reshape(math.prod(moved.shape[: -len(axes)]), cols)

    def parameter(self, name: str, value: Any) -> np.ndarray | None:
        return None if value is None else self.vector(name, value)

    def vector(self, name: str, value: Any) -> np.ndarray:
        array = full_precision(value)
        if array.shape != self._axes_shape:
            raise ValueError(
                f"`{name}` must have the lengths of the axes, {self._axes_shape}. "
                f"Received: shape={array.shape}"
            )
        return array.reshape(self.source.shape[1])

    def of(self, gradient: np.ndarray) -> np.ndarray:
        moved = np.moveaxis(to_dtype(gradient, self.source.dtype), self._from, self._to)
        return contiguous(moved).reshape(self.source.shape)

    def restored(self, y: np.ndarray) -> np.ndarray:
        return np.moveaxis(y.reshape(self.moved_shape), self._to, self._from)

    def gradients(self, wanted: tuple[bool, ...]) -> list[np.ndarray | None]:
        """Return room for the gradients of x and of the parameters."""
        want_x, *want_parameters = wanted
        cols = self.source.shape[1:]
        return [
            empty(self.source.shape, self.source.dtype) if want_x else None,
            *(np.zeros(cols, F32) if want else None for want in want_parameters),
        ]

    def results(
        self,
        inputs: tuple[Any, ...],
        dx: np.ndarray | None,
        *parameters: np.ndarray | None,
    ) -> Gradients:
        shaped = [
            None
            if d is None
            else to_dtype(
                d.reshape(self._axes_shape),
                gradient_dtype(item) if isinstance(item, Tensor) else F32,
            )
            for d, item in zip(parameters, inputs[1:], strict=False)
        ]
        return (None if dx is None else self.restored(dx), *shaped)
