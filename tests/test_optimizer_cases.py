"""What went wrong for users of other optimizers, one test per report."""

from __future__ import annotations

import inspect

import ml_dtypes
import numpy as np
import pytest
from optimizer_table import assert_same_bits, state
from optimizer_table import grad as f32

import mpcore
from mpcore import Variable
from mpcore.mixed_precision import LossScaleOptimizer
from mpcore.optimizers import SGD, Adam, AdamW

BF16 = ml_dtypes.bfloat16


def half(*values):
    return np.array(values, np.float16)


def bf16(*values):
    return np.array(values, BF16)


def train(optimizer, start, *gradients):
    """One variable after some updates, in float64."""
    v = Variable(start)
    for gradient in gradients:
        optimizer.apply([gradient], [v])
    return v.numpy().astype(np.float64)


def loss_scaled(inner, scale, growth=2000):
    return LossScaleOptimizer(inner, initial_scale=scale, dynamic_growth_steps=growth)


# --- Numbers: only the weights are held in their dtype --------------------------------


def test_h22_adam_zero_gradients_leave_half_weights():
    # google-deepmind/optax#1754, chelsea0x3b/dfdx#748: epsilon flushed to 0; 0 / 0.
    got = train(Adam(1e-3), half(1, -2, 0.5), *[half(0, 0, 0)] * 3)
    assert got.tolist() == [1, -2, 0.5]


def test_h23_adam_epsilon_below_the_halves_counts():
    # chainer/chainer#6299, pytorch/pytorch#147437
    got = train(Adam(0.5, epsilon=1e-8), half(0), half(1e-6))
    root = np.sqrt(1e-3) * float(np.float16(1e-6))
    want = -0.5 * root / (root + 1e-8)
    assert abs(got[0] - want) <= 2.0**-11 * abs(want)


def test_h24_adam_counts_past_256_for_bfloat16_weights():
    # pytorch/ao PR#4915: the counter in bf16 stopped at 256, updates 2x too small.
    v, made = Variable(bf16(0)), Adam(0.0)
    for _ in range(400):
        made.apply([bf16(1)], [v])
    made.learning_rate = 1.0
    made.apply([bf16(1)], [v])
    assert abs(float(v.numpy()[0]) + 1) <= 2.0**-7


def test_h25_small_steps_move_float32_weights_under_bfloat16_gradients():
    # workofart/ml-by-hand PR#85, pytorch/ao PR#1124
    got = train(SGD(6e-4), f32(1), *[bf16(1)] * 100)
    assert abs(got[0] - 0.94) < 1e-5


def test_h26_decay_below_a_bfloat16_unit_acts():
    # Nerogar/OneTrainer#996
    got = train(AdamW(0.01, weight_decay=0.01), f32(1), *[bf16(0)] * 100)
    assert abs(got[0] - (1 - 1e-4) ** 100) < 1e-5


def test_h27_adam_epsilon_is_outside_the_bias_correction():
    # tensorflow/tensorflow#9047; the other form gives -0.5.
    got = train(Adam(1.0, epsilon=1e-7), f32(0), f32(1e-7))
    root = np.sqrt(1e-3)
    assert abs(got[0] + root / (root + 1)) < 1e-7


def test_h28_betas_are_not_rounded_to_the_gradients_dtype():
    # tenstorrent/tt-metal#55935: .999 and .9999 were one bf16 number.
    def run(beta_2):
        return train(Adam(0.1, beta_2=beta_2), f32(0), bf16(1), bf16(0.125))[0]

    def formula(beta_2):
        w = m = v = 0.0
        for t, g in enumerate((1.0, 0.125), start=1):
            m, v = m + (g - m) * 0.1, v + (g * g - v) * (1 - beta_2)
            w -= 0.1 * np.sqrt(1 - beta_2**t) / (1 - 0.9**t) * m / (np.sqrt(v) + 1e-7)
        return w

    for beta_2 in (0.999, 0.9999):
        assert abs(run(beta_2) - formula(beta_2)) < 1e-7
    assert abs(run(0.999) - run(0.9999)) > 1e-5


def test_h29_learning_rate_is_kept_wide_under_a_half_policy():
    # tinygrad/tinygrad PR#4297, PaddlePaddle/Paddle PR#44840
    mpcore.mixed_precision.set_global_policy("float16")
    assert float(SGD(3e-5).learning_rate) == 3e-5


def test_h30_average_of_half_weights_is_kept_wide():
    # OpenNMT/OpenNMT-py PR#1294
    v = Variable(half(1))
    made = SGD(1.0, use_ema=True, ema_momentum=0.9999)
    made.apply([half(0)], [v])
    v.assign(half(2))
    for _ in range(1000):
        made.apply([half(0)], [v])
    made.finalize_variable_values([v])
    assert abs(float(v.numpy()[0]) - (2 - 0.9999**1000)) <= 2.0**-11 * 1.1


