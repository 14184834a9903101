"""Accumulation and moving averages: formula, bits on every level, users."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from reference import BF16, F16, F32, F64, assert_same_bits

import mpcore
from mpcore import Tensor, Variable, ops, optimizers

INPUTS = pytest.mark.parametrize("dtype", [F32, F16, BF16, F64], ids=lambda d: d.name)
TOTALS = pytest.mark.parametrize("total", [F32, F64], ids=["into32", "into64"])
SIZES = (0, 1, 15, 16, 17, 31, 33, 1023, 1025, 8191, 8209, 140_001)


def inputs(dtype: np.dtype, seed: int = 0) -> list[np.ndarray]:
    generator = np.random.default_rng(seed)
    scale = (2.0 ** np.arange(-20, 10)).repeat(math.ceil(max(SIZES) / 30))
    return [(generator.standard_normal(n) * scale[:n]).astype(dtype) for n in SIZES]


def accumulated(total: np.ndarray, x: np.ndarray, factor: float) -> np.ndarray:
    return total + x.astype(total.dtype) * total.dtype.type(factor)


def moved(average: np.ndarray, x: np.ndarray, momentum: float) -> np.ndarray:
    real = average.dtype.type
    rest = x.astype(average.dtype) * real(1.0 - momentum)
    return rest + average * real(momentum)


OPERATIONS = pytest.mark.parametrize(
    ("operation", "formula", "factor"),
    [
        (ops.accumulate, accumulated, 1 / 3),
        (ops.accumulate, accumulated, -(2.0**-40)),
        (ops.lerp, moved, 0.99),
        (ops.lerp, moved, 1e-9),
    ],
    ids=["accumulate", "accumulate-tiny", "lerp", "lerp-small"],
)
Operation = Callable[..., None]
Formula = Callable[[np.ndarray, np.ndarray, float], np.ndarray]


@OPERATIONS
@INPUTS
@TOTALS
def test_combine_equals_formula_bit_for_bit(
    isa: str,
    num_threads: int,
    total: np.dtype,
    dtype: np.dtype,
    operation: Operation,
    formula: Formula,
    factor: float,
) -> None:
    totals, arrays = inputs(total, seed=1), inputs(dtype, seed=2)
    copies = [x.copy() for x in arrays]
    expected = [formula(y, x, factor) for y, x in zip(totals, arrays, strict=True)]
    operation(totals, arrays, factor)
    for y, want, x, copy in zip(totals, expected, arrays, copies, strict=True):
        assert_same_bits(y, want)
        assert_same_bits(x, copy)


def test_accumulate_rounds_product_and_sum_not_both_at_once(isa: str) -> None:
    # In one rounding the sum would be 2^-46.
    x = np.full(40, 1 + 2.0**-23, F32)
    total = -(x * x)
    ops.accumulate([total], [x], 1 + 2.0**-23)
    assert (total == 0).all()


def test_accumulate_rounds_float64_before_it_multiplies(isa: str) -> None:
    x, total = np.full(40, 1 + 2.0**-24 + 2.0**-50, F64), np.zeros(40, F32)
    ops.accumulate([total], [x], 3.0)
    assert (total == 3 + 3 * 2.0**-23).all()


def test_accumulate_keeps_subnormals(isa: str) -> None:
    total = np.full(20, 2.0**-149, F32)
    ops.accumulate([total], [np.full(20, 2.0**-24, F16)], 2.0**-125)
    assert (total == 2.0**-148).all()


@pytest.mark.parametrize("dtype", [F32, F64], ids=lambda d: d.name)
def test_lerp_of_zero_momentum_copies_and_of_one_changes_nothing(
    isa: str, dtype: np.dtype
) -> None:
    special = np.array([-0.0, np.inf, -np.inf, np.nan, np.finfo(dtype).tiny / 2], dtype)
    x, average = np.resize(special, 37), np.resize(special[::-1], 37)
    before = average.copy()
    ops.lerp([average], [x], 1.0)
    assert_same_bits(average, before)
    ops.lerp([average], [x], 0.0)
    assert_same_bits(average, x)


@OPERATIONS
def test_combine_takes_what_users_bring(
    operation: Operation, formula: Formula, factor: float
) -> None:
    x = np.arange(12, dtype=F32).reshape(3, 4)
    brought = [x[:, ::2], x.astype(">f4"), x.T, Tensor(x), x.tolist(), x.astype(">f8")]
    plain = [np.array(b, F32) for b in (x[:, ::2], x, x.T, x, x, x)]
    totals = [np.ones(p.shape, F32) for p in plain]
    expected = [formula(t, p, factor) for t, p in zip(totals, plain, strict=True)]
    operation(totals, brought, factor)
    for y, want in zip(totals, expected, strict=True):
        assert_same_bits(y, want)


@pytest.mark.parametrize(
    ("totals", "arrays", "error", "message"),
    [
        ([np.ones(2, F32)], [np.ones(2, int)], TypeError, "dtype"),
        ([np.ones(2, F32)], [None], TypeError, "dtype"),
        ([np.ones(2, F16)], [np.ones(2, F16)], ValueError, "float32 or float64"),
        ([np.ones(2, int)], [np.ones(2, F16)], ValueError, "float"),
        ([[1.0, 1.0]], [np.ones(2, F32)], TypeError, "ndarray"),
        ([np.ones(4, F32)[::2]], [np.ones(2, F32)], ValueError, "contiguous"),
        ([np.ones(2, F32)], [], ValueError, "as long as"),
        ([np.ones(2, F32)] * 2, [np.ones(2, F32)], ValueError, "as long as"),
        ([np.ones((2, 1), F32)], [np.ones(2, F32)], ValueError, "shape"),
        ([np.ones(1, F32)], [np.ones(2, F32)], ValueError, "shape"),
    ],
)
def test_combine_of_what_does_not_fit_raises_and_writes_nothing(
    totals: list, arrays: list, error: type, message: str
) -> None:
    first, x = np.ones(3, F32), np.full(3, 5, F32)
    for operation in (ops.accumulate, ops.lerp):
        with pytest.raises(error, match=message):
            operation([first, *totals], [x, *arrays], 0.5)
    assert (first == 1).all()
    assert all((np.asarray(y) == 1).all() for y in totals)


@pytest.mark.parametrize("factor", [math.inf, math.nan])
def test_accumulate_multiplier_that_is_not_finite_raises(factor: float) -> None:
    with pytest.raises(ValueError, match="`multiplier` must be finite"):
        ops.accumulate([np.ones(1, F32)], [np.ones(1, F32)], factor)


def test_multiplier_infinite_in_float32_raises_unless_all_is_float64() -> None:
    x, y, wide = np.zeros(3, F32), np.zeros(3, F32), np.ones(3, F64)
    with pytest.raises(ValueError, match="multiplier must be finite"):
        ops.accumulate([wide, x], [y, y], 1e39)
    with pytest.raises(ValueError, match="multiplier must be finite"):
        ops.unscale([x], 1e39, out=[x])
    assert (wide == 1).all()
    ops.accumulate([wide], [wide], 1e39)
    assert ops.unscale([wide], 1e-39, out=[wide])[1]
    assert (wide == (1 + 1e39) * 1e-39).all()


@pytest.mark.parametrize("momentum", [-0.1, 1.5, math.nan])
def test_lerp_momentum_out_of_range_raises(momentum: float) -> None:
    with pytest.raises(ValueError, match=r"`momentum` must be in \[0, 1\]"):
        ops.lerp([np.ones(1, F32)], [np.ones(1, F32)], momentum)


@OPERATIONS
def test_combine_takes_memory_maps_but_no_masked_arrays(
    tmp_path: Path, operation: Operation, formula: Formula, factor: float
) -> None:
    total = np.memmap(tmp_path / "total", F32, "w+", shape=(40,))
    x = np.memmap(tmp_path / "x", F16, "w+", shape=(40,))
    total[:], x[:] = 3, 5
    want = formula(np.full(40, 3, F32), np.full(40, 5, F16), factor)
    operation([total], [x], factor)
    assert_same_bits(np.asarray(total), want)
    masked = np.ma.masked_array(np.ones(40, F32), mask=True)
    for totals, arrays in (([total], [masked]), ([masked], [x])):
        with pytest.raises(TypeError, match="Masked arrays are not supported"):
            operation(totals, arrays, factor)
    assert_same_bits(np.asarray(total), want)
    assert (masked.data == 1).all()


def test_combine_refuses_places_that_overlap_anything_else() -> None:
    base, apart = np.arange(6, dtype=F32), np.ones(6, F32)
    whole = base[:]
    refused = [
        ([base[1:]], [base[:-1]]),
        ([base, apart], [apart, base]),  # the total of one is the gradient of another
        ([apart, base], [whole, apart[::-1]]),
        ([base, base[2:3]], [apart, apart[:1]]),
        ([base, base], [apart, apart]),
    ]
    for operation in (ops.accumulate, ops.lerp):
        for totals, arrays in refused:
            with pytest.raises(ValueError, match="overlap"):
                operation(totals, arrays, 0.5)
        assert base.tolist() == [0, 1, 2, 3, 4, 5]
        assert (apart == 1).all()
    # One gradient for several totals, neighbours, and a total into itself are fine.
    ops.accumulate([base[:3], base[3:]], [apart[:3], apart[:3]], 1.0)
    ops.accumulate([base], [base], 1.0)
    assert base.tolist() == [2, 4, 6, 8, 10, 12]


VARIABLES = pytest.mark.parametrize(
    "dtype", ["float32", "float16", "bfloat16", "float64"]
)


@VARIABLES
def test_optimizer_accumulates_in_gradient_dtype_bit_for_bit(
    isa: str, num_threads: int, dtype: str
) -> None:
    generator = np.random.default_rng(5)
    shapes = [(), (0,), (3, 5), (9000,)]
    variables = [Variable(np.ones(s, F32), dtype=dtype) for s in shapes]
    real = np.dtype(variables[0].gradient_dtype).type
    made = optimizers.SGD(1.0, gradient_accumulation_steps=3, loss_scale_factor=3.0)
    sums = [np.zeros(s, real) for s in shapes]
    for kind in (F16, F32):
        gradients = [np.asarray(generator.standard_normal(s), kind) for s in shapes]
        made.apply(gradients, variables)
        for i, g in enumerate(gradients):
            sums[i] = np.asarray(sums[i] + g.astype(real) * real(1 / 3))
    kept = [v.numpy() for v in made.variables if "gradient_accumulator" in v.path]
    for total, want in zip(kept, sums, strict=True):
        assert_same_bits(total, want)


def test_optimizer_accumulates_by_factors_below_the_normal_numbers() -> None:
    # As float32 the factor would keep 8 bits.
    variable, scale = Variable(np.zeros(3, F32)), 3 * 2.0**140
    made = optimizers.SGD(gradient_accumulation_steps=2, loss_scale_factor=scale)
    made.apply([np.full(3, 2.0**100, F32)], [variable])
    assert_same_bits(made.variables[-1].numpy(), np.full(3, 2.0**100 / scale, F32))


@VARIABLES
def test_optimizer_moves_averages_bit_for_bit(
    isa: str, num_threads: int, dtype: str
) -> None:
    generator = np.random.default_rng(6)
    start = generator.standard_normal(5000)
    start[0] = -0.0
    variable = Variable(start, dtype=dtype)
    real = np.dtype(variable.gradient_dtype).type
    made = optimizers.SGD(1.0, use_ema=True, ema_momentum=0.9)
    made.apply([np.zeros(5000, F32)], [variable])
    (average,) = (v for v in made.variables if "average" in v.path)
    expected = variable.numpy().astype(real)
    assert_same_bits(average.numpy(), expected)
    for _ in range(3):
        with mpcore.autocast.scope("bfloat16"):  # the stored weights count, no copy
            made.apply([generator.standard_normal(5000).astype(F32)], [variable])
        expected = moved(expected, variable.numpy(), 0.9)
        assert_same_bits(average.numpy(), expected)
