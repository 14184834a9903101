"""Array functions, each with its gradient beside it.

They take arrays, Tensors, and Variables, and return arrays; Tensors where a tape
records or a Tensor went in. This package alone talks to the core.
"""

from mpcore.ops import elementwise
from mpcore.ops.arithmetic import (
    abs,
    add,
    clip,
    divide,
    exp,
    log,
    log1p,
    maximum,
    minimum,
    multiply,
    negative,
    power,
    sqrt,
    square,
    subtract,
    where,
)
from mpcore.ops.attention import dot_product_attention
from mpcore.ops.cast import cast
from mpcore.ops.conv import conv
from mpcore.ops.dense import dense
from mpcore.ops.embedding import embedding
from mpcore.ops.gemm import PackedMatrix, matmul
from mpcore.ops.grad import (
    accumulate,
    all_finite,
    global_norm,
    lerp,
    loss_scale_update,
    norms,
    unscale,
)
from mpcore.ops.nn import (
    activation,
    dropout,
    gelu,
    linear,
    relu,
    sigmoid,
    silu,
    tanh,
)
from mpcore.ops.normalization import (
    batch_normalization,
    layer_normalization,
    rms_normalization,
    train_batch_normalization,
)
from mpcore.ops.optim import adam_step, optim_step, sgd_step
from mpcore.ops.pooling import average_pool, max_pool
from mpcore.ops.recurrent import gru
from mpcore.ops.reductions import max, mean, min, sum, var
from mpcore.ops.runtime import (
    available_isas,
    build_info,
    cpu_info,
    get_float32_matmul_precision,
    get_isa,
    get_num_threads,
    kernel_notes,
    memory_info,
    set_float32_matmul_precision,
    set_isa,
    set_num_threads,
    trim_memory,
    version,
)
from mpcore.ops.shapes import (
    concatenate,
    expand_dims,
    flatten,
    getitem,
    pad,
    reshape,
    split,
    squeeze,
    stack,
    transpose,
)
from mpcore.ops.softmax import (
    log_softmax,
    softmax,
    softmax_cross_entropy,
    sparse_softmax_cross_entropy,
)
from mpcore.tape import install_accumulate, install_operators

__all__ = [
    "PackedMatrix",
    "abs",
    "accumulate",
    "activation",
    "adam_step",
    "add",
    "all_finite",
    "available_isas",
    "average_pool",
    "batch_normalization",
    "build_info",
    "cast",
    "clip",
    "concatenate",
    "conv",
    "cpu_info",
    "dense",
    "divide",
    "dot_product_attention",
    "dropout",
    "embedding",
    "exp",
    "expand_dims",
    "flatten",
    "gelu",
    "get_float32_matmul_precision",
    "get_isa",
    "get_num_threads",
    "getitem",
    "global_norm",
    "gru",
    "kernel_notes",
    "layer_normalization",
    "lerp",
    "linear",
    "log",
    "log1p",
    "log_softmax",
    "loss_scale_update",
    "matmul",
    "max",
    "max_pool",
    "maximum",
    "mean",
    "memory_info",
    "min",
    "minimum",
    "multiply",
    "negative",
    "norms",
    "optim_step",
    "pad",
    "power",
    "relu",
    "reshape",
    "rms_normalization",
    "set_float32_matmul_precision",
    "set_isa",
    "set_num_threads",
    "sgd_step",
    "sigmoid",
    "silu",
    "softmax",
    "softmax_cross_entropy",
    "sparse_softmax_cross_entropy",
    "split",
    "sqrt",
    "square",
    "squeeze",
    "stack",
    "subtract",
    "sum",
    "tanh",
    "train_batch_normalization",
    "transpose",
    "trim_memory",
    "unscale",
    "var",
    "version",
    "where",
]

install_operators(
    {
        "__add__": add,
        "__radd__": lambda a, b: add(b, a),
        "__sub__": subtract,
        "__rsub__": lambda a, b: subtract(b, a),
        "__mul__": multiply,
        "__rmul__": lambda a, b: multiply(b, a),
        "__truediv__": divide,
        "__rtruediv__": lambda a, b: divide(b, a),
        "__matmul__": matmul,
        "__rmatmul__": lambda a, b: matmul(b, a),
        "__pow__": power,
        "__rpow__": lambda a, b: power(b, a),
        "__neg__": negative,
        "__abs__": abs,
        "__getitem__": getitem,
    }
)
install_accumulate(elementwise.accumulate)
