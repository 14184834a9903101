"""Comparison with real Keras on its NumPy backend, where Keras is installed."""

from __future__ import annotations

import inspect
import os
import re
import warnings

import numpy as np
import pytest

os.environ["KERAS_BACKEND"] = "numpy"
with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    keras = pytest.importorskip("keras", reason="needs keras (with jax installed)")

from optimizer_table import OPTIMIZERS, gradients, weights

from mpcore import Variable, mixed_precision, optimizers
from mpcore.optimizers import schedules

if keras.backend.backend() != "numpy":
    pytest.skip("keras runs on another backend", allow_module_level=True)

# Keras itself uses what NumPy has deprecated.
pytestmark = [
    pytest.mark.filterwarnings("ignore::DeprecationWarning:keras"),
    pytest.mark.filterwarnings("ignore:__array__ implementation:DeprecationWarning"),
]

# Keras computes in fp32 throughout, in another order; here that is the only difference.
CLOSE = {"rtol": 1e-5, "atol": 1e-6}
SHAPES = [(3, 4), (4,), ()]
POSITIONAL = inspect.Parameter.POSITIONAL_OR_KEYWORD
PLAIN = {"learning_rate": 0.05}
SETTINGS = {
    "plain": {},
    "weight_decay": {"weight_decay": 0.1},
    "clipnorm": {"clipnorm": 0.5},
    "clipvalue": {"clipvalue": 0.25},
    "global_clipnorm": {"global_clipnorm": 1.0},
    "ema": {"use_ema": True, "ema_momentum": 0.75, "ema_overwrite_frequency": 4},
    "ema-alone": {"use_ema": True, "ema_momentum": 0.9},
    "loss_scale_factor": {"loss_scale_factor": 16.0},
    "decay-clipvalue": {"weight_decay": 0.3, "clipvalue": 0.5},
    "decay-clipnorm": {"weight_decay": 0.05, "clipnorm": 1.0, "loss_scale_factor": 8.0},
    "other-rate": {"learning_rate": 0.02, "global_clipnorm": 3.0},
    "small-rate": {"learning_rate": 1e-5, "weight_decay": 0.5},
    "accumulation": {
        "gradient_accumulation_steps": 3,
        "weight_decay": 0.1,
        "global_clipnorm": 0.5,
    },
}
SCHEDULES = {
    "exponential": ("ExponentialDecay", (0.1, 3, 0.7)),
    "stairs": ("ExponentialDecay", (0.1, 3, 0.7, True)),
    "inverse": ("InverseTimeDecay", (0.1, 3, 0.7)),
    "polynomial": ("PolynomialDecay", (0.1, 6, 0.01, 2.0)),
    "polynomial-cycle": ("PolynomialDecay", (0.1, 6, 0.01, 1.0, True)),
    "cosine": ("CosineDecay", (0.1, 9, 0.1)),
    "cosine-warmup": ("CosineDecay", (0.1, 9, 0.1, "c", 0.3, 4)),
    "restarts": ("CosineDecayRestarts", (0.1, 4, 2.0, 0.8, 0.1)),
    "restarts-equal": ("CosineDecayRestarts", (0.1, 4, 1.0, 0.8, 0.1)),
    "piecewise": ("PiecewiseConstantDecay", ([2, 5], [0.1, 0.05, 0.01])),
}


@pytest.fixture(params=OPTIMIZERS)
def row(request):
    return OPTIMIZERS[request.param]


def pair(row, settings, wrap=False):
    """The same optimizer over the same weights, here and there."""
    values = weights(np.float32, SHAPES)
    ours = row.make(**row.hyper, **settings)
    theirs = getattr(keras.optimizers, row.make.__name__)(**row.hyper, **settings)
    if wrap:
        ours = mixed_precision.LossScaleOptimizer(ours, 64.0, 3)
        theirs = keras.optimizers.LossScaleOptimizer(theirs, 64.0, 3)
    model = [Variable(w, name=f"w{i}") for i, w in enumerate(values)]
    twin = [keras.Variable(w, name=f"w{i}") for i, w in enumerate(values)]
    return ours, model, theirs, twin


def assert_close(ours, model, theirs, twin, without=()):
    for a, b in zip(model, twin, strict=True):
        np.testing.assert_allclose(a.numpy(), b.numpy(), **CLOSE)
    state = [v for v in ours.variables if v.name not in without]
    for a, b in zip(state, theirs.variables, strict=True):
        np.testing.assert_allclose(a.numpy(), b.numpy(), **CLOSE, err_msg=a.path)


@pytest.mark.parametrize("settings", SETTINGS.values(), ids=SETTINGS)
def test_optimizer_follows_keras(row, settings):
    ours, model, theirs, twin = pair(row, PLAIN | settings)
    n = settings.get("gradient_accumulation_steps", 1)
    for step in range(10):
        grads = gradients(step, np.float32, SHAPES)
        ours.apply(grads, model)
        theirs.apply(grads, twin)
        if (step + 1) % n == 0:
            assert_close(ours, model, theirs, twin)
    if settings.get("use_ema"):
        ours.finalize_variable_values(model)
        theirs.finalize_variable_values(twin)
        assert_close(ours, model, theirs, twin)


