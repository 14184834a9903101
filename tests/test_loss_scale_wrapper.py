"""LossScaleOptimizer as a stand-in: delegation, state, configuration, arguments."""

from __future__ import annotations

import copy
import inspect
import json

import ml_dtypes
import numpy as np
import pytest
from optimizer_table import EVERYTHING, assert_same_bits, state, var
from optimizer_table import grad as g

from mpcore import optimizers
from mpcore.mixed_precision import LossScaleOptimizer
from mpcore.optimizers import SGD, Adam, Optimizer, schedules

F32 = np.float32


def scale_of(made):
    return float(made.dynamic_scale)


# --- The stand-in ---------------------------------------------------------------------


def test_wrapper_is_an_optimizer_and_reaches_the_inner_one():
    inner = Adam(0.1, beta_1=0.5, loss_scale_factor=8.0)
    made = LossScaleOptimizer(inner)
    assert isinstance(made, Optimizer) and optimizers.get(made) is made
    assert inner.loss_scale_factor is None
    assert made.inner_optimizer is inner
    assert made.beta_1 == 0.5
    made.learning_rate = 0.5
    made.beta_1 = 0.25
    made.weight_decay = 0.125
    assert (float(inner.learning_rate), inner.beta_1, inner.weight_decay) == (
        0.5,
        0.25,
        0.125,
    )
    assert made.learning_rate is inner.learning_rate
    with pytest.raises(AttributeError, match="no_such_thing"):
        _ = made.no_such_thing
    made.note = "mine"
    assert not hasattr(inner, "note")


def test_wrapper_overrides_every_public_method_of_the_optimizer():
    """What is inherited works on `variables` alone, and those it has."""
    stateful = set(dir(optimizers.state.Stateful))
    for name, value in inspect.getmembers(Optimizer):
        if name.startswith("_") or name in stateful:
            continue
        assert name in vars(LossScaleOptimizer), (name, value)


def test_wrapper_excludes_from_decay_and_finalizes_inside():
    kernel, bias = var(1.0, name="kernel"), var(1.0, name="bias")
    made = LossScaleOptimizer(SGD(1.0, weight_decay=0.5, use_ema=True), 1.0)
    made.exclude_from_weight_decay(var_names=["bias"])
    for _ in range(2):
        made.apply([g(0.0), g(1.0)], [kernel, bias])
    assert (kernel.numpy()[0], bias.numpy()[0]) == (0.25, -1)
    with made.averaged():
        assert kernel.numpy()[0] == F32(0.99) * F32(0.5) + F32(0.01) * F32(0.25)
    assert kernel.numpy()[0] == 0.25
    made.finalize_variable_values([kernel, bias])
    assert kernel.numpy()[0] > 0.49


def test_wrapper_clips_after_unscaling():
    v = var(0.0, 0.0)
    made = LossScaleOptimizer(SGD(1.0, clipnorm=1.0), 1024.0)
    made.apply([g(0.3, 0.4) * 1024], [v])
    np.testing.assert_allclose(v.numpy(), [-0.3, -0.4], rtol=1e-6)
    made.apply([g(3, 4) * 1024], [v])
    np.testing.assert_allclose(v.numpy(), [-0.9, -1.2], rtol=1e-6)


def test_wrapper_counter_is_the_inner_one():
    made = LossScaleOptimizer(SGD(1.0, gradient_accumulation_steps=2), 1.0)
    v = var(0.0)
    for calls in range(1, 6):
        counter = made.apply_gradients([(g(1.0), v)])
        assert int(counter) == calls
        assert made.iterations == made.inner_optimizer.iterations == calls // 2


def test_wrapper_runs_a_rule_written_in_numpy():
    class Mine(Optimizer):
        def update_step(self, gradient, variable, learning_rate):
            self.assign_sub(variable, learning_rate * gradient)

    v = var(1.0, dtype=ml_dtypes.bfloat16)
    LossScaleOptimizer(Mine(1.0), 64.0).apply([g(16.0, dtype=np.float16)], [v])
    assert float(v.numpy()[0]) == 0.75


def test_wrappers_of_two_optimizers_are_independent():
    a, b = var(0.0), var(0.0)
    one, two = (LossScaleOptimizer(SGD(1.0), 8.0) for _ in range(2))
    one.apply([g(np.inf)], [a])
    two.apply([g(8.0)], [b])
    assert (scale_of(one), scale_of(two), b.numpy()[0]) == (4, 8, -1)


# --- State and configuration ----------------------------------------------------------


def trained(steps, inner=None):
    v = var(1.0, 2.0)
    made = LossScaleOptimizer(inner or Adam(0.1, **EVERYTHING), 64.0, 3)
    for step in steps:
        made.apply([g(1.0, 2.0) * step], [v])
    return made, v


