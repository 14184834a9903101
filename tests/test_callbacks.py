"""Laws of callbacks: order of hooks, history, what is shown where."""

import io

import numpy as np
import pytest

from mpcore.callbacks import Callback, CallbackList, History, ProgressBar, format_logs
from mpcore.layers import Dense
from mpcore.models import Sequential

X = np.arange(10, dtype=np.float32).reshape(5, 2)
Y = X.sum(axis=1, keepdims=True)


class Terminal(io.StringIO):
    def isatty(self):
        return True


def compiled_model():
    model = Sequential([Dense(1)])
    model.compile("sgd", "mse")
    return model


class Recorder(Callback):
    def __init__(self):
        self.calls = []

    def on_train_begin(self, logs=None):
        self.calls.append("train_begin")

    def on_train_end(self, logs=None):
        self.calls.append("train_end")

    def on_epoch_begin(self, epoch, logs=None):
        self.calls.append(f"epoch_begin {epoch}")

    def on_epoch_end(self, epoch, logs=None):
        self.calls.append(f"epoch_end {epoch} {sorted(logs)}")

    def on_train_batch_begin(self, batch, logs=None):
        self.calls.append(f"batch_begin {batch}")

    def on_train_batch_end(self, batch, logs=None):
        self.calls.append(f"batch_end {batch} {sorted(logs)}")


def test_fit_calls_every_hook_in_order():
    recorder = Recorder()
    model = compiled_model()
    model.fit(
        X, Y, batch_size=4, epochs=2, verbose=0, callbacks=[recorder], initial_epoch=1
    )
    assert recorder.calls == [
        "train_begin",
        "epoch_begin 1",
        "batch_begin 0",
        "batch_end 0 ['loss']",
        "batch_begin 1",
        "batch_end 1 ['loss']",
        "epoch_end 1 ['loss']",
        "train_end",
    ]
    assert recorder.model is model
    assert recorder.params == {"epochs": 2, "steps": 2}


def test_fit_ends_after_the_epoch_in_which_a_callback_stops_it():
    class Stop(Callback):
        def on_epoch_end(self, epoch, logs=None):
            self.model.stop_training = epoch == 1

    model = compiled_model()
    history = model.fit(X, Y, epochs=9, verbose=0, callbacks=[Stop()])
    assert history.epoch == [0, 1]
    assert model.fit(X, Y, epochs=2, verbose=0).epoch == [0, 1]


def test_fit_runs_train_end_after_an_exception():
    class Fail(Callback):
        def on_train_batch_end(self, batch, logs=None):
            raise KeyboardInterrupt

    recorder = Recorder()
    with pytest.raises(KeyboardInterrupt):
        compiled_model().fit(X, Y, verbose=0, callbacks=[recorder, Fail()])
    assert recorder.calls[-1] == "train_end"


def test_fit_refuses_what_is_no_callback():
    with pytest.raises(TypeError, match="callbacks"):
        compiled_model().fit(X, Y, verbose=0, callbacks=[print])


def test_callback_list_pays_for_batch_logs_only_if_somebody_looks():
    assert not CallbackList([History()], None, {}).wants_batch_logs
    assert CallbackList([Recorder()], None, {}).wants_batch_logs


def test_history_has_one_value_per_key_and_epoch_and_starts_empty():
    history = History()
    for _ in range(2):
        history.on_train_begin()
        history.on_epoch_end(3, {"loss": 1.0})
        history.on_epoch_end(4, {"loss": 0.5})
    assert history.epoch == [3, 4]
    assert history.history == {"loss": [1.0, 0.5]}


def test_format_logs_shows_four_digits_and_big_numbers_whole():
    logs = {"loss": 0.123456, "loss_scale": 2.0**20, "skipped_steps": 3}
    assert format_logs(logs) == "loss: 0.1235 - loss_scale: 1048576 - skipped_steps: 3"


def test_progress_bar_off_a_terminal_is_one_plain_line_per_epoch():
    stream = io.StringIO()
    compiled_model().fit(X, Y, epochs=2, verbose=0, callbacks=[ProgressBar(stream)])
    lines = stream.getvalue().splitlines()
    assert [line.split(" - ")[0] for line in lines] == ["Epoch 1/2", "Epoch 2/2"]
    assert all("loss: " in line for line in lines)


def test_progress_bar_on_a_terminal_ends_each_line_with_the_logs():
    stream = Terminal()
    compiled_model().fit(
        X, Y, batch_size=1, epochs=2, verbose=0, callbacks=[ProgressBar(stream)]
    )
    lines = stream.getvalue().rstrip("\n").split("\n")
    assert len(lines) == 2
    assert all("5/5" in line and "loss: " in line for line in lines)


@pytest.mark.parametrize(("verbose", "lines"), [(0, 0), (2, 3), ("auto", 3)])
def test_fit_verbose_off_a_terminal_writes_to_standard_error(verbose, lines, capsys):
    compiled_model().fit(X, Y, epochs=3, verbose=verbose)
    captured = capsys.readouterr()
    assert captured.out == ""
    assert len(captured.err.splitlines()) == lines


def test_fit_verbose_one_draws_a_bar_anywhere(capsys):
    compiled_model().fit(X, Y, epochs=1, verbose=1)
    assert "1/1" in capsys.readouterr().err
    with pytest.raises(ValueError, match="verbose=3"):
        compiled_model().fit(X, Y, verbose=3)
