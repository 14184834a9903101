"""What is done to gradients between the backward pass and the update."""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from mpcore import dtypes
from mpcore._core import grad as kernel
from mpcore.ops.arrays import Output, contiguous, flatten
from mpcore.ops.elementwise import checked


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
    factor = float(multiplier)
    if not math.isfinite(factor):
        raise ValueError(f"`multiplier` must be finite. Received: multiplier={factor}")
    if out is not None and len(out) != len(arrays):
        raise ValueError(
            "`out` must be as long as `arrays`. Received: lengths "
            f"{len(out)} and {len(arrays)}"
        )
    sources = [None if x is None else _floating(x) for x in arrays]
    places = out if out is not None else [None] * len(sources)
    outputs: list[Output | None] = []
    for source, place in zip(sources, places, strict=True):
        if source is None:
            outputs.append(None)
            continue
        dtype = source.dtype.newbyteorder("=")
        # In place is in place; any other overlap goes through a temporary.
        inputs = () if place is source else (source,)
        outputs.append(Output(place, source.shape, dtype, *inputs))
    for output, source in zip(outputs, sources, strict=True):
        if output is not None and source is not None and output.array is not source:
            np.copyto(output.array, source)
    finite = kernel.unscale([o.array for o in outputs if o is not None], factor)
    return [None if o is None else o.finish() for o in outputs], finite


def norms(arrays: Sequence[Any]) -> np.ndarray:
    """Return the Euclidean norm of each array, float64.

    Squares are summed in float64, in an order that depends on the size alone; those of
    float32 and narrower ones neither overflow nor underflow.
    """
    return kernel.norms([contiguous(_floating(x)) for x in arrays])[0]


def global_norm(arrays: Sequence[Any]) -> float:
    """Return the Euclidean norm of all arrays together; None is skipped."""
    tensors = [contiguous(_floating(x)) for x in arrays if x is not None]
    return kernel.norms(tensors)[1]


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


def _floating(x: Any) -> np.ndarray:
    array = checked(x)
    if not dtypes.is_floating(array.dtype):
        raise TypeError(
            f"Gradients must be floating. Received: dtype={array.dtype.name}"
        )
    return array
