"""Layer, RMS, and batch normalisation."""
from libc.stdint cimport int32_t, int64_t

cimport numpy as cnp

from mpcore._core.adapt cimport (
    check, input_code, output_code, require_code, require_ndim, require_size)
from mpcore._core.capi cimport *

cnp.import_array()


cdef void* _input(
        cnp.ndarray array, str name, int64_t size,
        int32_t dtype=MPCORE_DTYPE_F32) except? NULL:
    # NULL for None.
    if array is None:
        return NULL
    require_code(array, name, input_code(array, name), dtype)
    require_size(array, name, size)
    return cnp.PyArray_DATA(array)


cdef void* _output(
        cnp.ndarray array, str name, int64_t size,
        int32_t dtype=MPCORE_DTYPE_F32) except? NULL:
    if array is None:
        return NULL
    require_code(array, name, output_code(array, name), dtype)
    require_size(array, name, size)
    return cnp.PyArray_DATA(array)


def layer_norm(
        cnp.ndarray x not None, cnp.ndarray gamma, cnp.ndarray beta, float epsilon,
        cnp.ndarray y not None, cnp.ndarray mean, cnp.ndarray rstd) -> None:
    """Write the layer normalisation of each row of x to y, its statistics beside."""
    cdef int32_t dtype = input_code(x, "x")
    require_ndim(x, "x", 2)
    cdef int64_t rows = cnp.PyArray_DIM(x, 0)
    cdef int64_t cols = cnp.PyArray_DIM(x, 1)
    cdef void* x_data = cnp.PyArray_DATA(x)
    cdef void* gamma_data = _input(gamma, "gamma", cols)
    cdef void* beta_data = _input(beta, "beta", cols)
    cdef void* y_data = _output(y, "y", rows * cols, dtype)
    cdef void* mean_data = _output(mean, "mean", rows)
    cdef void* rstd_data = _output(rstd, "rstd", rows)
    cdef int32_t status
    with nogil:
        status = mpcore_layer_norm(
            NULL, rows, cols, x_data, <float*>gamma_data, <float*>beta_data, epsilon,
            y_data, <float*>mean_data, <float*>rstd_data, dtype)
    check(status)


def layer_norm_backward(
        cnp.ndarray x not None, cnp.ndarray gamma, cnp.ndarray mean not None,
        cnp.ndarray rstd not None, cnp.ndarray dy not None, cnp.ndarray dx,
        cnp.ndarray dgamma, cnp.ndarray dbeta) -> None:
    """Write the gradients of layer normalisation to dx, dgamma, dbeta."""
    cdef int32_t dtype = input_code(x, "x")
    require_ndim(x, "x", 2)
    cdef int64_t rows = cnp.PyArray_DIM(x, 0)
    cdef int64_t cols = cnp.PyArray_DIM(x, 1)
    cdef void* x_data = cnp.PyArray_DATA(x)
    cdef void* gamma_data = _input(gamma, "gamma", cols)
    cdef void* mean_data = _input(mean, "mean", rows)
    cdef void* rstd_data = _input(rstd, "rstd", rows)
    cdef void* dy_data = _input(dy, "dy", rows * cols, dtype)
    cdef void* dx_data = _output(dx, "dx", rows * cols, dtype)
    cdef void* dgamma_data = _output(dgamma, "dgamma", cols)
    cdef void* dbeta_data = _output(dbeta, "dbeta", cols)
    cdef int32_t status
    with nogil:
        status = mpcore_layer_norm_backward(
            NULL, rows, cols, x_data, <float*>gamma_data, <float*>mean_data,
            <float*>rstd_data, dy_data, dx_data, <float*>dgamma_data,
            <float*>dbeta_data, dtype)
    check(status)


def rms_norm(
        cnp.ndarray x not None, cnp.ndarray gamma, float epsilon,
        cnp.ndarray y not None, cnp.ndarray rstd) -> None:
    """Write the RMS normalisation of each row of x to y, its statistics beside."""
    cdef int32_t dtype = input_code(x, "x")
    require_ndim(x, "x", 2)
    cdef int64_t rows = cnp.PyArray_DIM(x, 0)
    cdef int64_t cols = cnp.PyArray_DIM(x, 1)
    cdef void* x_data = cnp.PyArray_DATA(x)
    cdef void* gamma_data = _input(gamma, "gamma", cols)
    cdef void* y_data = _output(y, "y", rows * cols, dtype)
    cdef void* rstd_data = _output(rstd, "rstd", rows)
    cdef int32_t status
    with nogil:
        status = mpcore_rms_norm(
            NULL, rows, cols, x_data, <float*>gamma_data, epsilon, y_data,
            <float*>rstd_data, dtype)
    check(status)


