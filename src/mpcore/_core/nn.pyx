"""Activations, bias gradients, softmax."""
from libc.stdint cimport int32_t, int64_t

cimport numpy as cnp

from mpcore._core.adapt cimport (
    check, input_code, output_code, require_code, require_ndim, require_size)
from mpcore._core.capi cimport *

cnp.import_array()


cdef void* _input(
        cnp.ndarray array, str name, int64_t size, int32_t dtype) except? NULL:
    require_code(array, name, input_code(array, name), dtype)
    require_size(array, name, size)
    return cnp.PyArray_DATA(array)


cdef void* _output(
        cnp.ndarray array, str name, int64_t size, int32_t dtype) except? NULL:
    require_code(array, name, output_code(array, name), dtype)
    require_size(array, name, size)
    return cnp.PyArray_DATA(array)


def activation_forward(
        int32_t code, cnp.ndarray x not None, cnp.ndarray y not None) -> None:
    """Write activation(x) to y."""
    cdef int32_t dtype = input_code(x, "x")
    cdef int64_t n = cnp.PyArray_SIZE(x)
    cdef void* x_data = cnp.PyArray_DATA(x)
    cdef void* y_data = _output(y, "y", n, dtype)
    cdef int32_t status
    with nogil:
        status = mpcore_activation_forward(NULL, code, n, x_data, y_data, dtype)
    check(status)


def dense_backward(
        int32_t code, cnp.ndarray y, cnp.ndarray dy not None, cnp.ndarray dz,
        cnp.ndarray db) -> None:
    """Write dy * activation'(z) to dz and its column sums to db."""
    cdef int32_t dtype = input_code(dy, "dy")
    require_ndim(dy, "dy", 2)
    cdef int64_t rows = cnp.PyArray_DIM(dy, 0)
    cdef int64_t cols = cnp.PyArray_DIM(dy, 1)
    cdef void* dy_data = cnp.PyArray_DATA(dy)
    cdef void* y_data = NULL
    cdef void* dz_data = NULL
    cdef void* db_data = NULL
    cdef int32_t status
    if y is not None:
        y_data = _input(y, "y", rows * cols, dtype)
    if dz is not None:
        dz_data = _output(dz, "dz", rows * cols, dtype)
    if db is not None:
        db_data = _output(db, "db", cols, MPCORE_DTYPE_F32)
    with nogil:
        status = mpcore_dense_backward(
            NULL, code, rows, cols, y_data, dy_data, dz_data, <float*>db_data, dtype)
    check(status)


def softmax(cnp.ndarray x not None, cnp.ndarray y not None) -> None:
    """Write the softmax of each row of x to y."""
    cdef int32_t dtype = input_code(x, "x")
    require_ndim(x, "x", 2)
    cdef int64_t rows = cnp.PyArray_DIM(x, 0)
    cdef int64_t cols = cnp.PyArray_DIM(x, 1)
    cdef void* x_data = cnp.PyArray_DATA(x)
    cdef void* y_data = _output(y, "y", rows * cols, dtype)
    cdef int32_t status
    with nogil:
        status = mpcore_softmax(NULL, rows, cols, x_data, y_data, dtype)
    check(status)


def softmax_backward(
        cnp.ndarray y not None, cnp.ndarray dy not None,
        cnp.ndarray dx not None) -> None:
    """Write the gradient of softmax's input to dx, from its output and gradient."""
    cdef int32_t dtype = input_code(y, "y")
    require_ndim(y, "y", 2)
    cdef int64_t rows = cnp.PyArray_DIM(y, 0)
    cdef int64_t cols = cnp.PyArray_DIM(y, 1)
    cdef void* y_data = cnp.PyArray_DATA(y)
    cdef void* dy_data = _input(dy, "dy", rows * cols, dtype)
    cdef void* dx_data = _output(dx, "dx", rows * cols, dtype)
    cdef int32_t status
    with nogil:
        status = mpcore_softmax_backward(
            NULL, rows, cols, y_data, dy_data, dx_data, dtype)
    check(status)


def log_softmax(cnp.ndarray x not None, cnp.ndarray y not None) -> None:
    """Write the logarithm of the softmax of each row of x to y."""
    cdef int32_t dtype = input_code(x, "x")
    require_ndim(x, "x", 2)
    cdef int64_t rows = cnp.PyArray_DIM(x, 0)
    cdef int64_t cols = cnp.PyArray_DIM(x, 1)
    cdef void* x_data = cnp.PyArray_DATA(x)
    cdef void* y_data = _output(y, "y", rows * cols, dtype)
    cdef int32_t status
    with nogil:
        status = mpcore_log_softmax(NULL, rows, cols, x_data, y_data, dtype)
    check(status)


def log_softmax_backward(
        cnp.ndarray y not None, cnp.ndarray dy not None,
        cnp.ndarray dx not None) -> None:
    """Write the gradient of log_softmax's input to dx, from its output and gradient."""
    cdef int32_t dtype = input_code(y, "y")
    require_ndim(y, "y", 2)
    cdef int64_t rows = cnp.PyArray_DIM(y, 0)
    cdef int64_t cols = cnp.PyArray_DIM(y, 1)
    cdef void* y_data = cnp.PyArray_DATA(y)
    cdef void* dy_data = _input(dy, "dy", rows * cols, dtype)
    cdef void* dx_data = _output(dx, "dx", rows * cols, dtype)
    cdef int32_t status
    with nogil:
        status = mpcore_log_softmax_backward(
            NULL, rows, cols, y_data, dy_data, dx_data, dtype)
    check(status)


def softmax_xent(
        cnp.ndarray x not None, cnp.ndarray labels, cnp.ndarray targets,
        float smoothing, cnp.ndarray scale, cnp.ndarray loss, cnp.ndarray dx) -> None:
    """Write softmax cross-entropy per row to loss and its scaled gradient to dx."""
    cdef int32_t dtype = input_code(x, "x")
    require_ndim(x, "x", 2)
    cdef int64_t rows = cnp.PyArray_DIM(x, 0)
    cdef int64_t cols = cnp.PyArray_DIM(x, 1)
    cdef void* x_data = cnp.PyArray_DATA(x)
    cdef void* labels_data = NULL
    cdef void* targets_data = NULL
    cdef void* scale_data = NULL
    cdef void* loss_data = NULL
    cdef void* dx_data = NULL
    cdef int32_t status
    if labels is not None:
        labels_data = _input(labels, "labels", rows, MPCORE_DTYPE_I64)
    if targets is not None:
        targets_data = _input(targets, "targets", rows * cols, MPCORE_DTYPE_F32)
    if scale is not None:
        scale_data = _input(scale, "scale", rows, MPCORE_DTYPE_F32)
    if loss is not None:
        loss_data = _output(loss, "loss", rows, MPCORE_DTYPE_F32)
    if dx is not None:
        dx_data = _output(dx, "dx", rows * cols, dtype)
    with nogil:
        status = mpcore_softmax_xent_smoothed(
            NULL, rows, cols, x_data, <int64_t*>labels_data, <float*>targets_data,
            smoothing, <float*>scale_data, <float*>loss_data, dx_data, dtype)
    check(status)
