"""The boundary refuses what would make C read or write out of bounds."""

from __future__ import annotations

from collections.abc import Callable

import ml_dtypes
import numpy as np
import pytest

from mpcore._core import cast, gemm, grad, nn, optim, runtime

BF16 = np.dtype(ml_dtypes.bfloat16)
F32 = np.dtype(np.float32)


def zeros(*shape: int, dtype: object = F32) -> np.ndarray:
    return np.zeros(shape, dtype)


def read_only(*shape: int) -> np.ndarray:
    array = zeros(*shape)
    array.flags.writeable = False
    return array


def packed_column() -> np.ndarray:
    """float32 elements five bytes apart: strides that are no number of elements."""
    return np.zeros(4, [("value", F32), ("tag", "u1")])["value"].reshape(4, 1)


def sgd(**replaced: object) -> None:
    arguments: dict[str, object] = {
        "params": [zeros(2)],
        "grads": [zeros(2)],
        "copies": [None],
        "states": [(zeros(2),)],
        "grad_multipliers": 1.0,
        "weight_decays": 0.0,
    }
    optim.step(
        "sgd",
        *(arguments | replaced).values(),
        learning_rate=0.1,
        momentum=0.9,
    )


REFUSED: dict[str, tuple[Callable[[], object], str]] = {
    "cast-sizes": (lambda: cast.cast(zeros(3), zeros(4)), "`dst` .* 3 element"),
    "cast-strided": (lambda: cast.cast(zeros(6)[::2], zeros(3)), "C-contiguous"),
    "cast-read-only": (lambda: cast.cast(zeros(3), read_only(3)), "writable"),
    "cast-swapped": (lambda: cast.cast(zeros(3, dtype=">f4"), zeros(3)), "byte order"),
    "cast-complex": (lambda: cast.cast(zeros(3, dtype="c8"), zeros(3)), "dtypes"),
    "gemm-inner": (
        lambda: gemm.gemm(zeros(2, 3), zeros(4, 2), zeros(2, 2)),
        "hold matrices",
    ),
    "gemm-outer": (
        lambda: gemm.gemm(zeros(2, 3), zeros(3, 2), zeros(2, 1)),
        "hold matrices",
    ),
    "gemm-ndim": (lambda: gemm.gemm(zeros(2), zeros(2, 2), zeros(1, 2)), "dimension"),
    "gemm-stride": (
        lambda: gemm.gemm(packed_column(), zeros(1, 2), zeros(4, 2)),
        "multiples",
    ),
    "gemm-read-only": (
        lambda: gemm.gemm(zeros(1, 1), zeros(1, 1), read_only(1, 1)),
        "`d` .* writable",
    ),
    "gemm-bias": (
        lambda: gemm.gemm(zeros(2, 3), zeros(3, 2), zeros(2, 2), zeros(3)),
        "`bias` .* 2 element",
    ),
    "nn-shape": (
        lambda: nn.dense_backward(1, zeros(2, 2), zeros(2, 3), None, None),
        "`y` .* 6 element",
    ),
    "nn-dtype": (
        lambda: nn.activation_forward(1, zeros(2), zeros(2, dtype=BF16)),
        "`y` .* dtype float32",
    ),
    "nn-bias-dtype": (
        lambda: nn.dense_backward(0, None, zeros(2, 3), None, zeros(3, dtype="f8")),
        "`db` .* dtype float32",
    ),
    "nn-labels": (
        lambda: nn.softmax_xent(
            zeros(2, 3), zeros(2, dtype="i4"), None, 0.0, None, zeros(2), None
        ),
        "`labels` .* dtype int64",
    ),
    "nn-loss": (
        lambda: nn.softmax_xent(
            zeros(2, 3), zeros(2, dtype="i8"), None, 0.0, None, zeros(1), None
        ),
        "`loss` .* 2 element",
    ),
    "grad-strided": (
        lambda: grad.all_finite([zeros(2), zeros(4)[::2]]),
        r"`arrays\[1\]` .* C-contiguous",
    ),
    "grad-read-only": (
        lambda: grad.unscale([read_only(2)], None, 0.5),
        r"`arrays\[0\]` .* writable",
    ),
    "optim-grad": (lambda: sgd(grads=[zeros(3)]), r"`grads\[0\]` .* 2 element"),
    "optim-copy": (
        lambda: sgd(copies=[zeros(1, dtype=BF16)]),
        r"`copies\[0\]` .* 2 element",
    ),
    "optim-state": (lambda: sgd(states=[(zeros(1),)]), r"`states\[0\]` .* 2 element"),
    "optim-state-dtype": (
        lambda: sgd(states=[(zeros(2, dtype="f2"),)]),
        r"tensors\[0\].state_dtype must be float32 or bfloat16",
    ),
    "optim-states": (lambda: sgd(states=[(zeros(2),) * 5]), "at most 4"),
    "optim-counts": (lambda: sgd(copies=[]), "`copies` .* one entry per parameter"),
    "optim-read-only": (lambda: sgd(params=[read_only(2)]), r"`params\[0\]` .* writ"),
    "empty-negative": (lambda: runtime.empty((2, -1), F32), "negative"),
    "empty-large": (lambda: runtime.empty((2**40, 2**40), F32), "too large"),
    "empty-ndim": (lambda: runtime.empty((1,) * 65, F32), "too many dimensions"),
    "empty-object": (lambda: runtime.empty((2,), np.dtype(object)), "dtypes"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_core_unsafe_arguments_are_refused(case: str) -> None:
    call, message = REFUSED[case]
    with pytest.raises(ValueError, match=message):
        call()


def test_core_no_ndarray_is_a_type_error() -> None:
    with pytest.raises(TypeError, match="`arrays\\[0\\]` must be an ndarray"):
        grad.all_finite([1.0])
    with pytest.raises(TypeError, match="src"):
        cast.cast([1.0], zeros(1))


def test_core_c_error_becomes_value_error_with_its_message() -> None:
    with pytest.raises(ValueError, match=r"one of scalar, .*no-such-level"):
        runtime.set_isa("no-such-level")


def test_empty_block_goes_back_to_the_pool() -> None:
    before = runtime.buffer_info()["in_use"]

    array = runtime.empty((1000, 1000), BF16)
    view = array[10:]
    held = runtime.buffer_info()["in_use"]
    del array
    still_held = runtime.buffer_info()["in_use"]
    del view

    assert held - before >= 2_000_000
    assert still_held == held
    assert runtime.buffer_info()["in_use"] == before


@pytest.mark.parametrize("shape", [(), (0,), (3, 0, 2), (2, 3)])
def test_empty_array_is_an_ordinary_one(shape: tuple[int, ...]) -> None:
    array = runtime.empty(shape, F32)
    array[...] = 1.5

    assert array.shape == shape
    assert array.dtype == F32
    assert array.flags.c_contiguous and array.flags.aligned and array.flags.writeable
    assert array.sum() == 1.5 * array.size


def test_empty_out_of_memory_is_memory_error() -> None:
    with pytest.raises(MemoryError):
        runtime.empty((2**60,), np.dtype(np.uint8))
