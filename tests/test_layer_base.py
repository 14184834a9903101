"""Laws of Layer: names, policy, training flag, state, configuration."""

import json

import numpy as np
import pytest
from ml_dtypes import bfloat16

import mpcore
from mpcore import Variable, autocast, ops
from mpcore.layers import Dense, Layer
from mpcore.mixed_precision import set_global_policy
from mpcore.models import Model, Sequential

MIXED = {"mixed_bfloat16": bfloat16, "mixed_float16": np.float16}


def normal(*shape, seed=0):
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


class Probe(Layer):
    """Remembers what its call got and saw."""

    def build(self, input_shape):
        self.weight = self.add_weight((2,), initializer="ones", name="weight")

    def call(self, x, other=None, training=None):
        self.got, self.other, self.training = x, other, training
        self.seen = self.weight.value.dtype
        return x


class Wrapper(Layer):
    """Calls another layer."""

    def __init__(self, inner, **kwargs):
        super().__init__(**kwargs)
        self.inner = inner

    def call(self, x):
        return self.inner(x)


# Names


def test_layer_default_names_are_snake_case_and_unique():
    class TwoWords(Layer):
        pass

    first, second = TwoWords(), TwoWords()
    assert first.name == "two_words"
    assert second.name == "two_words_1"


@pytest.mark.parametrize(
    ("name", "error"), [("a/b", ValueError), ("", ValueError), (5, TypeError)]
)
def test_layer_bad_name_raises(name, error):
    with pytest.raises(error, match="name"):
        Layer(name=name)


def test_layer_weight_path_holds_the_names_of_all_enclosing_layers():
    inner = Dense(1, name="inner")
    Wrapper(Wrapper(inner, name="middle"), name="outer")(normal(2, 3))
    assert inner.kernel.path == "outer/middle/inner/kernel"


def test_layer_weight_path_is_the_same_from_build_and_from_init():
    class Early(Layer):
        def __init__(self, **kwargs):
            super().__init__(**kwargs)
            self.early = self.add_weight((), initializer="zeros", name="early")

        def build(self, input_shape):
            self.late = self.add_weight((), initializer="zeros", name="late")

    layer = Early(name="both")
    layer.build((None, 1))
    assert layer.built
    assert [v.path for v in layer.variables] == ["both/early", "both/late"]


# Policy and autocast


def test_layer_policy_is_the_global_one_at_construction():
    before = Dense(1)
    set_global_policy("mixed_float16")
    after = Dense(1)
    x = np.ones((1, 1), np.float32)
    assert before(x).dtype == np.float32
    assert after(x).dtype == np.float16
    assert (after.dtype, after.compute_dtype) == ("float32", "float16")
    assert after.kernel.dtype == "float32"


@pytest.mark.parametrize("policy", MIXED)
def test_layer_call_casts_every_floating_argument_and_no_other(policy):
    dtype = MIXED[policy]
    layer = Probe(dtype=policy)
    integers = np.array([2909, 2912])
    nested = {"a": [np.float64([1.0]), integers], "b": (np.float16([2.0]), None)}
    layer(normal(2, 2), other=nested)
    assert layer.got.dtype == dtype
    assert layer.other["a"][0].dtype == dtype
    assert layer.other["a"][1] is integers
    assert layer.other["b"][0].dtype == dtype
    assert layer.other["b"][1] is None


def test_layer_call_does_not_touch_arrays_of_the_compute_dtype():
    x = np.ones((2, 2), bfloat16)
    layer = Probe(dtype="mixed_bfloat16")
    layer(x)
    assert layer.got is x


def test_layer_call_takes_lists_of_numbers():
    y = Dense(2, kernel_initializer="ones")([[1.0, 2.0], [3.0, 4.0]])
    np.testing.assert_array_equal(y, np.float32([[3, 3], [7, 7]]))


def test_layer_without_autocast_leaves_inputs_but_reads_variables_in_compute_dtype():
    layer = Probe(dtype="mixed_float16", autocast=False)
    layer(np.ones((2, 2), np.float32))
    assert layer.got.dtype == np.float32
    assert layer.seen == np.float16


def test_layer_variables_are_read_in_the_compute_dtype_of_the_innermost_layer():
    inner = Probe(dtype="float32")
    outer = Wrapper(inner, dtype="mixed_float16")
    outer(normal(2, 2))
    assert inner.seen == np.float32
    inner = Probe(dtype="mixed_bfloat16")
    Wrapper(inner, dtype="float32")(normal(2, 2))
    assert inner.seen == bfloat16
    assert inner.weight.value.dtype == np.float32


def test_layer_call_restores_scope_and_training_after_an_exception():
    class Broken(Layer):
        def call(self, x, training=None):
            raise ZeroDivisionError

    probe = Probe()
    probe(normal(1, 2))
    with pytest.raises(ZeroDivisionError):
        Broken(dtype="mixed_float16")(normal(1, 2), training=True)
    assert autocast.current() is None
    probe(normal(1, 2))
    assert probe.training is None


def test_layer_integer_policy_casts_nothing():
    layer = Probe(dtype="int32")
    layer.build = lambda shape: None
    layer.weight = Variable(np.float32([1.0, 2.0]))
    layer(normal(2, 2))
    assert layer.got.dtype == np.float32
    assert layer.seen == np.float32


# Training


def test_layer_training_comes_from_the_call_then_the_enclosing_call_then_the_default():
    class Defaulted(Probe):
        def call(self, x, training="default"):
            self.training = training
            return x

    probe, defaulted = Probe(), Defaulted()

    class Outer(Layer):
        def call(self, x, training=None):
            return defaulted(probe(x, training=False))

    outer = Outer()
    outer(normal(1, 2), training=True)
    assert probe.training is False
    assert defaulted.training is True
    outer(normal(1, 2))
    assert defaulted.training == "default"
    defaulted(normal(1, 2), None)
    assert defaulted.training is None
    Wrapper(probe)(normal(1, 2), training=True)
    assert probe.training is True


