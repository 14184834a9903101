"""The laws of every optimizer; a row of OPTIMIZERS buys all of them."""

from __future__ import annotations

import copy
import json
import pickle

import numpy as np
import pytest
from bounded import assert_within
from optimizer_table import (
    BF16,
    DTYPES,
    OPTIMIZERS,
    SETTINGS,
    assert_same_bits,
    gradients,
    optimizer,
    reference,
    state,
    variables,
    weights,
)

import mpcore
from mpcore import optimizers

STEPS = 10
# Several tasks for the threads, an odd tail, and small ones that share a task.
BIG = [(3, 14_001), (5,), (1,), (513,)]


@pytest.fixture(params=OPTIMIZERS)
def row(request):
    return OPTIMIZERS[request.param]


def run(row, settings, dtypes, steps, shapes=None):
    """Train for some steps; the optimizer and its variables."""
    kind, grad, low = dtypes
    model = variables(weights(kind, shapes), low)
    made = optimizer(row, settings)
    for step in range(steps):
        made.apply(gradients(step, grad, shapes), model)
    return made, model


@pytest.mark.parametrize("settings", SETTINGS.values(), ids=SETTINGS)
@pytest.mark.parametrize("dtypes", DTYPES.values(), ids=DTYPES)
def test_optimizer_ten_steps_follow_the_formula(row, dtypes, settings):
    kind, grad, low = dtypes
    model = variables(weights(kind), low)
    made = optimizer(row, settings)
    oracle = reference(row, weights(kind), settings)
    for step in range(STEPS):
        made.apply(gradients(step, grad), model)
        oracle.apply(gradients(step, grad))
    slots = {variable.name: variable.numpy() for variable in made.variables}
    for i, variable in enumerate(model):
        assert_within(variable.numpy(), oracle.w[i], f"w{i}")
        for name in {f"w{i}_{slot}" for slot in row.slots} & slots.keys():
            assert_within(slots[name], oracle.slots[i][name[len(f"w{i}_") :]], name)
        if oracle.use_ema:
            assert_within(slots[f"w{i}_average"], oracle.averages[i], "average")
    if low:
        with mpcore.autocast.scope(low):
            lows = [variable.value for variable in model]
        assert_same_bits(lows, [v.numpy().astype(lows[0].dtype) for v in model])


def run_mixed(row, settings):
    """Train variables of all dtypes in one optimizer."""
    model, grads = [], []
    for kind, grad, low in DTYPES.values():
        model += variables(weights(kind, BIG), low)
        grads += gradients(0, grad, BIG)
    made = optimizer(row, settings)
    for _ in range(3):
        made.apply(grads, model)
    return state(made, model)


@pytest.fixture(scope="module")
def on_scalar():
    """Results on one thread of the lowest level, by row and settings."""
    return {}


@pytest.mark.parametrize("limit", ["clipvalue", "clipnorm", "global_clipnorm"])
def test_optimizer_same_bits_on_every_isa_and_thread_count(
    row, limit, isa, num_threads, on_scalar
):
    settings = {"weight_decay": 0.01, limit: 0.5}
    got = run_mixed(row, settings)
    key = (id(row), limit)
    if key not in on_scalar:
        mpcore.set_isa("scalar")
        mpcore.set_num_threads(1)
        on_scalar[key] = run_mixed(row, settings)
    assert_same_bits(got, on_scalar[key])


def test_optimizer_state_is_laid_out_as_in_keras(row):
    settings = {"use_ema": True, "gradient_accumulation_steps": 2}
    model = variables(weights(np.float32, [(2, 3), (3,)]))
    made = optimizer(row, settings)
    made.build(model)
    shapes = {v.name: v.shape for v in model}
    expected = [("iteration", ()), ("learning_rate", ())]
    for name in ("average", "gradient_accumulator"):
        expected += [(f"{v}_{name}", shape) for v, shape in shapes.items()]
    expected += row.slot_layout(shapes)
    names = [name for name, _ in expected]
    state = made.variables[: len(names)]
    assert [(v.name, v.shape) for v in state] == expected
    assert [v.path for v in state] == [f"{made.name}/{n}" for n in names]
    assert not any(v.trainable for v in state)
    extras = made.variables[len(names) :]
    assert [(v.name, v.shape) for v in extras] == [(n, ()) for n in row.extras]


@pytest.mark.parametrize(
    ("kind", "slot"),
    [(np.float16, "float32"), (BF16, "float32"), (np.float64, "float64")],
)
def test_optimizer_slots_of_low_precision_variables_are_float32(row, kind, slot):
    made, _ = run(row, {}, (kind, kind, None), 1)
    dtypes = [v.dtype for v in made.variables if v.name not in row.extras]
    assert dtypes[:2] == ["int64", "float64"]
    assert set(dtypes[2:]) <= {slot}
    assert (len(dtypes) > 2) == bool(row.slots)


@pytest.mark.parametrize("settings", SETTINGS.values(), ids=SETTINGS)
def test_optimizer_config_round_trips_through_json(row, settings):
    made = optimizer(row, settings)
    config = json.loads(json.dumps(optimizers.serialize(made)))
    before = copy.deepcopy(config)
    for again in (optimizers.deserialize(config), optimizers.get(config)):
        assert type(again) is type(made)
        assert again.get_config() == made.get_config()
    assert type(made).from_config(config["config"]).get_config() == made.get_config()
    assert config == before


