"""Which arrays the public functions take: layouts, empty ones, 0-d, more than 2^31.

Each law goes through the table of functions.
"""

from __future__ import annotations

import mmap
import os
import warnings
from typing import Any

import numpy as np
import pytest
from array_table import (
    ELSEWHERE,
    FUNCTIONS,
    LAYOUTS,
    SEQUENCES,
    SHAPE,
    native_dtype,
    read_only,
    values,
)
from reference import F16, F32, KERNEL_DTYPES, assert_same_bits, bits

import mpcore
from mpcore import Variable, ops, optimizers

ALL = FUNCTIONS | SEQUENCES
EACH_FUNCTION = pytest.mark.parametrize("name", FUNCTIONS)
EACH_OF_ALL = pytest.mark.parametrize("name", ALL)
DTYPES = pytest.mark.parametrize("dtype", KERNEL_DTYPES, ids=lambda d: d.name)


def assert_same(actual: Any, expected: Any) -> None:
    """Bits of arrays and Tensors; equality of the rest, through lists and tuples."""
    if isinstance(expected, list | tuple):
        assert len(actual) == len(expected)
        for one, other in zip(actual, expected, strict=True):
            assert_same(one, other)
    elif isinstance(expected, np.ndarray):
        assert type(actual) is np.ndarray
        # A function that moves elements keeps the byte order it was given.
        assert_same_bits(actual.astype(native_dtype(actual)), expected)
    else:
        assert actual == expected


# --- Layouts --------------------------------------------------------------------------


def test_functions_are_all_in_the_table() -> None:
    public = {
        name
        for name in ops.__all__
        if not name.startswith(("get_", "set_")) and name not in ELSEWHERE
    }
    public -= {"available_isas", "cpu_info", "memory_info", "trim_memory", "version"}
    public -= {"build_info", "kernel_notes"}
    assert public - set(ALL) == set()


@EACH_OF_ALL
@DTYPES
@pytest.mark.parametrize("layout", LAYOUTS)
def test_layout_gives_the_bits_of_the_plain_array(
    name: str, dtype: np.dtype, layout: str
) -> None:
    plain = values(dtype)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", PendingDeprecationWarning)  # np.matrix
        x = LAYOUTS[layout](plain)
        if layout == "byte_swapped" and x.dtype == plain.dtype:
            pytest.skip(f"NumPy knows no other byte order of {dtype.name}")
        before = x.tobytes()
        actual = ALL[name](x)
    assert_same(actual, ALL[name](plain))
    assert x.tobytes() == before


@EACH_OF_ALL
def test_zero_strides_count_as_repeated_elements(name: str) -> None:
    row = values(F32, (1, 6))
    repeated = np.broadcast_to(row, SHAPE)
    assert_same(ALL[name](repeated), ALL[name](repeated.copy()))


# Functions that give an array of the shape of theirs, element by element.
ELEMENTWISE = {
    *(
        "abs",
        "add",
        "assign",
        "cast",
        "cast_down",
        "clip",
        "divide",
        "dropout",
        "exp",
        "gelu",
        "linear",
    ),
    *(
        "accumulate",
        "lerp",
        "log",
        "log1p",
        "maximum",
        "minimum",
        "multiply",
        "negative",
        "power",
        "relu",
        "sgd_grad",
    ),
    *("sigmoid", "silu", "sqrt", "square", "subtract", "tanh", "tensor", "variable"),
    "where",
}
# Functions of rows or columns that give an array of the shape of theirs.
NORMALIZING = {
    *("batch_normalization", "layer_normalization", "rms_normalization"),
    *("log_softmax", "softmax"),
}
# Functions that have nothing to give for no rows.
REFUSE_NO_ROWS = {"embedding", "train_batch_normalization"}


@pytest.mark.parametrize("name", sorted(ELEMENTWISE | NORMALIZING))
@pytest.mark.parametrize("shape", [(0, 6), (2, 0, 6), (3, 0)], ids=str)
def test_empty_arrays_keep_their_shape(name: str, shape: tuple[int, ...]) -> None:
    assert FUNCTIONS[name](np.ones(shape, F16)).shape == shape


EMPTY_RESULTS = {
    "all_finite": True,
    "concatenate": np.zeros((0, 6), F16),
    "dense": np.zeros((0, 3), F16),
    "expand_dims": np.zeros((1, 0, 6), F16),
    "flatten": np.zeros((0, 6), F16),
    "getitem": np.zeros((0, 3), F16),
    "global_norm": 0.0,
    "matmul_left": np.zeros((0, 3), F16),
    "matmul_right": np.zeros((3, 6), F16),
    "max": np.zeros(0, F16),
    "mean": np.zeros(0, F16),
    "min": np.zeros(0, F16),
    "norms": np.zeros(1),
    "pad": np.zeros((2, 8), F16),
    "reshape": np.zeros(0, F16),
    "split": [np.zeros((0, 3), F16)] * 2,
    "squeeze": np.zeros((0, 6), F16),
    "stack": np.zeros((2, 0, 6), F16),
    "sum": np.zeros(6, F16),
    "sum_all": np.zeros((), F16),
    "transpose": np.zeros((6, 0), F16),
    "unscale": ([np.zeros((0, 6), F16)], True),
    "var": np.zeros(0, F16),
    "xent": np.zeros(0, F32),
    "xent_one_hot": np.zeros(0, F32),
}


@pytest.mark.parametrize(
    "name", sorted(FUNCTIONS.keys() - ELEMENTWISE - NORMALIZING - REFUSE_NO_ROWS)
)
def test_no_rows_give_the_sum_of_nothing(name: str) -> None:
    assert_same(FUNCTIONS[name](np.ones((0, 6), F16)), EMPTY_RESULTS[name])