# State


def test_layer_finds_state_in_attributes_and_containers_once_parents_first():
    class Tree(Layer):
        def __init__(self):
            super().__init__()
            self.blocks = []
            self.table = {"a": Dense(1, name="a")}
            self.scale = self.add_weight((), initializer="ones", name="scale")
            self.again = self.scale

        def call(self, x):
            x = self.table["a"](x)
            for block in self.blocks:
                x = block(x)
            return x

    tree = Tree()
    shared = Dense(1, name="shared", use_bias=False)
    tree.blocks += [shared, shared, (Dense(1, name="b"),)[0]]
    tree(normal(2, 2))
    names = [v.path.split("/", 1)[1] for v in tree.variables]
    expected = ["scale", "shared/kernel", "b/kernel", "b/bias", "a/kernel", "a/bias"]
    assert names == expected
    assert tree.weights == tree.variables


def test_layer_trainable_reaches_sublayers_and_hides_variables():
    inner = Dense(2)
    outer = Wrapper(inner)
    outer(normal(1, 2))
    frozen = outer.add_weight((), initializer="zeros", trainable=False)
    assert outer.trainable_variables == [inner.kernel, inner.bias]
    assert outer.non_trainable_variables == [frozen]
    outer.trainable = False
    assert not inner.trainable
    assert outer.trainable_variables == []
    assert len(outer.non_trainable_variables) == 3
    inner.trainable = True
    assert inner.trainable_variables == [inner.kernel, inner.bias]


def test_layer_set_weights_is_strict_and_changes_nothing_on_error():
    layer = Dense(2)
    layer.build((None, 3))
    before = layer.get_weights()
    with pytest.raises(ValueError, match=r"2 variables.*1 arrays"):
        layer.set_weights([np.zeros((3, 2))])
    with pytest.raises(ValueError, match=r"bias.*\(2,\).*\(3,\)"):
        layer.set_weights([np.zeros((3, 2)), np.zeros(3)])
    with pytest.raises(ValueError, match="dtype"):
        layer.set_weights([np.zeros((3, 2)), np.array(["a", "b"])])
    for old, new in zip(before, layer.get_weights(), strict=True):
        np.testing.assert_array_equal(old, new)
    layer.set_weights([np.full((3, 2), 5.0), np.ones(2)])
    assert layer.kernel.numpy().tolist() == [[5, 5]] * 3
    assert layer.bias.numpy().tolist() == [1, 1]


def test_layer_get_weights_returns_copies():
    layer = Dense(1)
    layer.build((None, 1))
    layer.get_weights()[0][:] = 7
    assert layer.kernel.numpy()[0, 0] != 7


def test_layer_regularizer_sees_the_variable_dtype_also_inside_a_mixed_layer():
    seen = []

    class Recording(mpcore.regularizers.Regularizer):
        def __call__(self, x):
            seen.append(np.asarray(x).dtype)
            return ops.sum(x)

        def get_config(self):
            return {}

    class Outer(Layer):
        def __init__(self, **kwargs):
            super().__init__(**kwargs)
            self.dense = Dense(1, kernel_regularizer=Recording())

        def call(self, x):
            y = self.dense(x)
            self.inside = self.losses
            return y

    outer = Outer(dtype="mixed_float16")
    outer(normal(2, 2))
    assert len(outer.inside) == 1
    assert seen == [np.float32]
    expected = outer.dense.kernel.numpy().sum()
    assert float(outer.losses[0]) == pytest.approx(expected, abs=1e-6)
    outer.trainable = False
    assert outer.losses == []


def test_layer_without_call_or_output_shape_says_so():
    with pytest.raises(NotImplementedError, match="Layer does not define `call`"):
        Layer()(normal(1, 1))
    with pytest.raises(NotImplementedError, match="compute_output_shape"):
        Layer().compute_output_shape((None, 1))


# Configuration


def test_layer_config_keeps_its_policy_whatever_the_global_one():
    config = Dense(3, dtype="mixed_bfloat16").get_config()
    assert json.loads(json.dumps(config)) == config
    set_global_policy("float32")
    layer = Dense.from_config(config)
    assert layer.compute_dtype == "bfloat16"
    assert layer(normal(1, 2)).dtype == bfloat16


class Forgetful(Layer):
    def __init__(self):
        self.units = 1

    def build(self, input_shape):
        self.w = self.add_weight((1,))

    def call(self, x):
        return x


class ForgetfulSequential(Sequential):
    def __init__(self):
        pass


class ForgetfulModel(Model):
    def __init__(self):
        self.part = Dense(1)


@pytest.mark.parametrize(
    "use",
    [
        lambda: Forgetful()([[1.0]]),
        lambda: Forgetful().build((1, 1)),
        lambda: Forgetful().add_weight((1,)),
        lambda: Forgetful().trainable_variables,
        lambda: Sequential([Dense(1), Forgetful()]),
        lambda: ForgetfulModel()([[1.0]]),
        lambda: ForgetfulModel().compile("sgd", "mse"),
        lambda: ForgetfulModel().fit([[1.0]], [[1.0]]),
        lambda: ForgetfulModel().summary(),
        lambda: ForgetfulSequential().add(Dense(1)),
    ],
)
def test_layer_that_forgot_super_init_says_so(use):
    with pytest.raises(RuntimeError, match=r"Forgetful.*super\(\).__init__\(\)"):
        use()
