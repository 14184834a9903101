"""Conversion between element types."""
from libc.stdint cimport int32_t, int64_t, uint64_t

cimport numpy as cnp
from cpython.ref cimport Py_INCREF

from mpcore._core.adapt cimport (
    check,
    dtype_code,
    input_code,
    output_code,
    require_code,
    require_size,
)
from mpcore._core.capi cimport *

from mpcore._core.runtime import empty

cnp.import_array()

cdef extern from "numpy/arrayobject.h":
    object PyArray_NewCopy(cnp.ndarray array, cnp.NPY_ORDER order)
    object PyArray_Empty(int ndim, cnp.npy_intp* dims, cnp.dtype dtype, int fortran)

# Below this many bytes NumPy's allocator has memory at hand; above, it asks the system, and the
# buffer pool is the faster one.
cdef enum:
    SMALL = 1 << 16


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


def cast_new(cnp.ndarray src not None, cnp.dtype dtype not None):
    """Convert the elements of src, of any strides, into a new array in C order."""
    if not cnp.PyArray_IS_C_CONTIGUOUS(src):
        src = PyArray_NewCopy(src, cnp.NPY_CORDER)
    cdef int32_t src_dtype = input_code(src, "src")
    cdef int32_t dst_dtype = dtype_code(dtype, "dtype")
    cdef int64_t n = cnp.PyArray_SIZE(src)
    cdef void* x = cnp.PyArray_DATA(src)
    cdef void* y
    cdef cnp.ndarray dst
    cdef int32_t status
    if n * cnp.PyDataType_ELSIZE(dtype) < SMALL:
        Py_INCREF(dtype)  # Empty takes one reference
        dst = PyArray_Empty(cnp.PyArray_NDIM(src), cnp.PyArray_DIMS(src), dtype, 0)
    else:
        dst = empty((<object>src).shape, dtype)
    y = cnp.PyArray_DATA(dst)
    with nogil:
        status = mpcore_cast(NULL, n, x, src_dtype, y, dst_dtype)
    check(status)
    return dst


def cast_stochastic(
        cnp.ndarray src not None, cnp.ndarray dst not None, uint64_t seed,
        uint64_t offset) -> None:
    """Round the float32 elements of src stochastically into dst."""
    cdef int32_t src_dtype = input_code(src, "src")
    cdef int32_t dst_dtype = output_code(dst, "dst")
    cdef int64_t n = cnp.PyArray_SIZE(src)
    cdef const float* x = <const float*>cnp.PyArray_DATA(src)
    cdef void* y = cnp.PyArray_DATA(dst)
    cdef int32_t status
    require_code(src, "src", src_dtype, MPCORE_DTYPE_F32)
    require_size(dst, "dst", n)
    with nogil:
        status = mpcore_cast_stochastic(NULL, n, x, y, dst_dtype, seed, offset)
    check(status)
