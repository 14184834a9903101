"""Finite check, unscaling, norms, and the state of dynamic loss scaling."""
from cpython.mem cimport PyMem_Calloc, PyMem_Free
from libc.stdint cimport int32_t, int64_t
from libc.string cimport memset

cimport numpy as cnp

from mpcore._core.adapt cimport check, input_code, output_code
from mpcore._core.capi cimport *

cnp.import_array()


cdef mpcore_tensor_ref* _refs(tuple arrays, bint writable) except NULL:
    # To be freed with PyMem_Free. The tuple keeps the arrays alive.
    cdef Py_ssize_t count = len(arrays)
    cdef mpcore_tensor_ref* refs = <mpcore_tensor_ref*>PyMem_Calloc(
        count, sizeof(mpcore_tensor_ref))
    cdef Py_ssize_t i
    if refs == NULL:
        raise MemoryError
    try:
        for i in range(count):
            array = arrays[i]
            refs[i].dtype = (
                output_code(array, "arrays", i) if writable
                else input_code(array, "arrays", i))
            refs[i].data = cnp.PyArray_DATA(<cnp.ndarray>array)
            refs[i].size = cnp.PyArray_SIZE(<cnp.ndarray>array)
    except BaseException:
        PyMem_Free(refs)
        raise
    return refs


def all_finite(arrays) -> bool:
    """Tell whether no element of any array is infinite or NaN."""
    cdef tuple held = tuple(arrays)
    cdef int64_t count = len(held)
    cdef mpcore_tensor_ref* refs = _refs(held, False)
    cdef int32_t finite = 0
    cdef int32_t status
    with nogil:
        status = mpcore_all_finite(NULL, count, refs, &finite)
    PyMem_Free(refs)
    check(status)
    return finite != 0


def unscale(arrays, double multiplier) -> bool:
    """Multiply the arrays in place; tell whether all results are finite."""
    cdef tuple held = tuple(arrays)
    cdef int64_t count = len(held)
    cdef mpcore_tensor_ref* refs = _refs(held, True)
    cdef int32_t finite = 0
    cdef int32_t status
    with nogil:
        status = mpcore_unscale(NULL, count, refs, multiplier, &finite)
    PyMem_Free(refs)
    check(status)
    return finite != 0


def norms(arrays) -> tuple:
    """Return the Euclidean norm of each array, and the norm over all of them."""
    cdef tuple held = tuple(arrays)
    cdef cnp.npy_intp count = len(held)
    cdef cnp.ndarray each = cnp.PyArray_SimpleNew(1, &count, cnp.NPY_DOUBLE)
    cdef mpcore_tensor_ref* refs = _refs(held, False)
    cdef double* each_data = <double*>cnp.PyArray_DATA(each)
    cdef double total = 0
    cdef int32_t status
    with nogil:
        status = mpcore_norms(NULL, count, refs, each_data, &total)
    PyMem_Free(refs)
    check(status)
    return each, total


def loss_scale_update(
        double scale, int64_t step_counter, int32_t growth_steps, double min_scale,
        double max_scale, bint finite) -> tuple:
    """Return (scale, step_counter) after one step."""
    cdef mpcore_loss_scale state
    memset(&state, 0, sizeof(state))
    state.struct_size = sizeof(state)
    state.growth_steps = growth_steps
    state.step_counter = step_counter
    state.scale = scale
    state.min_scale = min_scale
    state.max_scale = max_scale
    check(mpcore_loss_scale_update(&state, finite))
    return state.scale, state.step_counter
