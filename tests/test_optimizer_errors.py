"""What optimizers refuse: each error says the rule, and leaves everything as it was."""

from __future__ import annotations

import numpy as np
import pytest
from optimizer_table import assert_same_bits, state
from optimizer_table import grad as g

from mpcore import Variable, optimizers
from mpcore.optimizers import (
    SGD,
    Adam,
    AdamW,
    Ftrl,
    Optimizer,
    RMSprop,
    ScheduleFreeAdamW,
)


@pytest.fixture
def model():
    return [Variable(g(1, 2), name="a"), Variable(g(3), name="b")]


@pytest.fixture
def built(model):
    """An optimizer with every kind of state, in the middle of a window."""
    made = Adam(0.1, use_ema=True, gradient_accumulation_steps=2, clipnorm=1.0)
    for _ in range(3):
        made.apply([g(1, 2), g(3)], model)
    return made


UNKNOWN = Variable(g(3), name="stranger")
NAN = float("nan")

BAD_APPLY = {
    "shape": (lambda m: ([g(1), g(1)], None), ValueError, r"'a'.*\(2,\).*\(1,\)"),
    "rank": (lambda m: ([g(1, 2), np.ones((1, 1))], None), ValueError, "'b' must have"),
    "count": (lambda m: ([g(1, 2)], None), ValueError, "1 gradients for 2 variables"),
    "count of pairs": (lambda m: ([g(1, 2)], m), ValueError, "one gradient"),
    "all None": (lambda m: ([None, None], m), ValueError, "No gradients provided"),
    "stranger": (
        lambda m: ([g(1, 2), g(1)], [m[0], UNKNOWN]),
        ValueError,
        "Unknown variable: 'stranger'",
    ),
    "twice": (lambda m: ([g(3), g(3)], [m[1], m[1]]), ValueError, "given once.*'b'"),
    "no variable": (lambda m: ([g(1)], [g(1)]), TypeError, "Only a Variable"),
    "complex": (lambda m: ([g(1, 2) * 1j, g(1)], m), TypeError, "real numbers"),
    "text": (lambda m: ([np.array(["x", "y"]), g(1)], m), TypeError, "real numbers"),
    "infinity": (
        lambda m: ([g(1, 2), g(np.inf)], m),
        FloatingPointError,
        "'b'.*clipped",
    ),
    "nan": (lambda m: ([g(NAN, 1), g(1)], m), FloatingPointError, "'a' must be finite"),
}


@pytest.mark.parametrize("micro_steps", [0, 1], ids=["update", "micro-step"])
@pytest.mark.parametrize("case", BAD_APPLY)
def test_apply_error_changes_nothing(built, model, case, micro_steps):
    arguments, error, message = BAD_APPLY[case]
    for _ in range(micro_steps):
        built.apply([g(1, 2), g(3)], model)
    before = state(built, model)
    with pytest.raises(error, match=message):
        built.apply(*arguments(model))
    assert_same_bits(state(built, model), before)


@pytest.mark.parametrize("make", [SGD, Adam, AdamW])
@pytest.mark.parametrize("case", sorted({*BAD_APPLY} - {"stranger"}))
def test_first_apply_error_changes_nothing(make, model, case):
    arguments, error, message = BAD_APPLY[case]
    grads, variables = arguments(model)
    variables = model if variables is None else variables
    made = make(0.1, global_clipnorm=1.0)
    before = state(made, model)
    with pytest.raises(error, match=message):
        made.apply(grads, variables)
    assert_same_bits(state(made, model)[: len(before)], before)


@pytest.mark.parametrize("rate", [NAN, float("inf")])
@pytest.mark.parametrize("decay", [None, 0.1])
def test_rate_that_is_not_finite_changes_nothing(model, rate, decay):
    made = SGD(lambda: rate, weight_decay=decay, momentum=0.5)
    made.build(model)
    before = state(made, model)
    with pytest.raises(ValueError, match="learning rate must be finite"):
        made.apply([g(1, 2), g(3)])
    assert_same_bits(state(made, model), before)


