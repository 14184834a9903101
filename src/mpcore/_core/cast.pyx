"""Conversion between element types."""
from libc.stdint cimport int32_t, int64_t

cimport numpy as cnp

from mpcore._core.adapt cimport check, input_code, output_code, require_size
from mpcore._core.capi cimport *

cnp.import_array()


def cast(cnp.ndarray src not None, cnp.ndarray dst not None) -> None:
    """Convert the elements of src to the dtype of dst, in C order, into dst."""
    cdef int32_t src_dtype = input_code(src, "src")
    cdef int32_t dst_dtype = output_code(dst, "dst")
    cdef int64_t n = cnp.PyArray_SIZE(src)
    cdef void* x = cnp.PyArray_DATA(src)
    cdef void* y = cnp.PyArray_DATA(dst)
    cdef int32_t status
    require_size(dst, "dst", n)
    with nogil:
        status = mpcore_cast(NULL, n, x, src_dtype, y, dst_dtype)
    check(status)
