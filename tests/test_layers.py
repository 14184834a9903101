"""Laws of each layer."""

import json

import numpy as np
import pytest
from ml_dtypes import bfloat16

import mpcore
from mpcore import GradientTape, initializers, ops, random
from mpcore.layers import (
    Activation,
    BatchNormalization,
    Dense,
    Dropout,
    Embedding,
    Flatten,
    LayerNormalization,
    Reshape,
    RMSNormalization,
)

MIXED = {"mixed_bfloat16": bfloat16, "mixed_float16": np.float16}


def normal(*shape, seed=0):
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


@pytest.mark.parametrize(
    "layer",
    [
        Dense(
            3,
            activation="tanh",
            use_bias=False,
            kernel_initializer=initializers.RandomNormal(stddev=0.5, seed=3),
            kernel_regularizer=mpcore.regularizers.L2(0.25),
            kernel_constraint=mpcore.constraints.MaxNorm(1.5),
            name="named",
            trainable=False,
        ),
        Dense(1, activation="softmax", bias_initializer="ones"),
        Activation("sigmoid"),
        Dropout(0.25, seed=7),
        Flatten(),
        Embedding(
            5,
            3,
            embeddings_initializer="normal",
            embeddings_regularizer=mpcore.regularizers.L1(0.5),
            embeddings_constraint=mpcore.constraints.MaxNorm(1.5),
        ),
        LayerNormalization(
            axis=[2, 1],
            epsilon=0.5,
            center=False,
            gamma_initializer=initializers.Constant(2.0),
            gamma_regularizer=mpcore.regularizers.L2(0.25),
        ),
        RMSNormalization(axis=1, epsilon=0.5, dtype="mixed_float16"),
        BatchNormalization(
            axis=1,
            momentum=0.5,
            epsilon=0.5,
            scale=False,
            beta_constraint=mpcore.constraints.NonNeg(),
            moving_mean_initializer="ones",
            moving_variance_initializer="zeros",
        ),
        Reshape((2, -1)),
    ],
    ids=lambda layer: layer.name,
)
def test_layer_config_round_trips_through_json(layer):
    from mpcore.serialization import deserialize, serialize

    config = json.loads(json.dumps(serialize(layer)))
    again = deserialize(config)
    assert type(again) is type(layer)
    assert again.get_config() == layer.get_config()


# Dense


def gamma(k):
    """Return the bound of Higham (3.1) for k roundings to float32."""
    u = 2.0**-24
    return k * u / (1 - k * u)


@pytest.mark.parametrize("activation", [None, "relu"])
@pytest.mark.parametrize(
    ("policy", "unit"),
    [("float32", 0.0), ("mixed_bfloat16", 2.0**-8), ("mixed_float16", 2.0**-11)],
)
def test_dense_equals_float64_formula_within_derived_bound(policy, unit, activation):
    layer = Dense(7, activation=activation, bias_initializer="ones", dtype=policy)
    x = normal(5, 33)
    y = layer(x)
    dtype = MIXED.get(policy, np.float32)
    x64 = x.astype(dtype).astype(np.float64)
    w64 = layer.kernel.numpy().astype(dtype).astype(np.float64)
    exact = x64 @ w64 + 1.0
    bound = gamma(35) * (np.abs(x64) @ np.abs(w64) + 1.0)
    bound += unit * (np.abs(exact) + bound) + 2.0**-25
    if activation == "relu":
        exact = np.maximum(exact, 0.0)
    assert y.dtype == dtype
    assert np.all(np.abs(y.astype(np.float64) - exact) <= bound)


def test_dense_softmax_runs_after_the_product():
    layer = Dense(4, activation="softmax")
    x = normal(3, 5)
    y = layer(x)
    z = x @ layer.kernel.numpy()
    expected = np.exp(z) / np.exp(z).sum(axis=-1, keepdims=True)
    np.testing.assert_allclose(y, expected, rtol=1e-5)


def test_dense_takes_a_function_as_activation():
    layer = Dense(2, activation=ops.square, kernel_initializer="ones")
    np.testing.assert_array_equal(layer(np.float32([[1, 2]])), [[9, 9]])
    with pytest.raises(TypeError):
        Dense(2, activation=lambda x: x).get_config()


def test_dense_keeps_leading_dimensions():
    layer = Dense(2)
    x = normal(2, 3, 4)
    y = layer(x)
    assert y.shape == (2, 3, 2)
    np.testing.assert_array_equal(y.reshape(6, 2), layer(x.reshape(6, 4)))
    assert layer.compute_output_shape((None, 3, 4)) == (None, 3, 2)


def test_dense_wrong_last_dimension_names_layer_expected_and_received():
    layer = Dense(2, name="head")
    layer(normal(1, 4))
    with pytest.raises(ValueError, match=r"'head'.*4\).*\(1, 5\)"):
        layer(normal(1, 5))
    with pytest.raises(ValueError, match=r"'head'.*\(4,\)"):
        layer(normal(4))
    with pytest.raises(ValueError, match=r"'fresh'.*features"):
        Dense(2, name="fresh").build((None, None))


@pytest.mark.parametrize("units", [0, -1])
def test_dense_units_below_one_raise(units):
    with pytest.raises(ValueError, match=f"units={units}"):
        Dense(units)
    with pytest.raises(TypeError):
        Dense(2.5)


