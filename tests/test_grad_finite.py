"""Finite check and unscaling: no position escapes, nothing else alarms."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path

import numpy as np
import pytest
from reference import BF16, F16, F32, F64, assert_same_bits

import mpcore
from mpcore import Variable, ops, optimizers
from mpcore.mixed_precision import LossScaleOptimizer

DTYPES = pytest.mark.parametrize("dtype", [F32, F16, BF16, F64], ids=lambda d: d.name)
BAD = (np.inf, -np.inf, np.nan)
# Longer than a range that is walked in parts, and a tail.
PARTS = 8209
# Several tasks, each of 128 blocks of 1024.
TASKS = 400_007


def borders(length: int) -> list[int]:
    """Positions around which tasks, parts, leaves, and blocks may meet."""
    near = {0, length - 1}
    for size in (1024, 8192, 32768, 131072):
        near |= {at + off for at in range(0, length, size) for off in (-1, 0, 1)}
    # The quarters of the last task, and of the steps in it.
    last = length % 131072
    for part in range(1, 4):
        at = length - last + last // 4 * part
        near |= set(range(at - 40, at + 41))
    return sorted(i for i in near if 0 <= i < length)


def missed(
    finite: Callable[[], bool], x: np.ndarray, positions: Iterable[int]
) -> list[int]:
    """Return where `finite` takes an array with an infinity or NaN for finite."""
    found = []
    for i in positions:
        x[i] = BAD[i % 3]
        if finite():
            found.append(i)
        x[i] = 1
    return found


@DTYPES
def test_all_finite_sees_every_position_of_parts(isa: str, dtype: np.dtype) -> None:
    x = np.ones(PARTS, dtype)
    arrays = [x]
    assert ops.all_finite(arrays)
    assert missed(lambda: ops.all_finite(arrays), x, range(PARTS)) == []


@DTYPES
def test_all_finite_sees_both_sides_of_every_border(
    isa: str, num_threads: int, dtype: np.dtype
) -> None:
    x = np.full(TASKS, np.finfo(F16).max, dtype)
    arrays = [np.ones(3, dtype), x]
    assert ops.all_finite(arrays)
    assert missed(lambda: ops.all_finite(arrays), x, borders(TASKS)) == []


@DTYPES
def test_all_finite_takes_every_nan_pattern(isa: str, dtype: np.dtype) -> None:
    word = np.dtype(f"u{dtype.itemsize}")
    infinity = int(np.array(np.inf, dtype).view(word))
    top = 1 << (8 * dtype.itemsize - 1)
    for pattern in (infinity, infinity + 1, top - 1, infinity | top, 2 * top - 1):
        for length in (1, 17, 100):
            x = np.ones(length, dtype)
            x.view(word)[length // 2] = pattern
            assert not ops.all_finite([x]), hex(pattern)
    # The largest finite numbers, subnormals, and zeros of both signs.
    for pattern in (infinity - 1, infinity - 1 | top, 1, 1 | top, 0, top):
        assert ops.all_finite([np.full(100, pattern, word).view(dtype)]), hex(pattern)


@DTYPES
def test_unscale_sees_every_position_of_parts(
    isa: str, num_threads: int, dtype: np.dtype
) -> None:
    x = np.ones(PARTS, dtype)
    arrays = [x]
    assert ops.unscale(arrays, 1.0, out=arrays)[1]
    positions = (*range(0, PARTS, 7), PARTS - 1)
    assert missed(lambda: ops.unscale(arrays, 1.0, out=arrays)[1], x, positions) == []
    assert (x == 1).all()


@DTYPES
def test_unscale_sees_both_sides_of_every_border(
    isa: str, num_threads: int, dtype: np.dtype
) -> None:
    x = np.ones(TASKS, dtype)
    arrays = [np.ones(3, dtype), x]
    positions = borders(TASKS)[::3]
    assert missed(lambda: ops.unscale(arrays, 1.0, out=arrays)[1], x, positions) == []


@pytest.mark.parametrize(
    ("dtype", "x", "multiplier"),
    [
        (F32, 2.0**127, 2.0),
        (F16, 2.0**15, 1.99951171875),  # 65520, half way to 65536
        (BF16, 2.0**126, 3.9921875),  # 0x1.ffp127, half way to 2^128
        (F64, 2.0**1023, 2.0),
    ],
    ids=["float32", "float16", "bfloat16", "float64"],
)
def test_unscale_is_finite_up_to_what_rounds_to_infinity(
    isa: str, dtype: np.dtype, x: float, multiplier: float
) -> None:
    work = F64 if dtype == F64 else F32
    below = float(np.nextafter(work.type(multiplier), work.type(0)))
    for sign in (1, -1):
        for length in (1, 16, 33):
            array = np.full(length, sign * x, dtype)
            (result,), finite = ops.unscale([array], multiplier)
            assert not finite
            assert np.isinf(result).all()
            (result,), finite = ops.unscale([array], below)
            assert finite
            assert np.isfinite(result.astype(F64)).all()


@DTYPES
def test_unscale_in_place_and_apart_same_bits(
    isa: str, num_threads: int, dtype: np.dtype
) -> None:
    generator = np.random.default_rng(4)
    arrays = [generator.standard_normal(n).astype(dtype) for n in (0, 5, PARTS, TASKS)]
    copies = [x.copy() for x in arrays]
    apart, _ = ops.unscale(arrays, 1 / 3)
    for x, copy in zip(arrays, copies, strict=True):
        assert_same_bits(x, copy)
    places = [np.empty_like(x) for x in arrays]
    results, _ = ops.unscale(arrays, 1 / 3, out=places)
    assert all(r is p for r, p in zip(results, places, strict=True))
    ops.unscale(arrays, 1 / 3, out=arrays)
    for x, y, z in zip(arrays, apart, places, strict=True):
        assert_same_bits(x, y)
        assert_same_bits(z, y)


def test_empty_tensors_take_part_in_nothing(isa: str, num_threads: int) -> None:
    empty, one = np.empty((3, 0), F16), np.ones(1, F32)
    arrays = [empty, one, empty, empty.astype(F64), one * 2]
    assert ops.all_finite(arrays)
    assert ops.all_finite([empty])
    assert ops.norms(arrays).tolist() == [0, 1, 0, 0, 2]
    assert ops.unscale(arrays, 0.5, out=arrays)[1]
    assert (arrays[1].item(), arrays[4].item()) == (0.5, 1.0)
    arrays[4][0] = np.nan
    assert not ops.all_finite(arrays)
    assert not ops.unscale(arrays, 0.5, out=arrays)[1]


def test_in_place_operations_refuse_read_only_arrays() -> None:
    fine, fixed = np.ones(4, F32), np.ones(4, F32)
    fixed.flags.writeable = False
    with pytest.raises(ValueError, match="writ"):
        ops.unscale([fine, fixed], 2.0, out=[fine, fixed])
    with pytest.raises(ValueError, match="writ"):
        ops.unscale([fine, fine], 2.0, out=[np.ones(4, F32), fixed])
    with pytest.raises(ValueError, match="writ"):
        ops.accumulate([fine, fixed], [fine * 2, fine * 2])
    with pytest.raises(ValueError, match="writ"):
        ops.lerp([fine, fixed], [fine * 2, fine * 2], 0.5)
    assert (fine == 1).all()
    assert (fixed == 1).all()
    # Reading is not writing.
    assert ops.all_finite([fixed])
    assert ops.norms([fixed]).item() == 2
    assert ops.unscale([fixed], 3.0)[0][0].tolist() == [3.0] * 4


def test_masked_arrays_are_refused_memory_maps_are_not(tmp_path: Path) -> None:
    x = np.memmap(tmp_path / "x", F32, "w+", shape=(50,))
    x[:] = 2
    assert ops.all_finite([x])
    assert ops.norms([x]).item() == np.sqrt(200)
    results, finite = ops.unscale([x], 0.5, out=[x])
    assert finite
    assert results[0] is x
    assert (x == 1).all()
    masked = np.ma.masked_array(np.ones(3, F32), mask=True)
    for call in (
        lambda: ops.all_finite([masked]),
        lambda: ops.norms([masked]),
        lambda: ops.unscale([masked], 2.0),
        lambda: ops.unscale([masked], 2.0, out=[masked]),
    ):
        with pytest.raises(TypeError, match="Masked arrays are not supported"):
            call()
    assert (masked.data == 1).all()


def test_missing_gradients_are_ignored_by_check_and_update() -> None:
    v, w = Variable(np.array([1], F32)), Variable(np.array([1], F32))
    made = LossScaleOptimizer(optimizers.SGD(1.0), initial_scale=2.0)
    with pytest.warns(UserWarning, match="Gradients do not exist"):
        made.apply([None, np.array([2.0], F32)], [v, w])
    assert (v.numpy().item(), w.numpy().item()) == (1, 0)
    assert ops.all_finite([None, np.ones(1, F32), None])
    assert ops.unscale([None, None], 2.0) == ([None, None], True)


@pytest.mark.parametrize("limit", ["clipnorm", "global_clipnorm"])
def test_an_infinite_gradient_skips_the_step_as_a_whole(limit: str) -> None:
    v, w = Variable(np.array([1], F32)), Variable(np.array([1], F32))
    gradients = [np.array([np.inf], F32), np.array([2], F32)]
    made = LossScaleOptimizer(optimizers.SGD(1.0, **{limit: 1.0}), initial_scale=2.0)
    made.apply(gradients, [v, w])
    assert (v.numpy().item(), w.numpy().item()) == (1, 1)
    with pytest.raises(FloatingPointError, match="must be finite"):
        optimizers.SGD(1.0, **{limit: 1.0}).apply(gradients, [v, w])
    assert (v.numpy().item(), w.numpy().item()) == (1, 1)


def test_all_finite_of_many_bad_places_is_false_and_writes_nothing(
    num_threads: int,
) -> None:
    x = np.zeros(TASKS, F32)
    x[[0, 200_000, -1]] = np.nan
    copy = x.copy()
    assert mpcore.all_finite([x]) is False
    assert_same_bits(x, copy)
