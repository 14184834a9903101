"""Probes of what the machine can do at most."""
from libc.stdint cimport int32_t, int64_t

cimport numpy as cnp

from mpcore._core.adapt cimport check, output_code, require_code, require_size
from mpcore._core.capi cimport *

cnp.import_array()

cdef enum:
    MOST_ARRAYS = 4


def run_peak(int32_t peak, int64_t iterations) -> int:
    """Run an instruction on every thread; return the floating-point operations done."""
    cdef int64_t operations = 0
    cdef int32_t status
    with nogil:
        status = mpcore_run_peak(NULL, peak, iterations, &operations)
    check(status)
    return operations


def run_stream(int32_t stream, int64_t iterations, tuple arrays not None) -> int:
    """Pass over float32 arrays of one size; return the bytes read and written."""
    cdef float* data[MOST_ARRAYS]
    cdef int64_t n = cnp.PyArray_SIZE(<cnp.ndarray?>arrays[0])
    cdef int64_t moved = 0
    cdef int32_t status
    if len(arrays) > MOST_ARRAYS:
        raise ValueError(
            f"`arrays` must hold at most {MOST_ARRAYS} arrays. Received: {len(arrays)}")
    for i in range(len(arrays)):
        array = arrays[i]
        require_code(array, "arrays", output_code(array, "arrays", i), MPCORE_DTYPE_F32, i)
        require_size(array, "arrays", n, i)
        data[i] = <float*>cnp.PyArray_DATA(<cnp.ndarray>array)
    with nogil:
        status = mpcore_run_stream(NULL, stream, iterations, n, data, &moved)
    check(status)
    return moved
