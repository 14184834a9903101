"""The learning rate in its forms, and the scaled loss."""

from __future__ import annotations

import numpy as np
import pytest
from optimizer_table import BF16, grad, var

import mpcore
from mpcore.optimizers import SGD, schedules

# --- The learning rate ----------------------------------------------------------------


@pytest.mark.parametrize(
    "rate", [1, np.float32(0.5), np.array(0.25), np.int64(2), BF16(0.5)]
)
def test_learning_rate_takes_any_real_number(rate):
    made = SGD(rate)
    assert float(made.learning_rate) == float(rate)
    made.learning_rate = rate
    assert made.get_config()["learning_rate"] == float(rate)


def test_learning_rate_is_double():
    made = SGD(0.1)
    assert made.get_config()["learning_rate"] == 0.1
    assert float(made.learning_rate) == 0.1


def test_learning_rate_becomes_a_schedule_and_its_variable_goes():
    made = SGD(0.5)
    assert len(made.variables) == 2
    made.learning_rate = schedules.ExponentialDecay(0.25, 1, 0.5)
    assert [v.name for v in made.variables] == ["iteration"]
    v = var(0.0)
    made.apply([grad(1.0)], [v])
    assert float(made.learning_rate) == 0.125
    made.learning_rate = lambda: 4.0
    assert made.learning_rate == 4
    for old in (schedules.ExponentialDecay(0.25, 1, 0.5), lambda: 4.0):
        made.learning_rate = old
        with pytest.raises(TypeError, match="can only be set to a number if"):
            made.learning_rate = 0.5


def test_learning_rate_callable_needs_registration_to_be_described():
    @mpcore.serialization.register("schedules")
    def two():
        return 2.0

    config = SGD(two).get_config()
    assert SGD.from_config(config).learning_rate == 2
    with pytest.raises(TypeError, match="must be registered"):
        SGD(lambda: 2.0).get_config()


# --- Losses ---------------------------------------------------------------------------


def test_scale_loss_gives_half_losses_room():
    made = SGD(1.0, loss_scale_factor=2.0**17)
    scaled = made.scale_loss(np.float16(2.0))
    assert scaled.dtype == np.float32 and float(scaled) == 2.0**18
    assert made.scale_loss(3.0) == 3 * 2.0**17
    loss = np.float16(2.0)
    assert SGD(1.0).scale_loss(loss) is loss


def test_scale_loss_and_apply_cancel_under_a_tape():
    made = SGD(1.0, loss_scale_factor=1024.0)
    v = var(3.0)
    with mpcore.GradientTape() as tape:
        loss = made.scale_loss(mpcore.ops.sum(v * v))
    made.apply(tape.gradient(loss, [v]), [v])
    assert v.numpy()[0] == -3
