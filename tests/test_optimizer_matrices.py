"""Muon and Adafactor: what only the optimizers that know matrices have."""

from __future__ import annotations

import math

import numpy as np
import pytest
from bounded import assert_within
from optimizer_table import (
    OPTIMIZERS,
    assert_same_bits,
    gradients,
    reference,
    state,
    variables,
    weights,
)

from mpcore import Variable
from mpcore.optimizers import Adafactor, Adam, Muon

COEFFICIENTS = (3.4445, -4.775, 2.0315)


def polynomial(s, times):
    a, b, c = COEFFICIENTS
    for _ in range(times):
        s = a * s + b * s**3 + c * s**5
    return s


def step_of(gradient, dtype, **settings):
    """What Muon subtracts from a matrix at a rate of 1."""
    v = Variable(np.zeros(gradient.shape), dtype=dtype)
    settings = {"rms_rate": None, "weight_decay": None, **settings}
    Muon(1.0, **settings).apply([gradient], [v])
    return -v.numpy()


def expected_step(gradient, times=5):
    """The same by way of the singular values."""
    u, s, vh = np.linalg.svd(gradient.astype(np.float64), full_matrices=False)
    return u * polynomial(s / np.linalg.norm(s), times) @ vh


@pytest.mark.parametrize("shape", [(1, 1), (1, 6), (6, 1), (8, 5), (5, 8), (33, 33)])
@pytest.mark.parametrize("times", [0, 1, 5])
def test_muon_maps_singular_values_by_the_polynomial(shape, times):
    g = np.random.default_rng(1).standard_normal(shape)
    got = step_of(g, "float64", ns_steps=times)
    np.testing.assert_allclose(got, expected_step(g, times), rtol=1e-5, atol=1e-6)


def test_muon_in_float32_is_near_float64():
    # Rounding in the first product is raised up to 3.4445**5 = 485 times where a
    # singular value is small: some thousand units there, less than a hundred elsewhere.
    rng = np.random.default_rng(2)
    plain = rng.standard_normal((48, 64)).astype(np.float32)
    flat = (plain[:, :1] @ plain[:1] + 1e-3 * plain).astype(np.float32)
    for g, units in ((plain, 100), (flat, 5000)):
        exact = step_of(g.astype(np.float64), "float64")
        off = np.linalg.norm(step_of(g, "float32") - exact)
        assert 0 < off <= units * 2.0**-24 * np.linalg.norm(exact)


@pytest.mark.parametrize("size", [1e38, 1e-30])
def test_muon_norm_neither_overflows_nor_underflows(size):
    g = np.full((2, 3), size, np.float32)
    got = step_of(g, "float32", ns_steps=0, nesterov=False)
    np.testing.assert_allclose(got, g / (size * np.sqrt(6) + 1e-7), rtol=1e-6)


def test_muon_of_zero_gradients_or_no_elements_is_no_step():
    for shape in ((2, 3), (0, 3), (3, 0), (0, 0)):
        assert_same_bits(
            [step_of(np.zeros(shape, np.float32), "float32") + 0],
            [np.zeros(shape, np.float32)],
        )


@pytest.mark.parametrize(
    ("path", "settings", "matrix"),
    [
        ("kernel", {}, True),
        ("Embedding_1", {}, False),
        ("Embedding_1", {"exclude_embeddings": False}, True),
        ("head_kernel", {"exclude_layers": ["^head", "tail$"]}, False),
        ("a_head", {"exclude_layers": ["^head", "tail$"]}, True),
    ],
)
def test_muon_leaves_some_matrices_to_adam(path, settings, matrix):
    g = weights(np.float32, [(4, 3)])[0]
    rate = {"weight_decay": None, "adam_weight_decay": None, "adam_lr_ratio": 0.5}
    v = Variable(np.ones((4, 3), np.float32), name=path)
    other = Variable(np.ones((4, 3), np.float32))
    made = Muon(0.5, **rate, **settings)
    adam = Adam(0.25)
    for _ in range(2):
        made.apply([g], [v])
        adam.apply([g], [other])
    assert len(made.variables) == (3 if matrix else 4)
    assert np.array_equal(v.numpy(), other.numpy()) == (not matrix)


