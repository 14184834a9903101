"""max_pool and average_pool: formulas, gradients, bits, PyTorch, refusals."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import reference
from reference import F32, F64, KERNEL_DTYPES, assert_same_bits
from reference_windows import pool

import mpcore
from mpcore import GradientTape, ops

DTYPES = pytest.mark.parametrize("dtype", KERNEL_DTYPES, ids=lambda d: d.name)
LEVELS = mpcore.available_isas()
KINDS = pytest.mark.parametrize("kind", ["max", "average"])
FUNCTIONS = {"max": ops.max_pool, "average": ops.average_pool}

# images, pool size, strides, padding
CASES = [
    ((2, 6, 6, 3), (2, 2), (2, 2), "valid"),
    ((2, 7, 5, 3), (3, 2), (2, 1), "valid"),
    ((1, 7, 5, 20), (3, 3), (2, 2), "same"),
    ((2, 5, 4, 1), (1, 3), (1, 1), "same"),
    ((2, 1, 1, 4), (3, 3), (1, 1), "same"),
    ((1, 3, 3, 2), (5, 4), (2, 2), "same"),
    ((2, 3, 4, 16), (3, 4), (1, 1), "valid"),
    ((1, 9, 8, 2), (2, 2), (4, 5), "same"),
    ((0, 4, 4, 2), (2, 2), (2, 2), "valid"),
]
SHAPES = pytest.mark.parametrize("case", CASES, ids=str)


def normal(shape: tuple[int, ...], dtype: np.dtype, seed: int) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape).astype(dtype)


def run(
    kind: str, x: np.ndarray, case: Any, dy: np.ndarray | None = None
) -> tuple[np.ndarray, np.ndarray]:
    with GradientTape() as tape:
        source = tape.watch(x)
        y = FUNCTIONS[kind](source, *case[1:])
    return y.value, tape.gradient(y, source, dy)


def assert_within(actual: np.ndarray, exact: np.ndarray, error: np.ndarray) -> None:
    dtype = actual.dtype
    error = error + 2.0 ** -reference.PRECISION[dtype] * (np.abs(exact) + error)
    error = error + reference.TINIEST[dtype]
    assert (np.abs(actual.astype(F64) - exact) <= error).all()


@DTYPES
@KINDS
@SHAPES
def test_pool_and_gradient_are_within_the_bounds_of_float64(
    isa: str, dtype: np.dtype, kind: str, case: Any
) -> None:
    x = normal(case[0], dtype, 1)
    shape = pool(x, kind, *case[1:])[0].shape
    dy = normal(shape, dtype, 2)
    y, dx = run(kind, x, case, dy)
    y64, dx64 = pool(x, kind, *case[1:], dy)
    terms = reference.gamma(np.prod(case[1]) + 2)
    assert (y.dtype, dx.dtype, y.shape) == (dtype, dtype, shape)
    if kind == "max":
        assert_same_bits(y, y64.astype(dtype))
    else:
        assert_within(y, y64, terms * pool(np.abs(x), kind, *case[1:])[0])
    assert_within(dx, dx64, terms * pool(x, kind, *case[1:], np.abs(dy))[1])


@KINDS
def test_pool_formula_has_the_gradient_of_finite_differences(kind: str) -> None:
    case = CASES[2]
    x = normal((1, 4, 5, 2), F64, 3)
    dy = normal(pool(x, kind, *case[1:])[0].shape, F64, 4)
    numeric = reference.finite_difference(
        lambda a: float((pool(a, kind, *case[1:])[0] * dy).sum()), x
    )
    dx = pool(x, kind, *case[1:], dy)[1]
    np.testing.assert_allclose(dx, numeric, rtol=1e-7, atol=1e-8)


@DTYPES
@KINDS
def test_pool_same_bits_on_every_level_thread_count_and_batch(
    dtype: np.dtype, kind: str
) -> None:
    for case in CASES[:-1]:
        x = normal(case[0], dtype, 5)
        results = []
        for level in LEVELS:
            for count in (1, 2):
                mpcore.set_isa(level)
                mpcore.set_num_threads(count)
                results.append(run(kind, x, case))
        for result in results[1:]:
            for array, first in zip(result, results[0], strict=True):
                assert_same_bits(array, first)
        for array, first in zip(run(kind, x[:1], case), results[0], strict=True):
            assert_same_bits(array, first[:1])


@DTYPES
def test_max_pool_gradient_of_a_tie_goes_to_the_first(isa: str, dtype: Any) -> None:
    x = np.zeros((1, 4, 4, 1), dtype)
    y, dx = run("max", x, (None, (3, 3), (1, 1), "valid"))
    assert y.ravel().tolist() == [0, 0, 0, 0]
    assert dx[0, :, :, 0].tolist() == [[1, 1, 0, 0], [1, 1, 0, 0], [0] * 4, [0] * 4]


@DTYPES
def test_pool_of_nan_and_infinity_is_theirs(isa: str, dtype: Any) -> None:
    x = np.array([-np.inf, -np.inf, 1, np.nan, np.inf, 2], dtype).reshape(1, 6, 1)
    y = ops.max_pool(x, 2)
    assert y[0, 0, 0] == -np.inf
    assert np.isnan(y[0, 1, 0])
    assert y[0, 2, 0] == np.inf
    y, dx = run("max", x, (None, 2, 2, "valid"))
    assert dx.ravel().tolist() == [1, 0, 0, 1, 1, 0]
    assert np.isnan(ops.average_pool(x, 2)[0, 1, 0])


@KINDS
@pytest.mark.parametrize("padding", ["valid", "same"])
def test_pool_of_signals_is_that_of_images_of_width_one(
    kind: str, padding: str
) -> None:
    x = normal((2, 9, 5), F32, 6)
    y, dx = run(kind, x, (None, 4, 3, padding))
    y2, dx2 = run(kind, x[:, :, None], (None, (4, 1), (3, 1), padding))
    assert_same_bits(y, y2[:, :, 0])
    assert_same_bits(dx, dx2[:, :, 0])


@KINDS
@pytest.mark.parametrize("case", [c for c in CASES if c[3] == "valid"], ids=str)
def test_pool_agrees_with_torch(kind: str, case: Any) -> None:
    torch = pytest.importorskip("torch")
    if not case[0][0]:
        pytest.skip("torch does not pool an empty batch backwards")
    x = normal(case[0], F32, 7)
    a = torch.from_numpy(x).requires_grad_()
    function = {
        "max": torch.nn.functional.max_pool2d,
        "average": torch.nn.functional.avg_pool2d,
    }[kind]
    z = function(a.permute(0, 3, 1, 2), case[1], case[2]).permute(0, 2, 3, 1)
    dy = normal(tuple(z.shape), F32, 8)
    z.backward(torch.from_numpy(dy))
    y, dx = run(kind, x, case, dy)
    np.testing.assert_allclose(y, z.detach().numpy(), rtol=1e-6, atol=1e-6)
    np.testing.assert_allclose(dx, a.grad.numpy(), rtol=1e-6, atol=1e-6)


@KINDS
def test_pool_arguments_that_do_not_fit_raise(kind: str) -> None:
    function = FUNCTIONS[kind]
    x = np.ones((1, 4, 4, 2), F32)
    with pytest.raises(ValueError, match="larger than the input"):
        function(x, 5)
    with pytest.raises(ValueError, match="`pool_size`"):
        function(x, 0)
    with pytest.raises(ValueError, match="`strides`"):
        function(x, 2, (1, 2, 3))
    with pytest.raises(ValueError, match="`padding`"):
        function(x, 2, padding="causal")
    with pytest.raises(ValueError, match="batch, steps, channels"):
        function(np.ones((4, 4), F32), 2)
    with pytest.raises(TypeError, match="float32, float16, bfloat16"):
        function(np.ones((1, 4, 4)), 2)
