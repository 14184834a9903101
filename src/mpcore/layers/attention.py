"""MultiHeadAttention: heads that look at a sequence, and their outputs combined."""

import math
import operator
from typing import Any

import numpy as np

from mpcore import constraints, initializers, ops, random, regularizers
from mpcore.layers.layer import Layer
from mpcore.serialization import register

# What a score that does not count becomes on the way that keeps all probabilities.
_MASKED = -(2.0**100)


@register("layers")
class MultiHeadAttention(Layer):
    """Attention of `num_heads` heads: softmax(q k^T / sqrt(key_dim)) v, combined.

    Parameters
    ----------
    num_heads, key_dim : int, >= 1
        Heads, and their size for queries and keys.
    value_dim : int, optional
        Their size for values; default `key_dim`.
    dropout : float in [0, 1), default 0
        The share of probabilities set to 0 in training.
    use_bias : bool, default True
    output_shape : int, optional
        Size of the output's last axis; default that of the query.
    kernel_initializer, bias_initializer : default 'glorot_uniform', 'zeros'
    kernel_regularizer, bias_regularizer, kernel_constraint, bias_constraint : optional
    seed : int, optional
        Of the dropout.
    **kwargs
        See `Layer`.

    Attributes
    ----------
    query_kernel, key_kernel : Variable of shape (features, num_heads, key_dim)
    value_kernel : Variable of shape (features, num_heads, value_dim)
    output_kernel : Variable of shape (num_heads, value_dim, output_shape)
    query_bias, key_bias, value_bias, output_bias : Variable or None

    Notes
    -----
    Scores and softmax are float32. They exist for a block of queries at a time, unless
    probabilities are dropped out or returned.

    Examples
    --------
    >>> import numpy as np, mpcore
    >>> layer = mpcore.layers.MultiHeadAttention(num_heads=2, key_dim=4)
    >>> x = np.ones((3, 5, 8), np.float32)
    >>> layer(x, x, use_causal_mask=True).shape
    (3, 5, 8)
    """

    query_kernel: Any
    query_bias: Any
    key_kernel: Any
    key_bias: Any
    value_kernel: Any
    value_bias: Any
    output_kernel: Any
    output_bias: Any

    def __init__(
        self,
        num_heads: int,
        key_dim: int,
        value_dim: int | None = None,
        dropout: float = 0.0,
        use_bias: bool = True,
        output_shape: int | None = None,
        kernel_initializer: object = "glorot_uniform",
        bias_initializer: object = "zeros",
        kernel_regularizer: object = None,
        bias_regularizer: object = None,
        kernel_constraint: object = None,
        bias_constraint: object = None,
        seed: int | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.num_heads = operator.index(num_heads)
        self.key_dim = operator.index(key_dim)
        self.value_dim = operator.index(key_dim if value_dim is None else value_dim)
        self.output_shape = (
            None if output_shape is None else operator.index(output_shape)
        )
        sizes = (self.num_heads, self.key_dim, self.value_dim, self.output_shape or 1)
        if min(sizes) < 1 or self.output_shape == 0:
            raise ValueError(
                "`num_heads`, `key_dim`, `value_dim`, and `output_shape` must be at "
                f"least 1. Received: {num_heads}, {key_dim}, {value_dim}, "
                f"{output_shape}"
            )
        if not 0 <= dropout < 1:
            raise ValueError(f"`dropout` must be in [0, 1). Received: {dropout}")
        self.dropout = float(dropout)
        self.seed = seed
        self.use_bias = bool(use_bias)
        self.kernel_initializer = initializers.get(kernel_initializer)
        self.bias_initializer = initializers.get(bias_initializer)
        self.kernel_regularizer = regularizers.get(kernel_regularizer)
        self.bias_regularizer = regularizers.get(bias_regularizer)
        self.kernel_constraint = constraints.get(kernel_constraint)
        self.bias_constraint = constraints.get(bias_constraint)
        self._generator = random.generator(seed)

    def build(
        self, query_shape: Any, value_shape: Any = None, key_shape: Any = None
    ) -> None:
        """Create the projections; values and keys default to queries."""
        value_shape = query_shape if value_shape is None else value_shape
        key_shape = value_shape if key_shape is None else key_shape
        for shape in (query_shape, value_shape, key_shape):
            if len(shape) != 3 or shape[-1] is None:
                raise ValueError(
                    f"Layer '{self.name}' needs inputs (batch, positions, features) "
                    f"with known features. Received: shape {tuple(shape)}"
                )
        heads = self.num_heads
        out = self.output_shape or query_shape[-1]
        for role, shape, own in (
            ("query", (query_shape[-1], heads, self.key_dim), 1),
            ("key", (key_shape[-1], heads, self.key_dim), 1),
            ("value", (value_shape[-1], heads, self.value_dim), 1),
            ("output", (heads, self.value_dim, out), 2),
        ):
            self._add_projection(role, shape, own)

    def _add_projection(self, role: str, shape: tuple[int, ...], axes: int) -> None:
        kernel = self.add_weight(
            shape,
            initializer=self.kernel_initializer,
            regularizer=self.kernel_regularizer,
            constraint=self.kernel_constraint,
            name=f"{role}_kernel",
        )
        setattr(self, f"{role}_kernel", kernel)
        bias = None
        if self.use_bias:
            bias = self.add_weight(
                shape[axes:],
                initializer=self.bias_initializer,
                regularizer=self.bias_regularizer,
                constraint=self.bias_constraint,
                name=f"{role}_bias",
            )
        setattr(self, f"{role}_bias", bias)

    def _build_for(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        names = ("query", "value", "key")
        given = dict(zip(names, args, strict=False)) | kwargs
        found = [given.get(name) for name in names]
        self.build(*[None if x is None else tuple(x.shape) for x in found])

    def call(
        self,
        query: Any,
        value: Any,
        key: Any = None,
        attention_mask: Any = None,
        return_attention_scores: bool = False,
        training: bool = False,
        use_causal_mask: bool = False,
    ) -> Any:
        """Let the positions of `query` look at those of `value`.

        Parameters
        ----------
        query : array of shape (batch, queries, features)
        value : array of shape (batch, keys, features)
        key : array of shape (batch, keys, features), optional
            Default: `value`.
        attention_mask : array of bool, optional
            Which keys count: shape (batch, queries, keys), or with heads before the
            queries; axes of length 1 repeat.
        return_attention_scores : bool, default False
            Return the probabilities, (batch, heads, queries, keys), as well.
        use_causal_mask : bool, default False
            Query i sees the keys j <= i alone.
        """
        key = value if key is None else key
        q = ops.dense(query, self.query_kernel, self.query_bias)
        k = ops.dense(key, self.key_kernel, self.key_bias)
        v = ops.dense(value, self.value_kernel, self.value_bias)
        mask = _with_heads(attention_mask)
        scores = None
        if return_attention_scores or (training and self.dropout > 0):
            y, scores = self._attend(q, k, v, mask, use_causal_mask, training)
        else:
            y = ops.dot_product_attention(q, k, v, mask=mask, is_causal=use_causal_mask)
        output = ops.dense(y, self.output_kernel, self.output_bias, axes=2)
        return (output, scores) if return_attention_scores else output

    def _attend(
        self, q: Any, k: Any, v: Any, mask: Any, causal: bool, training: bool
    ) -> tuple[Any, Any]:
        """Return what the heads see and their probabilities, all of them at once."""
        q, k, v = (ops.transpose(x, (0, 2, 1, 3)) for x in (q, k, v))
        scores = ops.matmul(q, ops.transpose(k, (0, 1, 3, 2)), out_dtype="float32")
        scores = ops.multiply(scores, 1 / math.sqrt(self.key_dim))
        if causal:
            seen = np.tri(*scores.shape[-2:]) > 0
            mask = seen if mask is None else mask & seen
        if mask is not None:
            # Exactly _MASKED where a score does not count, whatever it was.
            kept = mask.astype(np.float32)
            scores = ops.add(ops.multiply(scores, kept), _MASKED * (1 - kept))
        probabilities = ops.cast(ops.softmax(scores), q.dtype)
        dropped = probabilities
        if training and self.dropout > 0:
            dropped = ops.dropout(probabilities, self.dropout, self._generator)
        y = ops.transpose(ops.matmul(dropped, v), (0, 2, 1, 3))
        return y, dropped

    def compute_output_shape(self, query_shape: Any, *others: Any) -> Any:
        """Return the query's shape with `output_shape` as last dimension."""
        return (*query_shape[:-1], self.output_shape or query_shape[-1])

    def get_config(self) -> dict[str, Any]:
        """Return the JSON-plain constructor arguments."""
        return super().get_config() | {
            "num_heads": self.num_heads,
            "key_dim": self.key_dim,
            "value_dim": self.value_dim,
            "dropout": self.dropout,
            "use_bias": self.use_bias,
            "output_shape": self.output_shape,
            "kernel_initializer": initializers.serialize(self.kernel_initializer),
            "bias_initializer": initializers.serialize(self.bias_initializer),
            "kernel_regularizer": regularizers.serialize(self.kernel_regularizer),
            "bias_regularizer": regularizers.serialize(self.bias_regularizer),
            "kernel_constraint": constraints.serialize(self.kernel_constraint),
            "bias_constraint": constraints.serialize(self.bias_constraint),
            "seed": self.seed,
        }


def _with_heads(mask: Any) -> np.ndarray | None:
    """Return a mask of shape (batch, heads, queries, keys), or None."""
    if mask is None:
        return None
    array = np.asarray(mask).astype(bool)
    if array.ndim == 3:
        array = array[:, np.newaxis]
    if array.ndim != 4:
        raise ValueError(
            "`attention_mask` must have shape (batch, queries, keys) or (batch, heads, "
            f"queries, keys). Received: shape {array.shape}"
        )
    return array