@pytest.mark.parametrize(("name", "arguments"), SCHEDULES.values(), ids=SCHEDULES)
def test_schedule_follows_keras(name, arguments):
    ours = getattr(schedules, name)(*arguments)
    theirs = getattr(keras.optimizers.schedules, name)(*arguments)
    for step in range(30):
        assert ours(step) == pytest.approx(float(theirs(step)), rel=1e-5, abs=1e-7)
    assert ours.get_config() == theirs.get_config()


def test_scheduled_optimizer_follows_keras(row):
    ours, model, theirs, twin = pair(row, {"learning_rate": 0.1})
    ours.learning_rate = schedules.ExponentialDecay(0.1, 3, 0.7)
    theirs.learning_rate = keras.optimizers.schedules.ExponentialDecay(0.1, 3, 0.7)
    for step in range(6):
        grads = gradients(step, np.float32, SHAPES)
        ours.apply(grads, model)
        theirs.apply(grads, twin)
    assert_close(ours, model, theirs, twin)


def layout(made):
    """Names and shapes of the state; Keras numbers what it has no name for."""
    return [
        (re.sub(r"^variable_\d+$", "variable", v.name), tuple(v.shape))
        for v in made.variables
    ]


def test_state_layout_is_that_of_keras(row):
    settings = {"use_ema": True, "gradient_accumulation_steps": 2}
    ours, model, theirs, twin = pair(row, PLAIN | settings)
    ours.build(model)
    theirs.build(twin)
    assert layout(ours) == layout(theirs)
    mine, yours = {}, {}
    ours.save_own_variables(mine)
    theirs.save_own_variables(yours)
    assert list(mine) == list(yours)


def test_loss_scaling_follows_keras(row):
    ours, model, theirs, twin = pair(row, PLAIN, wrap=True)
    # Adafactor's placeholders have the names of the variables without a matrix.
    lost = ("w1", "w2") if row.make is optimizers.Adafactor else row.extras
    for step in range(12):
        grads = [64 * g for g in gradients(step, np.float32, SHAPES)]
        if step in (2, 3, 9):
            grads[1][2] = np.inf
        ours.apply(grads, model)
        theirs.apply(grads, twin)
        # Keras' wrapper loses the state that belongs to no variable.
        assert_close(ours, model, theirs, twin, lost)
    assert [x for x in layout(ours) if x[0] not in lost] == layout(theirs)


@pytest.mark.parametrize("settings", SETTINGS.values(), ids=SETTINGS)
def test_config_is_that_of_keras(row, settings):
    ours, _, theirs, _ = pair(row, PLAIN | settings | {"name": "same"})
    config, expected = ours.get_config(), theirs.get_config()
    assert config.keys() == expected.keys()
    assert config == {
        **expected,
        # Keras keeps the rate in fp32.
        "learning_rate": pytest.approx(expected["learning_rate"], rel=1e-7),
    }
    assert optimizers.deserialize(
        {"class_name": type(theirs).__name__, "config": expected}
    ).get_config() == {**config, "learning_rate": expected["learning_rate"]}


def test_constructor_defaults_are_those_of_keras(row):
    signature = inspect.signature(getattr(keras.optimizers, row.make.__name__))
    theirs = {n: p.default for n, p in signature.parameters.items()}
    parameters = inspect.signature(row.make).parameters
    ours = {n: p.default for n, p in parameters.items()}
    kinds = {n: p.kind for n, p in parameters.items() if n in theirs}
    own = {n: ours.pop(n) for n in ours.keys() - theirs.keys()}
    assert ours == theirs
    positional = [n for n, kind in kinds.items() if kind == POSITIONAL]
    assert positional == list(theirs)[: len(positional)]
    assert own == {
        "state_dtype": None,
        "rounding": "nearest",
        "compensated": False,
        "seed": None,
    }


@pytest.mark.parametrize(
    "name",
    [
        *("float16", "bfloat16", "float32", "float64", "int8", "uint64", "bool"),
        *("string", "float8_e4m3fn", "float8_e5m2", "complex64", "int"),
        *("mixed_float16", "mixed_bfloat16", "half", "float", "double", "foo", ""),
    ],
)
def test_policy_is_that_of_keras(name):
    try:
        theirs = keras.DTypePolicy(name)
    except ValueError:
        with pytest.raises(ValueError, match="Cannot convert"):
            mixed_precision.Policy(name)
        return
    ours = mixed_precision.Policy(name)
    assert ours.compute_dtype == theirs.compute_dtype
    assert ours.variable_dtype == theirs.variable_dtype
    assert ours.name == theirs.name
    assert ours.get_config() == theirs.get_config()
