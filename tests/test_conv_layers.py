"""Conv and pooling layers: Keras arguments, shapes, configs, policies, refusals."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from reference import BF16, F32, assert_same_bits

import mpcore
from mpcore import GradientTape, layers, ops

POOLING = [
    layers.MaxPooling1D,
    layers.MaxPooling2D,
    layers.AveragePooling1D,
    layers.AveragePooling2D,
]
GLOBAL = [
    layers.GlobalMaxPooling1D,
    layers.GlobalMaxPooling2D,
    layers.GlobalAveragePooling1D,
    layers.GlobalAveragePooling2D,
]


def normal(*shape: int) -> np.ndarray:
    return np.random.default_rng(1).standard_normal(shape).astype(F32)


def rank(layer: type) -> int:
    return 1 if layer.__name__.endswith("1D") else 2


@pytest.mark.parametrize("activation", [None, "relu", "softmax"])
@pytest.mark.parametrize("layer", [layers.Conv1D, layers.Conv2D])
def test_conv_layer_is_the_op_on_its_variables(layer: Any, activation: Any) -> None:
    x = normal(2, *(9, 8)[: rank(layer)], 4)
    made = layer(6, 3, 2, "same", groups=2, activation=activation)
    y = made(x)
    z = ops.conv(x, made.kernel, made.bias, strides=2, padding="same")
    expected = z if activation is None else getattr(ops, activation)(z)
    np.testing.assert_allclose(y, expected, rtol=1e-6, atol=1e-7)
    assert made.kernel.shape == (*(3,) * rank(layer), 2, 6)
    assert made.kernel.path.endswith("/kernel")
    assert made.compute_output_shape((None, *x.shape[1:])) == (None, *y.shape[1:])
    unknown = made.compute_output_shape((None, *(None,) * rank(layer), 4))
    assert unknown == (None, *(None,) * rank(layer), 6)


def test_conv1d_layer_causal_sees_no_later_step() -> None:
    layer = layers.Conv1D(3, 4, padding="causal", dilation_rate=2)
    x = normal(1, 12, 2)
    y = np.array(layer(x))
    x[:, 7:] = 100
    assert_same_bits(np.asarray(layer(x))[:, :7], y[:, :7])


@pytest.mark.parametrize("policy", ["mixed_bfloat16", "mixed_float16"])
def test_conv_layer_honours_the_policy(policy: str) -> None:
    layer = layers.Conv2D(4, 3, dtype=policy, activation="relu")
    x = normal(2, 6, 6, 3)
    with GradientTape() as tape:
        y = layer(x)
    assert y.dtype == policy.removeprefix("mixed_")
    assert layer.kernel.dtype == "float32"
    for gradient in tape.gradient(y, layer.trainable_variables):
        assert gradient.dtype == F32


@pytest.mark.parametrize("layer", [layers.Conv1D, layers.Conv2D])
def test_conv_layer_goes_through_its_config(layer: Any) -> None:
    made = layer(
        4, 3, 2, dilation_rate=1, use_bias=False, kernel_regularizer="l2", name="c"
    )
    again = layer.from_config(made.get_config())
    assert again.get_config() == made.get_config()
    x = normal(2, *(9, 8)[: rank(layer)], 3)
    made(x)
    again(x)
    again.set_weights(made.get_weights())
    assert_same_bits(again(x), made(x))
    assert made.losses


@pytest.mark.parametrize(
    ("more", "error", "words"),
    [
        ({"data_format": "channels_first"}, ValueError, "channels_last"),
        ({"filters": 0}, ValueError, "`filters`"),
        ({"groups": 3}, ValueError, "multiple"),
        ({"kernel_size": 0}, ValueError, "`kernel_size`"),
        ({"kernel_size": (3, 3, 3)}, ValueError, "`kernel_size`"),
        ({"strides": 0}, ValueError, "`strides`"),
        ({"padding": "causal"}, ValueError, "'valid' or 'same'"),
        ({"padding": None}, ValueError, "`padding`"),
        ({"filters": 2.5}, TypeError, "integer"),
    ],
    ids=str,
)
def test_conv2d_layer_arguments_that_are_not_valid_raise(
    more: dict[str, Any], error: type, words: str
) -> None:
    with pytest.raises(error, match=words):
        layers.Conv2D(**({"filters": 4, "kernel_size": 3} | more))


def test_conv_layer_input_that_does_not_fit_names_the_layer() -> None:
    layer = layers.Conv2D(4, 3, name="head")
    layer(normal(1, 5, 5, 3))
    with pytest.raises(ValueError, match=r"'head'.*3 channels.*\(1, 5, 5, 2\)"):
        layer(normal(1, 5, 5, 2))
    with pytest.raises(ValueError, match=r"'head'.*4 dimensions"):
        layer(normal(1, 5, 3))
    with pytest.raises(ValueError, match="multiple of 2"):
        layers.Conv2D(4, 3, groups=2)(normal(1, 5, 5, 3))


@pytest.mark.parametrize("layer", POOLING)
def test_pooling_layer_is_the_op(layer: Any) -> None:
    x = normal(2, *(9, 7)[: rank(layer)], 3)
    function = ops.max_pool if "Max" in layer.__name__ else ops.average_pool
    made = layer(3, 2, "same")
    assert_same_bits(made(x), function(x, 3, 2, "same"))
    assert_same_bits(layer(2)(x), function(x, 2))
    again = layer.from_config(made.get_config())
    assert_same_bits(again(x), made(x))
    assert made.compute_output_shape((None, *x.shape[1:]))[1:] == made(x).shape[1:]
    assert made(ops.cast(x, "bfloat16")).dtype == F32
    assert layer(2, dtype="mixed_bfloat16")(x).dtype == BF16
    with pytest.raises(ValueError, match="dimensions"):
        made(x[0])
    with pytest.raises(ValueError, match="channels_last"):
        layer(2, data_format="channels_first")
    with pytest.raises(ValueError, match="`padding`"):
        layer(2, padding="causal")


def test_pooling_layer_defaults_are_those_of_keras() -> None:
    assert layers.MaxPooling1D().pool_size == (2,)
    assert layers.MaxPooling2D().strides == (2, 2)
    with pytest.raises(TypeError, match="pool_size"):
        layers.AveragePooling2D()


@pytest.mark.parametrize("layer", GLOBAL)
def test_global_pooling_layer_reduces_all_but_batch_and_channels(layer: Any) -> None:
    x = normal(2, *(5, 4)[: rank(layer)], 3)
    axes = tuple(range(1, x.ndim - 1))
    y = layer()(x)
    if "Max" in layer.__name__:
        assert_same_bits(y, x.max(axes))
    else:
        np.testing.assert_allclose(y, x.mean(axes), rtol=1e-5, atol=1e-6)
    kept = layer(keepdims=True)
    assert kept(x).shape == (2, *(1,) * len(axes), 3)
    assert layer.from_config(kept.get_config()).keepdims
    assert kept.compute_output_shape((None, *x.shape[1:]))[0] is None
    with GradientTape() as tape:
        source = tape.watch(x)
        total = ops.sum(layer()(source))
    assert np.allclose(tape.gradient(total, source).sum(), 6)
    with pytest.raises(ValueError, match="dimensions"):
        layer()(x[0])


def test_convolutional_model_learns_the_side_a_bar_stands_on() -> None:
    mpcore.set_random_seed(3)
    generator = np.random.default_rng(2)
    labels = generator.integers(0, 2, 128)
    x = generator.standard_normal((128, 8, 8, 1)).astype(F32) / 4
    for image, label in zip(x, labels, strict=True):
        place = generator.integers(0, 6)
        image[:, place : place + 2] += 1 if label else 0
        image[place : place + 2] += 0 if label else 1
    model = mpcore.Sequential(
        [
            layers.Conv2D(8, 3, padding="same", activation="relu"),
            layers.MaxPooling2D(),
            layers.Conv2D(16, 3, activation="relu"),
            layers.GlobalAveragePooling2D(),
            layers.Dense(2),
        ]
    )
    model.compile(
        mpcore.optimizers.Adam(0.02),
        mpcore.losses.SparseCategoricalCrossentropy(from_logits=True),
        metrics=["accuracy"],
    )
    history = model.fit(x, labels, epochs=8, batch_size=32, verbose=0)
    assert history.history["accuracy"][-1] > 0.95