def test_variables_are_own_four_then_the_inner_ones():
    made, _ = trained([1])
    inner = made.inner_optimizer.variables
    names = [v.name for v in made.variables[:4]]
    assert names == ["iteration", "learning_rate", "step_counter", "dynamic_scale"]
    assert [v.path for v in made.variables[:2]] == [
        f"{made.name}/{n}" for n in names[:2]
    ]
    assert made.variables[2] is made.step_counter
    assert made.variables[3] is made.dynamic_scale
    assert [id(v) for v in made.variables[4:]] == [id(v) for v in inner]
    assert made.dynamic_scale.dtype == "float32"


@pytest.mark.parametrize("how", ["store", "weights"])
def test_state_resumes_bit_for_bit(how):
    made, v = trained([1, np.inf, 1, 1])
    again, w = trained([])
    again.build([w])
    w.assign(v)
    if how == "store":
        store = {}
        made.save_own_variables(store)
        again.load_own_variables(store)
    else:
        again.set_weights(made.get_weights())
    assert scale_of(again) == 32 and int(again.step_counter) == 2
    for step in (1, 2, np.nan, 3):
        made.apply([g(1.0, 2.0) * step], [v])
        again.apply([g(1.0, 2.0) * step], [w])
        assert_same_bits(state(again, [w]), state(made, [v]))


@pytest.mark.parametrize("step", [1.0, np.inf])
def test_stateless_apply_touches_nothing(step):
    made, v = trained([1, 1])
    before = state(made, [v])
    counts = (made.skipped_steps, made.last_step_applied)
    weights, values = made.stateless_apply(
        made.get_weights(), [g(step, 2.0)], [v.numpy()]
    )
    assert_same_bits(state(made, [v]), before)
    assert counts == (made.skipped_steps, made.last_step_applied)
    made.apply([g(step, 2.0)])
    assert_same_bits([*weights, *values], state(made, [v]))


def test_config_round_trips_through_json():
    made = LossScaleOptimizer(
        Adam(schedules.CosineDecay(0.1, 10), beta_1=0.5),
        4.0,
        11,
        name="scaled",
        min_scale=0.5,
        max_scale=2.0**20,
        max_consecutive_skips=7,
    )
    config = json.loads(json.dumps(optimizers.serialize(made)))
    before = copy.deepcopy(config)
    for again in (
        optimizers.deserialize(config),
        LossScaleOptimizer.from_config(config["config"]),
    ):
        assert again.get_config() == made.get_config()
        assert again.inner_optimizer.beta_1 == 0.5
        assert again.initial_scale == scale_of(again) == 4
        assert again.dynamic_growth_steps == 11
        assert again.max_consecutive_skips == 7
    assert config == before
    assert type(optimizers.deserialize(config)) is LossScaleOptimizer


def test_copy_trains_on_by_itself():
    made, v = trained([1, 1])
    before = state(made, [v])
    twin, w = copy.deepcopy((made, v))
    twin.apply([g(1.0, 2.0)], [w])
    assert_same_bits(state(made, [v]), before)
    made.apply([g(1.0, 2.0)], [v])
    assert_same_bits(state(twin, [w]), state(made, [v]))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"initial_scale": s}, "`initial_scale` must be in")
        for s in (0.0, -1.0, np.nan, np.inf, 2.0**-127, 2.0**127)
    ]
    + [
        (
            {"dynamic_growth_steps": n},
            r"`dynamic_growth_steps` must be an integer in \[1, 2147483647\]",
        )
        for n in (0, -3, 2.5, True)
    ]
    + [
        ({"initial_scale": 4.0, "max_scale": 2.0}, "`initial_scale` must be in"),
        ({"min_scale": 2.0, "max_scale": 1.0}, "`max_scale` must be in"),
        ({"min_scale": 0.0}, "`min_scale` must be in"),
        ({"max_consecutive_skips": -1}, "`max_consecutive_skips` must be an integer"),
        ({"dynamic": False}, "does not support `dynamic=False`.*loss_scale_factor"),
        ({"clipnorm": 1.0}, "set `clipnorm` on the `inner_optimizer`"),
        ({"use_ema": True}, "set `use_ema` on the `inner_optimizer`"),
        ({"learning_rate": 0.1}, "does not support arguments: `learning_rate`"),
        ({"foo": 1, "bar": 2}, "arguments: `foo`, `bar`"),
    ],
)
def test_argument_out_of_range_is_an_error(arguments, message):
    inner = SGD(loss_scale_factor=2.0)
    with pytest.raises(ValueError, match=message):
        LossScaleOptimizer(inner, **arguments)
    assert inner.loss_scale_factor == 2


def test_arguments_at_the_defaults_of_the_inner_optimizer_are_taken():
    made = LossScaleOptimizer(SGD(), clipnorm=None, use_ema=False, dynamic=True)
    assert scale_of(made) == 2.0**15 and made.dynamic_growth_steps == 2000


@pytest.mark.parametrize("inner", ["sgd", None, SGD, LossScaleOptimizer(SGD())])
def test_inner_optimizer_of_another_kind_is_an_error(inner):
    with pytest.raises(TypeError, match="`inner_optimizer` must be an optimizer"):
        LossScaleOptimizer(inner)