def test_apply_without_variables_needs_build():
    with pytest.raises(ValueError, match="must be built"):
        SGD().apply([g(1)])


def test_apply_gradients_of_nothing_is_an_error():
    with pytest.raises(ValueError, match="must not be empty"):
        SGD().apply_gradients([])


def test_norm_error_without_clipping_is_none(model):
    SGD(1.0).apply([g(1, 2), g(np.inf)], model)
    assert model[1].numpy()[0] == -np.inf


BAD_STATE = {
    "short": lambda s: s[:-1],
    "long": lambda s: [*s, s[-1]],
    "shape": lambda s: [*s[:-1], s[-1][None]],
    "dtype": lambda s: [*s[:-1], s[-1].astype(np.float64)],
    "half": lambda s: [*s[:-1], s[-1].astype(np.float16)],
    "counter": lambda s: [s[0].astype(np.float64), *s[1:]],
}


@pytest.mark.parametrize("case", BAD_STATE)
def test_state_that_does_not_fit_changes_nothing(built, model, case):
    before = state(built, model)
    bad = BAD_STATE[case]([v + 1 for v in built.get_weights()])
    with pytest.raises(ValueError, match=r"variables|must have shape"):
        built.set_weights(bad)
    with pytest.raises(ValueError, match=r"keys|must have shape"):
        built.load_own_variables({str(i): v for i, v in enumerate(bad)})
    with pytest.raises(ValueError, match=r"variables|must have shape"):
        built.stateless_apply(bad, [g(1, 2), g(3)], [v.numpy() for v in model])
    assert_same_bits(state(built, model), before)


def test_state_with_other_keys_changes_nothing(built, model):
    before = state(built, model)
    store = {f"v{i}": v + 1 for i, v in enumerate(built.get_weights())}
    with pytest.raises(ValueError, match=r"must have the .* keys '0' to"):
        built.load_own_variables(store)
    assert_same_bits(state(built, model), before)


def test_state_of_an_unbuilt_optimizer_cannot_be_set():
    with pytest.raises(ValueError, match="needs an optimizer that is built"):
        Adam().set_weights([0, 0.1])
    with pytest.raises(ValueError, match="must be built"):
        Adam().stateless_apply([], [], [])


def test_stateless_apply_with_other_weights_changes_nothing(built, model):
    before = state(built, model)
    for weights in ([g(1, 2)], [g(1), g(1)]):
        with pytest.raises(ValueError, match=r"correspond|shape"):
            built.stateless_apply(built.get_weights(), [g(1, 2), g(3)], weights)
    assert_same_bits(state(built, model), before)


def test_exclusion_after_build_is_an_error(built):
    with pytest.raises(ValueError, match="before the optimizer is built"):
        built.exclude_from_weight_decay(var_names=["bias"])


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"var_names": "bias"}, TypeError, "must be a list of str"),
        ({"var_names": [1]}, TypeError, "`var_names` must be a list of str"),
        ({"var_list": ["bias"]}, TypeError, "`var_list` must be a list of Variable"),
        ({"var_names": ["("]}, ValueError, "must hold regular expressions"),
    ],
)
def test_exclusion_of_something_else_is_an_error(arguments, error, message):
    with pytest.raises(error, match=message):
        SGD().exclude_from_weight_decay(**arguments)


def test_state_that_is_masked_is_refused_and_changes_nothing(built):
    before = built.get_weights()
    with pytest.raises(TypeError, match="Masked arrays"):
        built.set_weights([np.ma.masked_array(w) for w in before])
    for old, new in zip(before, built.get_weights(), strict=True):
        np.testing.assert_array_equal(old, new)


