"""Cross-entropies, from logits or from probabilities."""

from typing import Any

import numpy as np

from mpcore import dtypes, ops
from mpcore.losses.loss import Loss, is_fused, mean_last, targets_like, wide
from mpcore.serialization import register
from mpcore.tape import unwrap

# Probabilities are kept this far from 0 and 1 before the logarithm, as in Keras.
EPSILON = 1e-7


def _class_indices(y_true: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
    """Return int64 labels for predictions of a shape (..., classes).

    Raises
    ------
    ValueError
        If the shapes differ, or labels are not whole numbers.
    """
    rows = shape[:-1]
    if y_true.shape == (*rows, 1):
        y_true = y_true[..., 0]
    if y_true.shape != rows:
        raise ValueError(
            "Integer labels must have the shape of the predictions without the last "
            f"dimension, {rows}; one-hot labels are for CategoricalCrossentropy. "
            f"Received: y_true.shape={y_true.shape}"
        )
    with np.errstate(invalid="ignore"):  # NaN is refused below
        labels = y_true.astype(np.int64, copy=False)
    if y_true.dtype.kind not in "iub" and not np.array_equal(labels, y_true):
        wrong = y_true[labels != y_true]
        raise ValueError(f"Labels must be whole numbers. Received: {wrong[0]}")
    return labels


def _one_hot(labels: np.ndarray, y_pred: Any) -> np.ndarray:
    """Return rows with a one at the label, in the shape and dtype of predictions."""
    classes = y_pred.shape[-1]
    if labels.size and not (0 <= labels.min() and labels.max() < classes):
        raise ValueError(
            f"Labels must be in [0, {classes}). "
            f"Received: labels from {labels.min()} to {labels.max()}"
        )
    rows = np.zeros(y_pred.shape, dtypes.numpy_dtype(y_pred.dtype))
    np.put_along_axis(rows, labels[..., None], 1, axis=-1)
    return rows


def _log_probabilities(probabilities: Any) -> Any:
    """Return log of rows normalised to sum 1 and kept inside (0, 1)."""
    total = ops.sum(probabilities, axis=-1, keepdims=True)
    normalised = ops.divide(probabilities, total)
    return ops.log(_clip(normalised))


def _clip(probabilities: Any) -> Any:
    """Return probabilities within [EPSILON, 1 - EPSILON]."""
    return ops.minimum(ops.maximum(probabilities, EPSILON), 1.0 - EPSILON)


def _log_softmax(logits: Any) -> Any:
    """Return x - log(sum(exp(x))) over the last axis."""
    # The shift is a constant to the gradient: it cancels.
    shift = unwrap(logits).max(axis=-1, keepdims=True)
    shifted = ops.subtract(logits, shift)
    return ops.subtract(
        shifted, ops.log(ops.sum(ops.exp(shifted), axis=-1, keepdims=True))
    )


def _checked_smoothing(label_smoothing: float) -> float:
    if not 0.0 <= label_smoothing <= 1.0:
        raise ValueError(
            "`label_smoothing` must be in [0, 1]. "
            f"Received: label_smoothing={label_smoothing}"
        )
    return float(label_smoothing)


@register("losses", "sparse_categorical_crossentropy")
class SparseCategoricalCrossentropy(Loss):
    """Cross-entropy -log p[label] with integer labels.

    Parameters
    ----------
    from_logits : bool, default False
        True: `y_pred` are logits; softmax, loss and gradient are one fused kernel.
        False: `y_pred` are probabilities; each row is divided by its sum and kept in
        [1e-7, 1 - 1e-7].
    reduction, name
        See `Loss`.

    Notes
    -----
    `y_true` of shape (...) or (..., 1), integers in [0, classes); `y_pred` of shape
    (..., classes).
    """

    def __init__(
        self,
        from_logits: bool = False,
        reduction: str | None = "sum_over_batch_size",
        name: str | None = "sparse_categorical_crossentropy",
    ) -> None:
        super().__init__(name, reduction)
        self.from_logits = bool(from_logits)

    def call(self, y_true: np.ndarray, y_pred: Any) -> Any:
        """Return the float32 loss of each row."""
        labels = _class_indices(y_true, tuple(y_pred.shape))
        if self.from_logits:
            return ops.sparse_softmax_cross_entropy(labels, y_pred)
        y_pred = wide(y_pred)
        picked = ops.multiply(_one_hot(labels, y_pred), _log_probabilities(y_pred))
        return ops.negative(ops.sum(picked, axis=-1))

    def get_config(self) -> dict[str, Any]:
        """Return the JSON-plain constructor arguments."""
        return super().get_config() | {"from_logits": self.from_logits}


@register("losses", "categorical_crossentropy")
class CategoricalCrossentropy(Loss):
    """Cross-entropy -sum(t log p) with a target distribution t per row.

    Parameters
    ----------
    from_logits : bool, default False
        True: `y_pred` are logits; softmax, loss and gradient are one fused kernel
        (float64 logits: a composition in float64). False: `y_pred` are probabilities,
        normalised and clipped as in `SparseCategoricalCrossentropy`.
    label_smoothing : float in [0, 1], default 0
        s: targets become t (1 - s) + s / classes.
    reduction, name
        See `Loss`.
    """

    def __init__(
        self,
        from_logits: bool = False,
        label_smoothing: float = 0.0,
        reduction: str | None = "sum_over_batch_size",
        name: str | None = "categorical_crossentropy",
    ) -> None:
        super().__init__(name, reduction)
        self.from_logits = bool(from_logits)
        self.label_smoothing = _checked_smoothing(label_smoothing)

    def call(self, y_true: np.ndarray, y_pred: Any) -> Any:
        """Return the float32 loss of each row."""
        if self.from_logits and is_fused(y_pred):
            targets = targets_like(y_true, y_pred)
            return ops.softmax_cross_entropy(targets, y_pred, self.label_smoothing)
        y_pred = wide(y_pred)
        targets = targets_like(y_true, y_pred)
        if self.label_smoothing:
            spread = self.label_smoothing / targets.shape[-1]
            targets = targets * (1.0 - self.label_smoothing) + spread
        log = _log_softmax if self.from_logits else _log_probabilities
        return ops.negative(ops.sum(ops.multiply(targets, log(y_pred)), axis=-1))

    def get_config(self) -> dict[str, Any]:
        """Return the JSON-plain constructor arguments."""
        return super().get_config() | {
            "from_logits": self.from_logits,
            "label_smoothing": self.label_smoothing,
        }


@register("losses", "binary_crossentropy")
class BinaryCrossentropy(Loss):
    """Cross-entropy -t log p - (1 - t) log(1 - p), mean over the last axis.

    Parameters
    ----------
    from_logits : bool, default False
        True: `y_pred` are logits x, and the loss is max(x, 0) - x t + log(1 + e^-|x|).
        False: probabilities, kept in [1e-7, 1 - 1e-7].
    label_smoothing : float in [0, 1], default 0
        s: targets become t (1 - s) + s / 2.
    reduction, name
        See `Loss`.
    """

    def __init__(
        self,
        from_logits: bool = False,
        label_smoothing: float = 0.0,
        reduction: str | None = "sum_over_batch_size",
        name: str | None = "binary_crossentropy",
    ) -> None:
        super().__init__(name, reduction)
        self.from_logits = bool(from_logits)
        self.label_smoothing = _checked_smoothing(label_smoothing)

    def call(self, y_true: np.ndarray, y_pred: Any) -> Any:
        """Return the float32 loss of each sample."""
        y_pred = wide(y_pred)
        targets = targets_like(y_true, y_pred)
        if self.label_smoothing:
            targets = targets * (1 - self.label_smoothing) + self.label_smoothing / 2
        if self.from_logits:
            # (x + |x|) / 2 for max(x, 0): its gradient at 0 is 1/2, as it must be.
            magnitude = ops.abs(y_pred)
            positive = ops.multiply(ops.add(y_pred, magnitude), 0.5)
            tail = ops.log1p(ops.exp(ops.negative(magnitude)))
            linear = ops.subtract(positive, ops.multiply(y_pred, targets))
            return mean_last(ops.add(linear, tail))
        p = _clip(y_pred)
        hit = ops.multiply(ops.log(p), targets)
        miss = ops.multiply(ops.log(ops.subtract(1.0, p)), 1 - targets)
        return ops.negative(mean_last(ops.add(hit, miss)))

    def get_config(self) -> dict[str, Any]:
        """Return the JSON-plain constructor arguments."""
        return super().get_config() | {
            "from_logits": self.from_logits,
            "label_smoothing": self.label_smoothing,
        }
