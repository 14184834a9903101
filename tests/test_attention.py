"""dot_product_attention: float64 bounds, gradients, masks, bits, PyTorch, refusals."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import reference
from reference import F16, F32, F64, KERNEL_DTYPES, assert_same_bits
from reference_windows import attention, attention_gradients

import mpcore
from mpcore import GradientTape, ops

DTYPES = pytest.mark.parametrize("dtype", KERNEL_DTYPES, ids=lambda d: d.name)
LEVELS = mpcore.available_isas()

# batch, queries, keys, heads, depth, value depth
SIZES = [
    (1, 1, 1, 1, 1, 1),
    (2, 5, 7, 3, 8, 4),
    (1, 70, 20, 2, 16, 16),
    (2, 130, 130, 1, 33, 17),
    (0, 3, 3, 2, 4, 4),
    (2, 0, 3, 2, 4, 4),
]
SHAPES = pytest.mark.parametrize("size", SIZES, ids=str)
VARIANTS = pytest.mark.parametrize(
    "variant", ["plain", "causal", "mask", "bias", "all"]
)


def normal(shape: tuple[int, ...], dtype: np.dtype, seed: int) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape).astype(dtype)


def arrays(size: Any, dtype: np.dtype) -> list[np.ndarray]:
    batch, queries, keys, heads, depth, value_depth = size
    return [
        normal((batch, queries, heads, depth), dtype, 1),
        normal((batch, keys, heads, depth), dtype, 2),
        normal((batch, keys, heads, value_depth), dtype, 3),
    ]


def settings(size: Any, variant: str) -> dict[str, Any]:
    batch, queries, keys, heads = size[:4]
    more: dict[str, Any] = {}
    if variant in ("mask", "all"):
        mask = np.random.default_rng(4).random((batch, 1, queries, keys)) < 0.7
        mask[..., 0] = True
        more["mask"] = mask
    if variant in ("bias", "all"):
        more["bias"] = normal((heads, queries, keys), F32, 5)
    if variant in ("causal", "all"):
        more["is_causal"] = True
    return more


def run(
    inputs: list[np.ndarray], more: dict[str, Any], dy: np.ndarray | None = None
) -> list[np.ndarray]:
    with GradientTape() as tape:
        sources = [tape.watch(x) for x in inputs]
        y = ops.dot_product_attention(*sources, **more)
    return [y.value, *tape.gradient(y, sources, dy)]


def formula(inputs: list[np.ndarray], more: dict[str, Any]) -> Any:
    return attention(
        *inputs, more.get("bias"), more.get("mask"), more.get("is_causal", False)
    )


@DTYPES
@SHAPES
@VARIANTS
def test_attention_and_gradients_are_within_the_bounds_of_float64(
    isa: str, dtype: np.dtype, size: Any, variant: str
) -> None:
    inputs, more = arrays(size, dtype), settings(size, variant)
    exact, p = formula(inputs, more)
    dy = normal(exact.shape, dtype, 6)
    actual = run(inputs, more, dy)
    q, k, v = (np.abs(x.astype(F64)) for x in inputs)
    d = np.abs(dy.astype(F64))
    # Scores differ by float32 roundings of their sums; then every factor is rounded to
    # the dtype once, and sums are float32.
    unit = 2.0 ** -reference.PRECISION[dtype]
    terms = reference.gamma(sum(size) + 32)
    scores = np.einsum("bihd,bjhd->bhij", q, k).max(initial=1.0) + 4
    relative = 2 * (terms * scores + unit)
    tiny = reference.TINIEST[dtype] * 4 * (max(size) + 1) + 2.0**-100
    dp = np.einsum("bihd,bjhd->bhij", d, v)
    ds = p * (dp + (p * dp).sum(-1, keepdims=True)) / np.sqrt(max(1, size[4]))
    bounds = [
        np.einsum("bhij,bjhd->bihd", p, v),
        np.einsum("bhij,bjhd->bihd", ds, k),
        np.einsum("bhij,bihd->bjhd", ds, q),
        np.einsum("bhij,bihd->bjhd", p, d),
    ]
    wanted = [exact, *attention_gradients(*inputs, p, dy)]
    for array, want, bound in zip(actual, wanted, bounds, strict=True):
        assert array.dtype == dtype
        assert array.shape == want.shape
        largest = np.maximum(1, max(x.max(initial=0) for x in (q, k, v, d)))
        error = 3 * relative * bound + unit * np.abs(want) + tiny * largest
        assert (np.abs(array.astype(F64) - want) <= error).all()


@VARIANTS
def test_attention_formula_has_the_gradients_of_finite_differences(
    variant: str,
) -> None:
    size = (1, 4, 5, 2, 3, 2)
    inputs, more = arrays(size, F64), settings(size, variant)
    y, p = formula(inputs, more)
    dy = normal(y.shape, F64, 7)
    gradients = attention_gradients(*inputs, p, dy)
    for i, gradient in enumerate(gradients):

        def loss(x: np.ndarray, i: int = i) -> float:
            changed = [*inputs[:i], x, *inputs[i + 1 :]]
            return float((formula(changed, more)[0] * dy).sum())

        numeric = reference.finite_difference(loss, inputs[i])
        np.testing.assert_allclose(gradient, numeric, rtol=1e-6, atol=1e-8)


@DTYPES
@VARIANTS
def test_attention_same_bits_on_every_level_thread_count_and_batch(
    dtype: np.dtype, variant: str
) -> None:
    size = (3, 70, 40, 2, 16, 8)
    inputs, more = arrays(size, dtype), settings(size, variant)
    results = []
    for level in LEVELS:
        if dtype == F16 and level == "amx":
            continue
        for count in (1, 2):
            mpcore.set_isa(level)
            mpcore.set_num_threads(count)
            results.append(run(inputs, more))
    for result in results[1:]:
        for array, first in zip(result, results[0], strict=True):
            assert_same_bits(array, first)
    if "mask" in more:
        more["mask"] = more["mask"][:1]
    alone = run([x[:1] for x in inputs], more)
    for array, whole in zip(alone, results[-1], strict=True):
        assert_same_bits(array, whole[:1])


@DTYPES
def test_attention_causal_is_a_mask_to_the_bit(isa: str, dtype: np.dtype) -> None:
    inputs = arrays((2, 150, 150, 2, 8, 8), dtype)
    y = ops.dot_product_attention(*inputs, is_causal=True)
    mask = np.tri(150, dtype=bool)
    assert_same_bits(y, ops.dot_product_attention(*inputs, mask=mask))


def test_attention_query_that_sees_no_key_takes_the_mean(isa: str) -> None:
    inputs = arrays((1, 3, 4, 1, 2, 2), F32)
    mask = np.ones((3, 4), bool)
    mask[1] = False
    y = ops.dot_product_attention(*inputs, mask=mask)
    expected = inputs[2][0, :, 0].mean(axis=0)
    np.testing.assert_allclose(y[0, 1, 0], expected, rtol=1e-6)


def test_attention_masked_keys_do_not_matter(isa: str) -> None:
    inputs = arrays((1, 3, 6, 1, 4, 4), F32)
    mask = np.arange(6) < 4
    y = ops.dot_product_attention(*inputs, mask=mask)
    short = [inputs[0], inputs[1][:, :4], inputs[2][:, :4]]
    assert_same_bits(y, ops.dot_product_attention(*short))
    for array in inputs[1:]:
        array[:, 4:] = 1e30
    assert_same_bits(ops.dot_product_attention(*inputs, mask=mask), y)


def test_attention_large_scores_do_not_overflow(isa: str) -> None:
    q = np.full((1, 2, 1, 1), 1e4, F32)
    k = np.array([1e4, -1e4], F32).reshape(1, 2, 1, 1)
    v = np.array([3, 5], F32).reshape(1, 2, 1, 1)
    assert ops.dot_product_attention(q, k, v).ravel().tolist() == [3, 3]


@VARIANTS
def test_attention_agrees_with_torch(variant: str) -> None:
    torch = pytest.importorskip("torch")
    size = (2, 66, 66, 3, 8, 5)
    inputs, more = arrays(size, F32), settings(size, variant)
    y = run(inputs, more)[0]
    dy = normal(y.shape, F32, 8)
    actual = run(inputs, more, dy)
    tensors = [torch.from_numpy(x).requires_grad_() for x in inputs]
    added = torch.zeros(2, 3, 66, 66)
    if "bias" in more:
        added = added + torch.from_numpy(more["bias"])
    seen = np.ones((66, 66), bool) if "is_causal" not in more else np.tri(66) > 0
    if "mask" in more:
        seen = seen & more["mask"]
    added = added.masked_fill(~torch.from_numpy(seen), -torch.inf)
    heads = [x.transpose(1, 2) for x in tensors]
    z = torch.nn.functional.scaled_dot_product_attention(*heads, attn_mask=added)
    z.transpose(1, 2).backward(torch.from_numpy(dy))
    expected = [z.transpose(1, 2).detach(), *(x.grad for x in tensors)]
    for array, want in zip(actual, expected, strict=True):
        np.testing.assert_allclose(array, want.numpy(), rtol=2e-5, atol=2e-5)


def test_attention_arguments_that_do_not_fit_raise() -> None:
    q, k, v = arrays((2, 3, 4, 2, 5, 5), F32)
    attend = ops.dot_product_attention
    for bad in ((q[:1], k, v), (q, k[..., :4], v), (q, k, v[:, :3]), (q[0], k, v)):
        with pytest.raises(ValueError, match="batch, queries, heads"):
            attend(*bad)
    with pytest.raises(ValueError, match="at least one key"):
        attend(q, k[:, :0], v[:, :0])
    with pytest.raises(TypeError, match="one dtype"):
        attend(q, k.astype(F16), v)
    with pytest.raises(TypeError, match="float32, float16, bfloat16"):
        attend(q.astype(F64), k, v)
    with pytest.raises(TypeError, match="`mask` must be boolean"):
        attend(q, k, v, mask=np.ones((3, 4)))
    with pytest.raises(ValueError, match="`mask` must broadcast"):
        attend(q, k, v, mask=np.ones((3, 5), bool))
    with pytest.raises(ValueError, match="`bias` must broadcast"):
        attend(q, k, v, bias=np.ones((7, 1, 1, 1)))
    with GradientTape() as tape, pytest.raises(ValueError, match="no gradient"):
        attend(q, k, v, bias=tape.watch(np.ones((3, 4), F32)))
