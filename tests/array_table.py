"""Every public function of arrays, and the layouts an array may come in."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from reference import F32, KERNEL_DTYPES

from mpcore import Tensor, Variable, ops

SHAPE = (4, 6)
Function = Callable[[np.ndarray], Any]


def in_place(function: Callable[[np.ndarray], None], shape: tuple[int, ...]) -> Any:
    total = np.ones(shape, F32)
    function(total)
    return total


# name -> function of one array of shape (4, 6), or (..., 6).
FUNCTIONS: dict[str, Function] = {
    "abs": ops.abs,
    "add": lambda x: ops.add(x, x),
    "accumulate": lambda x: in_place(lambda t: ops.accumulate([t], [x]), x.shape),
    "all_finite": lambda x: ops.all_finite([x]),
    "assign": lambda x: Variable(np.zeros(x.shape, x.dtype)).assign(x).value,
    "batch_normalization": lambda x: ops.batch_normalization(
        x, *np.ones((2, *x.shape[-1:]), F32)
    ),
    "cast": lambda x: ops.cast(x, "float32"),
    "cast_down": lambda x: ops.cast(x, "float16"),
    "clip": lambda x: ops.clip(x, -1, 1),
    "concatenate": lambda x: ops.concatenate([x, x]),
    "dense": lambda x: ops.dense(x, values(F32, (6, 3)), np.ones(3, F32), "relu"),
    "divide": lambda x: ops.divide(x, 3),
    "dropout": lambda x: ops.dropout(x, 0.5, np.random.default_rng(0)),
    "embedding": lambda x: ops.embedding([1, 0, 1], x),
    "exp": ops.exp,
    "expand_dims": lambda x: ops.expand_dims(x, 0),
    "flatten": ops.flatten,
    "gelu": ops.gelu,
    "getitem": lambda x: ops.getitem(x, (..., slice(1, 4))),
    "global_norm": lambda x: ops.global_norm([x]),
    "layer_normalization": ops.layer_normalization,
    "lerp": lambda x: in_place(lambda t: ops.lerp([t], [x], 0.5), x.shape),
    "linear": ops.linear,
    "log": ops.log,
    "log1p": ops.log1p,
    "log_softmax": ops.log_softmax,
    "matmul_left": lambda x: ops.matmul(x, operand_of(x, (6, 3))),
    "matmul_right": lambda x: ops.matmul(operand_of(x, (3, *x.shape[-2:-1])), x),
    "max": lambda x: ops.max(x, axis=-1),
    "maximum": lambda x: ops.maximum(x, 0),
    "mean": lambda x: ops.mean(x, axis=-1),
    "min": lambda x: ops.min(x, axis=-1),
    "minimum": lambda x: ops.minimum(x, 0),
    "multiply": lambda x: ops.multiply(x, x),
    "negative": ops.negative,
    "norms": lambda x: ops.norms([x]),
    "pad": lambda x: ops.pad(x, 1),
    "power": lambda x: ops.power(x, 2),
    "relu": ops.relu,
    "reshape": lambda x: ops.reshape(x, -1),
    "rms_normalization": ops.rms_normalization,
    "sigmoid": ops.sigmoid,
    "silu": ops.silu,
    "softmax": ops.softmax,
    "sgd_grad": lambda x: sgd(np.zeros(x.shape, F32), x),
    "split": lambda x: ops.split(x, 2, axis=-1),
    "sqrt": ops.sqrt,
    "square": ops.square,
    "squeeze": ops.squeeze,
    "stack": lambda x: ops.stack([x, x]),
    "subtract": lambda x: ops.subtract(1, x),
    "sum": lambda x: ops.sum(x, axis=0),
    "sum_all": ops.sum,
    "tanh": ops.tanh,
    "tensor": lambda x: Tensor(x).numpy(),
    "train_batch_normalization": lambda x: ops.train_batch_normalization(x),
    "transpose": ops.transpose,
    "unscale": lambda x: ops.unscale([x], 0.5),
    "var": lambda x: ops.var(x, axis=-1),
    "variable": lambda x: Variable(x).value,
    "where": lambda x: ops.where(True, x, 0),
    "xent": lambda x: ops.sparse_softmax_cross_entropy(np.zeros(x.shape[:-1], int), x),
    "xent_one_hot": lambda x: ops.softmax_cross_entropy(np.ones(x.shape, F32), x),
}


def alone(x: np.ndarray) -> np.ndarray:
    """Return a batch of one sequence, a view."""
    return np.asarray(x)[None]


# The same for functions of sequences.
SEQUENCES: dict[str, Function] = {
    "average_pool": lambda x: ops.average_pool(alone(x), 2),
    "conv": lambda x: ops.conv(alone(x), values(F32, (2, 6, 3))),
    "dot_product_attention": lambda x: ops.dot_product_attention(
        *(alone(x)[:, :, None],) * 3
    ),
    "gru": lambda x: ops.gru(alone(x), values(F32, (6, 9)), values(F32, (3, 9))),
    "max_pool": lambda x: ops.max_pool(alone(x), 2),
}
# Public functions whose arrays are those of others in the table.
ELSEWHERE = {
    "PackedMatrix",  # in its own tests
    "activation",  # relu, sigmoid, tanh by name
    "adam_step",
    "loss_scale_update",
    "matmul",
    "optim_step",
    "sgd_step",
    "softmax_cross_entropy",
    "sparse_softmax_cross_entropy",
}


def native_dtype(x: np.ndarray) -> np.dtype:
    return x.dtype.newbyteorder("=")


def operand_of(x: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
    """Return the other operand of a product with `x`."""
    return values(native_dtype(x) if native_dtype(x) in KERNEL_DTYPES else F32, shape)


def sgd(param: np.ndarray, grad: np.ndarray) -> np.ndarray:
    ops.sgd_step([param], [grad], [None], [()], learning_rate=0.5)
    return param


def values(dtype: np.dtype, shape: tuple[int, ...] = SHAPE) -> np.ndarray:
    return np.random.default_rng(3).standard_normal(shape).astype(dtype)


def misaligned(x: np.ndarray) -> np.ndarray:
    y = np.frombuffer(bytearray(x.nbytes + 1), np.uint8)[1:].view(x.dtype)
    y = y.reshape(x.shape)
    y[...] = x
    return y


def read_only(x: np.ndarray) -> np.ndarray:
    y = x.copy()
    y.flags.writeable = False
    return y


def strided(x: np.ndarray) -> np.ndarray:
    wide = np.full((2 * x.shape[0], 3 * x.shape[1]), np.nan, x.dtype)
    wide[::2, 1::3] = x
    return wide[::2, 1::3]


def in_records(x: np.ndarray) -> np.ndarray:
    """Elements that are no number of elements apart."""
    record = np.zeros(x.shape, [("tag", np.int8), ("x", x.dtype)])
    record["x"] = x
    return record["x"]


LAYOUTS: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "read_only": read_only,
    "byte_swapped": lambda x: x.astype(x.dtype.newbyteorder(">")),
    "misaligned": misaligned,
    "fortran": np.asfortranarray,
    "strided": strided,
    "negative_strides": lambda x: x[::-1, ::-1].copy()[::-1, ::-1],
    "odd_strides": in_records,
    "matrix": lambda x: x.view(np.matrix),
    "memmap_like": lambda x: x.view(type("Sub", (np.ndarray,), {})),
}
