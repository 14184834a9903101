"""Callbacks: what happens between the steps of `Model.fit`."""

import sys
from collections.abc import Sequence
from typing import Any, TextIO

Logs = dict[str, Any]


class Callback:
    """Base of callbacks; every hook does nothing.

    Attributes
    ----------
    model : Model
        The model being trained; set `model.stop_training = True` to end `fit` after
        the running epoch.
    params : dict
        'epochs' and 'steps' (per epoch) of this `fit`.
    wants_batches : bool, default True
        False: the hooks of batches are not called.
    """

    model: Any = None
    params: Logs
    wants_batches = True

    def set_model(self, model: Any) -> None:
        """Take the model."""
        self.model = model

    def set_params(self, params: Logs) -> None:
        """Take the parameters of this `fit`."""
        self.params = params

    def on_train_begin(self, logs: Logs | None = None) -> None:
        """Run once, before the first epoch."""

    def on_train_end(self, logs: Logs | None = None) -> None:
        """Run once, after the last epoch, also if training ends with an exception."""

    def on_epoch_begin(self, epoch: int, logs: Logs | None = None) -> None:
        """Run before epoch number `epoch`, counted from 0."""

    def on_epoch_end(self, epoch: int, logs: Logs | None = None) -> None:
        """Run after an epoch and its validation.

        `logs` holds 'loss', the metrics, their 'val_' twins and, under loss scaling,
        'loss_scale' and 'skipped_steps' (of this epoch).
        """

    def on_train_batch_begin(self, batch: int, logs: Logs | None = None) -> None:
        """Run before a step, counted from 0 in each epoch."""

    def on_train_batch_end(self, batch: int, logs: Logs | None = None) -> None:
        """Run after a step; `logs` holds the loss and metrics of the epoch so far."""


class History(Callback):
    """Records the logs of each epoch.

    Attributes
    ----------
    epoch : list of int
    history : dict of str to list
        One value per epoch.
    """

    def __init__(self) -> None:
        self.epoch: list[int] = []
        self.history: dict[str, list[Any]] = {}

    def on_train_begin(self, logs: Logs | None = None) -> None:
        """Start empty."""
        self.epoch = []
        self.history = {}

    def on_epoch_end(self, epoch: int, logs: Logs | None = None) -> None:
        """Append the logs."""
        self.epoch.append(epoch)
        for key, value in (logs or {}).items():
            self.history.setdefault(key, []).append(value)


def format_logs(logs: Logs) -> str:
    """Return logs as one line: 'loss: 0.0123 - accuracy: 0.9876'."""
    # Four digits for measures; counts and scales whole.
    return " - ".join(
        f"{key}: {value:.0f}" if abs(value) >= 1000 else f"{key}: {value:.4g}"
        for key, value in logs.items()
    )


class ProgressBar(Callback):
    """Shows one line per epoch: a moving bar on a terminal, plain text elsewhere.

    Parameters
    ----------
    file : text stream, optional
        Default: the standard error stream.
    bar : bool, optional
        Default: whether `file` is a terminal.
    """

    def __init__(self, file: TextIO | None = None, bar: bool | None = None) -> None:
        self._file = sys.stderr if file is None else file
        self._moving = self._file.isatty() if bar is None else bar
        self.wants_batches = self._moving
        self._bar: Any = None

    def on_epoch_begin(self, epoch: int, logs: Logs | None = None) -> None:
        """Start a bar."""
        if self._moving:
            # Here, for it takes a quarter of the time of `import mpcore`.
            from tqdm import tqdm  # type: ignore[import-untyped]

            self._bar = tqdm(
                total=self.params["steps"],
                desc=self._title(epoch),
                file=self._file,
                unit="step",
                dynamic_ncols=True,
            )

    def on_train_batch_end(self, batch: int, logs: Logs | None = None) -> None:
        """Move the bar on."""
        if self._bar is not None:
            self._bar.update()

    def on_epoch_end(self, epoch: int, logs: Logs | None = None) -> None:
        """Put the logs at the end of the line."""
        if self._bar is None:
            print(f"{self._title(epoch)} - {format_logs(logs or {})}", file=self._file)
        else:
            self._bar.set_postfix_str(format_logs(logs or {}))
            self._close()

    def on_train_end(self, logs: Logs | None = None) -> None:
        """Leave no bar open."""
        self._close()

    def _close(self) -> None:
        if self._bar is not None:
            self._bar.close()
            self._bar = None

    def _title(self, epoch: int) -> str:
        return f"Epoch {epoch + 1}/{self.params['epochs']}"


class CallbackList:
    """The callbacks of one `fit`, called in order."""

    def __init__(self, callbacks: Sequence[Callback], model: Any, params: Logs) -> None:
        for callback in callbacks:
            if not isinstance(callback, Callback):
                raise TypeError(
                    f"`callbacks` must hold Callbacks. Received: {callback!r}"
                )
        self._callbacks = list(callbacks)
        for callback in self._callbacks:
            callback.set_model(model)
            callback.set_params(params)
        # A hook per step costs nothing unless somebody wants it.
        self._batch_begin = self._overriding("on_train_batch_begin")
        self._batch_end = self._overriding("on_train_batch_end")
        self.wants_batch_logs = bool(self._batch_end)

    def _overriding(self, hook: str) -> list[Callback]:
        base = getattr(Callback, hook)
        return [
            c
            for c in self._callbacks
            if c.wants_batches and getattr(type(c), hook) is not base
        ]

    def on_train_begin(self) -> None:
        """Pass on."""
        for callback in self._callbacks:
            callback.on_train_begin()

    def on_train_end(self) -> None:
        """Pass on."""
        for callback in self._callbacks:
            callback.on_train_end()

    def on_epoch_begin(self, epoch: int) -> None:
        """Pass on."""
        for callback in self._callbacks:
            callback.on_epoch_begin(epoch)

    def on_epoch_end(self, epoch: int, logs: Logs) -> None:
        """Pass on."""
        for callback in self._callbacks:
            callback.on_epoch_end(epoch, logs)

    def on_train_batch_begin(self, batch: int) -> None:
        """Pass on to those that look."""
        for callback in self._batch_begin:
            callback.on_train_batch_begin(batch)

    def on_train_batch_end(self, batch: int, logs: Logs) -> None:
        """Pass on to those that look."""
        for callback in self._batch_end:
            callback.on_train_batch_end(batch, logs)
