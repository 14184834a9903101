"""Tensors, the record of ops, and its replay backwards.

This package knows no op. An op computes with ndarrays and hands its result to `record`
together with a function that turns the gradient of the result into those of the inputs.
A tape is a list of such entries; they refer to tensors by number, so a tape keeps alive
only what the backward functions hold. Tapes belong to the thread that entered them.
"""

from mpcore.tape.gradient_tape import (
    GradientTape,
    flatten,
    is_recording,
    needs_gradient,
    record,
)
from mpcore.tape.numpy_function import numpy_function
from mpcore.tape.replay import Accumulate, Backward, Gradients, install_accumulate
from mpcore.tape.sparse import SparseGradient
from mpcore.tape.tensor import Tensor, gradient_dtype, install_operators, unwrap

__all__ = [
    "Accumulate",
    "Backward",
    "GradientTape",
    "Gradients",
    "SparseGradient",
    "Tensor",
    "flatten",
    "gradient_dtype",
    "install_accumulate",
    "install_operators",
    "is_recording",
    "needs_gradient",
    "record",
    "unwrap",
]

install_operators({"__array_function__": numpy_function})