def test_build_of_something_else_is_an_error(model):
    for bad, error, message in (
        ([*model, 3.0], TypeError, "Only a Variable"),
        ([*model, Variable(np.arange(3))], ValueError, "Only a floating variable"),
        ([*model, model[0]], ValueError, "given once"),
    ):
        made = Adam()
        with pytest.raises(error, match=message):
            made.build(bad)
        assert not made.built and len(made.variables) == 2


BAD_ARGUMENTS = [
    (
        SGD,
        {"learning_rate": "fast"},
        ValueError,
        "`learning_rate` must be a real number",
    ),
    (SGD, {"learning_rate": True}, ValueError, "`learning_rate` must be a real number"),
    (SGD, {"learning_rate": None}, ValueError, "`learning_rate` must be a real number"),
    (SGD, {"learning_rate": NAN}, ValueError, "`learning_rate` must be finite"),
    (SGD, {"learning_rate": g(1, 2)}, ValueError, "`learning_rate` must be a real"),
    (SGD, {"momentum": 1.5}, ValueError, r"in \[0, 1\]. Received: momentum=1.5"),
    (SGD, {"momentum": -0.1}, ValueError, r"in \[0, 1\]"),
    (SGD, {"momentum": "much"}, TypeError, "`momentum` must be a real number"),
    (Adam, {"beta_1": 1.0}, ValueError, r"`beta_1` must be in \[0, 1\)"),
    (Adam, {"beta_2": -1}, ValueError, r"`beta_2` must be in \[0, 1\)"),
    (Adam, {"epsilon": -1e-7}, ValueError, r"`epsilon` must be in \[0, inf\)"),
    (AdamW, {"weight_decay": None}, ValueError, "must be a number >= 0"),
    (
        AdamW,
        {"weight_decay": -1.0},
        ValueError,
        r"`weight_decay` must be in \[0, inf\)",
    ),
    (SGD, {"clipnorm": NAN}, ValueError, "`clipnorm` must be finite"),
    (SGD, {"clipnorm": 1.0, "clipvalue": 1.0}, ValueError, "Only one of"),
    (SGD, {"clipnorm": 0, "global_clipnorm": 1.0}, ValueError, "Only one of"),
    (SGD, {"loss_scale_factor": 0.0}, ValueError, r"in \(0, inf\)"),
    (SGD, {"loss_scale_factor": float("inf")}, ValueError, r"in \(0, inf\)"),
    (SGD, {"gradient_accumulation_steps": 1}, ValueError, "integer >= 2"),
    (SGD, {"gradient_accumulation_steps": 2.5}, ValueError, "integer >= 2"),
    (SGD, {"use_ema": True, "ema_momentum": 1.5}, ValueError, "`ema_momentum` must"),
    (SGD, {"use_ema": True, "ema_overwrite_frequency": -1}, ValueError, "integer >= 1"),
    (SGD, {"use_ema": True, "ema_overwrite_frequency": 2.0}, ValueError, ">= 1"),
    (SGD, {"use_ema": "False"}, TypeError, "`use_ema` must be True or False"),
    (SGD, {"nesterov": "False"}, TypeError, "`nesterov` must be True or False"),
    (Adam, {"amsgrad": 1}, TypeError, "`amsgrad` must be True or False"),
    (RMSprop, {"centered": None}, TypeError, "`centered` must be True or False"),
    (SGD, {"compensated": "False"}, TypeError, "`compensated` must be True or False"),
    (SGD, {"seed": -1}, ValueError, r"`seed` must be an integer in \[0, 92"),
    (SGD, {"seed": 2**63}, ValueError, r"`seed` must be an integer in \[0, 92"),
    (ScheduleFreeAdamW, {"warmup_steps": 2**70}, ValueError, r"integer in \[0, 92"),
    (ScheduleFreeAdamW, {"warmup_steps": -1}, ValueError, r"integer in \[0, 92"),
    (Ftrl, {"learning_rate": 0}, ValueError, r"`learning_rate` must be in \(0, inf\)"),
    (SGD, {"lr": 0.1}, ValueError, "not recognized: {'lr': 0.1}"),
    (SGD, {"name": "a/b"}, ValueError, "'/'"),
]


