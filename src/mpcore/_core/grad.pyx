"""Gradients and averages: many arrays per call; the state of dynamic loss scaling."""
cimport cython
from cpython.mem cimport PyMem_Calloc, PyMem_Free
from libc.stdint cimport int32_t, int64_t
from libc.string cimport memset

cimport numpy as cnp

from mpcore._core.adapt cimport check, input_code, output_code
from mpcore._core.capi cimport *

cnp.import_array()


@cython.auto_pickle(False)
cdef class _Refs:
    """The C array of one call; keeps alive what it points into."""

    cdef mpcore_tensor_ref* data
    cdef Py_ssize_t count
    cdef tuple held

    def __cinit__(self, arrays, str name, bint writable, bint skip_none=False):
        cdef Py_ssize_t i
        cdef mpcore_tensor_ref* ref
        self.held = tuple(arrays)
        self.count = 0
        self.data = <mpcore_tensor_ref*>PyMem_Calloc(
            len(self.held), sizeof(mpcore_tensor_ref))
        if self.data == NULL:
            raise MemoryError
        for i in range(len(self.held)):
            array = self.held[i]
            if array is None and skip_none:
                continue
            ref = &self.data[self.count]
            self.count += 1
            if not cnp.PyArray_CheckExact(array):  # a subclass may mean something else
                raise TypeError(
                    f"`{name}[{i}]` must be an ndarray and no subclass. "
                    f"Received: {type(array).__name__}")
            ref.dtype = (
                output_code(array, name, i) if writable
                else input_code(array, name, i))
            ref.data = cnp.PyArray_DATA(<cnp.ndarray>array)
            ref.size = cnp.PyArray_SIZE(<cnp.ndarray>array)

    def __dealloc__(self):
        PyMem_Free(self.data)


cdef _Refs _written(arrays, str name, _Refs tensors):
    # One array of the same shape for each tensor. C sees neither lengths nor shapes.
    cdef _Refs refs = _Refs(arrays, name, True)
    cdef Py_ssize_t i
    if refs.count != tensors.count:
        raise ValueError(
            f"`{name}` must be as long as `arrays` ({tensors.count}). "
            f"Received: {refs.count}")
    for i in range(refs.count):
        to, x = refs.held[i], tensors.held[i]
        if not cnp.PyArray_SAMESHAPE(<cnp.ndarray>to, <cnp.ndarray>x):
            raise ValueError(
                f"`{name}[{i}]` must have the shape of `arrays[{i}]`, {x.shape}. "
                f"Received: shape={to.shape}")
    return refs


def all_finite(arrays) -> bool:
    """Tell whether no element of any array is infinite or NaN; None is skipped."""
    cdef _Refs refs = _Refs(arrays, "arrays", False, True)
    cdef int32_t finite = 0
    cdef int32_t status
    with nogil:
        status = mpcore_all_finite(NULL, refs.count, refs.data, &finite)
    check(status)
    return finite != 0


def unscale(arrays, outputs, double multiplier) -> bool:
    """Set outputs to arrays * multiplier; tell whether all are finite.

    Without outputs it is done in place, and arrays that are None are skipped.
    """
    cdef _Refs refs = _Refs(arrays, "arrays", outputs is None, outputs is None)
    cdef _Refs places = (
        None if outputs is None else _written(outputs, "outputs", refs))
    cdef mpcore_tensor_ref* to = NULL if places is None else places.data
    cdef int32_t finite = 0
    cdef int32_t status
    with nogil:
        status = mpcore_unscale(NULL, refs.count, refs.data, to, multiplier, &finite)
    check(status)
    return finite != 0


ctypedef int32_t (*_Combine)(
    mpcore_context*, int64_t, const mpcore_tensor_ref*, const mpcore_tensor_ref*,
    double) noexcept nogil


cdef int _combine(
        _Combine function, written, str name, arrays, double factor) except -1:
    cdef _Refs refs = _Refs(arrays, "arrays", False)
    cdef _Refs to = _written(written, name, refs)
    cdef int32_t status
    with nogil:
        status = function(NULL, refs.count, to.data, refs.data, factor)
    return check(status)


def accumulate(totals, arrays, double multiplier) -> None:
    """Add arrays * multiplier to totals."""
    _combine(mpcore_accumulate, totals, "totals", arrays, multiplier)


def lerp(averages, arrays, double momentum) -> None:
    """Set averages to momentum * averages + (1 - momentum) * arrays."""
    _combine(mpcore_lerp, averages, "averages", arrays, momentum)


def norms(arrays) -> tuple:
    """Return the Euclidean norm of each array, and the norm over all of them."""
    cdef _Refs refs = _Refs(arrays, "arrays", False)
    cdef cnp.npy_intp count = refs.count
    cdef cnp.ndarray each = cnp.PyArray_SimpleNew(1, &count, cnp.NPY_DOUBLE)
    cdef double* each_data = <double*>cnp.PyArray_DATA(each)
    cdef double total = 0
    cdef int32_t status
    with nogil:
        status = mpcore_norms(NULL, refs.count, refs.data, each_data, &total)
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
