"""Laws of `verbose` in evaluate and predict, and of the default batch size."""

import sys

import numpy as np
import pytest
from small_models import classifier, data

from mpcore.callbacks import Callback
from mpcore.layers import Layer
from mpcore.models import Sequential


@pytest.mark.parametrize("quiet", [{}, {"verbose": "auto"}, {"verbose": 0}])
def test_evaluate_and_predict_are_silent_by_default(quiet, capsys):
    x, y = data(70)
    model = classifier()
    model.evaluate(x, y, **quiet)
    model.predict(x, **quiet)
    assert capsys.readouterr() == ("", "")


def test_evaluate_verbose_one_draws_a_bar_over_batches_that_ends_with_the_logs(capsys):
    x, y = data(70)
    loss, _ = classifier().evaluate(x, y, batch_size=16, verbose=1)
    shown = capsys.readouterr()
    assert shown.out == ""
    last = shown.err.rstrip().split("\r")[-1]
    assert last.startswith("Evaluate: 100%")
    assert "5/5" in last
    assert f"loss: {loss:.4g} - accuracy: " in last


def test_evaluate_verbose_two_writes_one_line(capsys):
    x, y = data(70)
    loss, accuracy = classifier().evaluate(x, y, verbose=2)
    line = f"Evaluate - loss: {loss:.4g} - accuracy: {accuracy:.4g}\n"
    assert capsys.readouterr() == ("", line)


def test_predict_verbose_one_draws_a_bar_and_two_is_silent(capsys):
    x, _ = data(70)
    model = classifier()
    model.predict(x, verbose=2)
    assert capsys.readouterr() == ("", "")
    whole = model.predict(x, batch_size=16, verbose=1)
    assert whole.tobytes() == model.predict(x).tobytes()
    shown = capsys.readouterr()
    assert shown.out == ""
    assert "5/5" in shown.err.rstrip().split("\r")[-1]


def test_predict_that_fails_leaves_no_bar_open(capsys):
    class Fail(Layer):
        def call(self, x):
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt) as caught:
        Sequential([Fail()]).predict(np.zeros((3, 1)), verbose=1)
    shown = capsys.readouterr().err
    assert "0/1" in shown
    assert shown.endswith("\n")  # A bar that is closed ends its line.
    del caught  # Its frames held the bar, which would close itself otherwise.


@pytest.mark.parametrize("method", ["fit", "evaluate", "predict"])
@pytest.mark.parametrize("verbose", [3, None, "loud"])
def test_verbose_unknown_raises(method, verbose):
    x, y = data()
    arguments = (x,) if method == "predict" else (x, y)
    with pytest.raises(ValueError, match="`verbose` must be 'auto', 0, 1 or 2"):
        getattr(classifier(), method)(*arguments, verbose=verbose)


def test_batch_size_none_means_32(capsys):
    class Steps(Callback):
        def on_train_batch_end(self, batch, logs=None):
            self.last = batch

    x, y = data(65)
    model = classifier()
    for size in ({}, {"batch_size": None}):
        steps = Steps()
        model.fit(x, y, verbose=0, callbacks=[steps], **size)
        assert (steps.last, steps.params["steps"]) == (2, 3)
        model.evaluate(x, y, verbose=1, **size)
        assert "3/3" in capsys.readouterr().err
        model.predict(x, verbose=1, **size)
        assert "3/3" in capsys.readouterr().err


def test_model_without_a_standard_error_stream_shows_nothing(monkeypatch, capsys):
    x, y = data()
    model = classifier()
    monkeypatch.setattr(sys, "stderr", None)  # as in a daemon
    for verbose in ("auto", 1, 2):
        model.fit(x, y, verbose=verbose)
        model.evaluate(x, y, verbose=verbose)
        model.predict(x, verbose=verbose)
    assert capsys.readouterr().out == ""
