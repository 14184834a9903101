"""Loss: the base class, weighting and reduction.

Losses are float32 whatever the compute dtype, and compositions of `mpcore.ops`, so
their gradients are theirs.
"""

from collections.abc import Callable
from typing import Any, Self

import numpy as np

from mpcore import dtypes, ops
from mpcore.tape import unwrap

REDUCTIONS = ("sum_over_batch_size", "sum", None)


class Loss:
    """Base of losses: per-sample values, weighted and reduced.

    Parameters
    ----------
    name : str, optional
    reduction : {'sum_over_batch_size', 'sum', None}, default 'sum_over_batch_size'
        Sum divided by the number of samples (not by the sum of weights), sum, or the
        per-sample values. 'none' is None.

    Notes
    -----
    Subclasses define `call(y_true, y_pred)`, which returns one value per sample.
    """

    def __init__(
        self,
        name: str | None = None,
        reduction: str | None = "sum_over_batch_size",
    ) -> None:
        reduction = None if reduction == "none" else reduction
        if reduction not in REDUCTIONS:
            raise ValueError(
                f"`reduction` must be one of {REDUCTIONS}. "
                f"Received: reduction={reduction!r}"
            )
        self.name = type(self).__name__ if name is None else name
        self.reduction = reduction

    def call(self, y_true: np.ndarray, y_pred: Any) -> Any:
        """Return the loss of each sample; subclasses define it."""
        raise NotImplementedError(f"{type(self).__name__} does not define `call`.")

    def __call__(
        self, y_true: object, y_pred: Any, sample_weight: object = None
    ) -> Any:
        """Return the reduced loss.

        Parameters
        ----------
        y_true : array-like
            Targets; no gradient flows into them.
        y_pred : array or Tensor
            Predictions, of any floating dtype.
        sample_weight : array-like, optional
            One factor per sample, of the shape of the per-sample values or of its
            first dimensions.

        Returns
        -------
        float32 scalar, or the per-sample values with reduction None
            A Tensor if `y_pred` is one or a tape records, else a NumPy value. float64
            predictions give a float64 loss, where a loss takes them.

        Raises
        ------
        ValueError
            If shapes do not go together.
        """
        values = self.call(np.asarray(unwrap(y_true)), y_pred)
        if sample_weight is not None:
            values = ops.multiply(values, _weights_like(sample_weight, values))
        if self.reduction is None:
            return values
        if self.reduction == "sum":
            return ops.sum(values)
        return ops.mean(values)

    def get_config(self) -> dict[str, Any]:
        """Return the JSON-plain constructor arguments."""
        return {"name": self.name, "reduction": self.reduction}

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> Self:
        """Make a loss from the result of `get_config`."""
        return cls(**config)


def _weights_like(sample_weight: object, values: Any) -> np.ndarray:
    """Return the weights, shaped to multiply the per-sample values."""
    weights = np.asarray(unwrap(sample_weight))
    shape = tuple(values.shape)
    if weights.ndim == len(shape) + 1 and weights.shape[-1] == 1:
        weights = weights[..., 0]
    if weights.shape != shape[: weights.ndim]:
        raise ValueError(
            f"`sample_weight` must have one factor per sample, shape {shape}. "
            f"Received: shape {weights.shape}"
        )
    weights = weights.reshape(weights.shape + (1,) * (len(shape) - weights.ndim))
    return weights.astype(dtypes.numpy_dtype(values.dtype), copy=False)


def is_fused(logits: Any) -> bool:
    """Return whether the fused kernels take logits as they are."""
    return str(getattr(logits, "dtype", "")) in ("float32", "float16", "bfloat16")


def wide(y_pred: Any) -> Any:
    """Return predictions in float32 (float64 stays)."""
    y_pred = y_pred if hasattr(y_pred, "dtype") else np.asarray(y_pred)
    wide = dtypes.gradient_dtype(dtypes.canonical(y_pred.dtype))
    return y_pred if y_pred.dtype == wide else ops.cast(y_pred, wide)


def targets_like(y_true: np.ndarray, y_pred: Any) -> np.ndarray:
    """Return targets in the shape of predictions and the dtype of wide ones.

    One dimension of size 1 at the end may be missing on either side; nothing else is
    broadcast, since (n,) against (n, 1) would silently compare all with all.
    """
    shape = tuple(y_pred.shape)
    if y_true.shape != shape and y_true.size == np.prod(shape, dtype=int):
        if shape == (*y_true.shape, 1) or y_true.shape == (*shape, 1):
            y_true = y_true.reshape(shape)
    if y_true.shape != shape:
        raise ValueError(
            "`y_true` and `y_pred` must have the same shape. "
            f"Received: y_true.shape={y_true.shape}, y_pred.shape={shape}"
        )
    dtype = dtypes.gradient_dtype(dtypes.canonical(y_pred.dtype))
    return y_true.astype(dtypes.numpy_dtype(dtype), copy=False)


class FunctionLoss(Loss):
    """A loss made of a function (y_true, y_pred) -> per-sample values."""

    def __init__(self, function: Callable[[Any, Any], Any]) -> None:
        super().__init__(getattr(function, "__name__", type(function).__name__))
        self.function = function

    def call(self, y_true: np.ndarray, y_pred: Any) -> Any:
        """Return the function's values for float32 predictions."""
        y_pred = wide(y_pred)
        shape = tuple(y_pred.shape)
        # One missing dimension of size 1: the function must not broadcast over it.
        if shape == (*y_true.shape, 1) or y_true.shape == (*shape, 1):
            y_true = y_true.reshape(shape)
        return self.function(y_true, y_pred)


def mean_last(values: Any) -> Any:
    """Return the mean over the last axis; values of shape (n,) are samples already."""
    return ops.mean(values, axis=-1) if len(values.shape) > 1 else values