def rms_norm_backward(
        cnp.ndarray x not None, cnp.ndarray gamma, cnp.ndarray rstd not None,
        cnp.ndarray dy not None, cnp.ndarray dx, cnp.ndarray dgamma) -> None:
    """Write the gradients of RMS normalisation to dx and dgamma."""
    cdef int32_t dtype = input_code(x, "x")
    require_ndim(x, "x", 2)
    cdef int64_t rows = cnp.PyArray_DIM(x, 0)
    cdef int64_t cols = cnp.PyArray_DIM(x, 1)
    cdef void* x_data = cnp.PyArray_DATA(x)
    cdef void* gamma_data = _input(gamma, "gamma", cols)
    cdef void* rstd_data = _input(rstd, "rstd", rows)
    cdef void* dy_data = _input(dy, "dy", rows * cols, dtype)
    cdef void* dx_data = _output(dx, "dx", rows * cols, dtype)
    cdef void* dgamma_data = _output(dgamma, "dgamma", cols)
    cdef int32_t status
    with nogil:
        status = mpcore_rms_norm_backward(
            NULL, rows, cols, x_data, <float*>gamma_data, <float*>rstd_data, dy_data,
            dx_data, <float*>dgamma_data, dtype)
    check(status)


def batch_norm_moments(
        cnp.ndarray x not None, cnp.ndarray mean not None,
        cnp.ndarray variance not None) -> None:
    """Write mean and variance of each column of x."""
    cdef int32_t dtype = input_code(x, "x")
    require_ndim(x, "x", 2)
    cdef int64_t rows = cnp.PyArray_DIM(x, 0)
    cdef int64_t cols = cnp.PyArray_DIM(x, 1)
    cdef void* x_data = cnp.PyArray_DATA(x)
    cdef void* mean_data = _output(mean, "mean", cols)
    cdef void* variance_data = _output(variance, "variance", cols)
    cdef int32_t status
    with nogil:
        status = mpcore_batch_norm_moments(
            NULL, rows, cols, x_data, <float*>mean_data, <float*>variance_data, dtype)
    check(status)


def batch_norm(
        cnp.ndarray x not None, cnp.ndarray mean not None, cnp.ndarray variance not None,
        float epsilon, cnp.ndarray gamma, cnp.ndarray beta,
        cnp.ndarray y not None) -> None:
    """Write the columns of x, normalised by given statistics, to y."""
    cdef int32_t dtype = input_code(x, "x")
    require_ndim(x, "x", 2)
    cdef int64_t rows = cnp.PyArray_DIM(x, 0)
    cdef int64_t cols = cnp.PyArray_DIM(x, 1)
    cdef void* x_data = cnp.PyArray_DATA(x)
    cdef void* mean_data = _input(mean, "mean", cols)
    cdef void* variance_data = _input(variance, "variance", cols)
    cdef void* gamma_data = _input(gamma, "gamma", cols)
    cdef void* beta_data = _input(beta, "beta", cols)
    cdef void* y_data = _output(y, "y", rows * cols, dtype)
    cdef int32_t status
    with nogil:
        status = mpcore_batch_norm(
            NULL, rows, cols, x_data, <float*>mean_data, <float*>variance_data, epsilon,
            <float*>gamma_data, <float*>beta_data, y_data, dtype)
    check(status)


def batch_norm_backward(
        cnp.ndarray x not None, cnp.ndarray mean not None, cnp.ndarray variance not None,
        float epsilon, cnp.ndarray gamma, cnp.ndarray dy not None,
        bint constant_moments, cnp.ndarray dx, cnp.ndarray dgamma,
        cnp.ndarray dbeta) -> None:
    """Write the gradients of batch normalisation to dx, dgamma, dbeta."""
    cdef int32_t dtype = input_code(x, "x")
    require_ndim(x, "x", 2)
    cdef int64_t rows = cnp.PyArray_DIM(x, 0)
    cdef int64_t cols = cnp.PyArray_DIM(x, 1)
    cdef void* x_data = cnp.PyArray_DATA(x)
    cdef void* mean_data = _input(mean, "mean", cols)
    cdef void* variance_data = _input(variance, "variance", cols)
    cdef void* gamma_data = _input(gamma, "gamma", cols)
    cdef void* dy_data = _input(dy, "dy", rows * cols, dtype)
    cdef void* dx_data = _output(dx, "dx", rows * cols, dtype)
    cdef void* dgamma_data = _output(dgamma, "dgamma", cols)
    cdef void* dbeta_data = _output(dbeta, "dbeta", cols)
    cdef int32_t status
    with nogil:
        status = mpcore_batch_norm_backward(
            NULL, rows, cols, x_data, <float*>mean_data, <float*>variance_data, epsilon,
            <float*>gamma_data, dy_data, constant_moments, dx_data, <float*>dgamma_data,
            <float*>dbeta_data, dtype)
    check(status)