def test_h31_adam_of_a_hundred_steps_follows_float64():
    # pytorch/pytorch#90752: a fused Adam drifted.
    rng = np.random.default_rng(3)
    v, made = Variable(rng.standard_normal(257).astype(np.float32)), Adam(0.01)
    w = v.numpy().astype(np.float64)
    m = s = 0 * w
    for t in range(1, 101):
        g = rng.standard_normal(257).astype(np.float32)
        made.apply([g], [v])
        m, s = 0.9 * m + 0.1 * g, 0.999 * s + 0.001 * g.astype(np.float64) ** 2
        alpha = 0.01 * np.sqrt(1 - 0.999**t) / (1 - 0.9**t)
        w -= alpha * m / (np.sqrt(s) + 1e-7)
    # Per step half a unit of a weight below 4, and 10 * 2^-24 of a step below 0.1.
    assert np.abs(v.numpy() - w).max() < 100 * (2.0**-23 + 10 * 2.0**-24 * 0.1)


# --- Meaning: what happens to which weight, and when ----------------------------------


def test_h32_decay_does_not_pass_through_the_moments():
    # keras-team/keras#19051
    got = train(AdamW(0.1, weight_decay=0.1), f32(1), f32(0))
    assert abs(got[0] - 0.99) < 1e-7


def test_h33_bias_can_be_excluded_from_decay():
    # keras-team/keras#16201, tensorflow/addons#1903; also through the wrapper.
    for wrap in (lambda inner: inner, LossScaleOptimizer):
        kernel, bias = Variable(f32(1), name="kernel"), Variable(f32(1), name="bias")
        made = wrap(AdamW(0.1, weight_decay=0.5))
        made.exclude_from_weight_decay(var_names=["bias"])
        made.apply([f32(0), f32(0)], [kernel, bias])
        assert abs(kernel.numpy()[0] - 0.95) < 1e-6
        assert bias.numpy()[0] == 1


def test_h34_gradients_are_unscaled_before_they_are_clipped():
    # milesial/Pytorch-UNet#468, Lightning-AI/pytorch-lightning PR#9606
    made = loss_scaled(SGD(1.0, clipnorm=1.0), 1024.0)
    got = train(made, f32(0, 0), f32(0.3, 0.4) * 1024)
    np.testing.assert_allclose(got, [-0.3, -0.4], atol=1e-6)


def test_h35_accumulation_decays_and_counts_once_per_window():
    # keras-team/keras#19990
    made = SGD(0.1, weight_decay=0.5, gradient_accumulation_steps=3)
    got = train(made, f32(1), *[f32(0)] * 3)
    assert abs(got[0] - 0.95) < 1e-6
    assert int(made.iterations) == 1


def test_h36_step_counts_once_for_all_variables():
    # NVIDIA/DeepLearningExamples#391
    model, made = [Variable(f32(0)) for _ in range(3)], Adam(0.5)
    for _ in range(2):
        made.apply([f32(1)] * 3, model)
    assert int(made.iterations) == 2
    assert all(abs(v.numpy()[0] + 1) < 1e-5 for v in model)


def test_h37_every_element_of_any_rank_is_updated():
    # hpcaitech/ColossalAI PR#633: the first rows only.
    shape = (2, 3, 500)
    got = train(Adam(0.5), np.zeros(shape, np.float32), np.ones(shape, np.float32))
    np.testing.assert_allclose(got, -0.5, atol=1e-5)


def test_h38_variables_of_one_step_do_not_influence_each_other():
    # deepspeedai/DeepSpeed#1643
    ones = np.ones(2**18, np.float32)
    model, made = [Variable(ones), Variable(ones)], Adam(0.01)
    for _ in range(2):
        made.apply([ones, ones], model)
    np.testing.assert_allclose(model[0].numpy(), 0.98, atol=1e-5)
    assert_same_bits([model[0].numpy()], [model[1].numpy()])


def test_h39_three_kinds_of_clipping_differ_and_exclude_each_other():
    # tensorflow/tensorflow#33929, tensorflow/tensorflow#45146
    def step(**limit):
        model = [Variable(f32(0)), Variable(f32(0))]
        SGD(1.0, **limit).apply([f32(3), f32(4)], model)
        return [round(float(v.numpy()[0]), 5) for v in model]

    assert step(clipvalue=0.5) == [-0.5, -0.5]
    assert step(clipnorm=1.0) == [-1, -1]
    assert step(global_clipnorm=1.0) == [-0.6, -0.8]
    with pytest.raises(ValueError, match="Only one of"):
        step(clipnorm=1.0, global_clipnorm=1.0)


def test_h40_average_starts_from_the_weights():
    # keras-team/keras#18949
    v, made = Variable(f32(1)), SGD(1.0, use_ema=True, ema_momentum=0.9999)
    for _ in range(10):
        made.apply([f32(0)], [v])
    made.finalize_variable_values([v])
    assert abs(v.numpy()[0] - 1) < 1e-6