@pytest.mark.parametrize("settings", ["plain", "ema_overwrite", "accumulation", "all"])
def test_optimizer_resumes_bit_for_bit(row, settings):
    kind = DTYPES["f32-bf16copy"]
    made, model = run(row, SETTINGS[settings], kind, 5)
    store = {}
    made.save_own_variables(store)
    resumed = optimizer(row, SETTINGS[settings])
    other = variables([v.numpy() for v in model], kind[2])
    resumed.build(other)
    resumed.load_own_variables(store)
    for step in range(5, STEPS):
        made.apply(gradients(step, kind[1]), model)
        resumed.apply(gradients(step, kind[1]), other)
    assert_same_bits(state(resumed, other), state(made, model))


def test_optimizer_copies_train_on_by_themselves(row):
    made, model = run(row, {"use_ema": True}, DTYPES["f32"], 3)
    for twin, others in (
        copy.deepcopy((made, model)),
        pickle.loads(pickle.dumps((made, model))),
    ):
        before = state(made, model)
        twin.apply(gradients(3, np.float32), others)
        assert_same_bits(state(made, model), before)
        fresh, same = run(row, {"use_ema": True}, DTYPES["f32"], 4)
        assert_same_bits(state(twin, others), state(fresh, same))


def test_optimizer_subset_in_another_order_finds_its_slots(row):
    made, model = run(row, {}, DTYPES["f32"], 1)
    alone, same = run(row, {}, DTYPES["f32"], 1)
    grads = gradients(1, np.float32)
    made.apply([grads[3], grads[2]], [model[3], model[2]])
    masked = [g if i in (2, 3) else None for i, g in enumerate(grads)]
    with pytest.warns(UserWarning, match=r"\['w0', 'w1', 'w4', 'w5', 'w6'\]"):
        alone.apply(masked, same)
    assert_same_bits(state(made, model), state(alone, same))


def test_optimizer_all_variables_in_reverse_find_their_slots(row):
    made, model = run(row, {}, DTYPES["f32"], 1)
    forwards, same = run(row, {}, DTYPES["f32"], 2)
    made.apply(gradients(1, np.float32)[::-1], model[::-1])
    assert_same_bits(state(made, model), state(forwards, same))


def test_optimizer_update_step_is_the_fused_step(row):
    settings = {"learning_rate": 0.05, **row.hyper}
    made, model = run(row, {}, DTYPES["f32"], 2)

    class ByVariable(row.make):
        def update_step(self, gradient, variable, learning_rate):
            super().update_step(gradient, variable, learning_rate)

    single = ByVariable(**settings)
    others = variables(weights(np.float32))
    for step in range(2):
        single.apply(gradients(step, np.float32), others)
    if made.weight_decay:  # decay in an assignment of its own
        for a, b in zip(model, others, strict=True):
            np.testing.assert_allclose(a.numpy(), b.numpy(), rtol=1e-6, atol=1e-7)
    else:
        assert_same_bits(state(single, others), state(made, model))


def test_optimizer_replaced_rule_is_the_one_that_runs(row):
    class Down(row.make):
        def update_step(self, gradient, variable, learning_rate):
            self.assign_sub(variable, np.ones(variable.shape, np.float32))

    model = variables([np.zeros(3, np.float32)])
    made = Down(
        **row.hyper, **({"weight_decay": 0} if "W" in row.make.__name__ else {})
    )
    made.apply([np.ones(3, np.float32)], model)
    assert model[0].numpy().tolist() == [-1, -1, -1]


def test_optimizer_stateless_apply_touches_nothing(row):
    made, model = run(row, {"use_ema": True}, DTYPES["f32"], 2)
    before = state(made, model)
    new_model, new_state = made.stateless_apply(
        made.get_weights(), gradients(2, np.float32), [v.numpy() for v in model]
    )
    assert_same_bits(state(made, model), before)
    made.apply(gradients(2, np.float32))
    assert_same_bits([*new_model, *new_state], state(made, model))


def test_optimizer_gradient_layouts_pair_by_index(row):
    base = np.arange(24, dtype=np.float64).reshape(4, 6) / 7
    plain = base.astype(np.float32)
    layouts = {
        "fortran": np.asfortranarray(plain),
        "strided": np.repeat(plain, 2, axis=1)[:, ::2],
        "swapped": plain.astype(">f4"),
        "float64": plain.astype(np.float64),
        "list": plain.tolist(),
        "tensor": mpcore.Tensor(plain),
        "unaligned": np.frombuffer(b"x" + plain.tobytes(), np.uint8)[1:]
        .view(np.float32)
        .reshape(4, 6),
    }
    expected = variables([plain])
    optimizer(row, {}).apply([plain], expected)
    for gradient in layouts.values():
        model = variables([plain])
        optimizer(row, {}).apply([gradient], model)
        assert_same_bits([model[0].numpy()], [expected[0].numpy()])


def test_optimizer_gradient_that_is_the_variable_is_read_before_it_is_written(row):
    values = weights(np.float32, [(129,)])
    model, expected = variables(values), variables(values)
    optimizer(row, {}).apply([model[0]], model)
    optimizer(row, {}).apply([values[0]], expected)
    assert_same_bits([model[0].numpy()], [expected[0].numpy()])


def test_optimizer_leaves_gradients_as_they_are(row):
    grads = gradients(0, np.float32)
    saved = [g.copy() for g in grads]
    for settings in SETTINGS.values():
        optimizer(row, settings).apply(grads, variables(weights(np.float32)))
    assert_same_bits(grads, saved)


def test_optimizer_get_finds_it_by_name_in_any_case(row):
    name = row.make.__name__
    for spelling in (name, name.lower(), name.upper()):
        assert type(optimizers.get(spelling)) is row.make
