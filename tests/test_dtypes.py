"""The table of dtypes and promotion."""

from __future__ import annotations

from collections.abc import Iterator

import ml_dtypes
import numpy as np
import pytest
from reference import BF16, F16, F32, F64

from mpcore import Variable, dtypes, floatx, set_floatx


@pytest.fixture
def _floatx() -> Iterator[None]:
    before = floatx()
    yield
    set_floatx(before)


@pytest.mark.parametrize(
    ("dtype", "name"),
    [
        ("float32", "float32"),
        (np.float16, "float16"),
        (np.dtype(">f4"), "float32"),
        (ml_dtypes.bfloat16, "bfloat16"),
        (BF16, "bfloat16"),
        (np.uint64, "uint64"),
        (np.dtype("l"), "int64"),
        (np.dtype("longlong"), "int64"),
        (float, "float64"),
        (int, "int64"),
        (bool, "bool"),
    ],
    ids=str,
)
def test_canonical_names_every_spelling(dtype: object, name: str) -> None:
    assert dtypes.canonical(dtype) == name
    assert dtypes.numpy_dtype(dtype).name == name
    assert dtypes.numpy_dtype(dtype).isnative


@pytest.mark.parametrize(
    "dtype", ["half", "float", "Float32", "", "complex64", np.complex64, "V2", object]
)
def test_canonical_unknown_dtype_raises_and_lists_the_known(dtype: object) -> None:
    with pytest.raises(ValueError, match=r"Unknown dtype .*float32, float16, bfloat16"):
        dtypes.canonical(dtype)


@pytest.mark.parametrize("dtype", [None, 5, b"float32", ["float32"], np.float32(1)])
def test_canonical_what_is_no_dtype_raises_type_error(dtype: object) -> None:
    with pytest.raises(TypeError, match="`dtype` must be"):
        dtypes.canonical(dtype)


def test_is_floating_holds_for_the_four() -> None:
    names = "float32 float16 bfloat16 float64 int8 uint64 bool".split()
    assert [dtypes.is_floating(n) for n in names] == [True] * 4 + [False] * 3


def test_gradient_dtype_is_float32_but_for_float64() -> None:
    names = ("float32", "float16", "bfloat16", "float64")
    assert [dtypes.gradient_dtype(n) for n in names] == ["float32"] * 3 + ["float64"]


@pytest.mark.parametrize(
    ("operands", "expected"),
    [
        ((F16, BF16), F32),
        ((BF16, F32), F32),
        ((F16, F64), F64),
        ((BF16, 1.5), BF16),
        ((BF16, 1), BF16),
        ((F16, 1e30), F16),
        ((F16, BF16, 2.0), F32),
        ((BF16, np.dtype(np.int8)), BF16),
        ((np.dtype(np.int32), 1.5), F64),
        ((np.dtype(np.int8), 1000), np.dtype(np.int8)),
        ((np.dtype(bool), 1), np.dtype(np.int64)),
        ((np.dtype(">f4"),), F32),
    ],
    ids=str,
)
def test_promote_gives_the_common_dtype(operands: tuple, expected: np.dtype) -> None:
    assert dtypes.promote(*operands) == expected
    assert dtypes.promote(*reversed(operands)) == expected


def test_promote_without_common_dtype_raises() -> None:
    with pytest.raises(TypeError, match="No common dtype for bfloat16 and int32"):
        dtypes.promote(BF16, np.dtype(np.int32))


@pytest.mark.usefixtures("_floatx")
@pytest.mark.parametrize("name", ["float16", "bfloat16", "float32", "float64"])
def test_floatx_is_the_dtype_of_python_floats(name: str) -> None:
    set_floatx(name)
    assert floatx() == name
    assert Variable([1.0]).dtype == name


@pytest.mark.usefixtures("_floatx")
@pytest.mark.parametrize(("name", "error"), [("int32", ValueError), (None, TypeError)])
def test_set_floatx_that_is_not_floating_raises(name: object, error: type) -> None:
    before = floatx()
    with pytest.raises(error):
        set_floatx(name)
    assert floatx() == before
