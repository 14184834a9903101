"""Elementwise arithmetic, with gradients.

float16 and bfloat16 are computed in float32 and rounded once. Operands broadcast; the
gradient of a broadcast operand is summed to its shape. Arrays of different dtypes meet
in NumPy's common one (float16 and bfloat16 in float32); Python numbers, and lists of
them, take the dtype of the array.
"""

from typing import Any

import numpy as np

from mpcore.ops.elementwise import binary, unary
from mpcore.tape import Tensor, unwrap


def add(a: Any, b: Any) -> np.ndarray | Tensor:
    """Return a + b."""
    return binary(a, b, np.add, lambda g, a, b, y: g, lambda g, a, b, y: g)


def subtract(a: Any, b: Any) -> np.ndarray | Tensor:
    """Return a - b."""
    return binary(a, b, np.subtract, lambda g, a, b, y: g, lambda g, a, b, y: -g)


def multiply(a: Any, b: Any) -> np.ndarray | Tensor:
    """Return a * b."""
    return binary(
        a, b, np.multiply, lambda g, a, b, y: g * b, lambda g, a, b, y: g * a, "ab"
    )


def divide(a: Any, b: Any) -> np.ndarray | Tensor:
    """Return a / b; integers give floating numbers."""
    return binary(
        a,
        b,
        np.true_divide,
        lambda g, a, b, y: g / b,
        lambda g, a, b, y: -g * (a / b) / b,
        keep="ab",
    )


def maximum(a: Any, b: Any) -> np.ndarray | Tensor:
    """Return the larger of a and b, or NaN; the gradient of a tie goes to a."""
    return binary(
        a,
        b,
        np.maximum,
        lambda g, a, b, y: np.where(a < b, 0, g).astype(g.dtype),
        lambda g, a, b, y: np.where(a < b, g, 0).astype(g.dtype),
        keep="ab",
    )


def minimum(a: Any, b: Any) -> np.ndarray | Tensor:
    """Return the smaller of a and b, or NaN; the gradient of a tie goes to a."""
    return binary(
        a,
        b,
        np.minimum,
        lambda g, a, b, y: np.where(a > b, 0, g).astype(g.dtype),
        lambda g, a, b, y: np.where(a > b, g, 0).astype(g.dtype),
        keep="ab",
    )


def power(a: Any, b: Any) -> np.ndarray | Tensor:
    """Return a ** b; the gradient of b counts as 0 where a <= 0."""

    def d_a(g: np.ndarray, a: np.ndarray, b: np.ndarray, y: np.ndarray) -> np.ndarray:
        # b == 0 is a constant, also at a == 0.
        return np.where(b == 0, 0, g * b * np.power(a, b - 1)).astype(g.dtype)

    def d_b(g: np.ndarray, a: np.ndarray, b: np.ndarray, y: np.ndarray) -> np.ndarray:
        return np.where(a > 0, g * y * np.log(a), 0).astype(g.dtype)

    return binary(a, b, np.power, d_a, d_b, keep="aby")


def negative(x: Any) -> np.ndarray | Tensor:
    """Return -x."""
    return unary(x, np.negative, lambda g, x, y: -g)


def square(x: Any) -> np.ndarray | Tensor:
    """Return x * x."""
    return unary(x, np.square, lambda g, x, y: g * x * 2, keep="x")


def sqrt(x: Any) -> np.ndarray | Tensor:
    """Return the square root of x; NaN for x < 0."""
    return unary(x, np.sqrt, lambda g, x, y: g / y / 2, keep="y")


def exp(x: Any) -> np.ndarray | Tensor:
    """Return e ** x."""
    return unary(x, np.exp, lambda g, x, y: g * y, keep="y")


def log(x: Any) -> np.ndarray | Tensor:
    """Return the natural logarithm of x; -inf for 0 and NaN for x < 0."""
    return unary(x, np.log, lambda g, x, y: g / x, keep="x")


def log1p(x: Any) -> np.ndarray | Tensor:
    """Return log(1 + x), accurate for small x; -inf for -1 and NaN below."""
    return unary(x, np.log1p, lambda g, x, y: g / (1 + x), keep="x")


def abs(x: Any) -> np.ndarray | Tensor:
    """Return |x|; the gradient at 0 is 0."""
    return unary(x, np.absolute, lambda g, x, y: g * np.sign(x), keep="x")


def clip(x: Any, x_min: float, x_max: float) -> np.ndarray | Tensor:
    """Return x within [x_min, x_max]; the gradient is 0 where x is outside."""
    if not x_min <= x_max:
        raise ValueError(
            f"`x_min` must be <= `x_max`. Received: x_min={x_min}, x_max={x_max}"
        )
    return unary(
        x,
        lambda x: np.clip(x, x_min, x_max),
        lambda g, x, y: np.where((x_min <= x) & (x <= x_max), g, 0).astype(g.dtype),
        keep="x",
    )


def where(condition: Any, x1: Any, x2: Any) -> np.ndarray | Tensor:
    """Return x1 where the condition is true and x2 elsewhere; all three broadcast."""
    first = unwrap(condition).astype(bool)
    return binary(
        x1,
        x2,
        lambda a, b: np.where(first, a, b),
        lambda g, a, b, y: np.where(first, g, 0).astype(g.dtype),
        lambda g, a, b, y: np.where(first, 0, g).astype(g.dtype),
    )
