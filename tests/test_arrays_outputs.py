"""What the public functions refuse, and what becomes of `out` then and otherwise.

Each law goes through the table of functions.
"""

from __future__ import annotations

import warnings

import numpy as np
import pytest
from array_table import FUNCTIONS, LAYOUTS, SHAPE, read_only, values
from reference import F16, F32, KERNEL_DTYPES, assert_same_bits

from mpcore import ops

EACH_FUNCTION = pytest.mark.parametrize("name", FUNCTIONS)
DTYPES = pytest.mark.parametrize("dtype", KERNEL_DTYPES, ids=lambda d: d.name)

# --- What is refused ------------------------------------------------------------------

STRUCTURED = np.dtype([("a", np.float32), ("b", np.int8)])
REFUSED = {
    "object": np.full(SHAPE, None),
    "complex64": np.ones(SHAPE, np.complex64),
    "datetime64": np.zeros(SHAPE, "M8[s]"),
    "timedelta64": np.zeros(SHAPE, "m8[s]"),
    "structured": np.zeros(SHAPE, STRUCTURED),
    "text": np.full(SHAPE, "x"),
}


@EACH_FUNCTION
@pytest.mark.parametrize("kind", REFUSED)
def test_dtypes_that_are_not_ours_are_refused_with_the_facts(
    name: str, kind: str
) -> None:
    x = REFUSED[kind]
    with pytest.raises((TypeError, ValueError)) as caught:
        FUNCTIONS[name](x)
    message = str(caught.value)
    assert x.dtype.name in message or str(x.dtype) in message
    assert "float32" in message
    assert "shape=(4, 6)" in message


@pytest.mark.parametrize("place", ["param", "copy", "state"])
def test_masked_arrays_are_refused_where_an_update_would_write(place: str) -> None:
    arrays = {
        "param": np.ones(3, F32),
        "copy": np.ones(3, F16),
        "state": np.ones(3, F32),
    }
    masked = arrays[place] = np.ma.masked_array(
        arrays[place], mask=[True, False, False]
    )
    with pytest.raises(TypeError, match="must not be a masked array"):
        ops.sgd_step(
            [arrays["param"]],
            [np.ones(3, F32)],
            [arrays["copy"]],
            [(arrays["state"],)],
            learning_rate=0.5,
            momentum=0.5,
        )
    assert np.all(masked.data == 1)


@EACH_FUNCTION
def test_masked_arrays_are_refused(name: str) -> None:
    """Their mask would be lost; np.matrix and other subclasses are plain arrays."""
    x = np.ma.masked_array(values(F32), mask=np.eye(*SHAPE, dtype=bool))
    with pytest.raises(TypeError, match=r"Masked arrays are not supported.*shape="):
        FUNCTIONS[name](x)


def refused_outputs(dtype: np.dtype) -> dict[str, np.ndarray]:
    full = np.full(SHAPE, 7, dtype)
    return {
        "shape": np.full((6, 4), 7, dtype),
        "dtype": np.full(SHAPE, 7, np.float64),
        "byte_order": full.astype(">f4"),
        "read_only": read_only(full),
        "zero_strides": np.lib.stride_tricks.as_strided(full, SHAPE, (0, 4)),
        "masked": np.ma.masked_array(full),
        "list": full.tolist(),
    }


@pytest.mark.parametrize("case", refused_outputs(F32))
def test_out_that_does_not_fit_is_refused_and_left_alone(case: str) -> None:
    x = values(F32)
    eye = np.eye(6, dtype=F32)
    out = refused_outputs(F32)[case]
    for call in (
        lambda: ops.cast(x, F32, out=out),
        lambda: ops.matmul(x, eye, out=out),
        lambda: ops.unscale([x], 0.5, out=[out]),
    ):
        with pytest.raises((TypeError, ValueError), match=r"`out`|Masked"):
            call()
        assert np.all(np.asarray(out) == 7)


