"""Metrics: numbers to watch, accumulated over batches in float64.

Predictions are widened to float32 first, and counts are exact, so that neither the
compute dtype nor the size of the data set shows in a result.
"""

import copy
from collections.abc import Callable
from typing import Any, Self

import numpy as np

from mpcore import ops, serialization
from mpcore.serialization import register
from mpcore.tape import unwrap


class Metric:
    """Base of metrics: `update_state` per batch, `result`, `reset_state`.

    Parameters
    ----------
    name : str, optional
        Key in logs and history. Default: the class name.
    """

    def __init__(self, name: str | None = None) -> None:
        self.name = type(self).__name__ if name is None else name
        self.reset_state()

    def reset_state(self) -> None:
        """Forget everything seen; subclasses define it."""
        raise NotImplementedError(f"{type(self).__name__} has no `reset_state`.")

    def update_state(
        self, y_true: object, y_pred: object, sample_weight: object = None
    ) -> None:
        """Take a batch into account; subclasses define it."""
        raise NotImplementedError(f"{type(self).__name__} has no `update_state`.")

    def result(self) -> float:
        """Return the value over everything since the last reset."""
        raise NotImplementedError(f"{type(self).__name__} has no `result`.")

    def __call__(self, *args: Any, **kwargs: Any) -> float:
        """Update with a batch and return the result so far."""
        self.update_state(*args, **kwargs)
        return self.result()

    def get_config(self) -> dict[str, Any]:
        """Return the JSON-plain constructor arguments."""
        return {"name": self.name}

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> Self:
        """Make a metric from the result of `get_config`."""
        return cls(**config)

    def __repr__(self) -> str:
        """Name and current result."""
        return f"<{type(self).__name__} name={self.name}>"


class _WeightedMean(Metric):
    """Sum of weighted values over sum of weights, both in float64."""

    def reset_state(self) -> None:
        """Forget everything seen."""
        self._total = 0.0
        self._weight = 0.0

    def _add(self, values: np.ndarray, sample_weight: object) -> None:
        if sample_weight is None:
            self._total += float(values.sum(dtype=np.float64))
            self._weight += values.size
            return
        weights = np.asarray(unwrap(sample_weight), dtype=np.float64)
        if weights.ndim == values.ndim + 1 and weights.shape[-1] == 1:
            weights = weights[..., 0]
        if weights.shape != values.shape[: weights.ndim]:
            raise ValueError(
                "`sample_weight` must have one factor per sample, shape "
                f"{values.shape}. Received: shape {weights.shape}"
            )
        weights = weights.reshape(weights.shape + (1,) * (values.ndim - weights.ndim))
        weights = np.broadcast_to(weights, values.shape)
        self._total += float((values * weights).sum())
        self._weight += float(weights.sum())

    def result(self) -> float:
        """Return the weighted mean, 0 before any sample."""
        return self._total / self._weight if self._weight else 0.0


@register("metrics")
class Mean(_WeightedMean):
    """Weighted mean of given values."""

    def __init__(self, name: str | None = "mean") -> None:
        super().__init__(name)

    def update_state(  # type: ignore[override]
        self, values: object, sample_weight: object = None
    ) -> None:
        """Add values, an array or a scalar."""
        self._add(np.asarray(unwrap(values)), sample_weight)


class MeanMetricWrapper(_WeightedMean):
    """Mean over samples of a function of targets and predictions.

    Parameters
    ----------
    function : callable(y_true, y_pred) -> ndarray
        Gets the targets and the float32 predictions, gives one value per sample.
    name : str, optional
        Default: the function's name.
    """

    def __init__(
        self, function: Callable[[Any, Any], Any], name: str | None = None
    ) -> None:
        super().__init__(name or getattr(function, "__name__", "metric"))
        self._function = function

    def update_state(
        self, y_true: object, y_pred: object, sample_weight: object = None
    ) -> None:
        """Add the values of a batch."""
        values = self._function(np.asarray(unwrap(y_true)), _wide(y_pred))
        self._add(np.asarray(unwrap(values)), sample_weight)

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        """Copy the totals, not what the function belongs to: it may be a model."""
        made = copy.copy(self)
        memo[id(self)] = made
        state = dict(vars(self))
        function = state.pop("_function")
        # A method of this metric becomes that of the copy.
        own = getattr(function, "__self__", None) is self
        made.__dict__.update(copy.deepcopy(state, memo))
        made._function = copy.deepcopy(function, memo) if own else function
        return made


def _wide(y_pred: object) -> np.ndarray:
    """Return predictions as float32, or float64 if they are wider than that."""
    array: np.ndarray = unwrap(y_pred)
    if array.dtype.kind in "iub":
        return array.astype(np.float64)
    if array.dtype.itemsize < 4:
        return np.asarray(ops.cast(array, "float32"))
    return array


def _same_shape(y_true: np.ndarray, y_pred: np.ndarray) -> np.ndarray:
    """Return targets in the shape of predictions; only a last 1 may be missing."""
    if y_true.shape != y_pred.shape and (
        y_pred.shape == (*y_true.shape, 1) or y_true.shape == (*y_pred.shape, 1)
    ):
        y_true = y_true.reshape(y_pred.shape)
    if y_true.shape != y_pred.shape:
        raise ValueError(
            "`y_true` and `y_pred` must have the same shape. "
            f"Received: y_true.shape={y_true.shape}, y_pred.shape={y_pred.shape}"
        )
    return y_true


