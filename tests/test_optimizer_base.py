"""What the base class does around any rule, shown with a rule written in NumPy."""

from __future__ import annotations

import numpy as np
import pytest
from optimizer_table import BF16, assert_same_bits, grad, state, var

import mpcore
from mpcore import Variable, optimizers
from mpcore.optimizers import SGD, Adam, Optimizer, schedules


class Momentum(Optimizer):
    """As a user writes it: NumPy only, one variable at a time."""

    def __init__(self, learning_rate=1.0, decay_rate=0.5, **settings):
        super().__init__(learning_rate, **settings)
        self.decay_rate = decay_rate

    def build(self, variables):
        if self.built:
            return
        super().build(variables)
        self.velocities = [
            self.add_variable_from_reference(v, name="velocity") for v in variables
        ]

    def update_step(self, gradient, variable, learning_rate):
        assert gradient.dtype == np.float32
        velocity = self.velocities[self._get_variable_index(variable)]
        self.assign(velocity, velocity * self.decay_rate - learning_rate * gradient)
        self.assign_add(variable, velocity)

    def get_config(self):
        return super().get_config() | {"decay_rate": self.decay_rate}


SGDS = {"numpy": Momentum, "fused": SGD}


@pytest.fixture(params=SGDS)
def sgd(request):
    """Plain descent with rate 1, by the NumPy loop and by the kernel."""
    extra = {"decay_rate": 0.0} if request.param == "numpy" else {}
    return lambda **settings: SGDS[request.param](1.0, **extra, **settings)


# --- A rule in NumPy ------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [np.float32, np.float16, BF16])
def test_numpy_rule_trains_variables_of_any_dtype(dtype):
    v = var(1, 2, dtype=dtype)
    made = Momentum()
    made.apply([grad(0.5, 0.25)], [v])
    made.apply([grad(0.5, 0.25, dtype=np.float16)], [v])
    assert v.numpy().astype(float).tolist() == [1 - 0.5 - 0.75, 2 - 0.25 - 0.375]
    assert v.dtype == np.dtype(dtype).name
    assert made.velocities[0].dtype == "float32"
    assert made.velocities[0].path == f"{made.name}/{v.path}_velocity"


def test_numpy_rule_keeps_the_low_precision_copy_true():
    v = var(1.0)
    with mpcore.autocast.scope("bfloat16"):
        assert v.value[0] == 1
        Momentum(2.0**-10).apply([grad(1.0)], [v])
        assert v.numpy()[0] == 1 - 2.0**-10  # updated in full precision
        assert v.value[0] == np.float32(1 - 2.0**-10).astype(BF16)


def test_numpy_rule_reads_stored_values_in_an_autocast_scope():
    class Subtract(Optimizer):
        def update_step(self, gradient, variable, learning_rate):
            self.assign(variable, variable - learning_rate * gradient)

    v = var(1 + 2.0**-20)
    with mpcore.autocast.scope("bfloat16"):
        Subtract(1.0).apply([grad(0.0)], [v])
    assert v.numpy()[0] == 1 + 2.0**-20


def test_numpy_rule_config_round_trips():
    made = Momentum(0.5, decay_rate=0.25, name="mine")
    config = optimizers.serialize(made)
    again = optimizers.deserialize(config, custom_objects={"Momentum": Momentum})
    assert again.get_config() == made.get_config()
    assert again.decay_rate == 0.25


def test_rule_that_is_missing_is_named():
    with pytest.raises(NotImplementedError, match="must define `update_step"):
        Optimizer(0.1).apply([grad(1.0)], [var(1.0)])


def test_constructor_that_forgets_super_is_told():
    class Forgetful(Optimizer):
        def __init__(self):
            self.rate = 0.1

    with pytest.raises(RuntimeError, match="forgot to call `super"):
        Forgetful()


def test_variable_attribute_becomes_state():
    made = Momentum()
    made.extra = Variable(3.0)
    assert made.variables[-1] is made.extra
    rate = Variable(0.5)
    made.learning_rate = rate
    assert rate not in made.variables
    assert float(made.learning_rate) == 0.5


# --- Order and meaning of the parts ---------------------------------------------------


def test_unscale_accumulate_clip_decay_in_this_order(sgd):
    v = var(10.0, 10.0)
    made = sgd(
        weight_decay=0.5,
        clipnorm=1.0,
        loss_scale_factor=4.0,
        gradient_accumulation_steps=2,
    )
    made.apply([grad(0.0, 8.0)], [v])
    assert v.numpy().tolist() == [10, 10]
    made.apply([grad(24.0, 24.0)], [v])  # mean (3, 4), clipped (0.6, 0.8)
    np.testing.assert_allclose(v.numpy(), [5 - 0.6, 5 - 0.8], rtol=1e-6)


@pytest.mark.parametrize("name", ["clipnorm", "clipvalue", "global_clipnorm"])
@pytest.mark.parametrize("limit", [0, -1.0])
def test_clip_limit_of_zero_or_less_is_off(sgd, name, limit):
    v = var(0.0)
    sgd(**{name: limit}).apply([grad(3.0)], [v])
    assert v.numpy()[0] == -3


