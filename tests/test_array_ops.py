"""Ops that move, choose, and reduce elements: values and gradients in every dtype."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import reference
from reference import BF16, F16, F32, F64, assert_same_bits

from mpcore import GradientTape, Tensor, Variable, ops

DTYPES = pytest.mark.parametrize(
    "dtype", [F32, F16, BF16, F64], ids=lambda dtype: dtype.name
)
CHOICE = np.array([[True, False, True], [False, True, True]])

# name -> (op, what NumPy does), of an array of shape (2, 3, 4).
MOVES: dict[str, tuple[Callable[[Any], Any], Callable[[Any], Any]]] = {
    "expand_dims": (lambda x: ops.expand_dims(x, 1), lambda x: np.expand_dims(x, 1)),
    "expand_dims_many": (
        lambda x: ops.expand_dims(x, (0, -1)),
        lambda x: np.expand_dims(x, (0, -1)),
    ),
    "squeeze": (lambda x: ops.squeeze(ops.getitem(x, [1])), lambda x: x[1]),
    "squeeze_axis": (
        lambda x: ops.squeeze(ops.reshape(x, (1, 24, 1)), axis=-1),
        lambda x: x.reshape(1, 24),
    ),
    "concatenate": (
        lambda x: ops.concatenate([x, ops.getitem(x, slice(1)), x]),
        lambda x: np.concatenate([x, x[:1], x]),
    ),
    "concatenate_last": (
        lambda x: ops.concatenate((x, x), axis=-1),
        lambda x: np.concatenate([x, x], -1),
    ),
    "stack": (lambda x: ops.stack([x, x, x]), lambda x: np.stack([x, x, x])),
    "stack_last": (lambda x: ops.stack([x, x], -1), lambda x: np.stack([x, x], -1)),
    "split": (lambda x: ops.split(x, 2, -1)[1], lambda x: np.split(x, 2, -1)[1]),
    "split_at": (
        lambda x: ops.split(x, [1, 3], axis=2)[1],
        lambda x: np.split(x, [1, 3], 2)[1],
    ),
    "pad": (lambda x: ops.pad(x, 2), lambda x: np.pad(x, 2)),
    "pad_each": (
        lambda x: ops.pad(x, ((0, 1), (2, 0), (0, 0))),
        lambda x: np.pad(x, ((0, 1), (2, 0), (0, 0))),
    ),
    "pad_none": (lambda x: ops.pad(x, (0, 0)), lambda x: x),
}


def whole(shape: tuple[int, ...], dtype: np.dtype, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).integers(-8, 9, shape).astype(dtype)


@DTYPES
@pytest.mark.parametrize("name", MOVES)
def test_moves_are_those_of_numpy_and_gradients_move_back(
    name: str, dtype: np.dtype
) -> None:
    op, formula = MOVES[name]
    a = whole((2, 3, 4), dtype)
    with GradientTape() as tape:
        x = tape.watch(a)
        y = op(x)
    assert_same_bits(y.value, formula(a))
    assert_same_bits(op(a), formula(a))
    weights = whole(y.shape, dtype, 1)
    gradient = tape.gradient(y, x, output_gradients=weights)
    assert gradient.dtype == dtype
    # Moving is linear: the inner product with a direction is that of the images.
    direction = whole(a.shape, dtype, 2)
    left = (np.asarray(formula(direction)).astype(F64) * weights.astype(F64)).sum()
    assert (gradient.astype(F64) * direction.astype(F64)).sum() == left


@pytest.mark.parametrize("shape", [(0, 3), (2, 0)], ids=str)
def test_moves_of_nothing(shape: tuple[int, ...]) -> None:
    x = np.ones(shape, F16)
    assert ops.concatenate([x, x], 1).shape == (shape[0], 2 * shape[1])
    assert ops.stack([x]).shape == (1, *shape)
    assert ops.pad(x, 1).shape == (shape[0] + 2, shape[1] + 2)
    assert [part.shape for part in ops.split(x, 1)] == [shape]


def test_concatenate_promotes_and_gives_each_its_own_gradient() -> None:
    a, b = Variable([1.0, 2.0]), Variable(np.array([3], BF16))
    with GradientTape() as tape:
        y = ops.concatenate([a, b, np.ones(1, F16)])
    assert y.dtype == "float32"
    da, db = tape.gradient(y, [a, b], output_gradients=[1.0, 2.0, 3.0, 4.0])
    assert da.tolist() == [1, 2]
    assert db.tolist() == [3]
    with pytest.raises(TypeError, match="common dtype"):
        ops.concatenate([np.ones(1, BF16), np.ones(1, np.int32)])


def test_pad_fills_with_the_constant() -> None:
    y = ops.pad(np.ones(1, BF16), (1, 2), constant_values=-np.inf)
    assert y.tolist() == [-np.inf, 1, -np.inf, -np.inf]


@pytest.mark.parametrize(
    ("call", "match"),
    [
        (lambda x: ops.concatenate([]), "at least one array"),
        (lambda x: ops.concatenate([x, x[:, :1]]), "dimension"),
        (lambda x: ops.split(x, 2, 1), "divide the length"),
        (lambda x: ops.split(x, 0), "divide the length"),
        (lambda x: ops.pad(x, -1), "`pad_width` must be >= 0"),
        (lambda x: ops.pad(x, 1, mode="reflect"), "mode='reflect'"),
        (lambda x: ops.squeeze(x, 0), "size"),
        (lambda x: ops.clip(x, 2, 1), "`x_min` must be <= `x_max`"),
        (lambda x: ops.clip(x, np.nan, 1), "`x_min` must be <= `x_max`"),
        (lambda x: ops.max(x[:0]), "zero-size"),
    ],
)
def test_arguments_that_do_not_fit_raise(call: Any, match: str) -> None:
    with pytest.raises(ValueError, match=match):
        call(np.ones((2, 3), F32))


@DTYPES
def test_clip_is_numpys_and_its_gradient_stops_outside(dtype: np.dtype) -> None:
    a = np.array([-3, -1, 0, 2, 5, np.nan], dtype)
    with GradientTape() as tape:
        x = tape.watch(a)
        y = ops.clip(x, -1.0, 2.0)
    assert_same_bits(y.value[:5], np.array([-1, -1, 0, 2, 2], dtype))
    assert reference.is_nan(y.value[5:]).all()
    assert tape.gradient(y, x).tolist() == [0, 1, 1, 1, 0, 0]


@DTYPES
@pytest.mark.parametrize(
    ("shape", "other"), [((2, 3), (2, 3)), ((3,), (2, 1)), ((), (4, 2, 3))], ids=str
)
def test_where_chooses_and_sends_the_gradient_there(
    dtype: np.dtype, shape: tuple[int, ...], other: tuple[int, ...]
) -> None:
    a, b = whole(shape, dtype, 3), whole(other, dtype, 4)
    with GradientTape() as tape:
        x, y = tape.watch(a), tape.watch(b)
        z = ops.where(CHOICE, x, y)
    assert_same_bits(z.value, np.where(CHOICE, a, b))
    weights = whole(z.shape, dtype, 5)
    da, db = tape.gradient(z, [x, y], output_gradients=weights)
    for gradient, source, chosen in ((da, a, CHOICE), (db, b, ~CHOICE)):
        picked = np.where(chosen, weights.astype(F64), 0)
        extra = picked.ndim - source.ndim
        axes = tuple(
            i
            for i, n in enumerate(picked.shape)
            if i < extra or source.shape[i - extra] < n
        )
        expected = picked.sum(axes, keepdims=True).reshape(source.shape)
        assert_same_bits(gradient, expected.astype(dtype))


def test_where_keeps_nan_and_infinity_out_of_the_other_branch() -> None:
    v = Variable([0.0, 4.0])
    with GradientTape():
        y = ops.where(np.array([False, True]), ops.sqrt(v), 1.0)
    assert y.numpy().tolist() == [1, 2]
    z = ops.where([True, False], np.float32([1, np.nan]), Tensor(np.float32(3)))
    assert z.numpy().tolist() == [1, 3]


REDUCTIONS: dict[str, tuple[Callable[..., Any], Callable[..., Any]]] = {
    "max": (ops.max, np.max),
    "min": (ops.min, np.min),
    "var": (ops.var, np.var),
}


@DTYPES
@pytest.mark.parametrize("axis", [None, 0, -1, (0, 2), (-1, 1)], ids=str)
@pytest.mark.parametrize("keepdims", [False, True])
@pytest.mark.parametrize("name", REDUCTIONS)
def test_reductions_and_gradients_equal_float64_formulas(
    name: str, axis: Any, keepdims: bool, dtype: np.dtype
) -> None:
    op, formula = REDUCTIONS[name]
    # All different, so that extremes are where finite differences find them.
    numbers = np.random.default_rng(6).permutation(60) / 4 - 7
    a = numbers.reshape(3, 5, 4).astype(dtype)
    with GradientTape() as tape:
        x = tape.watch(a)
        y = op(x, axis=axis, keepdims=keepdims)
    exact = np.asarray(formula(a.astype(F64), axis=axis, keepdims=keepdims))
    assert y.value.dtype == dtype
    unit = 2.0 ** (1 - min(reference.PRECISION[dtype], 20))
    assert np.allclose(y.value.astype(F64), exact, rtol=unit, atol=0)
    weights = whole(y.shape, dtype, 7)
    gradient = tape.gradient(y, x, output_gradients=weights)
    expected = reference.finite_difference(
        lambda p: float(
            (formula(p, axis=axis, keepdims=keepdims) * weights.astype(F64)).sum()
        ),
        a.astype(F64),
        step=1e-4,
    )
    assert gradient.dtype == dtype
    scale = np.abs(expected).max() + 1
    assert np.allclose(gradient.astype(F64), expected, rtol=unit, atol=unit * scale)


def test_equal_extremes_share_the_gradient() -> None:
    v = Variable([[1.0, 3.0, 3.0], [2.0, 2.0, 2.0]])
    with GradientTape() as tape:
        y = ops.max(v, axis=1)
    gradient = tape.gradient(y, v, output_gradients=[1.0, 3.0])
    assert gradient.tolist() == [[0, 0.5, 0.5], [1, 1, 1]]


def test_extremes_of_nan_are_nan_and_of_integers_integers() -> None:
    assert np.isnan(ops.max(np.array([1, np.nan, 2], F32)))
    assert np.isnan(ops.min(np.array([1, np.nan, 2], BF16)).astype(F32))
    assert ops.max(np.array([3, -1])).item() == 3


def test_variance_far_from_zero_keeps_its_precision_and_of_one_is_zero() -> None:
    x = np.array([2048, 2050], F16)
    assert ops.var(x).item() == 1
    v = Variable([[5.0], [7.0]])
    with GradientTape() as tape:
        y = ops.var(v, axis=1)
    assert y.numpy().tolist() == [0, 0]
    assert tape.gradient(y, v).tolist() == [[0], [0]]


@pytest.mark.parametrize("dtype", [F32, F16, BF16], ids=lambda d: d.name)
@pytest.mark.parametrize(
    ("a_shape", "b_shape"),
    [
        ((4, 2, 3), (4, 3, 5)),
        ((4, 2, 3), (3, 5)),
        ((2, 3), (4, 3, 5)),
        ((4, 1, 2, 3), (3, 3, 2)),
        ((1, 2, 3), (6, 3, 1)),
    ],
    ids=str,
)
def test_batched_products_with_broadcasting_have_their_gradients(
    dtype: np.dtype, a_shape: tuple[int, ...], b_shape: tuple[int, ...]
) -> None:
    # Small integers: everything is exact, so the gradients are too.
    a, b = whole(a_shape, dtype, 8), whole(b_shape, dtype, 9)
    a, b = np.clip(a, -2, 2).astype(dtype), np.clip(b, -2, 2).astype(dtype)
    with GradientTape() as tape:
        x, y = tape.watch(a), tape.watch(b)
        z = ops.matmul(x, y)
    weights = np.sign(whole(z.shape, F32, 10)).astype(dtype)
    gradients = tape.gradient(z, [x, y], output_gradients=weights)
    w = weights.astype(F64)
    full = [
        w @ np.swapaxes(b, -1, -2).astype(F64),
        np.swapaxes(a, -1, -2).astype(F64) @ w,
    ]
    for gradient, wide, source in zip(gradients, full, (a, b), strict=True):
        extra = wide.ndim - source.ndim
        axes = tuple(
            i
            for i, n in enumerate(wide.shape)
            if i < extra or source.shape[i - extra] < n
        )
        expected = wide.sum(axes, keepdims=True).reshape(source.shape)
        assert_same_bits(gradient, expected.astype(dtype))
