"""What is done to gradients before an update, and to averages of weights after it.

Many arrays per call. The kernels look at each and refuse what does not fit before they
do anything; only then are arrays adapted here, since a step may have thousands.
"""

import math
import operator
from collections.abc import Sequence
from typing import Any

import numpy as np

from mpcore import dtypes
from mpcore._core import grad as kernel
from mpcore.ops.arrays import Output, contiguous
from mpcore.ops.elementwise import checked
from mpcore.tape import flatten, unwrap

# What the kernels raise for an array they cannot take as it is.
_DOES_NOT_FIT = (TypeError, ValueError)


def all_finite(arrays: Any) -> bool:
    """Return whether no element is infinite or NaN.

    Parameters
    ----------
    arrays : array_like, Tensor, or nested lists and tuples of such
        None is skipped; integers are finite; no arrays at all are.

    Notes
    -----
    Every element is looked at, rather than a sum. One read of memory.

    Examples
    --------
    >>> all_finite([np.ones(2), None, [np.array(np.inf)]])
    False
    """
    if isinstance(arrays, list | tuple):
        try:
            return kernel.all_finite(arrays)
        except _DOES_NOT_FIT:
            pass
    tensors = []
    for x in flatten(arrays):
        if x is None:
            continue
        if isinstance(x, float):
            if not math.isfinite(x):
                return False
            continue
        array = checked(x)
        if dtypes.is_floating(array.dtype):
            tensors.append(contiguous(array))
    return kernel.all_finite(tensors)


def unscale(
    arrays: Sequence[Any],
    multiplier: float,
    out: Sequence[np.ndarray | None] | None = None,
) -> tuple[list[np.ndarray | None], bool]:
    """Multiply gradients by a factor and look whether the results are finite.

    Parameters
    ----------
    arrays : sequence of array_like or None
        Floating. None stays None.
    multiplier : float
        Finite; for loss scaling 1 / scale.
    out : sequence of ndarray or None, optional
        Where to put the results: of the same shapes and dtypes; may be `arrays`.

    Returns
    -------
    list of ndarray or None
        The products: float32 arithmetic (float64 for float64), one rounding to the
        dtype of the gradient.
    bool
        Whether all of them are finite.

    Raises
    ------
    TypeError, ValueError
        If a dtype, `multiplier`, or `out` is not valid. Nothing has been written then.
    """
    factor = _finite("multiplier", multiplier)
    if out is not None and len(out) != len(arrays):
        raise ValueError(
            "`out` must be as long as `arrays`. Received: lengths "
            f"{len(out)} and {len(arrays)}"
        )
    if out is not None:
        try:
            return _unscaled_into(arrays, out, factor)
        except _DOES_NOT_FIT:
            pass
    sources = [None if x is None else _floating(x) for x in arrays]
    outputs: list[Output | None] = []
    for source, place in zip(sources, out or [None] * len(sources), strict=True):
        if source is None:
            outputs.append(None)
            continue
        # By way of a temporary: the place may be the source of another.
        dtype = source.dtype.newbyteorder("=")
        outputs.append(Output(place, source.shape, dtype, place))
    finite = kernel.unscale(
        [contiguous(x) for x in sources if x is not None],
        [o.array for o in outputs if o is not None],
        factor,
    )
    return [None if o is None else o.finish() for o in outputs], finite


def accumulate(
    totals: Sequence[np.ndarray], arrays: Sequence[Any], multiplier: float = 1.0
) -> None:
    """Add multiplied gradients to totals, in place.

    For each element: total += x * multiplier.

    Parameters
    ----------
    totals : sequence of ndarray
        float32 or float64; C-contiguous, writable. They must not overlap.
    arrays : sequence of array_like
        x: floating, of the shapes of `totals`.
    multiplier : float
        Finite.

    Raises
    ------
    TypeError, ValueError
        If an argument is not valid. Nothing has been written then.

    Notes
    -----
    In the dtype of the total: x and the multiplier are rounded to it, then their
    product, then the sum. One pass over memory.
    """
    factor = _finite("multiplier", multiplier)
    try:
        kernel.accumulate(totals, arrays, factor)
    except _DOES_NOT_FIT:
        kernel.accumulate(_plain(totals), _adapted(arrays), factor)


