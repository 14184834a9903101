"""gru and GRU: float64 bounds, gradients, bits, PyTorch, states, refusals."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import reference
from reference import F16, F32, F64, KERNEL_DTYPES, assert_same_bits

import mpcore
from mpcore import GradientTape, Variable, autocast, ops
from mpcore.layers import GRU

DTYPES = pytest.mark.parametrize("dtype", KERNEL_DTYPES, ids=lambda d: d.name)
LEVELS = mpcore.available_isas()
# batch, steps, features, units
SIZES = [(1, 1, 1, 1), (3, 5, 4, 6), (2, 9, 17, 33), (0, 3, 2, 2)]


def normal(shape: tuple[int, ...], dtype: np.dtype, seed: int) -> np.ndarray:
    return (np.random.default_rng(seed).standard_normal(shape) / 2).astype(dtype)


def arrays(size: Any, dtype: np.dtype) -> list[np.ndarray]:
    batch, steps, features, units = size
    return [
        normal((batch, steps, features), dtype, 1),
        normal((features, 3 * units), dtype, 2),
        normal((units, 3 * units), dtype, 3),
        normal((2, 3 * units), F32 if dtype != F64 else F64, 4),
        normal((batch, units), dtype, 5),
    ]


def formula(
    x: np.ndarray, w: np.ndarray, u: np.ndarray, b: np.ndarray, h: np.ndarray
) -> np.ndarray:
    """Return h after each step, in float64."""
    x, w, u, b, h = (a.astype(F64) for a in (x, w, u, b, h))
    units, states = len(u), []
    for t in range(x.shape[1]):
        a, r = x[:, t] @ w + b[0], h @ u + b[1]
        update, reset = (
            reference.activation("sigmoid", (a + r)[:, i * units : (i + 1) * units])
            for i in range(2)
        )
        c = np.tanh(a[:, 2 * units :] + reset * r[:, 2 * units :])
        h = update * h + (1 - update) * c
        states.append(h)
    return np.stack(states, axis=1)


def run(inputs: list[np.ndarray], dy: np.ndarray | None = None) -> list[np.ndarray]:
    with GradientTape() as tape:
        sources = [tape.watch(x) for x in inputs]
        y = ops.gru(*sources)
    return [y.value, *tape.gradient(y, sources, dy)]


@pytest.mark.parametrize("size", SIZES[:2], ids=str)
def test_gru_gradients_are_those_of_finite_differences(isa: str, size: Any) -> None:
    inputs = arrays(size, F32)
    dy = normal((*size[:2], size[3]), F32, 6)
    y, *gradients = run(inputs, dy)
    np.testing.assert_allclose(y, formula(*inputs), rtol=2e-6, atol=2e-6)
    wide = [x.astype(F64) for x in inputs]
    for i, gradient in enumerate(gradients):

        def loss(x: np.ndarray, i: int = i) -> float:
            return float((formula(*wide[:i], x, *wide[i + 1 :]) * dy).sum())

        numeric = reference.finite_difference(loss, wide[i])
        np.testing.assert_allclose(gradient, numeric, rtol=1e-5, atol=1e-5)


@DTYPES
@pytest.mark.parametrize("size", SIZES, ids=str)
def test_gru_is_within_the_bound_of_float64(
    isa: str, dtype: np.dtype, size: Any
) -> None:
    inputs = arrays(size, dtype)
    y = ops.gru(*inputs)
    assert y.dtype == dtype
    # A step rounds h, of at most 2, once; what comes of an error of h is at most
    # 1 + |U| / 2 times as large, since no slope of the gates is larger than 1.
    growth = 1 + np.abs(inputs[2].astype(F64)).sum(axis=0).max(initial=0)
    own = 2.0 ** -reference.PRECISION[dtype] * 2 + 2.0**-20
    error = own * sum(min(growth, 4.0) ** t for t in range(size[1]))
    assert (np.abs(y.astype(F64) - formula(*inputs)) <= error).all()


@DTYPES
def test_gru_same_bits_on_every_level_thread_count_and_batch(dtype: Any) -> None:
    inputs = arrays((3, 5, 20, 24), dtype)
    results = []
    for level in LEVELS:
        if dtype == F16 and level == "amx":
            continue
        for count in (1, 2):
            mpcore.set_isa(level)
            mpcore.set_num_threads(count)
            results.append(run(inputs))
    for result in results[1:]:
        for array, first in zip(result, results[0], strict=True):
            assert_same_bits(array, first)
    x, w, u, b, h = inputs
    assert_same_bits(ops.gru(x[:1], w, u, b, h[:1]), results[-1][0][:1])


def test_gru_agrees_with_torch() -> None:
    torch = pytest.importorskip("torch")
    inputs = arrays((4, 7, 5, 6), F32)
    dy = normal((4, 7, 6), F32, 7)
    y, *gradients = run(inputs, dy)
    x, w, u, b, h = inputs
    peer = torch.nn.GRU(5, 6, batch_first=True)

    def reordered(a: np.ndarray) -> np.ndarray:
        """Torch has the gates in the order r, z, c."""
        z, r, c = np.split(a, 3, axis=-1)
        return np.concatenate([r, z, c], axis=-1)

    weights = [reordered(w).T, reordered(u).T, *reordered(b)]
    with torch.no_grad():
        for parameter, weight in zip(peer.parameters(), weights, strict=True):
            parameter.copy_(torch.from_numpy(np.ascontiguousarray(weight)))
    a, first = (torch.from_numpy(v).requires_grad_() for v in (x, h))
    z, _ = peer(a, first[None])
    z.backward(torch.from_numpy(dy))
    dw, du, db0, db1 = (p.grad.numpy() for p in peer.parameters())
    expected = [a.grad.numpy(), dw.T, du.T, np.stack([db0, db1]), first.grad.numpy()]
    np.testing.assert_allclose(y, z.detach().numpy(), rtol=1e-5, atol=1e-6)
    for i, want in enumerate(expected):
        got = reordered(gradients[i]) if i in (1, 2, 3) else gradients[i]
        np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-5)


def test_gru_of_variables_under_autocast_has_float32_gradients() -> None:
    x, w, u, b, _ = arrays((2, 3, 4, 5), F32)
    variables = [Variable(a) for a in (w, u, b)]
    with autocast.scope("bfloat16"), GradientTape() as tape:
        y = ops.gru(ops.cast(x, "bfloat16"), *variables)
    assert y.dtype == "bfloat16"
    for gradient in tape.gradient(y, variables):
        assert gradient.dtype == F32


def test_gru_arguments_that_do_not_fit_raise() -> None:
    x, w, u, b, h = arrays((2, 3, 4, 5), F32)
    for bad in ((x[0], w, u), (x, w[1:], u), (x, w, u[:, 1:]), (x, w[:, 3:], u)):
        with pytest.raises(ValueError, match="gru needs"):
            ops.gru(*bad)
    with pytest.raises(ValueError, match="`bias`"):
        ops.gru(x, w, u, b[0])
    with pytest.raises(ValueError, match="`initial`"):
        ops.gru(x, w, u, b, h[:1])
    with pytest.raises(TypeError, match="float32, float16, bfloat16"):
        ops.gru(x.astype(F64), w, u)


@pytest.mark.parametrize("backwards", [False, True])
def test_gru_layer_returns_last_sequence_and_state(backwards: bool) -> None:
    x = normal((2, 4, 3), F32, 8)
    layer = GRU(5, go_backwards=backwards, return_sequences=True, return_state=True)
    y, state = layer(x)
    single = GRU(5, go_backwards=backwards)
    single.build(x.shape)
    single.set_weights(layer.get_weights())
    assert_same_bits(single(x), y[:, -1])
    assert_same_bits(state, y[:, -1])
    shapes = [w.shape for w in layer.get_weights()]
    assert shapes == [(3, 15), (5, 15), (2, 15)]
    steps = x[:, ::-1] if backwards else x
    expected = formula(steps, *layer.get_weights(), np.zeros((2, 5)))
    np.testing.assert_allclose(y, expected, rtol=1e-5, atol=1e-6)
    assert layer.compute_output_shape((None, 4, 3)) == ((None, 4, 5), (None, 5))


def test_gru_layer_goes_through_its_config() -> None:
    layer = GRU(4, use_bias=False, return_sequences=True, kernel_regularizer="l2")
    again = GRU.from_config(layer.get_config())
    assert again.get_config() == layer.get_config()
    x = normal((2, 3, 3), F32, 9)
    layer(x)
    again(x)
    again.set_weights(layer.get_weights())
    assert_same_bits(again(x), layer(x))
    assert len(layer.get_weights()) == 2


def test_gru_layer_refuses_what_the_formula_has_not() -> None:
    for more in (
        {"activation": "relu"},
        {"recurrent_activation": "tanh"},
        {"reset_after": False},
    ):
        with pytest.raises(ValueError, match="reset_after=True"):
            GRU(3, **more)
    with pytest.raises(ValueError, match="`units`"):
        GRU(0)
    layer = GRU(3)
    with pytest.raises(ValueError, match="at least one step"):
        layer(np.ones((2, 0, 3), F32))
    with pytest.raises(ValueError, match="batch, steps, features"):
        GRU(3)(np.ones((2, 3), F32))


def test_orthogonal_initializer_makes_orthonormal_columns_or_rows() -> None:
    make = mpcore.initializers.get("orthogonal")
    tall, wide = make((7, 4)), make((4, 7))
    np.testing.assert_allclose(tall.T @ tall, np.eye(4), atol=1e-6)
    np.testing.assert_allclose(wide @ wide.T, np.eye(4), atol=1e-6)
    assert make((2, 3, 4), "bfloat16").shape == (2, 3, 4)
    seeded = mpcore.initializers.Orthogonal(seed=3)
    assert_same_bits(seeded((5, 5)), seeded((5, 5)))
