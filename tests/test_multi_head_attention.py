"""MultiHeadAttention: its formula, masks, ways to compute, Keras, config, refusals."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import reference_windows
from reference import F32, F64, assert_same_bits

from mpcore import GradientTape, ops
from mpcore.layers import MultiHeadAttention


def normal(*shape: int, seed: int = 1) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape).astype(F32)


def formula(
    layer: Any, query: np.ndarray, value: np.ndarray, key: np.ndarray, **more: Any
) -> tuple[np.ndarray, np.ndarray]:
    """Return output and probabilities in float64."""

    def project(role: str, x: np.ndarray) -> np.ndarray:
        kernel = getattr(layer, f"{role}_kernel").numpy().astype(F64)
        return np.einsum("btf,fnh->btnh", x, kernel) + getattr(layer, f"{role}_bias")

    q, k, v = (
        project(role, x)
        for role, x in (("query", query), ("key", key), ("value", value))
    )
    y, p = reference_windows.attention(q, k, v, **more)
    kernel = layer.output_kernel.numpy().astype(F64)
    return np.einsum("bqnh,nho->bqo", y, kernel) + layer.output_bias, p


def with_biases(layer: Any) -> Any:
    for i, variable in enumerate(layer.variables):
        variable.assign(normal(*variable.shape, seed=i + 10) / 2)
    return layer


@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("scores", [False, True])
def test_attention_layer_is_its_formula(
    masked: bool, causal: bool, scores: bool
) -> None:
    layer = MultiHeadAttention(3, 4, value_dim=5, output_shape=7)
    query, value, key = normal(2, 6, 8), normal(2, 9, 10), normal(2, 9, 11)
    layer(query, value, key)
    with_biases(layer)
    mask = np.random.default_rng(2).random((2, 6, 9)) < 0.7 if masked else None
    result = layer(
        query,
        value,
        key,
        attention_mask=mask,
        return_attention_scores=scores,
        use_causal_mask=causal,
    )
    wide = None if mask is None else mask[:, None]
    y, p = formula(layer, query, value, key, mask=wide, causal=causal)
    if scores:
        np.testing.assert_allclose(result[1], p, rtol=1e-4, atol=1e-5)
    output = result[0] if scores else result
    np.testing.assert_allclose(output, y, rtol=1e-4, atol=1e-4)
    assert output.shape == (2, 6, 7)
    assert layer.compute_output_shape((None, 6, 8)) == (None, 6, 7)


def test_attention_layer_of_one_input_trains_all_its_variables() -> None:
    layer = MultiHeadAttention(2, 4, dtype="mixed_bfloat16")
    x = normal(2, 5, 6)
    with GradientTape() as tape:
        y = layer(x, x, use_causal_mask=True)
        loss = ops.sum(ops.square(ops.cast(y, "float32")))
    gradients = tape.gradient(loss, layer.trainable_variables)
    assert y.dtype == "bfloat16"
    shapes = [(6, 2, 4), (2, 4), (6, 2, 4), (2, 4), (6, 2, 4), (2, 4), (2, 4, 6), (6,)]
    assert [v.shape for v in layer.trainable_variables] == shapes
    for variable, gradient in zip(layer.trainable_variables, gradients, strict=True):
        assert (gradient.shape, gradient.dtype) == (variable.shape, F32)
        # A bias of the keys adds the same to all scores of a query.
        if "key_bias" not in variable.path:
            assert np.abs(gradient).max() > 1e-3


def test_attention_layer_both_ways_have_the_same_gradients() -> None:
    layer = MultiHeadAttention(2, 4)
    x = normal(2, 5, 6)
    mask = np.random.default_rng(3).random((2, 5, 5)) < 0.6
    layer(x, x)
    with_biases(layer)
    results = []
    for scores in (False, True):
        with GradientTape() as tape:
            y = layer(x, x, attention_mask=mask, return_attention_scores=scores)
            loss = ops.sum(ops.square(y[0] if scores else y))
        results.append(tape.gradient(loss, layer.trainable_variables))
    for one, other in zip(*results, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-4)


def test_attention_layer_dropout_acts_in_training_alone() -> None:
    layer = MultiHeadAttention(2, 4, dropout=0.5, seed=1)
    x = normal(2, 8, 6)
    quiet = layer(x, x)
    assert_same_bits(layer(x, x, training=False), quiet)
    noisy, scores = layer(x, x, training=True, return_attention_scores=True)
    assert np.abs(noisy - quiet).max() > 1e-3
    assert 0.3 < (np.asarray(scores) == 0).mean() < 0.7


def test_attention_layer_goes_through_its_config() -> None:
    layer = MultiHeadAttention(2, 3, value_dim=5, output_shape=4, use_bias=False)
    again = MultiHeadAttention.from_config(layer.get_config())
    assert again.get_config() == layer.get_config()
    x = normal(1, 4, 6)
    layer(x, x)
    again.build(x.shape)
    again.set_weights(layer.get_weights())
    assert_same_bits(again(x, x), layer(x, x))
    assert len(layer.get_weights()) == 4


def test_attention_layer_arguments_that_are_not_valid_raise() -> None:
    for arguments in ((0, 3), (2, 0), (2, 3, 0)):
        with pytest.raises(ValueError, match="`num_heads`"):
            MultiHeadAttention(*arguments)
    with pytest.raises(ValueError, match="`output_shape`"):
        MultiHeadAttention(2, 3, output_shape=0)
    with pytest.raises(ValueError, match="`dropout`"):
        MultiHeadAttention(2, 3, dropout=1)
    layer = MultiHeadAttention(2, 3)
    x = normal(1, 4, 6)
    with pytest.raises(ValueError, match="positions, features"):
        layer(x[0], x[0])
    with pytest.raises(ValueError, match="`attention_mask`"):
        layer(x, x, attention_mask=np.ones((4, 4), bool))


@pytest.mark.parametrize("causal", [False, True])
def test_attention_layer_agrees_with_torch(causal: bool) -> None:
    torch = pytest.importorskip("torch")
    layer = MultiHeadAttention(2, 4)
    x = normal(3, 7, 8)
    layer(x, x)
    with_biases(layer)
    peer = torch.nn.MultiheadAttention(8, 2, batch_first=True)
    w = layer.get_weights()
    with torch.no_grad():
        stacked = [w[i].reshape(8, 8).T for i in (0, 2, 4)]
        peer.in_proj_weight.copy_(torch.from_numpy(np.concatenate(stacked)))
        biases = np.concatenate([w[i].ravel() for i in (1, 3, 5)])
        peer.in_proj_bias.copy_(torch.from_numpy(biases))
        peer.out_proj.weight.copy_(torch.from_numpy(w[6].reshape(8, 8).T.copy()))
        peer.out_proj.bias.copy_(torch.from_numpy(w[7]))
    a = torch.from_numpy(x).requires_grad_()
    hidden = torch.ones(7, 7).triu(1).bool() if causal else None
    z, _ = peer(a, a, a, attn_mask=hidden, need_weights=False)
    dy = normal(3, 7, 8, seed=5)
    z.backward(torch.from_numpy(dy))
    with GradientTape() as tape:
        source = tape.watch(x)
        y = layer(source, source, use_causal_mask=causal)
    dx, dkernel = tape.gradient(y, [source, layer.query_kernel], dy)
    np.testing.assert_allclose(y.value, z.detach().numpy(), rtol=1e-4, atol=1e-4)
    np.testing.assert_allclose(dx, a.grad.numpy(), rtol=1e-4, atol=1e-4)
    want = peer.in_proj_weight.grad.numpy()[:8].T.reshape(8, 2, 4)
    np.testing.assert_allclose(dkernel, want, rtol=1e-4, atol=2e-4)