def test_nothing_is_written_when_a_later_array_is_refused() -> None:
    grads = [np.full(5, 3, F32), np.full(5, 3, F32)]
    outs = [np.full(5, 7, F32), read_only(np.full(5, 7, F32))]
    with pytest.raises(ValueError, match="`out` must be writable"):
        ops.unscale(grads, 0.5, out=outs)
    assert all(np.all(out == 7) for out in outs)

    params = [np.full(5, 7, F32), read_only(np.full(5, 7, F32))]
    moments = [(np.zeros(5, F32), np.zeros(5, F32)) for _ in params]
    with pytest.raises(ValueError, match="writable"):
        ops.adam_step(params, grads, [None] * 2, moments, learning_rate=0.5, step=1)
    with pytest.raises(ValueError):
        ops.sgd_step(
            params, [grads[0], grads[1][:4]], [None] * 2, [()] * 2, learning_rate=0.5
        )
    assert all(np.all(p == 7) for p in params)
    assert all(np.all(m == 0) for state in moments for m in state)


# --- Outputs in every layout, overlapping or not --------------------------------------

OUT_LAYOUTS = {
    k: v for k, v in LAYOUTS.items() if k not in ("read_only", "byte_swapped")
}


@pytest.mark.parametrize("layout", OUT_LAYOUTS)
@DTYPES
def test_out_of_any_layout_is_filled_and_returned(layout: str, dtype: np.dtype) -> None:
    x = values(dtype)
    w = np.asarray(np.linspace(-1, 1, 36).reshape(6, 6), dtype)
    for call in (
        lambda out: ops.cast(x, dtype, out=out),
        lambda out: ops.matmul(x, w, out=out),
        lambda out: ops.unscale([x], 0.5, out=[out])[0][0],
    ):
        expected = call(None)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", PendingDeprecationWarning)
            out = OUT_LAYOUTS[layout](np.full(SHAPE, np.nan, dtype))
            assert call(out) is out
        assert_same_bits(np.asarray(out), expected)


@DTYPES
def test_out_that_overlaps_an_input_gives_what_a_new_array_would(
    dtype: np.dtype,
) -> None:
    memory = values(dtype, (8, 6))
    for rows, where in (
        (slice(0, 6), slice(0, 6)),
        (slice(0, 6), slice(1, 7)),
        (slice(2, 8), slice(0, 6)),
        (slice(5, None, -1), slice(0, 6)),
    ):
        expected = memory[rows].copy()
        product = ops.matmul(expected, expected)

        shared = memory.copy()
        ops.cast(shared[rows], dtype, out=shared[where])
        assert_same_bits(shared[where], expected)

        shared = memory.copy()
        ops.matmul(shared[rows], shared[rows], out=shared[where])
        assert_same_bits(shared[where], product)

        shared = memory.copy()
        halved = ops.unscale([expected], 0.5)[0][0]
        ops.unscale([shared[rows]], 0.5, out=[shared[where]])
        assert_same_bits(shared[where], halved)


def test_unscale_into_the_arrays_of_one_another() -> None:
    a, b = np.full(4, 2, F32), np.full(4, 6, F32)
    (left, right), finite = ops.unscale([a, b], 0.5, out=[b, a])
    assert left is b and right is a and finite
    assert left.tolist() == [1.0] * 4
    assert right.tolist() == [3.0] * 4


@pytest.mark.parametrize("second", [slice(None), slice(1, None)], ids=["same", "part"])
def test_unscale_in_place_takes_an_array_that_is_given_twice_once(
    second: slice,
) -> None:
    a = np.full(6, 4, F32)
    parts = [a, a[second]]
    assert ops.unscale(parts, 0.5, out=parts)[1]
    assert a.tolist() == [2.0] * 6


def test_masked_gradients_in_place_are_refused() -> None:
    grads = [np.ma.masked_array(np.ones(3, F32), mask=[True, False, False])]
    with pytest.raises(TypeError, match="Masked arrays are not supported"):
        ops.unscale(grads, 0.5, out=grads)
    assert np.all(grads[0].data == 1)


def test_cast_in_place_between_widths() -> None:
    memory = bytearray(64)
    wide = np.frombuffer(memory, F32)
    wide[:] = np.arange(16)
    narrow = np.frombuffer(memory, F16)[:16]
    ops.cast(wide, F16, out=narrow)
    assert narrow.tolist() == list(range(16))
    ops.cast(narrow, F32, out=wide)
    assert wide.tolist() == list(range(16))