# --- State: saved, loaded, resumed ----------------------------------------------------


def test_h41_loss_scale_and_its_growth_counter_are_resumed():
    # huggingface/accelerate#4289, mosaicml/composer PR#1376
    v, made = Variable(f32(0)), loss_scaled(Adam(0.1), 64.0, 3)
    for g in (1, np.inf, 1, 1):
        made.apply([f32(g)], [v])
    store = {}
    made.save_own_variables(store)
    resumed = loss_scaled(Adam(0.1), 64.0, 3)
    resumed.build([v])
    resumed.load_own_variables(store)
    assert float(resumed.dynamic_scale.numpy()) == 32
    resumed.apply([f32(1)], [v])
    assert float(resumed.dynamic_scale.numpy()) == 64


def mixed_model():
    mpcore.mixed_precision.set_global_policy("mixed_float16")
    layers = [mpcore.layers.Dense(8, activation="relu"), mpcore.layers.Dense(3)]
    model = mpcore.Sequential(layers)
    model.build((None, 5))
    return model, loss_scaled(Adam(0.05), 1024.0, 3)


def train_model(model, optimizer, steps):
    for step in steps:
        x = np.random.default_rng(step).standard_normal((16, 5)).astype(np.float32)
        with mpcore.GradientTape() as tape:
            loss = mpcore.ops.mean(mpcore.ops.square(model(x)))
            scaled = optimizer.scale_loss(loss)
        gradients = tape.gradient(scaled, model.trainable_variables)
        optimizer.apply(gradients, model.trainable_variables)


def test_h42_resumed_mixed_model_goes_on_bit_for_bit():
    # NVIDIA/apex PR#42, NVIDIA/apex#480: masters and half copies disagreed.
    model, made = mixed_model()
    train_model(model, made, range(5))
    store = {}
    made.save_own_variables(store)
    other, resumed = mixed_model()
    other.set_weights(model.get_weights())
    resumed.build(other.trainable_variables)
    resumed.load_own_variables(store)
    x = np.ones((2, 5), np.float32)
    assert_same_bits([np.asarray(other(x))], [np.asarray(model(x))])
    for one in ((model, made), (other, resumed)):
        train_model(*one, range(5, 8))
    assert_same_bits(
        state(resumed, other.trainable_variables),
        state(made, model.trainable_variables),
    )
    assert_same_bits([np.asarray(other(x))], [np.asarray(model(x))])


def test_h43_wrapper_lists_all_state():
    # keras-team/keras#17275, tensorflow/tensorflow#29130
    made = LossScaleOptimizer(Adam(0.1))
    made.build([Variable(f32(0, 0))])
    store = {}
    made.save_own_variables(store)
    assert len(made.variables) == len(store) == len(made.inner_optimizer.variables) + 4
    assert len(made.inner_optimizer.variables) == 4


def test_h44_incomplete_state_raises_and_changes_nothing():
    # tensorflow/tensorflow#44670
    v, made = Variable(f32(0)), Adam(0.1)
    for _ in range(3):
        made.apply([f32(1)], [v])
    store = {}
    made.save_own_variables(store)
    fresh = Adam(0.1)
    fresh.build([v])
    before = state(fresh, [v])
    del store["0"]
    with pytest.raises(ValueError, match="must have the 4 keys"):
        fresh.load_own_variables(store)
    assert_same_bits(state(fresh, [v]), before)


def test_h45_looking_at_averages_leaves_training_as_it_was():
    # keras-team/keras PR#18978, mir-group/nequip PR#590
    def run(look):
        model = [Variable(f32(1, 2)), Variable(half(3))]
        made = Adam(0.1, use_ema=True, ema_momentum=0.5)
        for step in range(4):
            made.apply([f32(step, 1), half(step)], model)
            if look:
                live = [v.numpy() for v in model]
                with made.averaged():
                    assert step == 0 or not np.array_equal(model[0].numpy(), live[0])
        return state(made, model)

    assert_same_bits(run(look=True), run(look=False))


def test_h46_every_argument_of_the_wrapper_round_trips():
    # google-deepmind/jmp PR#44: every one, not a list written by hand.
    parameters = inspect.signature(LossScaleOptimizer.__init__).parameters.values()
    own = [p for p in parameters if p.name not in ("self", "inner_optimizer", "name")]
    given = {
        p.name: 0.5 if p.name == "min_scale" else 11
        for p in own
        if p.kind is not p.VAR_KEYWORD
    }
    assert {"initial_scale", "dynamic_growth_steps"} <= given.keys()
    made = LossScaleOptimizer(SGD(0.1), **given)
    again = LossScaleOptimizer.from_config(made.get_config())
    for name, value in given.items():
        assert getattr(again, name) == value, name
    assert again.get_config() == made.get_config()