def lerp(
    averages: Sequence[np.ndarray], arrays: Sequence[Any], momentum: float
) -> None:
    """Let exponential moving averages follow arrays, in place.

    For each element: average = momentum * average + (1 - momentum) * x.

    Parameters
    ----------
    averages : sequence of ndarray
        float32 or float64; C-contiguous, writable. They must not overlap.
    arrays : sequence of array_like
        x: floating, of the shapes of `averages`.
    momentum : float in [0, 1]
        0 copies x, bit for bit where the dtype is the same; 1 changes nothing.

    Raises
    ------
    TypeError, ValueError
        If an argument is not valid. Nothing has been written then.

    Notes
    -----
    In the dtype of the average: x, both factors, both products, and the sum are each
    rounded to it; 1 - momentum is taken in float64. One pass over memory.
    """
    if not 0 <= momentum <= 1:
        raise ValueError(f"`momentum` must be in [0, 1]. Received: momentum={momentum}")
    factor = float(momentum)
    try:
        kernel.lerp(averages, arrays, factor)
    except _DOES_NOT_FIT:
        kernel.lerp(_plain(averages), _adapted(arrays), factor)


def norms(arrays: Sequence[Any]) -> np.ndarray:
    """Return the Euclidean norm of each array, float64.

    Squares are summed in float64, in an order that depends on the size alone, and
    neither overflow nor underflow.
    """
    return _norms(arrays)[0]


def global_norm(arrays: Sequence[Any]) -> float:
    """Return the Euclidean norm of all arrays together; None is skipped."""
    return _norms([x for x in arrays if x is not None])[1]


def loss_scale_update(
    scale: float,
    step_counter: int,
    growth_steps: int,
    min_scale: float,
    max_scale: float,
    finite: bool,
) -> tuple[float, int]:
    """Advance the state of dynamic loss scaling by one step.

    Parameters
    ----------
    scale : float, > 0, finite
    step_counter : int, >= 0
        Finite steps since the scale changed.
    growth_steps : int, >= 1
        Finite steps in a row after which the scale doubles.
    min_scale, max_scale : float
        The scale stays within; it is not changed at all where it would leave.
    finite : bool
        Whether the gradients of this step were.

    Returns
    -------
    tuple of (float, int)
        The new scale and step counter.
    """
    return kernel.loss_scale_update(
        float(scale),
        int(step_counter),
        int(growth_steps),
        float(min_scale),
        float(max_scale),
        bool(finite),
    )


def _finite(name: str, value: float) -> float:
    number = float(value)
    if not math.isfinite(number):
        raise ValueError(f"`{name}` must be finite. Received: {name}={number}")
    return number


def _unscaled_into(
    arrays: Sequence[Any], out: Sequence[Any], factor: float
) -> tuple[list[np.ndarray | None], bool]:
    """Unscale arrays that need no adapting into places that lie apart from others."""
    if out is arrays or all(map(operator.is_, out, arrays)):
        return list(out), kernel.unscale(arrays, None, factor)
    pairs = list(zip(arrays, out, strict=True))
    present = [x for x in arrays if x is not None]
    places = [place for x, place in pairs if x is not None]
    finite = kernel.unscale(present, places, factor)
    return [None if x is None else place for x, place in pairs], finite


def _norms(arrays: Sequence[Any]) -> tuple[np.ndarray, float]:
    try:
        return kernel.norms(arrays)
    except _DOES_NOT_FIT:
        return kernel.norms(_adapted(arrays))


def _adapted(arrays: Sequence[Any]) -> list[np.ndarray]:
    """Return floating arrays in C order and native byte order."""
    return [contiguous(_floating(x)) for x in arrays]


def _plain(arrays: Sequence[np.ndarray]) -> list[np.ndarray]:
    """Return subclasses of ndarray, such as memmap, as the arrays they hold."""
    return [unwrap(x) if isinstance(x, np.ndarray) else x for x in arrays]


def _floating(x: Any) -> np.ndarray:
    array = checked(x)
    if not dtypes.is_floating(array.dtype):
        raise TypeError(
            f"Gradients must be floating. Received: dtype={array.dtype.name}"
        )
    return array