def test_muon_decays_matrices_and_the_rest_by_their_own_rates():
    model = [Variable(np.ones(s, np.float32)) for s in ((2, 2), (2,))]
    zeros = [np.zeros(v.shape, np.float32) for v in model]
    rates = {"weight_decay": 0.5, "adam_weight_decay": 0.25, "adam_lr_ratio": 4.0}
    Muon(0.5, **rates).apply(zeros, model)
    assert model[0].numpy().tolist() == [[0.75, 0.75], [0.75, 0.75]]
    assert model[1].numpy().tolist() == [0.875, 0.875]


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"exclude_layers": "head"}, TypeError, "`exclude_layers` must be a list"),
        ({"exclude_layers": ["("]}, ValueError, "regular expressions. Received: '\\('"),
        ({"exclude_layers": [3]}, ValueError, "regular expressions. Received: 3"),
        ({"ns_steps": -1}, ValueError, "`ns_steps` must be an integer"),
        ({"ns_steps": 1.5}, ValueError, "`ns_steps` must be an integer"),
        ({"adam_lr_ratio": 0}, ValueError, r"`adam_lr_ratio` must be in \(0, inf\)"),
        ({"rms_rate": "x"}, TypeError, "`rms_rate` must be a real number"),
        ({"muon_a": float("nan")}, ValueError, "`muon_a` must be finite"),
        ({"adam_weight_decay": -1}, ValueError, r"`adam_weight_decay` must be in \[0"),
    ],
)
def test_muon_argument_that_is_not_valid_is_an_error(arguments, error, message):
    with pytest.raises(error, match=message):
        Muon(**arguments)


@pytest.mark.parametrize(
    "arguments",
    [{"beta_2_decay": 0.1}, {"clip_threshold": 0}, {"epsilon_1": -1}],
    ids=str,
)
def test_adafactor_argument_out_of_range_is_an_error(arguments):
    with pytest.raises(ValueError, match="must be in"):
        Adafactor(**arguments)


def test_adafactor_rows_and_columns_follow_the_formula():
    row, shapes = OPTIMIZERS["adafactor"], [(4, 6), (2, 3, 5)]
    model = variables(weights(np.float32, shapes))
    made = Adafactor(0.05)
    oracle = reference(row, weights(np.float32, shapes), {})
    for step in range(10):
        made.apply(gradients(step, np.float32, shapes), model)
        oracle.apply(gradients(step, np.float32, shapes))
    values = [v.numpy() for v in made.variables[2:]]
    assert [v.shape for v in values[:3]] == [(4,), (6,), (4, 6)]
    assert [v.shape for v in values[3:]] == [(2, 3), (2, 5), (2, 3, 5)]
    for i in range(2):
        for k, name in enumerate(("rows", "columns", "velocity")):
            assert_within(values[3 * i + k], oracle.slots[i][name], name)


def test_adafactor_rate_is_bounded_by_the_root_of_the_step():
    model, other = (Variable(np.full(4, 2.0, np.float32)) for _ in range(2))
    fast, slow = Adafactor(1e6), Adafactor(1.0)
    for step in range(4):
        slow.learning_rate = 1 / math.sqrt(step + 1)
        fast.apply(gradients(step, np.float32, [(4,)]), [model])
        slow.apply(gradients(step, np.float32, [(4,)]), [other])
    assert_same_bits([model.numpy()], [other.numpy()])


def test_adafactor_of_no_elements_changes_nothing():
    model = [Variable(np.zeros(s, np.float32)) for s in ((0, 3), (3, 0), (0,))]
    made = Adafactor(0.5)
    made.apply([v.numpy() for v in model], model)
    assert all(np.isfinite(x).all() for x in state(made, model))
