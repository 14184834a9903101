"""Model: a layer that can be compiled, fitted, evaluated and asked."""

import os
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np

from mpcore import random
from mpcore.callbacks import Callback, CallbackList, History, ProgressBar
from mpcore.layers.layer import Layer
from mpcore.layers.super_init import set_in_init
from mpcore.models import batches, summary, weights
from mpcore.models.batches import Array, Arrays
from mpcore.models.progress import Progress, shown
from mpcore.models.training import Logs, Trainer, output_of
from mpcore.tape import unwrap


@set_in_init("_trainer")
class Model(Layer):
    """A layer with a training loop.

    Use `Sequential`, or subclass it: make layers in `__init__`, use them in `call`.

    Parameters
    ----------
    **kwargs
        See `Layer`. The policy's name decides whether `compile` adds loss scaling.

    Attributes
    ----------
    stop_training : bool
        Set to True by a callback to end `fit` after the running epoch.
    """

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.stop_training = False
        self._trainer: Trainer | None = None

    @property
    def layers(self) -> list[Layer]:
        """The layers directly below."""
        return self._own_state()[1]

    def compile(
        self,
        optimizer: object,
        loss: object,
        metrics: Sequence[object] | None = None,
        auto_scale_loss: bool = True,
    ) -> None:
        """Set what to minimise and how.

        Parameters
        ----------
        optimizer : str, dict or Optimizer
        loss : str, dict, Loss or callable(y_true, y_pred)
        metrics : sequence of str, dict, Metric or callable(y_true, y_pred); optional
            Not weighted by `sample_weight`. 'accuracy' becomes the accuracy that fits
            the shapes.
        auto_scale_loss : bool, default True
            Wrap the optimizer in a `LossScaleOptimizer` if the model's policy is
            'mixed_float16' and it is not wrapped yet.

        Raises
        ------
        ValueError, TypeError
            For something unknown, or two metrics of one name.
        """
        scale = auto_scale_loss and self.dtype_policy.name == "mixed_float16"
        self._trainer = Trainer(optimizer, loss, metrics or (), scale)

    @property
    def optimizer(self) -> Any:
        """The compiled optimizer, with its loss scaling; None before `compile`."""
        return None if self._trainer is None else self._trainer.optimizer

    def _compiled(self) -> Trainer:
        if self._trainer is None:
            raise RuntimeError(f"Model '{self.name}' must be compiled: `compile(...)`.")
        return self._trainer

    def fit(
        self,
        x: object,
        y: object,
        batch_size: int | None = None,
        epochs: int = 1,
        verbose: str | int = "auto",
        callbacks: Callback | Sequence[Callback] | None = None,
        validation_split: float = 0.0,
        validation_data: object = None,
        shuffle: bool = True,
        sample_weight: object = None,
        initial_epoch: int = 0,
    ) -> History:
        """Train on arrays.

        Parameters
        ----------
        x : array-like of shape (n, ...)
            Floating samples are cast to the compute dtype batch by batch.
        y : array-like of shape (n, ...)
            Targets.
        batch_size : int, optional
            Default: 32. The last batch of an epoch may be smaller; each sample counts
            once.
        epochs : int, default 1
            Number of the epoch to stop before.
        verbose : {'auto', 0, 1, 2}
            0: silent. 1: a progress bar per epoch. 2: a plain line per epoch. 'auto':
            1 on a terminal, else 2. Written to standard error.
        callbacks : Callback or sequence of Callback, optional
        validation_split : float in [0, 1), default 0
            Share of the samples, from the end and before shuffling, to validate on.
        validation_data : (x, y) or (x, y, sample_weight), optional
            Wins over `validation_split`.
        shuffle : bool, default True
            Visit the samples in a new order each epoch; the order is drawn from the
            next stream of the global seed (`mpcore.random.set_random_seed`).
        sample_weight : array-like of shape (n,), optional
            Factors of the samples' losses.
        initial_epoch : int >= 0, default 0
            Number of the epoch to start with.

        Returns
        -------
        History
            The weights are the moving averages if the optimizer keeps them (`use_ema`).
            `history.history` holds a list per key: 'loss', the metrics, 'val_...', and
            under loss scaling 'loss_scale' (at the end of the epoch) and
            'skipped_steps' (in the epoch).

        Raises
        ------
        RuntimeError
            If the model is not compiled.
        ValueError, TypeError
            If arguments make no sense. What shows without running the model is found
            before anything is trained; a label out of range is found in its batch.
        """
        trainer = self._compiled()
        data = batches.checked(x, y, sample_weight)
        validation: Arrays | None = None
        if validation_data is not None:
            validation = batches.unpacked(validation_data, "validation_data")
        elif validation_split:
            data, validation = batches.split(data, validation_split)
        if validation is not None and validation.x.shape[1:] != data.x.shape[1:]:
            raise ValueError(
                f"`validation_data` must have samples of shape {data.x.shape[1:]}, as "
                f"`x` has. Received: shape {validation.x.shape[1:]}"
            )
        size = batches.size(batch_size)
        if isinstance(callbacks, Callback):
            callbacks = [callbacks]
        elif callbacks is not None and not isinstance(callbacks, Iterable):
            raise TypeError(
                "`callbacks` must be a Callback or a list of them. Received: "
                f"callbacks={callbacks!r}"
            )
        epochs = batches.at_least(epochs, "epochs", 0)
        initial_epoch = batches.at_least(initial_epoch, "initial_epoch", 0)
        history = History()
        hooks = CallbackList(
            [*(callbacks or ()), history, *_progress(verbose)],
            self,
            {"epochs": epochs, "steps": data.count(size)},
        )
        generator = random.generator() if shuffle else None
        self.stop_training = False
        hooks.on_train_begin()
        try:
            for epoch in range(initial_epoch, epochs):
                hooks.on_epoch_begin(epoch)
                order = None if generator is None else generator.permutation(len(data))
                logs = self._train_epoch(trainer, data.batches(size, order), hooks)
                if validation is not None:
                    tested = self._test(trainer, validation.batches(size))
                    logs |= {f"val_{key}": value for key, value in tested.items()}
                hooks.on_epoch_end(epoch, logs)
                if self.stop_training:
                    break
            trainer.optimizer.finalize_variable_values(self.trainable_variables)
        finally:
            hooks.on_train_end()
        return history

    def _train_epoch(
        self,
        trainer: Trainer,
        data: Iterable[Arrays],
        hooks: CallbackList,
    ) -> Logs:
        trainer.reset()
        for index, batch in enumerate(data):
            hooks.on_train_batch_begin(index)
            trainer.train_batch(self, batch)
            if hooks.wants_batch_logs:
                hooks.on_train_batch_end(index, trainer.logs())
        return trainer.logs() | trainer.scale_logs()

    def _test(self, trainer: Trainer, data: Iterable[Arrays]) -> Logs:
        with trainer.fresh():
            for batch in data:
                trainer.test_batch(self, batch)
            return trainer.logs()

    def evaluate(
        self,
        x: object,
        y: object,
        batch_size: int | None = None,
        verbose: str | int = "auto",
        sample_weight: object = None,
        return_dict: bool = False,
    ) -> Any:
        """Return loss and metrics on arrays, without training.

        Parameters
        ----------
        x, y, batch_size, sample_weight
            See `fit`.
        verbose : {'auto', 0, 1, 2}
            1: a progress bar. 2: a line at the end. 'auto' and 0: silent. Written to
            standard error.
        return_dict : bool, default False

        Returns
        -------
        float, list of float, or dict
            The loss; with metrics [loss, *metrics]; with `return_dict` by name.

        Raises
        ------
        RuntimeError
            If the model is not compiled.
        ValueError, TypeError
            If arguments make no sense.
        """
        trainer = self._compiled()
        data = batches.checked(x, y, sample_weight)
        size = batches.size(batch_size)
        with Progress("Evaluate", data.count(size), verbose) as progress:
            logs = self._test(trainer, progress.over(data.batches(size)))
            progress.finish(logs)
        return _result(logs, return_dict)

    def predict(
        self, x: object, batch_size: int | None = None, verbose: str | int = "auto"
    ) -> Array:
        """Return the outputs for all samples.

        Parameters
        ----------
        x : array-like of shape (n, ...)
        batch_size : int, optional
            Default: 32. It does not change a bit of the result.
        verbose : {'auto', 0, 1, 2}
            1: a progress bar on standard error. Else: silent.

        Returns
        -------
        ndarray of shape (n, ...), in the compute dtype of the last layer
            The bits are those of `model(x)`.

        Raises
        ------
        TypeError
            If the model returns something else than one array, or `x` holds no numbers.
        ValueError
            If it does not return one row per sample, or an argument makes no sense.
        """
        data = batches.checked(x)
        size = batches.size(batch_size)
        outputs = np.empty(0)
        start = 0
        with Progress("Predict", data.count(size), verbose) as progress:
            for batch in progress.over(data.batches(size)):
                output = self.predict_on_batch(batch.x)
                if output.ndim == 0 or len(output) != len(batch):
                    raise ValueError(
                        "`predict` needs a model that returns one row per sample. "
                        f"Received: shape {output.shape} for {len(batch)} samples"
                    )
                if start == 0:
                    outputs = np.empty((len(data), *output.shape[1:]), output.dtype)
                outputs[start : start + len(output)] = output
                start += len(output)
        return outputs

    def train_on_batch(
        self,
        x: object,
        y: object,
        sample_weight: object = None,
        return_dict: bool = False,
    ) -> Any:
        """Take one step; return this batch's loss and metrics as `evaluate` does."""
        trainer = self._compiled()
        batch = batches.checked(x, y, sample_weight)
        with trainer.fresh():
            trainer.train_batch(self, batch)
            return _result(trainer.logs(), return_dict)

    def test_on_batch(
        self,
        x: object,
        y: object,
        sample_weight: object = None,
        return_dict: bool = False,
    ) -> Any:
        """Return the loss and metrics of one batch as `evaluate` does."""
        trainer = self._compiled()
        data = batches.checked(x, y, sample_weight)
        return _result(self._test(trainer, [data]), return_dict)

    def predict_on_batch(self, x: object) -> Array:
        """Return the output for one batch.

        Raises
        ------
        TypeError
            If the model returns something else than one array.
        """
        return unwrap(output_of(self, x, training=False))

    def save_weights(self, path: str | os.PathLike[str]) -> None:
        """Write all variables to a safetensors file, in their stored dtypes.

        Names follow the structure of the model: 'dense_1/kernel'.

        Raises
        ------
        RuntimeError
            If the model has no variables; call it on a batch or `build` it first.
        OSError
            If the file cannot be written.
        """
        weights.save(self, path)

    def load_weights(self, path: str | os.PathLike[str]) -> None:
        """Read all variables from a safetensors file that `save_weights` wrote.

        Raises
        ------
        ValueError
            If the file is no safetensors file, a name is missing or unknown, or a
            shape or dtype differs; the model is left as it was.
        RuntimeError
            If the model has no variables; call it on a batch or `build` it first.
        FileNotFoundError
            If there is no such file.
        """
        weights.load(self, path)

    def summary(self, print_fn: Callable[[str], object] = print) -> None:
        """Print the layers, their variables, parameters and policies."""
        print_fn(summary.table(self, self.layers))


def _progress(verbose: str | int) -> list[Callback]:
    verbose = shown(verbose)
    if verbose == 0:
        return []
    return [ProgressBar(bar=None if verbose == "auto" else verbose == 1)]


def _result(logs: Logs, return_dict: bool) -> Any:
    if return_dict:
        return logs
    values = list(logs.values())
    return values[0] if len(values) == 1 else values
