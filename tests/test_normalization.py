"""Layer and RMS normalisation: float64 bounds, bits, gradients, layers."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import reference
import reference_nn
from reference import BF16, F16, F32, F64, KERNEL_DTYPES, assert_same_bits
from reference_nn import assert_within

import mpcore
from mpcore import GradientTape, Variable, ops
from mpcore.layers import LayerNormalization, RMSNormalization

DTYPES = pytest.mark.parametrize("dtype", KERNEL_DTYPES, ids=lambda d: d.name)
CENTER = pytest.mark.parametrize("center", [True, False], ids=["layer", "rms"])
SHAPES = [(1, 1), (1, 7), (3, 16), (5, 49), (64, 64), (131, 65), (2, 3001), (70, 1000)]
EPSILON = 1e-3


def numbers(shape: tuple[int, ...], dtype: np.dtype, seed: int) -> np.ndarray:
    generator = np.random.default_rng(seed)
    return (generator.standard_normal(shape) * 3 + 2).astype(dtype)


def normalize(x: Any, scale: Any, offset: Any, center: bool) -> Any:
    if center:
        return ops.layer_normalization(x, scale, offset, epsilon=EPSILON)
    return ops.rms_normalization(x, scale, epsilon=EPSILON)


def run(
    x: np.ndarray, scale: Any, offset: Any, dy: np.ndarray, center: bool
) -> list[np.ndarray]:
    """Return the result and the gradients of x, scale, and offset."""
    with GradientTape() as tape:
        source, *parameters = (
            None if a is None else tape.watch(a) for a in (x, scale, offset)
        )
        y = normalize(source, *parameters, center)
    sources = [s for s in (source, *parameters[: 1 + center]) if s is not None]
    return [y.value, *tape.gradient(y, sources, output_gradients=dy)]


@CENTER
def test_gradient_formula_is_the_finite_difference(center: bool) -> None:
    x, dy = numbers((3, 5), F64, 1), numbers((3, 5), F64, 2)
    scale, offset = (p.astype(F64) for p in reference_nn.as_parameters(5, 3))

    def total(x: np.ndarray, scale: np.ndarray, offset: np.ndarray) -> float:
        h = reference_nn.normalized(x, 1, EPSILON, center).h
        return float((dy * (h * scale + offset)).sum())

    of = reference_nn.normalized(x, 1, EPSILON, center)
    exact = reference_nn.norm_gradients(of, scale, dy, 1, center)
    for gradient, function, at in (
        (exact.dx, lambda p: total(p, scale, offset), x),
        (exact.dscale, lambda p: total(x, p, offset), scale),
        (exact.doffset, lambda p: total(x, scale, p), offset),
    ):
        assert np.allclose(gradient, reference.finite_difference(function, at))


@CENTER
@DTYPES
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_norm_and_gradients_are_within_bounds_of_float64(
    isa: str, dtype: np.dtype, shape: tuple[int, int], center: bool
) -> None:
    x, dy = numbers(shape, dtype, 4), numbers(shape, dtype, 5)
    scale, offset = reference_nn.as_parameters(shape[1], 6)
    y, dx, dscale, *doffset = run(x, scale, offset, dy, center)
    of = reference_nn.normalized(x, 1, EPSILON, center)
    expected = of.h * scale + (offset if center else 0)
    error = reference_nn.norm_error(of, scale, shape[1] / 64)
    # h * scale and offset may cancel: the last rounding is of the sum, not of them.
    assert_within(y, expected, error + 2.0**-24 * np.abs(expected), dtype)
    exact = reference_nn.norm_gradients(of, scale, dy, 1, center)
    assert_within(dx, exact.dx, exact.dx_error, dtype)
    assert_within(dscale, exact.dscale, exact.dscale_error, F32)
    if center:
        assert_within(doffset[0], exact.doffset, exact.doffset_error, F32)


@CENTER
@DTYPES
def test_norm_same_bits_on_every_level_and_thread_count(
    dtype: np.dtype, center: bool
) -> None:
    for shape in [(1, 1), (70, 37), (200, 64), (3, 1031), (1100, 130)]:
        x, dy = numbers(shape, dtype, 7), numbers(shape, dtype, 8)
        scale, offset = reference_nn.as_parameters(shape[1], 9)
        results = []
        for level in mpcore.available_isas():
            for count in (1, 2):
                mpcore.set_isa(level)
                mpcore.set_num_threads(count)
                results.append(run(x, scale, offset, dy, center))
        for result in results[1:]:
            for array, first in zip(result, results[0], strict=True):
                assert_same_bits(array, first)


@CENTER
@DTYPES
def test_norm_of_a_row_does_not_depend_on_the_others(
    dtype: np.dtype, center: bool
) -> None:
    x, dy = numbers((130, 77), dtype, 10), numbers((130, 77), dtype, 11)
    x[3], x[5, 0], x[6, 1] = 0, np.inf, np.nan
    scale, offset = reference_nn.as_parameters(77, 12)
    y, dx, *_ = run(x, scale, offset, dy, center)
    for i in (0, 3, 4, 7, 129):
        one = run(x[i : i + 1], scale, offset, dy[i : i + 1], center)
        assert_same_bits(one[0], y[i : i + 1])
        assert_same_bits(one[1], dx[i : i + 1])
    assert np.isnan(y[6].astype(F32)).all()


@DTYPES
@pytest.mark.parametrize("value", [0.0, 1.0, 3.3, -1000.7, 6e4])
@pytest.mark.parametrize("cols", [1, 3, 17, 100, 4099])
def test_layer_norm_of_equal_elements_is_beta(
    isa: str, dtype: np.dtype, value: float, cols: int
) -> None:
    x = np.full((2, cols), value, dtype)
    _, beta = reference_nn.as_parameters(cols, 13)
    y = ops.layer_normalization(x, None, beta, epsilon=1e-12)
    assert_same_bits(y[0], ops.cast(beta, dtype))


def test_layer_norm_far_from_zero_keeps_its_precision(isa: str) -> None:
    # Deviations of 1 at 1e6: sums of squares would lose them all.
    x = (1e6 + np.random.default_rng(14).integers(-3, 4, (4, 1000))).astype(F32)
    y = ops.layer_normalization(x, epsilon=EPSILON)
    of = reference_nn.normalized(x, 1, EPSILON)
    # The mean is off by half an ulp of 1e6, which is 2^-5.
    assert (np.abs(y - of.h) <= 2.0**-5 * of.rstd + 2.0**-18 * np.abs(of.h)).all()


@pytest.mark.parametrize("function", [ops.layer_normalization, ops.rms_normalization])
def test_norm_of_subnormals_counts_them_at_full_value(isa: str, function: Any) -> None:
    x = np.array([[2.0**-140, -(2.0**-141), 2.0**-149, 0]], F32)
    y = function(x, epsilon=2.0**-126)
    center = function is ops.layer_normalization
    of = reference_nn.normalized(x, 1, 2.0**-126, center)
    assert (y != 0).any()
    # The mean is a subnormal number too.
    assert (np.abs(y - of.h) <= 2.0**-20 * np.abs(of.h) + 2.0**-149 * of.rstd).all()


@CENTER
@pytest.mark.parametrize("shape", [(0, 3), (3, 0), (2, 0, 4)], ids=str)
def test_norm_of_nothing_is_nothing(shape: tuple[int, ...], center: bool) -> None:
    ones = np.ones(shape[-1], F32)
    y, dx, dscale, *_ = run(
        np.ones(shape, F32), ones, ones, np.ones(shape, F32), center
    )
    assert y.shape == dx.shape == shape
    assert dscale.tolist() == [0] * shape[-1]


@CENTER
@pytest.mark.parametrize(
    "axis", [0, 1, -2, (0, 2), (1, 2), (-1, 0), (0, 1, 2)], ids=str
)
def test_norm_over_any_axes_is_that_of_the_moved_matrix(
    axis: Any, center: bool
) -> None:
    x, dy = numbers((4, 5, 6), F16, 15), numbers((4, 5, 6), F16, 16)
    axes = np.lib.array_utils.normalize_axis_tuple(axis, 3)
    axes = tuple(sorted(axes))
    shape = tuple(x.shape[i] for i in axes)
    scale, offset = reference_nn.as_parameters(int(np.prod(shape)), 17)
    op = ops.layer_normalization if center else ops.rms_normalization
    parameters = (scale.reshape(shape), offset.reshape(shape))[: 1 + center]

    def flat(a: np.ndarray) -> np.ndarray:
        return np.moveaxis(a, axes, range(-len(axes), 0)).reshape(-1, scale.size)

    with GradientTape() as tape:
        sources = [tape.watch(a) for a in (x, *parameters)]
        y = op(*sources, axis=axis, epsilon=EPSILON)
    gradients = tape.gradient(y, sources, output_gradients=dy)
    expected = run(flat(x), scale, offset, flat(dy), center)
    assert_same_bits(flat(y.value), expected[0])
    assert_same_bits(flat(gradients[0]), expected[1])
    assert gradients[1].shape == shape
    assert_same_bits(gradients[1].reshape(-1), expected[2])


def test_norm_without_parameters_equals_neutral_ones(isa: str) -> None:
    x, dy = numbers((9, 35), BF16, 18), numbers((9, 35), BF16, 19)
    ones, zeros = np.ones(35, F32), np.zeros(35, F32)
    bare, full = run(x, None, None, dy, True), run(x, ones, zeros, dy, True)
    assert_same_bits(bare[1], full[1])
    assert np.array_equal(bare[0].astype(F32), full[0].astype(F32))


def test_norm_of_a_variable_has_float32_gradients_for_parameters() -> None:
    gamma = Variable(np.ones(4, F32))
    with GradientTape() as tape:
        y = ops.layer_normalization(numbers((3, 4), BF16, 20), gamma)
    assert y.dtype == "bfloat16"
    assert tape.gradient(y, gamma).dtype == F32


@pytest.mark.parametrize(
    ("call", "error", "match"),
    [
        (lambda x: ops.layer_normalization(x.astype(F64)), TypeError, "Supported"),
        (lambda x: ops.layer_normalization(x, np.ones(2, F32)), ValueError, "`gamma`"),
        (
            lambda x: ops.layer_normalization(x, None, np.ones((3, 1), F32)),
            ValueError,
            "`beta` must have the lengths",
        ),
        (lambda x: ops.layer_normalization(x, epsilon=0), ValueError, "`epsilon`"),
        (lambda x: ops.rms_normalization(x, epsilon=np.nan), ValueError, "`epsilon`"),
        (lambda x: ops.rms_normalization(x, axis=2), np.exceptions.AxisError, "axis"),
        (lambda x: ops.rms_normalization(x, axis=()), ValueError, "at least one axis"),
        (lambda x: ops.layer_normalization(x, axis=(1, 1)), ValueError, "axis"),
    ],
)
def test_norm_arguments_that_do_not_fit_raise(
    call: Any, error: type[Exception], match: str
) -> None:
    with pytest.raises(error, match=match):
        call(np.ones((2, 3), F32))


@CENTER
def test_norm_and_gradients_agree_with_pytorch(center: bool) -> None:
    torch = pytest.importorskip("torch")
    x, dy = numbers((37, 129), F32, 21), numbers((37, 129), F32, 22)
    scale, offset = reference_nn.as_parameters(129, 23)
    tensors = [torch.tensor(a, requires_grad=True) for a in (x, scale, offset)]
    functional = torch.nn.functional
    if center:
        y = functional.layer_norm(tensors[0], (129,), *tensors[1:], eps=EPSILON)
    else:
        y = functional.rms_norm(tensors[0], (129,), tensors[1], eps=EPSILON)
    y.backward(torch.tensor(dy))
    theirs = [
        y.detach().numpy(),
        *(t.grad.numpy() for t in tensors if t.grad is not None),
    ]
    of = reference_nn.normalized(x, 1, EPSILON, center)
    exact = reference_nn.norm_gradients(of, scale, dy, 1, center)
    errors = [
        reference_nn.norm_error(of, scale, 129 / 64) + 2.0**-23 * np.abs(theirs[0]),
        *(exact.dx_error, exact.dscale_error, exact.doffset_error),
    ]
    for ours, their, error in zip(
        run(x, scale, offset, dy, center), theirs, errors, strict=False
    ):
        assert (np.abs(ours.astype(F64) - their) <= 2 * error + 2.0**-22).all()


# --- Layers ---------------------------------------------------------------------------


@pytest.mark.parametrize("policy", ["float32", "mixed_bfloat16", "mixed_float16"])
@pytest.mark.parametrize("cls", [LayerNormalization, RMSNormalization])
def test_norm_layer_is_the_op_with_its_variables(cls: Any, policy: str) -> None:
    layer = cls(axis=-1, epsilon=0.25, dtype=policy)
    x = numbers((3, 4, 5), F32, 24)
    y = layer(x)
    cast = ops.cast(x, layer.compute_dtype)
    if cls is LayerNormalization:
        assert [v.path.split("/")[-1] for v in layer.variables] == ["gamma", "beta"]
        expected = ops.layer_normalization(
            cast, layer.gamma, layer.beta, epsilon=layer.epsilon
        )
    else:
        assert [v.path.split("/")[-1] for v in layer.variables] == ["scale"]
        expected = ops.rms_normalization(cast, layer.scale, epsilon=layer.epsilon)
    assert_same_bits(y, expected)
    assert {v.dtype for v in layer.variables} == {"float32"}
    assert layer.compute_output_shape((None, 4, 5)) == (None, 4, 5)


def test_layer_norm_layer_without_center_and_scale_has_no_variables() -> None:
    layer = LayerNormalization(center=False, scale=False)
    assert layer(np.ones((2, 3), F32)).tolist() == [[0] * 3] * 2
    assert layer.variables == []


def test_h57_layer_norm_of_a_constant_row_in_half_is_zero() -> None:
    layer = LayerNormalization(epsilon=1e-12, dtype="mixed_float16")
    y = layer(np.full((1, 768), 0.1, F32))
    assert y.dtype == F16
    assert not y.any()


def test_norm_layer_bad_arguments_raise() -> None:
    with pytest.raises(ValueError, match="epsilon=0"):
        LayerNormalization(epsilon=0)
    with pytest.raises(ValueError, match=r"'flat'.*known lengths"):
        RMSNormalization(axis=3, name="flat").build((None, 4))
    with pytest.raises(ValueError, match=r"'unknown'.*known lengths"):
        LayerNormalization(name="unknown").build((4, None))
    with pytest.raises(TypeError):
        LayerNormalization(axis=1.5)
