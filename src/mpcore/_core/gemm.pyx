"""Matrix product with a fused epilogue."""
from libc.stdint cimport int32_t, int64_t
from libc.string cimport memset

cimport numpy as cnp

from mpcore._core.adapt cimport (
    check, input_code, require_ndim, require_size, require_writable, strided_code)
from mpcore._core.capi cimport *

cnp.import_array()


cdef int64_t _stride(cnp.ndarray array, int axis, str name) except? -1:
    # In elements. Along an axis of length 0 or 1 NumPy may hold any number.
    cdef cnp.npy_intp stride = cnp.PyArray_STRIDE(array, axis)
    cdef cnp.npy_intp itemsize = cnp.PyArray_ITEMSIZE(array)
    if stride % itemsize == 0:
        return stride // itemsize
    if cnp.PyArray_DIM(array, axis) <= 1:
        return 1
    raise ValueError(
        f"`{name}` must have strides that are multiples of its item size. Received: "
        f"strides={(<object>array).strides}, itemsize={itemsize}")


cdef int _fill(mpcore_matrix* matrix, cnp.ndarray array, str name) except -1:
    matrix.dtype = strided_code(array, name)
    require_ndim(array, name, 2)
    matrix.data = cnp.PyArray_DATA(array)
    matrix.row_stride = _stride(array, 0, name)
    matrix.col_stride = _stride(array, 1, name)
    return 0


def gemm(
        cnp.ndarray a not None, cnp.ndarray b not None, cnp.ndarray d not None,
        cnp.ndarray bias=None, int32_t activation=0, bint accumulate=False) -> None:
    """Write activation(a @ b + bias) to d, or add a @ b to d."""
    cdef mpcore_gemm_args args
    cdef int32_t status
    memset(&args, 0, sizeof(args))
    args.struct_size = sizeof(args)
    args.activation = activation
    args.batch = 1
    args.alpha = 1
    args.beta = accumulate
    _fill(&args.a, a, "a")
    _fill(&args.b, b, "b")
    _fill(&args.d, d, "d")
    require_writable(d, "d")
    args.m = cnp.PyArray_DIM(a, 0)
    args.k = cnp.PyArray_DIM(a, 1)
    args.n = cnp.PyArray_DIM(b, 1)
    if (cnp.PyArray_DIM(b, 0) != args.k or cnp.PyArray_DIM(d, 0) != args.m
            or cnp.PyArray_DIM(d, 1) != args.n):
        raise ValueError(
            "Shapes must be a (m, k), b (k, n), d (m, n). Received: "
            f"a {(<object>a).shape}, b {(<object>b).shape}, d {(<object>d).shape}")
    if bias is not None:
        args.bias_dtype = input_code(bias, "bias")
        require_ndim(bias, "bias", 1)
        require_size(bias, "bias", args.n)
        args.bias = cnp.PyArray_DATA(bias)
    with nogil:
        status = mpcore_gemm(NULL, &args)
    check(status)