def test_clip_of_zero_gradients_is_zero(sgd):
    for name in ("clipnorm", "global_clipnorm"):
        v = var(1.0)
        sgd(**{name: 1.0}).apply([grad(0.0)], [v])
        assert v.numpy()[0] == 1


@pytest.mark.parametrize("size", [3e38, 1e-22])
def test_clip_norm_squares_neither_overflow_nor_underflow(sgd, size):
    for name in ("clipnorm", "global_clipnorm"):
        v = var(0.0, 0.0)
        limit = 1e-3 if size > 1 else size / 10
        sgd(**{name: limit}).apply([grad(size, 0)], [v])
        np.testing.assert_allclose(v.numpy(), [-limit, 0], rtol=1e-6)


@pytest.mark.parametrize("size", [1e200, 1e-200])
def test_clip_norm_squares_of_float64_neither_overflow_nor_underflow(size):
    for name in ("clipnorm", "global_clipnorm"):
        v = var(0, 0, dtype=np.float64)
        g = grad(3 * size, 4 * size, dtype=np.float64)
        SGD(1.0, **{name: size}).apply([g], [v])
        np.testing.assert_allclose(v.numpy(), [-0.6 * size, -0.8 * size], rtol=1e-14)


def test_clip_far_below_the_norm_of_float64_keeps_all_digits():
    # limit / norm = 2e-321 has 9 bits.
    for name in ("clipnorm", "global_clipnorm"):
        v = var(0, 0, dtype=np.float64)
        g = grad(3e300, 4e300, dtype=np.float64)
        SGD(1.0, **{name: 1e-20}).apply([g], [v])
        np.testing.assert_allclose(v.numpy(), [-6e-21, -8e-21], rtol=1e-15)
        assert g.tolist() == [3e300, 4e300]


def test_accumulation_counts_micro_steps_and_updates_apart():
    made = Momentum(
        schedules.PiecewiseConstantDecay([0, 2], [1.0, 2.0, 4.0]),
        gradient_accumulation_steps=2,
    )
    v = var(0.0)
    for _ in range(4):
        made.apply([grad(1.0)], [v])
    # The rate sees calls 1 and 3: 2, then 4; momentum 0.5.
    assert v.numpy()[0] == -2 - (1 + 4)
    assert made.iterations == 2
    assert int(made.apply_gradients([(grad(1.0), v)])) == 5


def test_accumulation_drops_the_sum_of_a_variable_without_a_gradient(sgd):
    a, b = var(0.0), var(0.0)
    made = sgd(gradient_accumulation_steps=2)
    made.apply([grad(2.0), grad(2.0)], [a, b])
    with pytest.warns(UserWarning, match="Gradients do not exist"):
        made.apply([grad(2.0), None], [a, b])
    assert (a.numpy()[0], b.numpy()[0]) == (-2, 0)
    made.apply([grad(0.0), grad(0.0)])
    made.apply([grad(0.0), grad(0.0)])
    assert (a.numpy()[0], b.numpy()[0]) == (-2, 0)


def test_ema_first_average_is_the_weights_and_moves_once_per_update(sgd):
    v = var(1.0)
    made = sgd(use_ema=True, ema_momentum=0.5, gradient_accumulation_steps=2)
    averages = []
    for _ in range(6):
        made.apply([grad(1.0)], [v])
        averages.append(float(made.variables[2].numpy()[0]))
    # Weights 0, -1, -2 after the updates.
    assert averages == [0, 0, 0, -0.5, -0.5, -1.25]


def test_ema_overwrites_the_weights_every_so_many_updates(sgd):
    v = var(0.0)
    made = sgd(use_ema=True, ema_momentum=0.5, ema_overwrite_frequency=2)
    seen = []
    for _ in range(3):
        made.apply([grad(1.0)], [v])
        seen.append(float(v.numpy()[0]))
    assert seen == [-1, -1.5, -2.5]


def test_ema_finalize_before_any_update_leaves_the_weights(sgd):
    v = var(3.0)
    made = sgd(use_ema=True)
    made.build([v])
    made.finalize_variable_values([v])
    assert v.numpy()[0] == 3


def test_ema_finalize_sets_variables_in_any_order(sgd):
    a, b = var(0.0), var(10.0)
    made = sgd(use_ema=True, ema_momentum=0.5)
    for _ in range(2):
        made.apply([grad(1.0), grad(1.0)], [a, b])
    made.finalize_variable_values([b, a])
    assert (a.numpy()[0], b.numpy()[0]) == (-1.5, 8.5)
    with pytest.raises(ValueError, match="must hold the variables"):
        made.finalize_variable_values([a])


def test_ema_can_be_looked_at_without_a_trace(sgd):
    def train(look):
        v = var(0.0)
        made = sgd(use_ema=True, ema_momentum=0.5)
        for _ in range(3):
            made.apply([grad(1.0)], [v])
            if look:
                with pytest.raises(KeyError), made.averaged():
                    look.append(float(v.numpy()[0]))
                    raise KeyError
        return state(made, [v])

    seen = [0.0]
    assert_same_bits(train(seen), train(None))
    assert seen == [0.0, -1, -1.5, -2.25]
    with pytest.raises(RuntimeError, match="needs `use_ema=True`"):
        sgd().averaged()


