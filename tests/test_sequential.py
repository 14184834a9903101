"""Laws of Sequential, and of models as layers."""

import json

import numpy as np
import pytest
from small_models import classifier, data

from mpcore import losses
from mpcore.layers import Activation, Dense, Flatten, Layer
from mpcore.models import Sequential


class Identity(Layer):
    def call(self, x):
        return x


def test_sequential_builds_lazily_or_by_shape_with_the_same_paths():
    lazy = Sequential([Dense(3, name="a"), Dense(2, name="b")], name="m")
    lazy(np.ones((1, 4), np.float32))
    early = Sequential([Dense(3, name="a"), Dense(2, name="b")], name="m")
    early.build((None, 4))
    for model in (lazy, early):
        paths = [v.path for v in model.variables]
        assert paths == ["m/a/kernel", "m/a/bias", "m/b/kernel", "m/b/bias"]
        assert model.built
    assert early.compute_output_shape((None, 4)) == (None, 2)


def test_sequential_add_and_pop_keep_order_and_refuse_what_does_not_fit():
    model = Sequential([Dense(3, name="a")])
    model(np.ones((1, 4), np.float32))
    model.add(Dense(2, name="b"))
    assert model(np.ones((1, 4), np.float32)).shape == (1, 2)
    assert [v.path.split("/")[-2] for v in model.variables] == ["a", "a", "b", "b"]
    assert {v.path.split("/")[0] for v in model.variables} == {model.name}
    assert model.pop().name == "b"
    assert [layer.name for layer in model.layers] == ["a"]
    with pytest.raises(ValueError, match="'a'"):
        model.add(Dense(1, name="a"))
    with pytest.raises(TypeError, match="Layer"):
        model.add(len)
    with pytest.raises(ValueError, match="no layers"):
        Sequential().pop()


def test_sequential_config_round_trips_through_json_with_each_policy():
    from mpcore.serialization import deserialize, serialize

    model = Sequential(
        [Flatten(), Dense(3, "relu", dtype="float32"), Activation("softmax")],
        dtype="mixed_bfloat16",
    )
    again = deserialize(json.loads(json.dumps(serialize(model))))
    assert again.get_config() == model.get_config()
    assert [layer.compute_dtype for layer in again.layers][1] == "float32"
    assert again.compute_dtype == "bfloat16"


def test_summary_lists_layers_variables_and_totals():
    model = classifier("mixed_float16")
    lines = []
    model.summary(lines.append)
    assert "not built" in lines[0]
    model.build((None, 4))
    model.layers[0].trainable = False
    model.summary(lines.append)
    assert "kernel 4x8, bias 8" in lines[1]
    assert "mixed_float16" in lines[1]
    assert lines[1].endswith("Parameters: 67 (27 trainable)")


def test_model_is_a_layer_and_nests():
    inner = Sequential([Dense(3, "relu"), Dense(3)])
    outer = Sequential([inner, Identity(), Dense(3)])
    x, y = data()
    outer.compile("sgd", losses.SparseCategoricalCrossentropy(from_logits=True))
    outer.fit(x, y, verbose=0)
    assert len(outer.trainable_variables) == 6
    assert outer.predict(x).shape == (50, 3)
