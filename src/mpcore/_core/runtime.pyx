"""Threads, ISA level, CPU, and buffers of the process-wide context."""
from cpython.bytes cimport PyBytes_AsStringAndSize
from cpython.object cimport PyTypeObject
from cpython.pycapsule cimport (
    PyCapsule_GetContext, PyCapsule_GetPointer, PyCapsule_New, PyCapsule_SetContext,
    PyCapsule_SetDestructor)
from cpython.ref cimport Py_INCREF
from libc.stdint cimport INT64_MAX, int32_t, int64_t

cimport numpy as cnp

from mpcore._core.adapt cimport check, dtype_code
from mpcore._core.capi cimport *

cdef extern from "numpy/arrayobject.h":
    PyTypeObject PyArray_Type
    object PyArray_NewFromDescr(
        PyTypeObject* subtype, cnp.dtype descr, int nd, const cnp.npy_intp* dims,
        const cnp.npy_intp* strides, void* data, int flags, PyObject* obj)
    ctypedef struct PyObject
    enum:
        NPY_MAXDIMS

cnp.import_array()


def version() -> str:
    """Return the version of the C library that was loaded."""
    cdef int32_t number = mpcore_version()
    return f"{number // 10000}.{number // 100 % 100}.{number % 100}"


def build_info() -> dict:
    """Return compiler, build type, flags, and commit of the C library."""
    cdef const char* parts[4]
    check(mpcore_build_info(&parts[0], &parts[1], &parts[2], &parts[3]))
    return {
        name: parts[i].decode("utf-8", "replace")
        for i, name in enumerate(("compiler", "type", "flags", "commit"))}


def get_num_threads() -> int:
    """Return how many threads a call may use."""
    cdef int32_t num_threads = 0
    check(mpcore_get_num_threads(NULL, &num_threads))
    return num_threads


def set_num_threads(int32_t n) -> None:
    """Set how many threads a call may use; 0 restores the default."""
    cdef int32_t status
    with nogil:
        status = mpcore_set_num_threads(NULL, n)
    check(status)


def get_isa() -> str:
    """Return the name of the ISA level in force."""
    cdef const char* name = NULL
    check(mpcore_get_isa(NULL, &name))
    return name.decode()


def set_isa(str name) -> None:
    """Force an ISA level by name; None restores the default."""
    cdef char* c_name = NULL
    cdef int32_t status
    cdef bytes encoded
    if name is not None:
        encoded = name.encode()
        PyBytes_AsStringAndSize(encoded, &c_name, NULL)
    with nogil:
        status = mpcore_set_isa(NULL, c_name)
    check(status)


def isa_levels() -> list:
    """Return (name, available, reason) of each level of this build, lowest first."""
    cdef const char* name = NULL
    cdef const char* reason = NULL
    cdef int32_t available = 0
    levels = []
    for index in range(mpcore_isa_count()):
        check(mpcore_isa_describe(index, &name, &available, &reason))
        levels.append((name.decode(), available != 0, reason.decode()))
    return levels


def cpu_name() -> str:
    """Return the brand name of the CPU."""
    return mpcore_cpu_name().decode("utf-8", "replace")


cdef void _free_block(object capsule) noexcept:
    # The capsule's context is the size of its block.
    mpcore_buffer_free(
        PyCapsule_GetPointer(capsule, NULL), <int64_t>PyCapsule_GetContext(capsule))


def empty(tuple shape not None, cnp.dtype dtype not None):
    """Return an uninitialized C-contiguous array in a block of the buffer pool."""
    cdef cnp.npy_intp dims[NPY_MAXDIMS]
    cdef int ndim = len(shape)
    cdef int64_t size = dtype.itemsize
    cdef bint has_zero = False
    cdef void* block = NULL
    cdef int32_t status
    dtype_code(dtype, "dtype")
    if ndim > NPY_MAXDIMS:
        raise ValueError(f"`shape` has too many dimensions. Received: {shape}")
    for axis in range(ndim):
        dims[axis] = shape[axis]
        if dims[axis] < 0:
            raise ValueError(
                f"`shape` must hold no negative number. Received: {shape}")
        has_zero = has_zero or dims[axis] == 0
    for axis in range(ndim if not has_zero else 0):
        if size > INT64_MAX // dims[axis]:
            raise ValueError(f"`shape` is too large. Received: {shape}")
        size *= dims[axis]

    with nogil:
        status = mpcore_buffer_allocate(size, &block)
    check(status)
    try:
        capsule = PyCapsule_New(block, NULL, NULL)
    except BaseException:
        mpcore_buffer_free(block, size)
        raise
    PyCapsule_SetContext(capsule, <void*>size)
    PyCapsule_SetDestructor(capsule, _free_block)
    Py_INCREF(dtype)  # NewFromDescr takes one reference
    array = PyArray_NewFromDescr(
        &PyArray_Type, dtype, ndim, dims, NULL, block, cnp.NPY_ARRAY_CARRAY, NULL)
    cnp.set_array_base(array, capsule)
    return array


def buffer_info() -> dict:
    """Return the bytes in use, the bytes cached, and the limit of the cache."""
    cdef int64_t in_use = 0, cached = 0, limit = 0
    check(mpcore_buffer_info(&in_use, &cached, &limit))
    return {"in_use": in_use, "cached": cached, "limit": limit}


def buffer_trim() -> None:
    """Return cached blocks to the system."""
    with nogil:
        mpcore_buffer_trim()
