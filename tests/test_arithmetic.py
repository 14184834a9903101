"""Elementwise arithmetic, reductions, and shapes: rounding, promotion, gradients."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import reference
from reference import BF16, F16, F32, F64, assert_same_bits

from mpcore import GradientTape, Tensor, Variable, ops

HALVES = pytest.mark.parametrize("half", [F16, BF16], ids=lambda d: d.name)

BINARY: dict[str, tuple[Callable[..., Any], Callable[..., Any]]] = {
    "add": (ops.add, np.add),
    "subtract": (ops.subtract, np.subtract),
    "multiply": (ops.multiply, np.multiply),
    "divide": (ops.divide, np.divide),
    "maximum": (ops.maximum, np.maximum),
    "minimum": (ops.minimum, np.minimum),
    "power": (ops.power, np.power),
}
UNARY: dict[str, tuple[Callable[..., Any], Callable[..., Any]]] = {
    "negative": (ops.negative, np.negative),
    "square": (ops.square, np.square),
    "sqrt": (ops.sqrt, np.sqrt),
    "exp": (ops.exp, np.exp),
    "log": (ops.log, np.log),
    "abs": (ops.abs, np.abs),
}


def positive(shape: tuple[int, ...], dtype: np.dtype, seed: int = 0) -> np.ndarray:
    numbers = np.random.default_rng(seed).random(shape) * 3 + 0.25
    return np.asarray(numbers).astype(dtype)


@HALVES
@pytest.mark.parametrize("name", list(BINARY))
def test_binary_of_halves_is_float32_rounded_once(name: str, half: np.dtype) -> None:
    op, formula = BINARY[name]
    a, b = positive((40, 30), half, 1), positive((30,), half, 2)
    expected = formula(a.astype(F32), b.astype(F32)).astype(half)
    assert_same_bits(op(a, b), expected)


@HALVES
@pytest.mark.parametrize("name", list(UNARY))
def test_unary_of_halves_is_float32_rounded_once(name: str, half: np.dtype) -> None:
    op, formula = UNARY[name]
    x = positive((40, 30), half)
    assert_same_bits(op(x), formula(x.astype(F32)).astype(half))


@pytest.mark.parametrize("dtype", [F32, F64], ids=lambda d: d.name)
@pytest.mark.parametrize("name", list(BINARY))
def test_binary_of_float32_and_float64_is_numpy(name: str, dtype: np.dtype) -> None:
    op, formula = BINARY[name]
    a, b = positive((4, 3), dtype, 1), positive((4, 1), dtype, 2)
    assert_same_bits(op(a, b), formula(a, b))


def test_python_scalar_is_not_rounded_before_the_operation() -> None:
    # 0.1 in float16 would give 0.2 * 1.0004.
    x = np.array([3.0], F16)
    assert_same_bits(ops.multiply(x, 0.1), np.array([np.float32(3) * 0.1], F16))
    third = ops.divide(x, 3.0001)
    assert_same_bits(third, np.array([F32.type(3) / F32.type(3.0001)], F16))


@pytest.mark.parametrize(
    ("a", "b", "dtype"),
    [
        (np.ones(1, F16), 2.0, F16),
        (2, np.ones(1, BF16), BF16),
        (np.ones(1, BF16), [1.5], BF16),
        (np.ones(1, F16), np.ones(1, BF16), F32),
        (np.ones(1, BF16), np.ones(1, F32), F32),
        (np.ones(1, F16), np.ones(1, F64), F64),
        (np.ones(1, np.int32), 2, np.dtype(np.int32)),
        (1.0, 2.0, F32),
        (np.ones(1, ">f4"), np.ones(1, ">f4"), F32),
        (np.ones(1, F32), True, F32),
    ],
    ids=lambda x: getattr(getattr(x, "dtype", x), "name", str(x)),
)
def test_operands_meet_in_the_common_dtype(
    a: object, b: object, dtype: np.dtype
) -> None:
    assert ops.add(a, b).dtype == dtype


def test_operands_without_common_dtype_raise() -> None:
    with pytest.raises(TypeError, match="No common dtype"):
        ops.add(np.ones(1, BF16), np.ones(1, np.int32))
    with pytest.raises(TypeError, match="Unknown dtype"):
        ops.add(np.ones(1, complex), 1.0)
    with pytest.raises(ValueError, match="broadcast"):
        ops.add(np.ones(2, F32), np.ones(3, F32))


def test_overflow_and_invalid_are_results_not_warnings() -> None:
    big = np.array([65504.0], F16)
    assert ops.add(big, big).item() == np.inf
    assert np.isnan(ops.log(np.array([-1.0], F32))).all()
    assert ops.divide(np.ones(1, F32), 0.0).item() == np.inf


@pytest.mark.parametrize("dtype", [F32, F16, BF16, F64], ids=lambda d: d.name)
@pytest.mark.parametrize(
    "shapes",
    [
        ((3, 4), (3, 4)),
        ((3, 4), (4,)),
        ((3, 1), (1, 4)),
        ((), (2, 3)),
        ((2, 1, 3), (5, 1)),
    ],
    ids=str,
)
@pytest.mark.parametrize("name", list(BINARY))
def test_binary_gradients_equal_finite_differences(
    name: str, shapes: tuple[tuple[int, ...], tuple[int, ...]], dtype: np.dtype
) -> None:
    op, formula = BINARY[name]
    a, b = positive(shapes[0], dtype, 3), positive(shapes[1], dtype, 4)
    with GradientTape() as tape:
        x, y = tape.watch(a), tape.watch(b)
        z = op(x, y)
    weights = positive(z.shape, dtype, 5)
    gradients = tape.gradient(z, [x, y], output_gradients=weights)
    w, a64, b64 = weights.astype(F64), a.astype(F64), b.astype(F64)
    expected = [
        reference.finite_difference(lambda p: (formula(p, b64) * w).sum(), a64),
        reference.finite_difference(lambda q: (formula(a64, q) * w).sum(), b64),
    ]
    for gradient, source, exact in zip(gradients, (a, b), expected, strict=True):
        assert gradient.dtype == dtype
        assert gradient.shape == source.shape
        # The result of a half, which power uses again, has been rounded once before.
        relative = 2.0 ** (3 - min(reference.PRECISION[dtype], 18))
        magnitude = np.abs(exact) + np.abs(w).sum()
        assert (np.abs(gradient.astype(F64) - exact) <= relative * magnitude).all()


@pytest.mark.parametrize("dtype", [F32, F16, BF16, F64], ids=lambda d: d.name)
@pytest.mark.parametrize("name", list(UNARY))
def test_unary_gradients_equal_finite_differences(name: str, dtype: np.dtype) -> None:
    op, formula = UNARY[name]
    a = positive((5, 3), dtype, 6)
    with GradientTape() as tape:
        x = tape.watch(a)
        y = op(x)
    gradient = tape.gradient(y, x)
    exact = reference.finite_difference(lambda p: formula(p).sum(), a.astype(F64))
    relative = 2.0 ** (2 - min(reference.PRECISION[dtype], 20))
    assert gradient.dtype == dtype
    assert (np.abs(gradient.astype(F64) - exact) <= relative * np.abs(exact)).all()


def test_gradient_of_ties_goes_to_the_first_operand() -> None:
    a, b = Variable([1.0, 2.0, 3.0]), Variable([1.0, 3.0, 2.0])
    with GradientTape(persistent=True) as tape:
        high, low = ops.maximum(a, b), ops.minimum(a, b)
    da, db = tape.gradient(high, [a, b])
    assert (da.tolist(), db.tolist()) == ([1, 0, 1], [0, 1, 0])
    da, db = tape.gradient(low, [a, b])
    assert (da.tolist(), db.tolist()) == ([1, 1, 0], [0, 0, 1])


def test_gradient_of_power_at_zero_is_finite() -> None:
    a, b = Variable([0.0, 0.0, 2.0]), Variable([2.0, 0.0, 0.0])
    with GradientTape() as tape:
        y = ops.power(a, b)
    da, db = tape.gradient(y, [a, b])
    assert da.tolist() == [0, 0, 0]
    assert np.allclose(db, [0, 0, np.log(2)])


def test_gradient_of_abs_at_zero_is_zero() -> None:
    v = Variable([-2.0, 0.0, 3.0])
    with GradientTape() as tape:
        y = ops.abs(v)
    assert tape.gradient(y, v).tolist() == [-1, 0, 1]


@pytest.mark.parametrize("op", [ops.sum, ops.mean], ids=["sum", "mean"])
@pytest.mark.parametrize("axis", [None, 0, -1, (0, 2), ()], ids=str)
@pytest.mark.parametrize("keepdims", [False, True])
@pytest.mark.parametrize("dtype", [F32, F16, BF16, F64], ids=lambda d: d.name)
def test_reduction_values_and_gradients_follow_numpy(
    op: Callable[..., Any], axis: object, keepdims: bool, dtype: np.dtype
) -> None:
    # Small integers: sums are exact, and so are means over powers of two.
    a = np.random.default_rng(7).integers(-8, 9, (4, 2, 8)).astype(dtype)
    formula = np.sum if op is ops.sum else np.mean
    expected = formula(a.astype(F64), axis=axis, keepdims=keepdims)
    with GradientTape() as tape:
        x = tape.watch(a)
        y = op(x, axis=axis, keepdims=keepdims)
    assert_same_bits(y, np.asarray(expected).astype(dtype))
    gradient = tape.gradient(y, x)
    count = a.size // max(1, np.asarray(expected).size)
    value = 1.0 if op is ops.sum else 1.0 / count
    assert_same_bits(gradient, np.full(a.shape, value, dtype))


@HALVES
def test_reduction_of_halves_accumulates_in_float32(half: np.dtype) -> None:
    x = np.ones(70000, half)
    assert ops.mean(x).item() == 1.0
    x = np.full(60000, 0.5, half)
    assert_same_bits(ops.sum(x), np.array(30000, F32).astype(half))


def test_mean_of_nothing_is_nan_and_of_integers_floating() -> None:
    assert np.isnan(ops.mean(np.ones((0, 3), F32))).all()
    assert ops.mean(np.array([1, 2])).item() == 1.5
    assert ops.sum(np.array([1, 2], np.int8)).item() == 3


def test_reduction_axis_out_of_range_raises() -> None:
    with pytest.raises(np.exceptions.AxisError):
        ops.sum(np.ones(2, F32), axis=1)


@pytest.mark.parametrize(
    ("op", "shape"),
    [
        (lambda x: ops.reshape(x, (4, 3)), (4, 3)),
        (lambda x: ops.reshape(x, -1), (12,)),
        (lambda x: ops.flatten(x), (2, 6)),
        (lambda x: ops.transpose(x), (2, 3, 2)),
        (lambda x: ops.transpose(x, (2, 0, 1)), (2, 2, 3)),
        (lambda x: ops.transpose(x, (-1, 0, 1)), (2, 2, 3)),
        (lambda x: x[1], (3, 2)),
        (lambda x: x[:, ::-2, None], (2, 2, 1, 2)),
        (lambda x: x[..., 0], (2, 3)),
        (lambda x: x[0, 1, 1], ()),
        (lambda x: x[[0, 0, 1]], (3, 3, 2)),
        (lambda x: x[:, np.array([True, False, True])], (2, 2, 2)),
        (lambda x: x[np.array([1, 1]), :, np.array([0, 0])], (2, 3)),
        (lambda x: x[True], (1, 2, 3, 2)),
        (lambda x: x[Tensor(np.array([1, 0]))], (2, 3, 2)),
    ],
    ids=range(15),
)
@pytest.mark.parametrize("dtype", [F32, F16, BF16], ids=lambda d: d.name)
def test_moving_elements_moves_gradients_back(
    op: Callable[[Any], Any], shape: tuple[int, ...], dtype: np.dtype
) -> None:
    a = np.arange(12).reshape(2, 3, 2).astype(dtype)
    with GradientTape() as tape:
        x = tape.watch(a)
        y = op(x)
    assert y.shape == shape
    weights = np.random.default_rng(8).integers(-4, 5, shape).astype(dtype)
    gradient = tape.gradient(y, x, output_gradients=weights)
    # The inner product with an integer direction is the same on both sides.
    direction = np.random.default_rng(9).integers(-4, 5, a.shape).astype(dtype)
    moved = np.asarray(op(Tensor(direction))).astype(F64)
    left = (moved * weights.astype(F64)).sum()
    right = (gradient.astype(F64) * direction.astype(F64)).sum()
    assert left == right
    assert gradient.dtype == dtype


def test_flatten_keeps_the_first_axis() -> None:
    assert ops.flatten(np.ones((0, 2, 3), F32)).shape == (0, 6)
    assert ops.flatten(np.ones(4, F32)).shape == (4, 1)


@pytest.mark.parametrize("kind", ["fortran", "negative", "swapped", "read_only"])
def test_arithmetic_takes_any_array(kind: str) -> None:
    x = np.arange(12, dtype=F32).reshape(3, 4)
    y = {
        "fortran": np.asfortranarray(x),
        "negative": x[::-1, ::-1].copy()[::-1, ::-1],
        "swapped": x.astype(">f4"),
        "read_only": np.broadcast_to(x, (3, 4)),
    }[kind]
    assert_same_bits(ops.multiply(y, 2.0), x * F32.type(2))
    assert_same_bits(ops.exp(y), np.exp(x))
    assert_same_bits(ops.sum(y, axis=0), x.sum(0))


def test_python_number_of_an_unsupported_kind_raises() -> None:
    for bad in (1j, "a", None):
        with pytest.raises(TypeError):
            ops.add(np.ones(1, F32), bad)


@pytest.mark.parametrize("dtype", [">f2", ">f4", ">f8", ">i4"])
def test_swapped_operands_give_native_results(dtype: str) -> None:
    x = np.array([1, 2], dtype)
    native = x.dtype.newbyteorder("=")
    for y in (ops.add(x, x), ops.add(x, x.astype(native)), ops.negative(x), ops.sum(x)):
        assert y.dtype.isnative
    assert_same_bits(ops.multiply(x, x), np.array([1, 4], native))
