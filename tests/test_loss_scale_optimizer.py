"""Dynamic loss scaling: the scale and the skipped steps."""

from __future__ import annotations

import warnings

import ml_dtypes
import numpy as np
import pytest
from optimizer_table import EVERYTHING, assert_same_bits, state, var
from optimizer_table import grad as g

import mpcore
from mpcore import Variable
from mpcore.mixed_precision import LossScaleOptimizer
from mpcore.optimizers import SGD, Adam, schedules

F32 = np.float32
NOT_FINITE = [np.inf, -np.inf, np.nan]


def scale_of(made):
    return float(made.dynamic_scale)


# --- The scale ------------------------------------------------------------------------


def model_of_scale(scale, growth, low, high, finite):
    """The rule, in Python."""
    counter = 0
    for good in finite:
        if not good:
            counter, scale = 0, scale / 2 if scale / 2 >= low else scale
        elif counter + 1 == growth:
            counter, scale = 0, scale * 2 if scale * 2 <= high else scale
        else:
            counter += 1
        yield scale, counter


@pytest.mark.parametrize("growth", [1, 2, 3])
@pytest.mark.parametrize("bounds", [(2.0**-126, 2.0**126), (2.0, 16.0)])
def test_scale_follows_the_rule(growth, bounds):
    rng = np.random.default_rng(growth)
    finite = [bool(x) for x in rng.random(200) < 0.8]
    made = LossScaleOptimizer(
        SGD(0.0), 8.0, growth, min_scale=bounds[0], max_scale=bounds[1]
    )
    v = var(0.0)
    expected = model_of_scale(8.0, growth, *bounds, finite)
    for good, want in zip(finite, expected, strict=True):
        made.apply([g(1.0 if good else np.inf)], [v])
        assert (scale_of(made), int(made.step_counter)) == want
        assert made.last_step_applied is good
    assert made.skipped_steps == finite.count(False)
    assert int(made.iterations) == finite.count(True)


