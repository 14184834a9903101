"""Dtype policies: names, values, the global one."""

from __future__ import annotations

import copy
import json
import pickle
import threading

import ml_dtypes
import numpy as np
import pytest

import mpcore
from mpcore import mixed_precision
from mpcore.mixed_precision import DTypePolicy, Policy, policy

DTYPES = [
    *("float16", "bfloat16", "float32", "float64", "bool", "string"),
    *("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"),
    *("float8_e4m3fn", "float8_e5m2", "complex64", "complex128"),
]
NAMES = {name: (name, name) for name in DTYPES} | {
    "mixed_float16": ("float16", "float32"),
    "mixed_bfloat16": ("bfloat16", "float32"),
    "int": ("int32", "int32"),
}


@pytest.fixture(autouse=True)
def _nothing_set():
    before = mpcore.floatx()
    mixed_precision.set_global_policy(None)
    yield
    mpcore.set_floatx(before)


@pytest.mark.parametrize("name", NAMES)
def test_policy_names_give_their_dtypes(name):
    made = Policy(name)
    assert (made.compute_dtype, made.variable_dtype) == NAMES[name]
    assert made.name == name
    assert repr(made) == f'<DTypePolicy "{name}">'


@pytest.mark.parametrize(
    "name", ["half", "float", "double", "MIXED_FLOAT16", "", "foo", "mixed_float32"]
)
def test_policy_of_another_name_is_an_error(name):
    with pytest.raises(ValueError, match=f"Cannot convert '{name}'.*mixed_bfloat16"):
        Policy(name)


@pytest.mark.parametrize(
    "name", ["int8_from_mixed_bfloat16", "gptq/4/128_from_float32"]
)
def test_policy_of_quantization_says_that_it_is_not_supported(name):
    with pytest.raises(ValueError, match="quantized policies are not supported"):
        Policy(name)


@pytest.mark.parametrize("name", [5, b"float32", np.float32, np.dtype("float32"), []])
def test_policy_name_must_be_a_string(name):
    with pytest.raises(TypeError, match="'name' must be a string, such as"):
        Policy(name)


@pytest.mark.parametrize("attribute", ["name", "compute_dtype", "variable_dtype"])
def test_policy_is_immutable(attribute):
    with pytest.raises(AttributeError):
        setattr(Policy("float32"), attribute, "float16")


def test_policies_are_values():
    class Own(DTypePolicy):
        pass

    assert Policy is DTypePolicy
    assert Policy("mixed_float16") == DTypePolicy("mixed_float16")
    assert Policy("float32") != Policy("float16")
    assert Policy("float32") != "float32"
    assert Policy("float32") != Own("float32") == Own("float32")
    assert len({Policy("float32"), Policy("float32"), Own("float32")}) == 2
    for twin in (copy.deepcopy, lambda p: pickle.loads(pickle.dumps(p))):
        assert twin(Policy("mixed_float16")) == Policy("mixed_float16")


@pytest.mark.parametrize("name", NAMES)
def test_policy_round_trips_through_json(name):
    config = json.loads(json.dumps(policy.serialize(Policy(name))))
    before = copy.deepcopy(config)
    assert policy.deserialize(config) == policy.get(config) == Policy(name)
    assert Policy.from_config(Policy(name).get_config()) == Policy(name)
    assert config == before


def test_global_policy_follows_floatx_until_it_is_set():
    assert mixed_precision.global_policy() == Policy("float32")
    mpcore.set_floatx("bfloat16")
    assert mixed_precision.global_policy() == Policy("bfloat16")
    mixed_precision.set_global_policy("mixed_float16")
    mpcore.set_floatx("float64")
    assert mixed_precision.dtype_policy() == Policy("mixed_float16")
    mixed_precision.set_dtype_policy(None)
    assert mixed_precision.global_policy() == Policy("float64")


def test_global_policy_is_kept_as_given_and_is_the_default_name():
    class Own(DTypePolicy):
        pass

    given = Own("mixed_bfloat16")
    mixed_precision.set_global_policy(given)
    assert mixed_precision.global_policy() is given
    assert policy.get(None) is given
    assert Policy().name == "mixed_bfloat16"


def test_global_policy_is_one_for_all_threads():
    mixed_precision.set_global_policy("mixed_bfloat16")
    seen = []
    thread = threading.Thread(target=lambda: seen.append(policy.global_policy().name))
    thread.start()
    thread.join()
    assert seen == ["mixed_bfloat16"]


@pytest.mark.parametrize("name", [n for n in NAMES if "float" not in n or "8" in n])
def test_global_policy_must_be_floating(name):
    for value in (name, Policy(name)):
        with pytest.raises(ValueError, match=f"must be floating.*Received: {name}"):
            mixed_precision.set_global_policy(value)
    assert mixed_precision.global_policy() == Policy("float32")


@pytest.mark.parametrize("value", [5, np.float16, {"name": "float32"}, "half"])
def test_global_policy_of_something_else_is_an_error(value):
    with pytest.raises(ValueError, match=r"`policy` must be|Cannot convert"):
        mixed_precision.set_global_policy(value)
    assert mixed_precision.global_policy() == Policy("float32")


@pytest.mark.parametrize(
    ("identifier", "name"),
    [
        ("mixed_float16", "mixed_float16"),
        (np.float16, "float16"),
        (np.dtype("float64"), "float64"),
        (ml_dtypes.bfloat16, "bfloat16"),
    ],
)
def test_get_takes_names_and_dtypes(identifier, name):
    assert policy.get(identifier) == Policy(name)


@pytest.mark.parametrize("identifier", [5, [], object()])
def test_get_of_something_else_is_an_error(identifier):
    with pytest.raises(ValueError, match="Cannot interpret `dtype` argument"):
        policy.get(identifier)


def test_get_of_another_class_is_an_error():
    config = mpcore.optimizers.serialize(mpcore.optimizers.SGD())
    with pytest.raises(ValueError, match="SGD"):
        policy.get(config)


def test_facade_exports_the_names_of_keras():
    assert set(mixed_precision.__all__) == {
        *("DTypePolicy", "Policy", "LossScaleOptimizer"),
        *("dtype_policy", "global_policy", "set_dtype_policy", "set_global_policy"),
    }
