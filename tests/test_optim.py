"""What the low-level optimizer steps refuse, and that they refuse it untouched."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from reference import F16, F32, F64, assert_same_bits

from mpcore import ops
from mpcore.ops.optim import can_read


def sgd(n: int = 3, **changes: Any) -> dict[str, Any]:
    arguments: dict[str, Any] = {
        "params": [np.ones(n, F32)],
        "grads": [np.ones(n, F32)],
        "copies": [np.ones(n, F16)],
        "states": [(np.ones(n, F32),)],
        "learning_rate": 0.5,
        "momentum": 0.5,
    }
    return arguments | changes


def adam(n: int = 3, **changes: Any) -> dict[str, Any]:
    arguments: dict[str, Any] = {
        "params": [np.ones(n, F32)],
        "grads": [np.ones(n, F32)],
        "copies": [None],
        "states": [(np.ones(n, F32), np.ones(n, F32))],
        "learning_rate": 0.5,
        "step": 1,
    }
    return arguments | changes


def read_only(n: int) -> np.ndarray:
    array = np.ones(n, F32)
    array.flags.writeable = False
    return array


COMMON = {
    "learning_rate_nan": {"learning_rate": math.nan},
    "learning_rate_inf": {"learning_rate": math.inf},
    "clipvalue_negative": {"clipvalue": -1.0},
    "clipvalue_nan": {"clipvalue": math.nan},
    "multiplier_inf": {"grad_multipliers": math.inf},
    "multiplier_nan_in_list": {"grad_multipliers": [math.nan]},
    "multipliers_too_many": {"grad_multipliers": [1.0, 1.0]},
    "decay_nan": {"weight_decays": math.nan},
    "decays_too_few": {"weight_decays": []},
    "grads_too_few": {"grads": []},
    "copies_too_many": {"copies": [None, None]},
    "grad_shape": {"grads": [np.ones(4, F32)]},
    "grad_broadcast": {"grads": [np.ones(1, F32)]},
    "copy_shape": {"copies": [np.ones((3, 1), F16)]},
    "copy_float32": {"copies": [np.ones(3, F32)]},
    "state_missing": {"states": [()]},
    "param_read_only": {"params": [read_only(3)]},
    "param_strided": {"params": [np.ones(6, F32)[::2]]},
    "param_integer": {"params": [np.ones(3, np.int32)]},
    "grad_integer": {"grads": [np.ones(3, np.int32)]},
}
SGD = COMMON | {
    "momentum_high": {"momentum": 1.5},
    "momentum_negative": {"momentum": -0.1},
    "momentum_nan": {"momentum": math.nan},
    "state_without_momentum": {"momentum": 0.0},
    "state_shape": {"states": [(np.ones(2, F32),)]},
    "state_float16": {"states": [(np.ones(3, F16),)]},
}
ADAM = COMMON | {
    "beta_1_high": {"beta_1": 1.0},
    "beta_2_negative": {"beta_2": -0.5},
    "beta_2_nan": {"beta_2": math.nan},
    "epsilon_negative": {"epsilon": -1e-8},
    "step_zero": {"step": 0},
    "amsgrad_without_state": {"amsgrad": True},
    "state_float64": {"states": [(np.ones(3, F64), np.ones(3, F64))]},
}


def arrays_of(arguments: dict[str, Any]) -> list[np.ndarray]:
    found = []
    for name in ("params", "grads", "copies"):
        found += [x for x in arguments[name] if x is not None]
    return found + [x for state in arguments["states"] for x in state]


@pytest.mark.parametrize(
    ("step", "arguments"),
    [
        *(pytest.param(ops.sgd_step, sgd(**c), id=f"sgd-{n}") for n, c in SGD.items()),
        *(
            pytest.param(ops.adam_step, adam(**c), id=f"adam-{n}")
            for n, c in ADAM.items()
        ),
    ],
)
def test_step_with_an_argument_that_does_not_fit_raises_and_writes_nothing(
    step: Any, arguments: dict[str, Any]
) -> None:
    before = [x.copy() for x in arrays_of(arguments)]
    with pytest.raises((ValueError, TypeError)):
        step(**arguments)
    for array, was in zip(arrays_of(arguments), before, strict=True):
        assert_same_bits(array, was)


@pytest.mark.parametrize("name", ["learning_rate", "clipvalue", "weight_decays"])
@pytest.mark.parametrize("value", [math.nan, math.inf])
@pytest.mark.parametrize(
    ("step", "make"), [(ops.sgd_step, sgd), (ops.adam_step, adam)], ids=["sgd", "adam"]
)
def test_step_with_a_scalar_that_is_not_finite_names_it(
    step: Any, make: Any, name: str, value: float
) -> None:
    with pytest.raises(ValueError, match=f"`{name}` must be finite. Received: {name}="):
        step(**make(**{name: value}))


@pytest.mark.parametrize("name", ["step", "seed", "warmup_steps"])
@pytest.mark.parametrize("value", [-1, 2**70])
def test_step_with_an_integer_out_of_range_names_it(name: str, value: int) -> None:
    with pytest.raises(ValueError, match=rf"`{name}` must be in \[0, .*{name}={value}"):
        ops.adam_step(**(adam() | {name: value}))


def test_step_with_one_faulty_tensor_leaves_the_good_ones() -> None:
    good, bad = np.ones(3, F32), np.ones(3, F32)
    with pytest.raises(ValueError):
        ops.sgd_step(
            [good, bad],
            [np.ones(3, F32), np.ones(4, F32)],
            [None, None],
            [(), ()],
            learning_rate=0.5,
        )
    assert good.tolist() == [1, 1, 1]


@pytest.mark.parametrize("momentum", [0.0, 0.5])
def test_sgd_step_updates_parameter_state_and_copy(momentum: float) -> None:
    states = [(np.full(3, 2.0, F32),)] if momentum else [()]
    arguments = sgd(momentum=momentum, states=states)
    ops.sgd_step(**arguments, grad_multipliers=2.0, weight_decays=[0.5])
    # w = 1 - 1 * 0.5 * 0.5, then v = 0.5 * 2 - 0.5 * 2 or w -= 0.5 * 2.
    expected = 0.75 + (0.0 if momentum else -1.0)
    assert_same_bits(arguments["params"][0], np.full(3, expected, F32))
    assert_same_bits(arguments["copies"][0], np.full(3, expected, F16))
    if momentum:
        assert_same_bits(states[0][0], np.zeros(3, F32))


def test_adam_step_first_update_is_the_learning_rate() -> None:
    arguments = adam(states=[(np.zeros(3, F32), np.zeros(3, F32))], epsilon=0.0)
    ops.adam_step(**arguments)
    assert np.allclose(arguments["params"][0], 0.5, rtol=1e-6)


def test_step_pairs_gradients_of_other_layouts_by_index() -> None:
    param = np.zeros((2, 3), F32)
    grad = np.arange(6, dtype=F32).reshape(2, 3)
    for layout in (
        np.asfortranarray(grad),
        grad[::-1].copy()[::-1],
        grad.astype(">f4"),
    ):
        param[:] = 0
        ops.sgd_step([param], [layout], [None], [()], learning_rate=1.0)
        assert_same_bits(param, -grad + F32.type(0))


def test_step_of_nothing_does_nothing() -> None:
    ops.sgd_step([], [], [], [], learning_rate=1.0)
    ops.adam_step([], [], [], [], learning_rate=1.0, step=1)


def frozen(x: np.ndarray) -> np.ndarray:
    x.flags.writeable = False
    return x


W = np.ones((2, 3), F32)
ODD = np.zeros(25, np.uint8)[1:].view(F32).reshape(2, 3)


@pytest.mark.parametrize(
    ("grad", "param", "readable"),
    [
        pytest.param(W, W, True, id="float32"),
        pytest.param(W, W.astype(np.float16), True, id="half parameter"),
        pytest.param(W, W.astype(np.float64), False, id="float64 parameter"),
        pytest.param(W.astype(np.float16), W, False, id="half"),
        pytest.param(W.astype(np.float64), W, False, id="float64"),
        pytest.param(W.astype(">f4"), W, False, id="swapped"),
        pytest.param(np.ones((3, 2), F32).T, W, False, id="transposed"),
        pytest.param(np.ones((2, 6), F32)[:, ::2], W, False, id="strided"),
        pytest.param(ODD, W, False, id="unaligned"),
        pytest.param(frozen(W.copy()), W, False, id="read-only"),
        pytest.param(np.ones((3, 2), F32), W, False, id="shape"),
        pytest.param(np.ones(6, F32), W, False, id="rank"),
        pytest.param(np.ma.ones((2, 3), F32), W, False, id="masked"),
        pytest.param(W.tolist(), W, False, id="list"),
        pytest.param(None, W, False, id="None"),
    ],
)
def test_can_read_tells_what_the_core_reads_as_it_is(
    grad: Any, param: np.ndarray, readable: bool
) -> None:
    assert can_read([W, grad], [W, param]) is readable
    assert not can_read([W, grad], [W])