@pytest.mark.parametrize("good", [True, False])
def test_scale_stays_usable_at_its_default_bounds(good):
    made = LossScaleOptimizer(SGD(1.0), dynamic_growth_steps=1)
    v = var(0.0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for _ in range(300):
            made.apply([g(0.0 if good else np.nan)], [v])
    scale = scale_of(made)
    assert scale == (2.0**126 if good else 2.0**-126)
    made.apply([g(scale)], [v])
    assert v.numpy()[0] == -1


def test_scale_of_this_step_is_the_one_before_growth():
    made = LossScaleOptimizer(SGD(1.0), 4.0, 1)
    v = var(0.0)
    made.apply([g(4.0)], [v])
    assert v.numpy()[0] == -1 and scale_of(made) == 8
    made.apply([g(4.0)], [v])
    assert v.numpy()[0] == -1.5


@pytest.mark.parametrize("dtype", [F32, np.float16, ml_dtypes.bfloat16, np.float64])
@pytest.mark.parametrize("kind", [F32, np.float16, ml_dtypes.bfloat16, np.float64])
def test_unscaling_is_exact_in_fp32(dtype, kind):
    made = LossScaleOptimizer(SGD(2.0**20), 2.0**15)
    v = var(0.0, 0.0, dtype=kind)
    made.apply([g(2.0**-10, 1.5, dtype=dtype)], [v])
    assert v.numpy().astype(float).tolist() == [-(2.0**-5), -1.5 * 2.0**5]


def test_scale_loss_gives_half_losses_room():
    made = LossScaleOptimizer(SGD(), 2.0**17)
    for half in (np.float16, ml_dtypes.bfloat16):
        scaled = made.scale_loss(half(2.0))
        assert scaled.dtype == F32 and float(scaled) == 2.0**18
    made.dynamic_scale.assign(2.0)
    assert made.scale_loss(3.0) == 6


def test_scale_loss_and_apply_train_under_a_tape():
    made = LossScaleOptimizer(SGD(0.5), 1024.0)
    v = var(3.0)
    with mpcore.GradientTape() as tape:
        with mpcore.autocast.scope("float16"):
            y = v * v
        loss = made.scale_loss(mpcore.ops.sum(y))
    made.apply(tape.gradient(loss, [v]), [v])
    assert v.numpy()[0] == 0


# --- Skipped steps --------------------------------------------------------------------


@pytest.mark.parametrize("bad", NOT_FINITE)
@pytest.mark.parametrize("place", [0, 1, 100_003])
@pytest.mark.parametrize("calls", [0, 1, 2])
def test_skip_leaves_everything_else_untouched(bad, place, calls):
    made = LossScaleOptimizer(
        Adam(schedules.ExponentialDecay(0.1, 1, 0.5), **EVERYTHING), 8.0
    )
    model = [
        Variable(np.ones(100_004, F32), constraint=lambda w: w / 2),
        var(1.0, dtype=np.float16),
    ]
    good = [np.ones(100_004, F32), g(1.0, dtype=np.float16)]
    made.build(model)
    for _ in range(calls):
        made.apply(good, model)
    before = state(made.inner_optimizer, model)
    spoilt = np.ones(100_004, F32)
    spoilt[place] = bad
    made.apply([spoilt, good[1]], model)
    assert_same_bits(state(made.inner_optimizer, model), before)
    assert scale_of(made) == 4 and made.skipped_steps == 1
    assert not made.last_step_applied


def test_skip_then_step_equals_never_having_skipped():
    def train(steps):
        v = var(1.0, 2.0)
        made = LossScaleOptimizer(Adam(0.1, **EVERYTHING), 4.0)
        for step in steps:
            made.apply([g(4.0, 8.0) * step], [v])
            made.dynamic_scale.assign(4.0)
        return state(made.inner_optimizer, [v])

    assert_same_bits(train([1, np.inf, np.nan, 1, 1, np.inf]), train([1, 1, 1]))


def test_skip_ignores_missing_gradients():
    v, w = var(1.0), var(1.0)
    made = LossScaleOptimizer(SGD(1.0), 2.0)
    with pytest.warns(UserWarning, match="Gradients do not exist"):
        made.apply([None, g(2.0)], [v, w])
    assert (v.numpy()[0], w.numpy()[0]) == (1, 0)


def test_sum_that_overflows_is_no_skip():
    v = var(0.0, 0.0, dtype=np.float16)
    made = LossScaleOptimizer(SGD(1.0), 2.0**15)
    made.apply([g(60000.0, 60000.0, dtype=np.float16)], [v])
    assert made.last_step_applied


def test_warning_once_in_a_run_names_length_and_first_culprit():
    model = [var(0.0, name=name) for name in ("fine", "first", "second")]
    made = LossScaleOptimizer(SGD(1.0))
    bad = [g(1.0), g(np.nan), g(np.inf)]
    for run in range(2):
        for _ in range(49):
            made.apply(bad, model)
        with pytest.warns(
            RuntimeWarning, match=r"not finite in 50 steps in a row.*variable 'first'"
        ):
            made.apply(bad, model)
        for _ in range(60):
            made.apply(bad, model)
        made.apply([g(1.0)] * 3, model)
        assert made.skipped_steps == 110 * (run + 1)


@pytest.mark.parametrize("limit", [0, 1, 3])
def test_more_skips_than_allowed_raise_and_change_nothing(limit):
    v = var(1.0, name="kernel")
    made = LossScaleOptimizer(SGD(1.0), max_consecutive_skips=limit)
    for _ in range(2):
        for _ in range(limit):
            made.apply([g(np.inf)], [v])
        before, skipped = state(made, [v]), made.skipped_steps
        with pytest.raises(FloatingPointError, match=f"in {limit + 1} steps.*'kernel'"):
            made.apply([g(np.inf)], [v])
        assert_same_bits(state(made, [v])[-len(before) :], before)
        assert made.skipped_steps == skipped == limit * (1 + made.iterations.numpy())
        made.apply([g(1.0)], [v])


def test_error_leaves_the_scale_alone():
    v = var(1.0, 2.0)
    made = LossScaleOptimizer(SGD(1.0), 4.0, 1)
    made.build([v])
    before = state(made, [v])
    for grads, variables, error in (
        ([g(1.0)], None, ValueError),
        ([g(1.0, 2.0)] * 2, None, ValueError),
        ([None], None, ValueError),
        ([g(1.0, 2.0)], [var(1.0, 2.0)], ValueError),
        ([g(1j, 2.0, dtype=complex)], None, TypeError),
    ):
        with pytest.raises(error):
            made.apply(grads, variables)
        assert_same_bits(state(made, [v]), before)
    made.learning_rate = lambda: float("nan")
    with pytest.raises(ValueError, match="must be finite"):
        made.apply([g(1.0, 2.0)])
    assert scale_of(made) == 4 and int(made.step_counter) == 0


def test_empty_list_counts_as_a_finite_step():
    made = LossScaleOptimizer(SGD(), 4.0, 2)
    made.build([var(1.0)])
    made.apply([])
    assert (int(made.step_counter), scale_of(made)) == (1, 4)
    made.apply([])
    assert (int(made.step_counter), scale_of(made)) == (0, 8)
    assert int(made.iterations) == 0
