"""conv: float64 bounds, gradients, bits, batches, PyTorch, and what it refuses."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import reference
from reference import BF16, F16, F32, F64, KERNEL_DTYPES, assert_same_bits
from reference_windows import Convolution

import mpcore
from mpcore import GradientTape, Variable, autocast, ops

DTYPES = pytest.mark.parametrize("dtype", KERNEL_DTYPES, ids=lambda d: d.name)
LEVELS = mpcore.available_isas()

# images (batch, height, width, channels), kernel size, filters, strides, dilation,
# padding, groups
CASES = [
    ((2, 5, 6, 3), (3, 3), 4, (1, 1), (1, 1), "valid", 1),
    ((2, 5, 6, 3), (3, 3), 4, (1, 1), (1, 1), "same", 1),
    ((2, 9, 8, 4), (3, 2), 6, (2, 3), (1, 1), "same", 2),
    ((1, 9, 10, 6), (2, 3), 6, (1, 1), (3, 2), "valid", 3),
    ((1, 9, 10, 6), (3, 3), 6, (2, 1), (2, 3), "same", 6),
    ((3, 4, 4, 5), (1, 1), 7, (1, 1), (1, 1), "valid", 1),
    ((3, 4, 5, 4), (1, 1), 6, (2, 2), (1, 1), "same", 2),
    ((2, 1, 1, 3), (3, 3), 5, (1, 1), (1, 1), "same", 1),
    ((2, 3, 3, 2), (5, 7), 3, (2, 2), (1, 1), "same", 1),
    ((2, 3, 4, 2), (3, 4), 3, (1, 1), (1, 1), "valid", 1),
    ((0, 5, 5, 2), (3, 3), 3, (1, 1), (1, 1), "valid", 1),
    ((1, 7, 6, 2), (1, 2), 3, (4, 5), (1, 1), "valid", 1),
    ((2, 6, 6, 33), (3, 3), 17, (1, 1), (1, 1), "same", 1),
]
SHAPES = pytest.mark.parametrize("case", CASES, ids=str)


def normal(shape: tuple[int, ...], dtype: np.dtype, seed: int) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape).astype(dtype)


def arrays(case: Any, dtype: np.dtype) -> tuple[np.ndarray, np.ndarray]:
    shape, size, filters, *_, groups = case
    kernel = (*size, shape[-1] // groups, filters)
    return normal(shape, dtype, 1), normal(kernel, dtype, 2)


def settings(case: Any) -> dict[str, Any]:
    return {"strides": case[3], "dilation_rate": case[4], "padding": case[5]}


def formula(case: Any, x: np.ndarray, w: np.ndarray) -> Convolution:
    return Convolution(x, w, case[3], case[4], case[5])


def within(
    actual: np.ndarray, exact: np.ndarray, magnitude: np.ndarray, terms: int
) -> bool:
    """Whether an error is one of `terms` float32 roundings and one to the dtype."""
    dtype = actual.dtype
    error = reference.gamma(terms) * magnitude + terms * 2.0**-126
    error += 2.0 ** -reference.PRECISION[dtype] * (np.abs(exact) + error)
    error += reference.TINIEST[dtype]
    return bool((np.abs(actual.astype(F64) - exact) <= error).all())


@DTYPES
@SHAPES
def test_conv_is_within_the_bound_of_float64(
    isa: str, dtype: np.dtype, case: Any
) -> None:
    x, w = arrays(case, dtype)
    y = ops.conv(x, w, **settings(case))
    exact = formula(case, x, w)
    assert y.dtype == dtype
    assert y.shape == exact.output().shape
    assert within(y, exact.output(), exact.output(absolute=True), w[..., 0].size + 8)


@DTYPES
@SHAPES
def test_conv_gradients_are_within_the_bounds_of_float64(
    isa: str, dtype: np.dtype, case: Any
) -> None:
    x, w = arrays(case, dtype)
    kernel, bias = Variable(w.astype(F32)), Variable(np.ones(w.shape[-1], F32))
    with autocast.scope(dtype.name), GradientTape() as tape:
        source = tape.watch(x)
        y = ops.conv(source, kernel, bias, **settings(case))
    dy = normal(y.shape, dtype, 3)
    dx, dw, db = tape.gradient(y, [source, kernel, bias], output_gradients=dy)
    exact = formula(case, x, w)
    (dx64, dw64), magnitudes = exact.gradients(dy), exact.gradients(dy, absolute=True)
    assert (dx.dtype, dw.dtype, db.dtype) == (dtype, F32, F32)
    terms = w.shape[0] * w.shape[1] * (w.shape[-1] + 8)
    assert within(dx, dx64, magnitudes[0], terms)
    pixels = y.size // max(1, w.shape[-1])
    assert within(dw, dw64, magnitudes[1], pixels + 8)
    wide = dy.astype(F64)
    axes = (0, 1, 2)
    assert within(db, wide.sum(axes), np.abs(wide).sum(axes), pixels + 8)


def test_conv_formula_has_the_gradients_of_finite_differences() -> None:
    case = ((1, 4, 5, 4), (2, 3), 4, (2, 1), (1, 2), "same", 2)
    x, w = (a.astype(F64) for a in arrays(case, F32))
    dy = normal(formula(case, x, w).output().shape, F64, 4)
    dx, dw = formula(case, x, w).gradients(dy)
    by_x = reference.finite_difference(
        lambda a: float((formula(case, a, w).output() * dy).sum()), x
    )
    by_w = reference.finite_difference(
        lambda a: float((formula(case, x, a).output() * dy).sum()), w
    )
    np.testing.assert_allclose(dx, by_x, rtol=1e-7, atol=1e-7)
    np.testing.assert_allclose(dw, by_w, rtol=1e-7, atol=1e-7)


@DTYPES
@pytest.mark.parametrize("name", ["relu", "tanh", "gelu", "silu"])
def test_conv_fuses_bias_and_activation_and_their_backward(
    isa: str, dtype: np.dtype, name: str
) -> None:
    x, w = arrays(CASES[1], dtype)
    b = normal((4,), F32, 5)
    with GradientTape() as tape:
        sources = [tape.watch(a) for a in (x, w, b)]
        y = ops.conv(*sources, name, padding="same")
    dy = normal(y.shape, dtype, 6)
    results = [y.value, *tape.gradient(y, sources, dy)]
    # A dense layer over the windows, which are rows of the same matrix.
    padded = np.pad(x, ((0, 0), (1, 1), (1, 1), (0, 0)))
    windows = np.lib.stride_tricks.sliding_window_view(padded, (3, 3), axis=(1, 2))
    rows = np.ascontiguousarray(windows.transpose(0, 1, 2, 4, 5, 3)).reshape(60, 27)
    with GradientTape() as tape:
        sources = [tape.watch(a) for a in (w.reshape(27, 4), b)]
        z = ops.dense(rows, *sources, name)
    expected = [z.value, *tape.gradient(z, sources, dy.reshape(60, 4))]
    assert_same_bits(results[0], expected[0].reshape(y.shape))
    assert_same_bits(results[2].astype(dtype), expected[1].reshape(w.shape))
    assert_same_bits(results[3], expected[2])


def same_on_every_level(dtype: np.dtype) -> list[str]:
    return [level for level in LEVELS if dtype != F16 or level != "amx"]


@DTYPES
def test_conv_same_bits_on_every_level_and_thread_count(dtype: np.dtype) -> None:
    case = ((3, 9, 8, 6), (3, 3), 8, (2, 1), (1, 1), "same", 2)
    x, w = arrays(case, dtype)
    results = []
    for level in same_on_every_level(dtype):
        for count in (1, 2):
            mpcore.set_isa(level)
            mpcore.set_num_threads(count)
            with GradientTape() as tape:
                sources = [tape.watch(x), tape.watch(w)]
                y = ops.conv(*sources, activation="relu", **settings(case))
            results.append([y.value, *tape.gradient(y, sources)])
    for result in results[1:]:
        for array, first in zip(result, results[0], strict=True):
            assert_same_bits(array, first)


@DTYPES
@pytest.mark.parametrize(
    "case",
    [
        CASES[2],
        CASES[5],
        # An image is cut into blocks of rows; several fit in one block.
        ((3, 40, 40, 32), (3, 3), 8, (1, 1), (1, 1), "same", 1),
        ((3, 70, 64, 16), (5, 5), 4, (3, 1), (1, 1), "same", 1),
    ],
    ids=str,
)
def test_conv_image_has_the_same_bits_alone_and_in_a_batch(
    isa: str, num_threads: int, dtype: np.dtype, case: Any
) -> None:
    x, w = arrays(case, dtype)
    count = len(x)
    results = []
    dy = normal(ops.conv(x, w, **settings(case)).shape, dtype, 7)
    for part in (slice(0, count), slice(0, 1), slice(1, count)):
        with GradientTape() as tape:
            source = tape.watch(x[part])
            y = ops.conv(source, w, **settings(case))
        results.append((part, y.value, tape.gradient(y, source, dy[part])))
    _, whole, dx = results[0]
    for part, y, gradient in results[1:]:
        assert_same_bits(y, whole[part])
        assert_same_bits(gradient, dx[part])


@pytest.mark.parametrize(
    "case",
    [
        ((1, 96, 40, 16), (3, 3), 8, (1, 1), (1, 1), "same", 1),
        ((1, 120, 60, 16), (3, 3), 8, (4, 4), (1, 1), "valid", 1),
        ((1, 130, 70, 8), (2, 5), 8, (3, 1), (4, 1), "same", 1),
    ],
    ids=str,
)
def test_conv_of_an_image_in_several_blocks_has_right_gradients(case: Any) -> None:
    x, w = arrays(case, F32)
    with GradientTape() as tape:
        sources = [tape.watch(x), tape.watch(w)]
        y = ops.conv(*sources, **settings(case))
    dy = normal(y.shape, F32, 8)
    dx, dw = tape.gradient(y, sources, dy)
    exact = formula(case, x, w)
    (dx64, dw64), magnitudes = exact.gradients(dy), exact.gradients(dy, absolute=True)
    assert within(y.value, exact.output(), exact.output(absolute=True), 500)
    assert within(dx, dx64, magnitudes[0], 500)
    assert within(dw, dw64, magnitudes[1], y.size // 8 + 8)


@DTYPES
@pytest.mark.parametrize("padding", ["valid", "same", "causal"])
@pytest.mark.parametrize(("stride", "dilation"), [(1, 1), (2, 1), (1, 3), (3, 2)])
def test_conv_of_signals_is_that_of_images_of_width_one(
    dtype: np.dtype, padding: str, stride: int, dilation: int
) -> None:
    x, w = normal((2, 11, 4), dtype, 9), normal((3, 4, 5), dtype, 10)
    with GradientTape() as tape:
        sources = [tape.watch(x), tape.watch(w)]
        y = ops.conv(*sources, strides=stride, dilation_rate=dilation, padding=padding)
    dy = normal(y.shape, dtype, 11)
    dx, dw = tape.gradient(y, sources, dy)
    exact = Convolution(
        x[:, :, None],
        w[:, None],
        (stride, 1),
        (dilation, 1),
        padding,
    )
    output, terms = exact.output()[:, :, 0], exact.output(absolute=True)[:, :, 0]
    assert y.shape == output.shape
    assert within(y.value, output, terms, 20)
    dx64, dw64 = exact.gradients(dy[:, :, None])
    dx_terms, dw_terms = exact.gradients(dy[:, :, None], absolute=True)
    assert within(dx, dx64[:, :, 0], dx_terms[:, :, 0], 40)
    assert within(dw, dw64[:, 0], dw_terms[:, 0], 40)


@SHAPES
def test_conv_agrees_with_torch(case: Any) -> None:
    torch = pytest.importorskip("torch")
    shape, size, _, strides, dilation, padding, groups = case
    x, w = arrays(case, F32)
    with GradientTape() as tape:
        sources = [tape.watch(x), tape.watch(w)]
        y = ops.conv(*sources, **settings(case))
    dy = normal(y.shape, F32, 12)
    dx, dw = tape.gradient(y, sources, dy)
    a, b = (torch.from_numpy(array).requires_grad_() for array in (x, w))
    inputs = a.permute(0, 3, 1, 2)
    if padding == "same":
        pads: list[int] = []
        for axis in (1, 0):
            reach = (size[axis] - 1) * dilation[axis] + 1
            count = -(-shape[1 + axis] // strides[axis])
            total = max((count - 1) * strides[axis] + reach - shape[1 + axis], 0)
            pads += [total // 2, total - total // 2]
        inputs = torch.nn.functional.pad(inputs, pads)
    z = torch.nn.functional.conv2d(
        inputs, b.permute(3, 2, 0, 1), None, strides, 0, dilation, groups
    ).permute(0, 2, 3, 1)
    z.backward(torch.from_numpy(dy))
    scale = 1e-5 * np.sqrt(w.size)
    np.testing.assert_allclose(y.value, z.detach().numpy(), rtol=1e-5, atol=scale)
    np.testing.assert_allclose(dx, a.grad.numpy(), rtol=1e-5, atol=scale)
    np.testing.assert_allclose(dw, b.grad.numpy(), rtol=1e-5, atol=scale)


def test_conv_reads_any_layout_and_keeps_nan_in_its_windows() -> None:
    x, w = arrays(CASES[0], F32)
    flipped = np.asfortranarray(x)
    assert_same_bits(ops.conv(flipped, w), ops.conv(x, w))
    x[0, 0, 0, 0] = np.nan
    y = ops.conv(x, w)
    assert np.isnan(y[0, 0, 0]).all()
    assert np.isnan(y).sum() == 4


@pytest.mark.parametrize(
    ("x", "w", "more", "error", "words"),
    [
        ((1, 5, 5, 2), (6, 3, 2, 4), {}, ValueError, "larger than the input"),
        ((1, 5, 5, 2), (3, 3, 3, 4), {}, ValueError, "channels / groups"),
        ((1, 5, 5, 4), (3, 3, 2, 3), {}, ValueError, "multiple"),
        ((5, 5), (3, 3), {}, ValueError, "batch, steps, channels"),
        ((1, 5, 5, 2), (3, 2, 4), {}, ValueError, "channels / groups"),
        ((1, 5, 5, 2), (3, 3, 2, 4), {"strides": 0}, ValueError, "`strides`"),
        ((1, 5, 5, 2), (3, 3, 2, 4), {"strides": 1.5}, TypeError, "`strides`"),
        ((1, 5, 5, 2), (3, 3, 2, 4), {"dilation_rate": (1, 2, 3)}, ValueError, "dil"),
        ((1, 5, 5, 2), (3, 3, 2, 4), {"padding": "causal"}, ValueError, "`padding`"),
        ((1, 5, 5, 2), (3, 3, 2, 4), {"bias": np.ones(3)}, ValueError, "`bias`"),
        ((1, 5, 5, 2), (3, 3, 2, 4), {"activation": "elu"}, ValueError, "activation"),
    ],
    ids=lambda v: str(v)[:30],
)
def test_conv_arguments_that_do_not_fit_raise(
    x: Any, w: Any, more: Any, error: type, words: str
) -> None:
    with pytest.raises(error, match=words):
        ops.conv(np.ones(x, F32), np.ones(w, F32), **more)


def test_conv_of_float64_raises() -> None:
    with pytest.raises(TypeError, match="float32, float16, bfloat16"):
        ops.conv(np.ones((1, 3, 3, 1)), np.ones((2, 2, 1, 1)))


def test_conv_casts_the_kernel_and_reads_the_bias_unrounded_under_autocast() -> None:
    kernel, bias = Variable([[[[1 + 2.0**-12]]]]), Variable([1 + 2.0**-11 + 2.0**-13])
    with autocast.scope("bfloat16"):
        y = ops.conv(np.ones((1, 1, 1, 1), BF16), kernel, bias)
    assert y.item() == 2.0
    assert y.dtype == BF16
