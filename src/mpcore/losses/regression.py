"""Losses of real-valued predictions."""

from typing import Any

import numpy as np

from mpcore import ops
from mpcore.losses.loss import Loss, mean_last, targets_like, wide
from mpcore.serialization import register


@register("losses", "mean_squared_error", "mse")
class MeanSquaredError(Loss):
    """Squared error (y_true - y_pred)^2, mean over the last axis of each sample."""

    def __init__(
        self,
        reduction: str | None = "sum_over_batch_size",
        name: str | None = "mean_squared_error",
    ) -> None:
        super().__init__(name, reduction)

    def call(self, y_true: np.ndarray, y_pred: Any) -> Any:
        """Return the float32 loss of each sample."""
        y_pred = wide(y_pred)
        error = ops.subtract(y_pred, targets_like(y_true, y_pred))
        return mean_last(ops.square(error))


@register("losses", "mean_absolute_error", "mae")
class MeanAbsoluteError(Loss):
    """Absolute error |y_true - y_pred|, mean over the last axis of each sample."""

    def __init__(
        self,
        reduction: str | None = "sum_over_batch_size",
        name: str | None = "mean_absolute_error",
    ) -> None:
        super().__init__(name, reduction)

    def call(self, y_true: np.ndarray, y_pred: Any) -> Any:
        """Return the float32 loss of each sample."""
        y_pred = wide(y_pred)
        return mean_last(ops.abs(ops.subtract(y_pred, targets_like(y_true, y_pred))))