@pytest.mark.parametrize("name", sorted(REFUSE_NO_ROWS))
def test_h70_no_rows_are_refused_with_the_facts(name: str) -> None:
    with pytest.raises(ValueError, match=r"\[0, 0\)|shape=\(0, 6\)"):
        FUNCTIONS[name](np.ones((0, 6), F16))


NEED_AXES = NORMALIZING | {
    *("dense", "getitem", "matmul_left", "matmul_right", "mean", "sum"),
    *("concatenate", "embedding", "max", "min", "split", "train_batch_normalization"),
    *("var", "xent", "xent_one_hot"),
}


# pad adds elements to each axis there is.
@pytest.mark.parametrize("name", sorted(FUNCTIONS.keys() - NEED_AXES - {"pad"}))
def test_0d_array_counts_as_one_element(name: str) -> None:
    def flat(result: Any) -> Any:
        if isinstance(result, list | tuple):
            return [flat(item) for item in result]
        return result.ravel() if isinstance(result, np.ndarray) else result

    x = np.array(0.625, F32)
    result = FUNCTIONS[name](x)
    assert_same(flat(result), flat(FUNCTIONS[name](x.reshape(1))))
    if name in ELEMENTWISE:
        assert result.shape == ()


@pytest.mark.parametrize("name", sorted(NEED_AXES))
def test_0d_array_where_an_axis_is_needed_is_refused(name: str) -> None:
    with pytest.raises((ValueError, IndexError), match=r"dim|shape|indices"):
        FUNCTIONS[name](np.array(0.625, F32))


# --- The cases ------------------------------------------------------------------------


def test_read_only_operands() -> None:
    a = read_only(np.eye(3, dtype=F16))
    assert np.array_equal(mpcore.matmul(a, a, out_dtype="float32"), np.eye(3))
    assert mpcore.all_finite([a])


def test_byte_swapped_values() -> None:
    assert mpcore.cast(np.array([1.5, -3.0], ">f4"), "float16").tolist() == [1.5, -3.0]


def test_misaligned_source() -> None:
    x = np.frombuffer(bytearray(41), np.uint8)[1:].view(F32)
    x[:] = np.arange(10)
    assert mpcore.cast(x, "bfloat16").astype(F32).tolist() == list(range(10))


def test_zero_in_the_middle_of_a_shape() -> None:
    assert mpcore.cast(np.ones((2, 0, 1), F32), "float16").shape == (2, 0, 1)
    assert mpcore.all_finite([np.ones((2, 0, 1), F32)])


@pytest.mark.parametrize("n", [1, 7, 1023, 1024, 1025])
@DTYPES
def test_adam_takes_every_length(n: int, dtype: np.dtype) -> None:
    v = Variable(np.zeros(n, dtype))
    optimizers.Adam(0.5).apply([np.ones(n, dtype)], [v])
    assert np.allclose(v.numpy().astype(float), -0.5, atol=2e-3)


def test_gradient_in_fortran_order_pairs_by_index() -> None:
    g = np.asfortranarray(np.arange(6, dtype=F32).reshape(2, 3))
    v = Variable(np.zeros((2, 3), F32))
    optimizers.SGD(1.0).apply([g], [v])
    assert np.array_equal(v.numpy(), -g)


# --- More than 2^31 -------------------------------------------------------------------


def untouched(n_bytes: int) -> np.ndarray:
    """Bytes that are zero and take memory only where they are written."""
    flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | getattr(mmap, "MAP_NORESERVE", 0)
    return np.frombuffer(mmap.mmap(-1, n_bytes, flags=flags), np.uint8)


def test_strides_beyond_32_bits() -> None:
    apart = 2**31 + 8
    memory = untouched(2 * (3 * apart)).view(F16)
    rows = np.lib.stride_tricks.as_strided(memory, (3, 2), (2 * apart, 2))
    rows[...] = [[1, 2], [3, 4], [5, 6]]
    eye = np.eye(2, dtype=F16)
    assert mpcore.matmul(rows, eye).tolist() == [[1, 2], [3, 4], [5, 6]]
    assert mpcore.matmul(eye, rows.T).tolist() == [[1, 3, 5], [2, 4, 6]]
    assert mpcore.cast(rows, F32).tolist() == [[1, 2], [3, 4], [5, 6]]


def test_all_finite_sees_element_two_to_the_31st() -> None:
    """Reading pages that nobody wrote takes no memory."""
    x = untouched(2 * (2**31 + 16)).view(F16)
    assert mpcore.all_finite(x)
    x[-1] = np.inf
    assert not mpcore.all_finite(x)


@pytest.mark.skipif(
    os.environ.get("MPCORE_NIGHTLY") != "1",
    reason="nightly, in 13 GB of memory: set MPCORE_NIGHTLY=1",
)
def test_cast_and_sgd_of_more_than_two_to_the_31st_elements() -> None:
    n = 2**31 + 16
    x = np.zeros(n, F16)
    x[-16:] = np.arange(16)
    wide = mpcore.cast(x, F32)
    assert wide[-16:].tolist() == list(range(16))
    assert not wide[:-16:4096].any()
    del wide
    grad = np.zeros(n, F16)
    grad[-16:] = 1
    ops.sgd_step([x], [grad], [None], [()], learning_rate=0.5)
    assert x[-16:].tolist() == [i - 0.5 for i in range(16)]
    assert not bits(x[:-16:4096]).any()