@pytest.mark.parametrize("policy", MIXED)
def test_dense_weight_gradients_are_float32_and_exact_for_small_integers(policy):
    layer = Dense(2, kernel_initializer="ones", dtype=policy)
    x = np.float32([[1, 2, 3], [4, 5, 6]])
    with GradientTape() as tape:
        total = ops.sum(layer(x))
    dw, db = tape.gradient(total, [layer.kernel, layer.bias])
    assert dw.dtype == db.dtype == np.float32
    np.testing.assert_array_equal(dw, [[5, 5], [7, 7], [9, 9]])
    np.testing.assert_array_equal(db, [2, 2])


def test_dense_assign_between_calls_is_seen_also_in_mixed_precision():
    layer = Dense(1, dtype="mixed_bfloat16", use_bias=False)
    x = np.float32([[1.0]])
    layer.build((None, 1))
    for value in (1.0, 5.0):
        layer.kernel.assign([[value]])
        assert float(layer(x)[0, 0]) == value


# The others


@pytest.mark.parametrize("name", ["linear", "relu", "sigmoid", "tanh", "softmax"])
def test_activation_is_the_op_of_its_name(name):
    x = normal(3, 4)
    np.testing.assert_array_equal(Activation(name)(x), getattr(ops, name)(x))


def test_activation_unknown_name_lists_the_known():
    with pytest.raises(ValueError, match="softmax"):
        Activation("swoosh")
    with pytest.raises(TypeError, match="activation=5"):
        Activation(5)


def test_dropout_zeroes_at_the_rate_and_scales_the_rest():
    x = np.ones((400, 500), np.float32)
    y = Dropout(0.25, seed=1)(x, training=True)
    kept = y != 0
    assert np.all(y[kept] == np.float32(1 / 0.75))
    # 5 standard deviations of a binomial share.
    assert abs(kept.mean() - 0.75) < 5 * np.sqrt(0.75 * 0.25 / x.size)


def test_dropout_outside_training_or_with_rate_zero_is_identity():
    x = normal(3, 4)
    assert Dropout(0.5)(x) is x
    assert Dropout(0.5)(x, training=False) is x
    assert Dropout(0.0)(x, training=True) is x


def test_dropout_repeats_with_its_seed_and_with_the_global_one():
    x = np.ones((8, 8), np.float32)
    a, b = Dropout(0.5, seed=3), Dropout(0.5, seed=3)
    first = a(x, training=True)
    np.testing.assert_array_equal(first, b(x, training=True))
    assert np.any(first != a(x, training=True))
    assert np.any(first != Dropout(0.5, seed=4)(x, training=True))
    random.set_random_seed(5)
    c = Dropout(0.5)(x, training=True)
    assert np.any(c != Dropout(0.5)(x, training=True))
    random.set_random_seed(5)
    np.testing.assert_array_equal(c, Dropout(0.5)(x, training=True))


def test_dropout_is_the_same_for_any_number_of_threads_and_level():
    x = normal(300, 400)
    results = []
    for level in mpcore.available_isas():
        for count in (1, 2):
            mpcore.set_isa(level)
            mpcore.set_num_threads(count)
            results.append(
                Dropout(0.3, seed=9, dtype="mixed_bfloat16")(x, training=True)
            )
    for result in results[1:]:
        assert np.array_equal(result.view(np.uint16), results[0].view(np.uint16))


@pytest.mark.parametrize("rate", [-0.1, 1.0, float("nan")])
def test_dropout_rate_outside_range_raises(rate):
    with pytest.raises(ValueError, match="rate"):
        Dropout(rate)


@pytest.mark.parametrize(
    ("shape", "flat"), [((2, 3, 4), (2, 12)), ((2,), (2, 1)), ((0, 3, 2), (0, 6))]
)
def test_flatten_keeps_the_batch(shape, flat):
    x = normal(*shape)
    y = Flatten()(x)
    assert y.shape == flat
    np.testing.assert_array_equal(y.ravel(), x.ravel())
    assert Flatten().compute_output_shape((None, *shape[1:])) == (None, flat[1])


@pytest.mark.parametrize(
    ("shape", "target", "result"),
    [
        ((2, 6), (2, 3), (2, 2, 3)),
        ((4, 2, 3), (-1,), (4, 6)),
        ((4, 2, 3), (3, -1, 1), (4, 3, 2, 1)),
        ((0, 6), (-1, 2), (0, 3, 2)),
        ((2, 0, 3), (5, -1), (2, 5, 0)),
        ((3, 1), (), (3,)),
        ((3,), (1,), (3, 1)),
    ],
    ids=str,
)
def test_reshape_keeps_the_batch_and_the_order(shape, target, result):
    x = normal(*shape)
    layer = Reshape(target)
    with GradientTape() as tape:
        source = tape.watch(x)
        y = layer(source)
    assert y.shape == layer.compute_output_shape(shape) == result
    np.testing.assert_array_equal(y.value.ravel(), x.ravel())
    assert tape.gradient(y, source).shape == shape
    assert layer.compute_output_shape((None, *shape[1:])) == (None, *result[1:])


def test_reshape_that_does_not_fit_raises():
    with pytest.raises(
        ValueError, match=r"'wrong' cannot reshape.*\(5,\) to \(2, -1\)"
    ):
        Reshape((2, -1), name="wrong")(normal(3, 5))
    for target in [(-1, -1), (-2, 3)]:
        with pytest.raises(ValueError, match="at most one -1"):
            Reshape(target)
    assert Reshape((2, -1)).compute_output_shape((None, None)) == (None, 2, None)
