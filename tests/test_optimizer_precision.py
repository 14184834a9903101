"""Slots in bfloat16, stochastic and compensated rounding, rows as gradients."""

from __future__ import annotations

import numpy as np
import pytest
from optimizer_table import (
    BF16,
    DTYPES,
    OPTIMIZERS,
    assert_same_bits,
    gradients,
    optimizer,
    state,
    variables,
    weights,
)

import mpcore
from mpcore import IndexedSlices, Variable, optimizers

LOW = {"state_dtype": "bfloat16", "rounding": "stochastic", "seed": 7}
BIG = [(3, 14_001), (5,), (513,)]


@pytest.fixture(params=OPTIMIZERS)
def row(request):
    return OPTIMIZERS[request.param]


def run(row, settings, steps=3, kind=BF16):
    model = variables(weights(kind, BIG))
    made = optimizer(row, settings)
    for step in range(steps):
        made.apply(gradients(step, np.float32, BIG), model)
    return made, model


def test_bfloat16_state_same_bits_on_every_isa_and_thread_count(row, isa, num_threads):
    got = state(*run(row, LOW))
    mpcore.set_isa("scalar")
    mpcore.set_num_threads(1)
    assert_same_bits(got, state(*run(row, LOW)))


def test_bfloat16_state_is_that_of_each_slot_and_its_seed_is_saved(row):
    made, _ = run(row, LOW)
    slots = [v for v in made.variables[2:] if v.name not in (*row.extras, "seed")]
    assert {v.dtype for v in slots} <= {"bfloat16"}
    assert [int(v.numpy()) for v in made.variables if v.name == "seed"] == [7]
    other, _ = run(row, LOW | {"seed": 8})
    different = [
        not np.array_equal(a.numpy(), b.numpy())
        for a, b in zip(made.variables[2:], other.variables[2:], strict=True)
    ]
    assert any(different)


def test_bfloat16_state_resumes_bit_for_bit_under_another_seed(row):
    made, model = run(row, LOW, 3)
    store = {}
    made.save_own_variables(store)
    resumed = optimizer(row, LOW | {"seed": None})
    others = variables([v.numpy() for v in model])
    resumed.build(others)
    resumed.load_own_variables(store)
    for step in (3, 4):
        made.apply(gradients(step, np.float32, BIG), model)
        resumed.apply(gradients(step, np.float32, BIG), others)
    assert_same_bits(state(resumed, others), state(made, model))


def test_stochastic_rounding_moves_weights_by_the_mean_of_small_steps():
    model = [Variable(np.ones(4096, BF16))]
    made = optimizers.SGD(2.0**-12, rounding="stochastic", seed=1)
    for _ in range(64):
        made.apply([np.ones(4096, np.float32)], model)
    # Each step is 1/16 of the spacing below 1; the mean of 4096 walks of 64 steps, each
    # of variance < 2^-8 * 2^-12, is within five standard deviations of 1 - 64 / 4096.
    mean = model[0].numpy().astype(np.float64).mean()
    assert abs(mean - (1 - 2.0**-6)) < 5 * np.sqrt(64 * 2.0**-20 / 4096)
    stuck = [Variable(np.ones(4096, BF16))]
    optimizers.SGD(2.0**-12).apply([np.ones(4096, np.float32)], stuck)
    assert np.all(stuck[0].numpy() == 1)


def test_compensated_weights_follow_float32_within_16_bits(row):
    made, model = run(row, {"compensated": True, "weight_decay": 0.01}, 5)
    _, wide = run(row, {"weight_decay": 0.01}, 5, np.float32)
    remainders = [v for v in made.variables if v.name.endswith("_remainder")]
    assert [v.dtype for v in remainders] == ["bfloat16"] * len(model)
    starts = zip(weights(BF16, BIG), weights(np.float32, BIG), strict=True)
    for low, rest, full, (a, b) in zip(model, remainders, wide, starts, strict=True):
        joined = low.numpy().astype(np.float32) + rest.numpy().astype(np.float32)
        # The same steps from rounded starts: what differs is what the starts did.
        moved = full.numpy() - b + a.astype(np.float32)
        if row.make in (optimizers.SGD, optimizers.Lion):
            # Decay shrinks the difference of the starts; a store keeps 16 bits.
            bound = 5 * 2.0**-16 * (1 + np.abs(moved)) + 0.01 * np.abs(a - b)
            assert np.all(np.abs(joined - moved) <= bound.astype(np.float32))
        assert np.all(np.abs(rest.numpy().astype(np.float32)) <= np.abs(joined) / 256)


@pytest.mark.parametrize(
    "settings",
    [
        {"state_dtype": "float16"},
        {"rounding": "up"},
        {"compensated": True, "rounding": "stochastic"},
        {"seed": -1},
    ],
    ids=str,
)
def test_precision_settings_that_are_not_valid_raise(settings):
    with pytest.raises(ValueError, match="Received: "):
        optimizers.Adam(**settings)


def test_precision_settings_are_in_the_config():
    config = optimizers.Adam(**LOW).get_config()
    assert {name: config[name] for name in LOW} == LOW
    assert optimizers.Adam.from_config(config).get_config() == config


def test_indexed_slices_are_the_dense_gradient_with_duplicates_summed(row):
    values = np.array([[1, 2], [3, 4], [5, 6]], np.float32) / 8
    rows = IndexedSlices(values, [2, 0, 2], (4, 2))
    dense = np.zeros((4, 2), np.float32)
    dense[0], dense[2] = values[1], values[0] + values[2]
    start = weights(np.float32, [(4, 2)])
    sparse, full = variables(start), variables(start)
    settings = {"weight_decay": 0.1, "clipnorm": 0.5}
    first, second = optimizer(row, settings), optimizer(row, settings)
    for _ in range(3):
        first.apply([rows], sparse)
        second.apply([dense], full)
    assert_same_bits(state(first, sparse), state(second, full))


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        (([[1.0]], [0.5], (2, 1)), TypeError),
        (([[1.0]], [2], (2, 1)), ValueError),
        (([[1.0]], [-1], (2, 1)), ValueError),
        (([[1.0, 2.0]], [0], (2, 1)), ValueError),
        (([[1]], [0], (2, 1)), TypeError),
        (([1.0], [0], ()), ValueError),
    ],
)
def test_indexed_slices_that_do_not_fit_raise(arguments, error):
    with pytest.raises(error, match="Received: "):
        IndexedSlices(*arguments)


def test_indexed_slices_without_rows_are_zero():
    assert IndexedSlices(np.zeros((0, 2), np.float32), [], (3, 2)).to_dense().shape == (
        3,
        2,
    )


def test_float64_variables_keep_float64_state_and_nearest_rounding():
    made, model = run(OPTIMIZERS["adam"], LOW, 2, np.float64)
    plain, same = run(OPTIMIZERS["adam"], {}, 2, np.float64)
    assert_same_bits(state(made, model)[:-1], state(plain, same))
    assert DTYPES["f64"][0] is np.float64
