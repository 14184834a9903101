"""Batch normalisation: float64 bounds, bits, gradients, moving statistics."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import reference
import reference_nn
from reference import BF16, F16, F32, F64, KERNEL_DTYPES, assert_same_bits
from reference_nn import assert_within

import mpcore
from mpcore import GradientTape, ops
from mpcore.layers import BatchNormalization, Layer

DTYPES = pytest.mark.parametrize("dtype", KERNEL_DTYPES, ids=lambda d: d.name)
CONSTANT = pytest.mark.parametrize("constant", [False, True], ids=["train", "moving"])
SHAPES = [(2, 1), (7, 1), (16, 3), (65, 49), (64, 16), (131, 300), (3000, 5)]
EPSILON = 1e-3


def numbers(shape: tuple[int, ...], dtype: np.dtype, seed: int) -> np.ndarray:
    generator = np.random.default_rng(seed)
    return (generator.standard_normal(shape) * 3 + 2).astype(dtype)


def moments(cols: int) -> tuple[np.ndarray, np.ndarray]:
    generator = np.random.default_rng(30)
    variance = generator.random(cols) * 4 + 0.5
    return generator.standard_normal(cols).astype(F32), variance.astype(F32)


def normalize(x: Any, scale: Any, offset: Any, constant: bool) -> Any:
    rest = (-1, offset, scale, EPSILON)
    if constant:
        return ops.batch_normalization(x, *moments(x.shape[-1]), *rest)
    return ops.train_batch_normalization(x, *rest)[0]


def run(
    x: np.ndarray, scale: np.ndarray, offset: np.ndarray, dy: np.ndarray, constant: bool
) -> list[np.ndarray]:
    with GradientTape() as tape:
        sources = [tape.watch(a) for a in (x, scale, offset)]
        y = normalize(*sources, constant)
    return [y.value, *tape.gradient(y, sources, output_gradients=dy)]


def exactly(x: np.ndarray, constant: bool) -> reference_nn.Normalized:
    if not constant:
        return reference_nn.normalized(x, 0, EPSILON)
    mean, variance = (m.astype(F64) for m in moments(x.shape[-1]))
    rstd = 1 / np.sqrt(variance + EPSILON)
    h = (x.astype(F64) - mean) * rstd
    return reference_nn.Normalized(h, rstd, np.abs(h) + 1 + rstd * np.abs(mean))


@CONSTANT
def test_gradient_formula_is_the_finite_difference(constant: bool) -> None:
    x, dy = numbers((5, 3), F64, 31), numbers((5, 3), F64, 32)
    scale = reference_nn.as_parameters(3, 33)[0].astype(F64)

    def total(p: np.ndarray) -> float:
        return float((dy * exactly(p, constant).h * scale).sum())

    of = exactly(x, constant)
    exact = reference_nn.norm_gradients(of, scale, dy, 0, constant=constant)
    assert np.allclose(exact.dx, reference.finite_difference(total, x))


@CONSTANT
@DTYPES
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_batch_norm_and_gradients_are_within_bounds_of_float64(
    isa: str, dtype: np.dtype, shape: tuple[int, int], constant: bool
) -> None:
    x, dy = numbers(shape, dtype, 34), numbers(shape, dtype, 35)
    scale, offset = reference_nn.as_parameters(shape[1], 36)
    y, dx, dscale, doffset = run(x, scale, offset, dy, constant)
    of = exactly(x, constant)
    expected = of.h * scale + offset
    error = reference_nn.norm_error(of, scale, 80) + 2.0**-24 * np.abs(expected)
    assert_within(y, expected, error, dtype)
    exact = reference_nn.norm_gradients(of, scale, dy, 0, constant=constant)
    assert_within(dx, exact.dx, exact.dx_error, dtype)
    assert_within(dscale, exact.dscale, exact.dscale_error, F32)
    assert_within(doffset, exact.doffset, exact.doffset_error, F32)


@DTYPES
@pytest.mark.parametrize("rows", [1, 63, 64, 65, 1000, 5000])
def test_moments_are_within_the_bound_of_float64(
    isa: str, dtype: np.dtype, rows: int
) -> None:
    x = numbers((rows, 37), dtype, 37)
    _, mean, variance = ops.train_batch_normalization(x)
    exact = x.astype(F64)
    # A leaf sums differences to its own mean, as that was rounded.
    off = np.abs(exact - exact.mean(0)).mean(0)
    error = reference.gamma(70) * (off + 2.0**-18 * np.abs(exact).mean(0))
    assert_within(mean, exact.mean(0), error, F32)
    assert_within(variance, exact.var(0), reference.gamma(70) * exact.var(0), F32)


def test_moments_far_from_zero_keep_their_precision(isa: str) -> None:
    x = (1e6 + np.random.default_rng(38).integers(-3, 4, (1000, 3))).astype(F32)
    _, mean, variance = ops.train_batch_normalization(x)
    assert_within(mean, x.astype(F64).mean(0), np.full(3, 1e-6), F32)
    assert_within(variance, x.astype(F64).var(0), np.full(3, 1e-5), F32)


@CONSTANT
@DTYPES
def test_batch_norm_same_bits_on_every_level_and_thread_count(
    dtype: np.dtype, constant: bool
) -> None:
    for shape in [(1, 1), (70, 37), (64, 700), (2500, 33)]:
        x, dy = numbers(shape, dtype, 39), numbers(shape, dtype, 40)
        scale, offset = reference_nn.as_parameters(shape[1], 41)
        results = []
        for level in mpcore.available_isas():
            for count in (1, 2):
                mpcore.set_isa(level)
                mpcore.set_num_threads(count)
                results.append(run(x, scale, offset, dy, constant))
        for result in results[1:]:
            for array, first in zip(result, results[0], strict=True):
                assert_same_bits(array, first)


def test_batch_norm_of_a_channel_does_not_depend_on_the_others(isa: str) -> None:
    x, dy = numbers((200, 300), F16, 42), numbers((200, 300), F16, 43)
    x[5, 7], x[6, 8] = np.inf, np.nan
    scale, offset = reference_nn.as_parameters(300, 44)
    whole = run(x, scale, offset, dy, False)
    for j in (0, 6, 9, 256, 299):
        one = (slice(None), slice(j, j + 1))
        alone = run(x[one], scale[j : j + 1], offset[j : j + 1], dy[one], False)
        assert_same_bits(alone[0], whole[0][one])
        assert_same_bits(alone[1], whole[1][one])
    assert np.isnan(whole[0][:, 7:9].astype(F32)).all()


@CONSTANT
@pytest.mark.parametrize("axis", [1, -3])
def test_batch_norm_of_another_axis_is_that_of_the_moved_matrix(
    axis: int, constant: bool
) -> None:
    x, dy = numbers((4, 3, 5, 2), BF16, 45), numbers((4, 3, 5, 2), BF16, 46)
    scale, offset = reference_nn.as_parameters(3, 47)

    def flat(a: np.ndarray) -> np.ndarray:
        return np.moveaxis(a, 1, -1).reshape(-1, 3)

    rest = (axis, offset, scale, EPSILON)
    with GradientTape() as tape:
        source = tape.watch(x)
        if constant:
            y = ops.batch_normalization(source, *moments(3), *rest)
        else:
            y = ops.train_batch_normalization(source, *rest)[0]
    expected = run(flat(x), scale, offset, flat(dy), constant)
    assert_same_bits(flat(y.value), expected[0])
    assert_same_bits(flat(tape.gradient(y, source, dy)), expected[1])


def test_batch_norm_of_equal_elements_is_the_offset(isa: str) -> None:
    x = np.full((100, 5), 0.1, F32)
    offset = np.arange(5, dtype=F32)
    y, _, variance = ops.train_batch_normalization(x, offset=offset, epsilon=1e-12)
    assert_same_bits(y[0], offset)
    assert not variance.any()


def test_batch_norm_of_nothing() -> None:
    nothing = np.ones((0, 3), F32)
    mean, variance = moments(3)
    assert ops.batch_normalization(nothing, mean, variance).shape == (0, 3)
    assert ops.train_batch_normalization(nothing.T)[0].shape == (3, 0)
    with pytest.raises(ValueError, match="needs elements"):
        ops.train_batch_normalization(nothing)


def test_batch_norm_arguments_that_do_not_fit_raise() -> None:
    x = np.ones((2, 3), F32)
    mean, variance = moments(3)
    with pytest.raises(ValueError, match="`variance` must have"):
        ops.batch_normalization(x, mean, variance[:2])
    with pytest.raises(ValueError, match="needs one axis"):
        ops.train_batch_normalization(x, axis=(0, 1))
    with pytest.raises(ValueError, match="`epsilon`"):
        ops.batch_normalization(x, mean, variance, epsilon=-1)
    with GradientTape() as tape, pytest.raises(ValueError, match="constants"):
        ops.batch_normalization(x, tape.watch(mean), variance)


def test_batch_norm_and_gradients_agree_with_pytorch() -> None:
    torch = pytest.importorskip("torch")
    x, dy = numbers((130, 37), F32, 48), numbers((130, 37), F32, 49)
    scale, offset = reference_nn.as_parameters(37, 50)
    tensors = [torch.tensor(a, requires_grad=True) for a in (x, scale, offset)]
    y = torch.nn.functional.batch_norm(
        tensors[0], None, None, *tensors[1:], training=True, eps=EPSILON
    )
    y.backward(torch.tensor(dy))
    theirs = [y.detach().numpy(), *(t.grad.numpy() for t in tensors)]
    of = exactly(x, False)
    exact = reference_nn.norm_gradients(of, scale, dy, 0)
    errors = [
        reference_nn.norm_error(of, scale, 80) + 2.0**-23 * np.abs(theirs[0]),
        *(exact.dx_error, exact.dscale_error, exact.doffset_error),
    ]
    for ours, their, error in zip(
        run(x, scale, offset, dy, False), theirs, errors, strict=True
    ):
        assert (np.abs(ours.astype(F64) - their) <= 2 * error + 2.0**-22).all()


# --- The layer ------------------------------------------------------------------------


@pytest.mark.parametrize("policy", ["float32", "mixed_bfloat16", "mixed_float16"])
def test_layer_moves_its_statistics_in_training_alone(policy: str) -> None:
    layer = BatchNormalization(momentum=0.75, dtype=policy)
    x = numbers((40, 3), F32, 51)
    layer(x)
    names = [v.name for v in layer.variables]
    assert names == ["gamma", "beta", "moving_mean", "moving_variance"]
    assert [v.name for v in layer.trainable_variables] == ["gamma", "beta"]
    assert layer.moving_mean.numpy().tolist() == [0] * 3
    y = layer(x, training=True)
    assert y.dtype == mpcore.dtypes.numpy_dtype(layer.compute_dtype)
    exact = ops.cast(x, layer.compute_dtype).astype(F64)
    assert np.allclose(layer.moving_mean.numpy(), exact.mean(0) * 0.25, rtol=1e-6)
    expected = 0.75 + exact.var(0) * 0.25
    assert np.allclose(layer.moving_variance.numpy(), expected, rtol=1e-6)
    moving = layer.get_weights()
    inference = layer(x)
    of = (exact - moving[2]) / np.sqrt(moving[3].astype(F64) + 1e-3)
    unit = {"float32": 2.0**-21, "mixed_float16": 2.0**-10, "mixed_bfloat16": 2.0**-7}
    assert np.allclose(inference.astype(F64), of, atol=0, rtol=unit[policy] * 4)
    for before, after in zip(moving, layer.get_weights(), strict=True):
        assert_same_bits(before, after)


def test_layer_that_is_not_trainable_uses_the_moving_statistics() -> None:
    layer = BatchNormalization(trainable=False)
    x = numbers((8, 2), F32, 52)
    assert_same_bits(layer(x, training=True), layer(x))
    assert layer.moving_mean.numpy().tolist() == [0, 0]


def test_layer_takes_training_from_the_call_around_it() -> None:
    class Outer(Layer):
        def __init__(self) -> None:
            super().__init__()
            self.inner = BatchNormalization()

        def call(self, x: Any) -> Any:
            return self.inner(x)

    outer = Outer()
    outer(numbers((8, 2), F32, 53), training=True)
    assert outer.inner.moving_mean.numpy().all()


def test_layer_gradients_reach_gamma_beta_and_the_input() -> None:
    layer = BatchNormalization(axis=1, dtype="mixed_bfloat16")
    x = numbers((6, 3, 4), F32, 54)
    with GradientTape() as tape:
        source = tape.watch(x)
        loss = ops.sum(ops.square(layer(source, training=True)))
    dx, *parameters = tape.gradient(loss, [source, *layer.trainable_variables])
    assert dx.shape == x.shape
    assert [d.dtype for d in parameters] == [F32, F32]
    assert all(d.shape == (3,) for d in parameters)


def test_layer_bad_arguments_raise() -> None:
    with pytest.raises(ValueError, match=r"momentum=1\.5"):
        BatchNormalization(momentum=1.5)
    with pytest.raises(ValueError, match="epsilon=0"):
        BatchNormalization(epsilon=0)
    with pytest.raises(ValueError, match="known lengths"):
        BatchNormalization().build((4, None))
    with pytest.raises(TypeError):
        BatchNormalization(axis=[1])
