"""Laws of the probes that benchmarks compare kernels with."""

import time

import numpy as np
import pytest

from mpcore import ops
from mpcore.ops import limits

# No core there is does more per second: a probe that is faster has computed nothing.
MOST_OPERATIONS = {"fma_f32": 1e12, "dot_bf16": 2e12, "amx_bf16": 2e13}
LACKS = {
    "fma_f32": set(),
    "dot_bf16": {"scalar", "avx2", "avx512"},
    "amx_bf16": {"scalar", "avx2", "avx512", "avx512_bf16", "avx512_fp16"},
}


def arrays_of(count, n, offset=0):
    generator = np.random.default_rng(n)
    return [
        generator.standard_normal(n + offset, dtype=np.float32)[offset:]
        for _ in range(count)
    ]


@pytest.mark.parametrize("peak", limits.PEAKS)
def test_run_peak_does_what_it_counts_or_says_the_level_lacks_it(
    peak, isa, num_threads
):
    if isa in LACKS[peak]:
        with pytest.raises(ValueError, match=f"level {isa} has no"):
            limits.run_peak(peak, 1)
        return
    one = limits.run_peak(peak, 1)
    assert one % num_threads == 0
    assert one > 1000 * num_threads
    assert limits.run_peak(peak, 0) == 0
    start = time.perf_counter()
    assert limits.run_peak(peak, 300) == 300 * one
    seconds = time.perf_counter() - start
    assert 300 * one / seconds < MOST_OPERATIONS[peak] * num_threads


STREAM_RESULTS = {
    "read": lambda a: (a,),
    "negate": lambda a: (-a,),
    "copy": lambda a, b: (a, a),
    "copy_nontemporal": lambda a, b: (a, a),
    "triad": lambda a, b, c: (a, b, a + b * np.float32(0.5)),
    "update": lambda a, b, c, d: (d - a, np.maximum(b, d), np.minimum(c, d), d),
}
WORDS = {"read": 1, "negate": 2, "copy": 2, "copy_nontemporal": 2, "triad": 3}


@pytest.mark.parametrize("offset", [0, 3])
@pytest.mark.parametrize("n", [0, 1, 17, 1000, 150_001])
@pytest.mark.parametrize("stream", limits.STREAMS)
def test_run_stream_one_pass_computes_its_pattern(stream, n, offset, isa, num_threads):
    arrays = arrays_of(limits.STREAM_ARRAYS[stream], n, offset)
    expected = STREAM_RESULTS[stream](*(a.copy() for a in arrays))
    moved = limits.run_stream(stream, 1, arrays)
    assert moved == n * 4 * WORDS.get(stream, 7)
    for array, wanted in zip(arrays, expected, strict=True):
        np.testing.assert_array_equal(array, wanted)


def test_run_stream_makes_as_many_passes_as_it_is_told(num_threads):
    (a,) = arrays_of(1, 5000)
    before = a.copy()
    assert limits.run_stream("negate", 3, [a]) == 3 * 5000 * 8
    np.testing.assert_array_equal(a, -before)
    assert limits.run_stream("negate", 0, [a]) == 0
    np.testing.assert_array_equal(a, -before)


@pytest.mark.parametrize("stream", limits.STREAMS)
def test_run_stream_takes_addresses_that_are_no_multiple_of_four(stream, isa):
    n = 1003
    arrays = [
        np.zeros(4 * n + 1, np.uint8)[1:].view(np.float32)
        for _ in range(limits.STREAM_ARRAYS[stream])
    ]
    for array, values in zip(arrays, arrays_of(len(arrays), n), strict=True):
        array[:] = values
    expected = STREAM_RESULTS[stream](*(a.copy() for a in arrays))
    limits.run_stream(stream, 1, arrays)
    for array, wanted in zip(arrays, expected, strict=True):
        np.testing.assert_array_equal(array, wanted)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda a: limits.run_peak("fma", 1), "`peak` must be one of fma_f32"),
        (lambda a: limits.run_peak("fma_f32", -1), r"iterations must be in \[0, 2\^31"),
        (lambda a: limits.run_peak("fma_f32", 2**31), r"got iterations=2147483648"),
        (lambda a: limits.run_stream("rad", 1, [a]), "`stream` must be one of read"),
        (lambda a: limits.run_stream("copy", 1, [a]), "must hold 2 arrays for 'copy'"),
        (lambda a: limits.run_stream("copy", 1, [a, a]), r"arrays\[0\] and arrays\[1"),
        (
            lambda a: limits.run_stream("copy", 1, [a, a[1:]]),
            r"`arrays\[1\]` must have",
        ),
        (lambda a: limits.run_stream("read", -1, [a]), "iterations must be"),
        (
            lambda a: limits.run_stream("read", 1, [a.astype(np.float64)]),
            r"`arrays\[0\]` must have dtype float32",
        ),
    ],
)
def test_limits_wrong_arguments_are_named(call, message):
    (a,) = arrays_of(1, 64)
    before = a.copy()
    with pytest.raises(ValueError, match=message):
        call(a)
    np.testing.assert_array_equal(a, before)


def test_limits_tables_agree():
    assert limits.STREAMS.keys() == limits.STREAM_ARRAYS.keys() == STREAM_RESULTS.keys()
    assert limits.PEAKS.keys() == LACKS.keys()
    assert ops.get_isa() in ops.available_isas()