def _mean_last(values: np.ndarray) -> np.ndarray:
    """Return the mean over the last axis; shape (n,) is one value per sample."""
    return np.asarray(values.mean(axis=-1)) if values.ndim > 1 else values


def _equal(y_true: np.ndarray, y_pred: np.ndarray) -> np.ndarray:
    return np.asarray(_same_shape(y_true, y_pred) == y_pred, dtype=np.float32)


def _sparse_categorical(y_true: np.ndarray, y_pred: np.ndarray) -> np.ndarray:
    if y_true.ndim == y_pred.ndim and y_true.shape[-1] == 1:
        y_true = y_true[..., 0]
    return _equal(y_true, y_pred.argmax(axis=-1))


def _categorical(y_true: np.ndarray, y_pred: np.ndarray) -> np.ndarray:
    y_true = _same_shape(y_true, y_pred)
    return _equal(y_true.argmax(axis=-1), y_pred.argmax(axis=-1))


def _absolute_error(y_true: np.ndarray, y_pred: np.ndarray) -> np.ndarray:
    return _mean_last(np.abs(_same_shape(y_true, y_pred) - y_pred))


def _squared_error(y_true: np.ndarray, y_pred: np.ndarray) -> np.ndarray:
    return _mean_last(np.square(_same_shape(y_true, y_pred) - y_pred))


@register("metrics")
class Accuracy(MeanMetricWrapper):
    """Share of predictions that equal the targets."""

    def __init__(self, name: str | None = "accuracy") -> None:
        super().__init__(_equal, name)


@register("metrics", "sparse_categorical_accuracy")
class SparseCategoricalAccuracy(MeanMetricWrapper):
    """Share of rows whose largest prediction is at the integer label."""

    def __init__(self, name: str | None = "sparse_categorical_accuracy") -> None:
        super().__init__(_sparse_categorical, name)


@register("metrics", "categorical_accuracy")
class CategoricalAccuracy(MeanMetricWrapper):
    """Share of rows whose largest prediction is where the target is largest."""

    def __init__(self, name: str | None = "categorical_accuracy") -> None:
        super().__init__(_categorical, name)


@register("metrics", "binary_accuracy")
class BinaryAccuracy(MeanMetricWrapper):
    """Share of predictions on the target's side of a threshold.

    Parameters
    ----------
    name : str, optional
    threshold : float, default 0.5
        Predictions above it count as 1; with logits as predictions take 0.
    """

    def __init__(
        self, name: str | None = "binary_accuracy", threshold: float = 0.5
    ) -> None:
        super().__init__(self._hits, name)
        self.threshold = float(threshold)

    def _hits(self, y_true: np.ndarray, y_pred: np.ndarray) -> np.ndarray:
        return _mean_last(_equal(_same_shape(y_true, y_pred), y_pred > self.threshold))

    def get_config(self) -> dict[str, Any]:
        """Return the JSON-plain constructor arguments."""
        return super().get_config() | {"threshold": self.threshold}


@register("metrics", "mean_squared_error", "mse")
class MeanSquaredError(MeanMetricWrapper):
    """Mean of (y_true - y_pred)^2."""

    def __init__(self, name: str | None = "mean_squared_error") -> None:
        super().__init__(_squared_error, name)


@register("metrics", "mean_absolute_error", "mae")
class MeanAbsoluteError(MeanMetricWrapper):
    """Mean of |y_true - y_pred|."""

    def __init__(self, name: str | None = "mean_absolute_error") -> None:
        super().__init__(_absolute_error, name)


class _AccuracyByShape(MeanMetricWrapper):
    """The accuracy that fits the first batch, as 'accuracy' means in Keras."""

    def __init__(self, name: str) -> None:
        super().__init__(self._hits, name)
        self._chosen: Callable[[np.ndarray, np.ndarray], np.ndarray] | None = None

    def _hits(self, y_true: np.ndarray, y_pred: np.ndarray) -> np.ndarray:
        if self._chosen is None:
            if y_pred.ndim < 2 or y_pred.shape[-1] == 1:
                self._chosen = BinaryAccuracy()._hits
            elif y_true.ndim < y_pred.ndim or y_true.shape[-1] == 1:
                self._chosen = _sparse_categorical
            else:
                self._chosen = _categorical
        return self._chosen(y_true, y_pred)


def get(identifier: object) -> Metric:
    """Return the metric that a name, config, Metric, its class or function stands for.

    'accuracy' (and 'acc') become binary, sparse categorical or categorical accuracy
    when the shapes of the first batch are known.

    Raises
    ------
    ValueError
        For an unknown name.
    TypeError
        For anything else.
    """
    if isinstance(identifier, str) and identifier in ("accuracy", "acc"):
        return _AccuracyByShape(identifier)
    made: Any = identifier
    if isinstance(made, str):
        made = serialization.lookup("metrics", made)
    elif isinstance(made, dict):
        made = serialization.deserialize(made, kind="metrics")
    if isinstance(made, type) and issubclass(made, Metric):
        made = made()
    if isinstance(made, Metric):
        return made
    if callable(made) and not isinstance(made, type):
        return MeanMetricWrapper(made)
    raise TypeError(
        "A metric must be a name, a config, a Metric or a function. "
        f"Received: {identifier!r}"
    )