def test_constraint_acts_last_and_on_micro_steps(sgd):
    v = var(1.0, -2.0, constraint=lambda w: np.maximum(w, 0))
    made = sgd(use_ema=True, gradient_accumulation_steps=2)
    made.apply([grad(1.0, 0.0)], [v])
    assert v.numpy().tolist() == [1, 0]
    made.apply([grad(3.0, 1.0)], [v])
    assert v.numpy().tolist() == [0, 0]
    assert made.variables[2].numpy().tolist() == [-1, -0.5]  # seen before it


def test_overwriting_variable_takes_its_gradient_as_value(sgd):
    v, w = var(1.0), var(5.0)
    v.overwrite_with_gradient = True
    made = sgd(weight_decay=0.5)
    made.apply([grad(7.0), grad(1.0)], [v, w])
    assert (v.numpy()[0], w.numpy()[0]) == (7, 1.5)
    made.apply([grad(2.0)], [v])
    assert v.numpy()[0] == 2
    assert int(made.iterations) == 2


def test_overwriting_variable_takes_the_maximum_of_a_window(sgd):
    v = var(1.0)
    v.overwrite_with_gradient = True
    made = sgd(gradient_accumulation_steps=3)
    seen = []
    for value in (2.0, 5.0, 3.0, 1.0, 1.0, 4.0):
        made.apply([grad(value)], [v])
        seen.append(float(v.numpy()[0]))
    assert seen == [1, 1, 5, 5, 5, 4]


def test_decay_multiplies_by_the_scheduled_rate(sgd):
    v = var(1.0)
    made = sgd(weight_decay=0.5)
    made.learning_rate = schedules.PiecewiseConstantDecay([0], [1.0, 0.5])
    made.apply([grad(0.0)], [v])
    made.apply([grad(0.0)], [v])
    assert v.numpy()[0] == 0.5 * 0.75


@pytest.mark.parametrize(
    ("arguments", "kept"),
    [
        ({}, [0.5, 0.5, 0.5]),
        ({"var_names": ["bias"]}, [0.5, 1, 0.5]),
        ({"var_names": ["^k", "2$"]}, [1, 0.5, 1]),
        ({"var_names": ["dense"]}, [0.5, 0.5, 0.5]),  # in the path, not the name
        ({"var_list": 0}, [1, 0.5, 0.5]),
        ({"var_list": 0, "var_names": ["2"]}, [1, 0.5, 1]),
    ],
)
def test_exclusion_from_decay_by_identity_or_name(sgd, arguments, kept):
    with mpcore.variable.name_scope("dense"):
        model = [var(1.0, name=n) for n in ("kernel", "bias", "gain2")]
    if "var_list" in arguments:
        arguments = arguments | {"var_list": [model[0]]}
    made = sgd(weight_decay=0.5)
    made.exclude_from_weight_decay(var_names=["gain"])  # replaced by the second call
    made.exclude_from_weight_decay(**arguments)
    made.apply([grad(0.0)] * 3, model)
    assert [float(v.numpy()[0]) for v in model] == kept


# --- Names and variables --------------------------------------------------------------


def test_names_are_snake_case_and_unique():
    class RMSProp2x(Momentum):
        pass

    assert RMSProp2x().name == "rms_prop2x"
    assert RMSProp2x().name == "rms_prop2x_1"
    assert RMSProp2x(name="mine").name == "mine"


def test_add_optimizer_variables_interleaves_names():
    made = Momentum(name="m")
    with mpcore.variable.name_scope("dense"):
        model = [var(1.0, name="k"), var(1, 2, dtype=np.float64, name="b")]
    ones, twos = made.add_optimizer_variables(model, ["one", "two"], ["ones", "zeros"])
    assert [v.name for v in made.variables[2:]] == [
        "dense_k_one",
        "dense_k_two",
        "dense_b_one",
        "dense_b_two",
    ]
    assert ones[1].numpy().tolist() == [1, 1] and ones[1].dtype == "float64"
    assert twos[0].numpy().tolist() == [0]
    assert made.add_variable_from_reference(model[0]).name == "dense_k_var"
    with pytest.raises(ValueError, match="one initializer per name"):
        made.add_optimizer_variables(model, ["one", "two"], ["ones"])
    with pytest.raises(ValueError, match="fully known"):
        made.add_variable((None, 2))


def test_build_a_second_time_does_nothing():
    made = Adam()
    v = var(1.0)
    made.build([v])
    names = [x.name for x in made.variables]
    made.build([var(2.0)])
    assert [x.name for x in made.variables] == names
    made.apply([grad(1.0)])
    assert v.numpy()[0] < 1


def test_apply_of_nothing_does_nothing():
    made = Adam()
    made.apply([])
    made.build([var(1.0)])
    made.apply([])
    made.apply([], [])
    assert int(made.iterations) == 0
