"""One step of training or evaluation, and the totals over an epoch."""

import copy
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from mpcore import losses, metrics, optimizers
from mpcore.layers.layer import Layer
from mpcore.metrics import Metric
from mpcore.mixed_precision.loss_scale_optimizer import LossScaleOptimizer
from mpcore.models.batches import Arrays
from mpcore.tape import GradientTape, unwrap
from mpcore.variable import Variable

Logs = dict[str, Any]


def output_of(model: Layer, x: object, training: bool) -> Any:
    """Return the one array that a model makes of a batch.

    Raises
    ------
    TypeError
        If the model returns something else.
    """
    output = model(x, training=training)
    if not hasattr(output, "shape"):
        raise TypeError(
            f"Model '{model.name}' must return one array. Received: "
            f"{type(output).__name__}"
        )
    return output


class Trainer:
    """What `Model.compile` sets up: loss, optimizer, metrics, and the steps with them.

    It does not keep the model, which keeps it: no reference cycle holds the weights.

    Parameters
    ----------
    optimizer, loss, metric_list
        See `Model.compile`.
    scale_loss : bool
        Wrap the optimizer in a `LossScaleOptimizer` unless it is one.
    """

    def __init__(
        self,
        optimizer: object,
        loss: object,
        metric_list: Any,
        scale_loss: bool,
    ) -> None:
        made = optimizers.get(optimizer)
        if made is None:
            raise TypeError("`optimizer` must be an optimizer. Received: None")
        self.optimizer = made
        if scale_loss and not isinstance(self.optimizer, LossScaleOptimizer):
            self.optimizer = LossScaleOptimizer(
                self.optimizer, name="loss_scale_optimizer"
            )
        self.loss = losses.get(loss)
        if isinstance(metric_list, str | dict):
            raise TypeError(
                f"`metrics` must be a list. Received: metrics={metric_list!r}"
            )
        self.metrics: list[Metric] = [metrics.get(item) for item in metric_list]
        names = ["loss", *(metric.name for metric in self.metrics)]
        if len(set(names)) < len(names):
            raise ValueError(
                "`metrics` must have names of their own, and not 'loss'. "
                f"Received: {', '.join(names[1:])}"
            )
        self._variables: list[Variable] | None = None
        self._penalties: list[tuple[Callable[..., Any], Variable]] = []
        self._loss_total = 0.0
        self._samples = 0
        self._skipped_before = 0

    def reset(self) -> None:
        """Start an epoch: totals are 0, and what is trainable is looked up again."""
        self._variables = None
        self._loss_total = 0.0
        self._samples = 0
        for metric in self.metrics:
            metric.reset_state()
        self._skipped_before = self._skipped

    @contextmanager
    def fresh(self) -> Iterator[None]:
        """Start totals of its own, for an evaluation in the middle of an epoch."""
        before = dict(vars(self))
        self.metrics = copy.deepcopy(self.metrics)
        self.reset()
        try:
            yield
        finally:
            vars(self).update(before)

    @property
    def _skipped(self) -> int:
        if isinstance(self.optimizer, LossScaleOptimizer):
            return self.optimizer.skipped_steps
        return 0

    def train_batch(self, model: Layer, batch: Arrays) -> None:
        """Forward, backward, update."""
        with GradientTape() as tape:
            y_pred = output_of(model, batch.x, training=True)
            variables = self._variables or self._look_up_variables(model)
            loss = self._total_loss(batch, y_pred)
            scaled = self.optimizer.scale_loss(loss)
        self.optimizer.apply(tape.gradient(scaled, variables), variables)
        self._count(batch, y_pred, loss)

    def test_batch(self, model: Layer, batch: Arrays) -> None:
        """Forward, loss and metrics."""
        y_pred = output_of(model, batch.x, training=False)
        if self._variables is None:
            self._look_up_variables(model)
        self._count(batch, y_pred, self._total_loss(batch, y_pred))

    def logs(self) -> Logs:
        """Return loss and metrics since the last `reset`, as floats."""
        logs = {"loss": self._loss_total / self._samples}
        for metric in self.metrics:
            logs[metric.name] = metric.result()
        return logs

    def scale_logs(self) -> Logs:
        """Return the loss scale now and the steps skipped since the last `reset`."""
        if not isinstance(self.optimizer, LossScaleOptimizer):
            return {}
        return {
            "loss_scale": float(self.optimizer.dynamic_scale),
            "skipped_steps": self._skipped - self._skipped_before,
        }

    def _look_up_variables(self, model: Layer) -> list[Variable]:
        variables = self._variables = model.trainable_variables
        self._penalties = [
            (v.regularizer, v) for v in variables if v.regularizer is not None
        ]
        return variables

    def _total_loss(self, batch: Arrays, y_pred: Any) -> Any:
        """Return the loss with its regularization, a float32 scalar."""
        loss = self.loss(batch.y, y_pred, batch.sample_weight)
        if loss.shape != ():
            raise ValueError(
                "The loss of a model must be a scalar; give it the reduction "
                f"'sum_over_batch_size' or 'sum'. Received: shape {loss.shape}"
            )
        for penalty, variable in self._penalties:
            loss = loss + penalty(variable)
            if loss.shape != ():
                raise ValueError(
                    f"The regularizer of '{variable.path}' must return a scalar. "
                    f"Received: shape {loss.shape}"
                )
        return loss

    def _count(self, batch: Arrays, y_pred: Any, loss: Any) -> None:
        """Add a batch to the totals; each sample counts once."""
        samples = len(batch)
        self._loss_total += float(loss) * samples
        self._samples += samples
        if self.metrics:
            predictions = unwrap(y_pred)
            for metric in self.metrics:
                metric.update_state(batch.y, predictions)
