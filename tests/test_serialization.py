"""The registry, and objects as dictionaries."""

from __future__ import annotations

import copy
import json
from typing import Any

import numpy as np
import pytest
from reference import BF16, assert_same_bits

import mpcore
from mpcore import serialization
from mpcore.serialization import deserialize, lookup, register, serialize


@register("test_things", "the_thing")
class SomeThing:
    def __init__(self, size: float = 1.0, inner: Any = None) -> None:
        self.size, self.inner = size, inner

    def get_config(self) -> dict[str, Any]:
        return {"size": self.size, "inner": serialize(self.inner)}

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> SomeThing:
        config["inner"] = deserialize(config.get("inner"))
        return cls(**config)


@register("test_things")
def some_function(x: float) -> float:
    return x + 1


class Unregistered:
    def get_config(self) -> dict[str, Any]:
        return {}


@pytest.mark.parametrize(
    "name", ["SomeThing", "something", "some_thing", "SOMETHING", "the_thing"]
)
def test_lookup_finds_any_spelling(name: str) -> None:
    assert lookup("test_things", name) is SomeThing


def test_lookup_unknown_name_raises_and_lists_the_known() -> None:
    with pytest.raises(ValueError, match=r"'other' in 'test_things'.*SomeThing"):
        lookup("test_things", "other")
    with pytest.raises(ValueError, match="Unknown name"):
        lookup("no_kind", "SomeThing")
    with pytest.raises(TypeError, match="must be a str"):
        lookup("test_things", None)


def test_register_a_taken_name_raises_and_keeps_the_first() -> None:
    class Other:
        pass

    with pytest.raises(ValueError, match="'the_thing' is taken"):
        register("test_things", "the_thing")(Other)
    assert lookup("test_things", "the_thing") is SomeThing
    assert "Other" not in serialization.names("test_things")


def test_register_a_class_defined_again_replaces_the_first() -> None:
    def define() -> type:
        class Again:
            pass

        return register("test_again")(Again)

    define()
    second = define()
    assert lookup("test_again", "again") is second
    assert serialization.names("test_again") == ["Again"]


def test_serialize_round_trips_through_json() -> None:
    thing = SomeThing(2.5, SomeThing(3, some_function))
    config = json.loads(json.dumps(serialize(thing)))
    made = deserialize(config)
    assert isinstance(made, SomeThing)
    assert made.size == 2.5
    assert made.inner.size == 3
    assert made.inner.inner is some_function


def test_serialize_names_class_module_and_registration() -> None:
    config = serialize(SomeThing())
    assert config == {
        "class_name": "SomeThing",
        "config": {"size": 1.0, "inner": None},
        "module": __name__,
        "registered_name": "test_things>SomeThing",
    }


def test_deserialize_leaves_the_config_as_it_was() -> None:
    config = serialize(SomeThing(1.0, SomeThing()))
    before = copy.deepcopy(config)
    deserialize(config)
    assert config == before


def test_deserialize_by_class_name_alone() -> None:
    assert isinstance(deserialize({"class_name": "SomeThing"}), SomeThing)
    assert isinstance(
        deserialize({"class_name": "some_thing"}, kind="test_things"), SomeThing
    )


def test_deserialize_a_name_of_two_kinds_raises_unless_the_kind_is_given() -> None:
    @register("test_left")
    class Twice:
        pass

    left = Twice

    @register("test_right")
    class Twice:
        pass

    with pytest.raises(ValueError, match="several kinds: test_left, test_right"):
        deserialize({"class_name": "Twice"})
    assert isinstance(deserialize({"class_name": "Twice"}, kind="test_left"), left)
    entry = {"class_name": "Twice", "registered_name": "test_right>Twice"}
    assert isinstance(deserialize(entry, kind="test_left"), Twice)


def test_deserialize_unknown_class_raises_and_imports_nothing() -> None:
    entry = {"class_name": "Fraction", "module": "fractions", "config": {}}
    with pytest.raises(ValueError, match="Unknown class 'Fraction'"):
        deserialize(entry)


def test_custom_objects_come_first_and_reach_nested_configs() -> None:
    class Mine(SomeThing):
        pass

    entry = {
        "class_name": "SomeThing",
        "config": {"inner": {"class_name": "Mine", "config": {}}},
    }
    made = deserialize(entry, custom_objects={"Mine": Mine})
    assert type(made.inner) is Mine
    with pytest.raises(ValueError, match="Unknown class 'Mine'"):
        deserialize(entry)
    replaced = deserialize({"class_name": "SomeThing"}, {"SomeThing": Mine})
    assert type(replaced) is Mine


def test_unregistered_object_needs_custom_objects() -> None:
    config = serialize(Unregistered())
    assert config["registered_name"] is None
    with pytest.raises(ValueError, match="Unknown class 'Unregistered'"):
        deserialize(config)
    made = deserialize(config, {"Unregistered": Unregistered})
    assert isinstance(made, Unregistered)


@pytest.mark.parametrize("value", [None, True, 3, 2.5, "x", [1, [2.0]], {"a": [None]}])
def test_plain_values_become_themselves(value: object) -> None:
    assert serialize(value) == value
    assert deserialize(serialize(value)) == value


def test_numpy_scalars_become_python_numbers() -> None:
    config = serialize({"rate": np.float32(0.5), "n": np.int64(3), "t": (1, 2)})
    assert config == {"rate": 0.5, "n": 3, "t": [1, 2]}
    assert type(config["rate"]) is float
    assert type(config["n"]) is int


@pytest.mark.parametrize("dtype", [np.float32, np.float16, BF16, np.int8, bool])
def test_arrays_round_trip(dtype: object) -> None:
    array = np.array([[0, 1], [1, 0]], dtype)
    made = deserialize(json.loads(json.dumps(serialize(array))))
    assert_same_bits(made, array)


@pytest.mark.parametrize("value", [object(), lambda x: x, SomeThing], ids=str)
def test_what_cannot_be_written_down_raises(value: object) -> None:
    with pytest.raises(TypeError, match="serialized"):
        serialize(value)


@pytest.mark.parametrize(
    "module", [mpcore.initializers, mpcore.regularizers, mpcore.constraints]
)
def test_get_of_a_config_without_a_class_is_an_error(module):
    with pytest.raises(ValueError, match=r"Could not interpret the .*: \{\}"):
        module.get({})


def test_activation_config_without_a_class_is_an_error():
    with pytest.raises(TypeError, match=r"`activation` must be .*activation=\{\}"):
        mpcore.layers.Dense(3, activation={})
