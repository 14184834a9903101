"""Tensors: what they tell, operators, copies."""

from __future__ import annotations

import copy
import pickle

import numpy as np
import pytest
from reference import BF16, F32, assert_same_bits

from mpcore import GradientTape, Tensor, Variable


def test_tensor_describes_its_value() -> None:
    x = Tensor(np.zeros((2, 3), BF16))
    assert (x.shape, x.ndim, x.size, x.dtype, len(x)) == ((2, 3), 2, 6, "bfloat16", 2)
    assert x.gradient_dtype == "bfloat16"
    assert "shape=(2, 3) dtype=bfloat16" in repr(x)
    assert x.numpy() is not x.value
    assert np.asarray(x) is x.value
    assert np.asarray(x, F32).dtype == F32
    assert np.array(x, copy=True) is not x.value


def test_tensor_of_one_element_is_a_number() -> None:
    assert float(Tensor([2.5])) == 2.5
    assert int(Tensor(7)) == 7
    assert not bool(Tensor([0.0]))
    with pytest.raises(ValueError):
        float(Tensor([1.0, 2.0]))


def test_tensor_of_unsupported_dtype_raises() -> None:
    with pytest.raises(ValueError, match="Unknown dtype 'complex128'"):
        Tensor([1j])


def test_tensor_operators_defer_from_numpy() -> None:
    x = Tensor(np.array([4.0], F32))
    one = np.array([2.0], F32)
    results = [one + x, one - x, one * x, one / x, one @ x, one**x, -x, abs(-x), x[0]]
    assert all(isinstance(y, Tensor) for y in results)
    expected = [6, -2, 8, 0.5, 8, 16, -4, 4, 4]
    assert [float(y) for y in results] == expected
    reflected = [2 + x, 2 - x, 2 * x, 2 / x, 2**x, x - 2, x / 2, x**2]
    assert [float(y) for y in reflected] == [6, -2, 8, 0.5, 16, 2, 2, 16]


@pytest.mark.parametrize("duplicate", [copy.deepcopy, copy.copy])
def test_tensor_copy_is_another_tensor_to_the_tape(duplicate: object) -> None:
    with GradientTape() as t:
        x = t.watch(np.ones(1, F32))
        other = duplicate(x)
        y = x * other
    assert t.gradient(y, [x, other])[1] is None


def test_tensor_pickles_by_value() -> None:
    x = pickle.loads(pickle.dumps(Tensor(np.array([1.5], BF16))))
    assert_same_bits(x.value, np.array([1.5], BF16))


@pytest.mark.parametrize(
    "call",
    [
        lambda x: np.mean(x),
        lambda x: np.reshape(x, (3, 2)),
        lambda x: np.concatenate([np.ones((1, 3), F32), x]),
        lambda x: np.where(np.eye(2, 3) > 0, 0, x),
        lambda x: np.full_like(np.ones((2, 3), F32), fill_value=1) @ np.transpose(a=x),
    ],
)
def test_numpy_function_of_a_followed_tensor_is_refused_while_recording(call) -> None:
    plain = np.arange(6, dtype=F32).reshape(2, 3)
    with GradientTape(persistent=True) as t:
        x = t.watch(plain)
        with pytest.raises(TypeError, match=r"mpcore\.ops"):
            call(x)
        with t.stop_recording():
            assert_same_bits(call(x), call(plain))
        assert_same_bits(call(Tensor(plain)), call(plain))  # Nobody follows this one.
        assert_same_bits(call(x.value), call(plain))
    assert_same_bits(call(x), call(plain))


def test_numpy_function_of_a_trainable_variable_is_refused_while_recording() -> None:
    v = Variable([1.0, 2.0])
    frozen = Variable([1.0, 2.0], trainable=False)
    assert np.mean(v) == 1.5
    with GradientTape():
        assert np.mean(frozen) == 1.5
        with pytest.raises(TypeError, match="`mean`"):
            np.mean(v)


def test_numpy_function_about_the_shape_of_a_followed_tensor_is_answered() -> None:
    with GradientTape() as t:
        x = t.watch(np.ones((2, 3), F32))
        assert (np.shape(x), np.ndim(x), np.size(x)) == ((2, 3), 2, 6)