def test_build_that_forgets_the_base_is_named_and_changes_nothing(model):
    class Forgetful(SGD):
        def build(self, variables):
            """Make no slots."""

    before = [v.numpy() for v in model]
    with pytest.raises(RuntimeError, match=r"Forgetful\.build.*super\(\)\.build"):
        Forgetful(0.1).apply([g(1, 2), g(3)], model)
    for old, variable in zip(before, model, strict=True):
        np.testing.assert_array_equal(variable.numpy(), old)


@pytest.mark.parametrize(("make", "arguments", "error", "message"), BAD_ARGUMENTS)
def test_argument_out_of_range_is_an_error(make, arguments, error, message):
    with pytest.raises(error, match=message):
        make(**arguments)


def test_argument_set_later_is_checked_and_kept_if_wrong():
    made = Adam(beta_1=np.float32(0.5), amsgrad=np.bool_(True))
    assert type(made.beta_1) is float and made.amsgrad is True
    with pytest.raises(ValueError, match=r"`beta_1` must be in \[0, 1\)"):
        made.beta_1 = 1.0
    with pytest.raises(TypeError, match="`amsgrad` must be True or False"):
        made.amsgrad = "no"
    assert (made.beta_1, made.amsgrad) == (0.5, True)
    made.beta_1 = 0.25
    assert made.get_config()["beta_1"] == 0.25


def test_argument_that_is_not_set_is_no_attribute():
    assert not hasattr(Adam.__new__(Adam), "beta_1")
    assert Adam.beta_1 is vars(Adam)["beta_1"]


def test_arguments_that_turn_things_off_are_taken():
    made = SGD(gradient_accumulation_steps=0, use_ema=True, ema_overwrite_frequency=0)
    made.apply([g(1)], [Variable(g(1))])
    assert int(made.iterations) == 1
    SGD(ema_momentum=7.0)  # not used, not checked
    with pytest.warns(UserWarning, match="`decay` is no longer supported"):
        SGD(decay=0.1)


@pytest.mark.parametrize(
    ("identifier", "message"),
    [
        (3, "Could not interpret optimizer identifier: 3"),
        ("rocket", "Unknown name 'rocket'.*Adam"),
        ({"class_name": "Rocket", "config": {}}, "Rocket"),
    ],
)
def test_get_of_something_else_is_an_error(identifier, message):
    with pytest.raises(ValueError, match=message):
        optimizers.get(identifier)


def test_get_passes_optimizers_and_none_through():
    made = SGD()
    assert optimizers.get(made) is made
    assert optimizers.get(None) is None
    assert isinstance(made, Optimizer)


def test_from_config_with_an_unknown_argument_is_an_error():
    with pytest.raises(ValueError, match="not recognized"):
        SGD.from_config({"warp": 9})


def test_ftrl_rate_that_is_set_to_zero_raises_and_is_kept():
    made = Ftrl(0.5)
    with pytest.raises(ValueError, match=r"`learning_rate` must be in \(0, inf\)"):
        made.learning_rate = 0.0
    assert float(made.learning_rate) == 0.5


@pytest.mark.parametrize("rate", [0.0, -0.1])
def test_ftrl_rate_that_is_not_positive_raises_and_changes_nothing(rate):
    model = [Variable([1.0, 2.0])]
    made = Ftrl(lambda: rate)
    made.build(model)
    before = [v.numpy() for v in [*model, *made.variables]]
    with pytest.raises(ValueError, match=r"learning_rate must be in \(0, inf\)"):
        made.apply([[1.0, 1.0]], model)
    for variable, value in zip([*model, *made.variables], before, strict=True):
        assert np.array_equal(variable.numpy(), value)
