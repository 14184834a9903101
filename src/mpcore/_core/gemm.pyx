"""Matrix products with a fused epilogue, over stacks of matrices; operands packed ahead."""
from libc.stdint cimport int32_t, int64_t
from libc.string cimport memset

cimport numpy as cnp

from mpcore._core.adapt cimport (
    check, dtype_code, input_code, output_code, require_ndim, require_size,
    require_writable, strided_code)
from mpcore._core.capi cimport *

from mpcore._core.runtime import empty

cdef extern from "numpy/arrayobject.h":
    enum:
        NPY_MAXDIMS

cnp.import_array()


cdef int64_t _stride(cnp.ndarray array, int axis, str name) except? -1:
    # In elements. Along an axis of length 0 or 1 NumPy may hold any number.
    cdef cnp.npy_intp stride = cnp.PyArray_STRIDE(array, axis)
    cdef cnp.npy_intp itemsize = cnp.PyArray_ITEMSIZE(array)
    if cnp.PyArray_DIM(array, axis) <= 1:
        return 1
    if stride % itemsize == 0:
        return stride // itemsize
    raise ValueError(
        f"`{name}` must have strides that are multiples of its item size. Received: "
        f"strides={(<object>array).strides}, itemsize={itemsize}")


cdef struct Stack:
    # A matrix argument, and the bytes from one matrix to the next along each stack axis.
    mpcore_matrix* matrix
    int64_t item
    int64_t steps[NPY_MAXDIMS]


cdef int _fill(
        Stack* stack, mpcore_matrix* matrix, cnp.ndarray array, str name,
        cnp.ndarray like) except -1:
    # Stack axes are those of `like`; lengths of 1 and missing axes repeat.
    cdef int axes = cnp.PyArray_NDIM(like) - 2
    cdef int own = cnp.PyArray_NDIM(array) - 2
    cdef int axis
    stack.matrix = matrix
    matrix.dtype = strided_code(array, name)
    if own < 0 or own > axes:
        raise ValueError(
            f"`{name}` must have at least 2 dimensions, and no more than the result. "
            f"Received: shape={(<object>array).shape}")
    stack.item = cnp.PyArray_ITEMSIZE(array)
    matrix.data = cnp.PyArray_DATA(array)
    matrix.row_stride = _stride(array, own, name)
    matrix.col_stride = _stride(array, own + 1, name)
    for axis in range(axes):
        if axis < axes - own or cnp.PyArray_DIM(array, axis - (axes - own)) == 1:
            stack.steps[axis] = 0
            continue
        if (cnp.PyArray_DIM(array, axis - (axes - own))
                != cnp.PyArray_DIM(like, axis)):
            raise ValueError(
                f"The stack of `{name}` must fit that of the result. Received: shapes "
                f"{(<object>array).shape} and {(<object>like).shape}")
        stack.steps[axis] = _stride(array, axis - (axes - own), name) * stack.item
    return 0


cdef int _require_matrix(
        cnp.ndarray array, str name, int64_t rows, int64_t cols) except -1:
    cdef int last = cnp.PyArray_NDIM(array) - 1
    if (cnp.PyArray_DIM(array, last - 1) != rows
            or cnp.PyArray_DIM(array, last) != cols):
        raise ValueError(
            f"`{name}` must hold matrices of shape ({rows}, {cols}). "
            f"Received: shape={(<object>array).shape}")
    return 0


cdef int _run(
        mpcore_gemm_args* args, Stack* stacks, int count, cnp.ndarray like) except -1:
    # Trailing stack axes that every array walks evenly are one batch; the others are
    # walked here.
    cdef int axes = cnp.PyArray_NDIM(like) - 2
    cdef int outer = axes
    cdef int64_t calls = 1
    cdef int64_t call, rest, position
    cdef int32_t status = MPCORE_OK
    cdef int i, axis
    cdef bint even
    cdef char* data[5]
    args.batch = 1
    while outer > 0:
        even = True
        for i in range(count):
            if args.batch > 1 and (
                    stacks[i].steps[outer - 1] != stacks[i].steps[axes - 1] * args.batch):
                even = False
        if not even:
            break
        outer -= 1
        if args.batch == 1:
            # Axes of length 1 do not count.
            for i in range(count):
                stacks[i].steps[axes - 1] = stacks[i].steps[outer]
        args.batch *= cnp.PyArray_DIM(like, outer)
    for i in range(count):
        data[i] = <char*>stacks[i].matrix.data
        if axes > 0:
            stacks[i].matrix.batch_stride = stacks[i].steps[axes - 1] // stacks[i].item
    for axis in range(outer):
        calls *= cnp.PyArray_DIM(like, axis)
    with nogil:
        for call in range(calls):
            rest = call
            for i in range(count):
                stacks[i].matrix.data = data[i]
            for axis in range(outer - 1, -1, -1):
                position = rest % cnp.PyArray_DIM(like, axis)
                rest //= cnp.PyArray_DIM(like, axis)
                for i in range(count):
                    stacks[i].matrix.data = (
                        <char*>stacks[i].matrix.data + position * stacks[i].steps[axis])
            status = mpcore_gemm(NULL, args)
            if status != MPCORE_OK:
                break
    check(status)
    return 0


def gemm(
        cnp.ndarray a not None, cnp.ndarray b, cnp.ndarray d not None,
        cnp.ndarray bias=None, int32_t activation=0, float alpha=1.0, float beta=0.0,
        cnp.ndarray residual=None, cnp.ndarray pre_activation=None,
        cnp.ndarray packed=None) -> None:
    """Write activation(alpha a @ b + beta d + bias) + residual to d.

    Arrays are stacks of matrices whose leading axes broadcast to those of d. With
    `packed`, b is None. `pre_activation` receives the argument of the activation.
    """
    cdef mpcore_gemm_args args
    cdef Stack stacks[5]
    cdef int count = 2
    memset(&args, 0, sizeof(args))
    args.struct_size = sizeof(args)
    args.activation = activation
    args.alpha = alpha
    args.beta = beta
    if cnp.PyArray_NDIM(d) < 2:
        require_ndim(d, "d", 2)
    require_writable(d, "d")
    _fill(&stacks[0], &args.a, a, "a", d)
    _fill(&stacks[1], &args.d, d, "d", d)
    args.m = cnp.PyArray_DIM(d, cnp.PyArray_NDIM(d) - 2)
    args.n = cnp.PyArray_DIM(d, cnp.PyArray_NDIM(d) - 1)
    args.k = cnp.PyArray_DIM(a, cnp.PyArray_NDIM(a) - 1)
    _require_matrix(a, "a", args.m, args.k)
    if packed is not None:
        input_code(packed, "packed")
        args.packed_b = cnp.PyArray_DATA(packed)
        args.b.dtype = args.a.dtype
    else:
        if b is None:
            raise TypeError("`b` must be an ndarray where `packed` is None")
        _fill(&stacks[count], &args.b, b, "b", d)
        _require_matrix(b, "b", args.k, args.n)
        count += 1
    if residual is not None:
        _fill(&stacks[count], &args.residual, residual, "residual", d)
        _require_matrix(residual, "residual", args.m, args.n)
        count += 1
    if pre_activation is not None:
        require_writable(pre_activation, "pre_activation")
        _fill(&stacks[count], &args.pre_activation, pre_activation, "pre_activation", d)
        _require_matrix(pre_activation, "pre_activation", args.m, args.n)
        count += 1
    if bias is not None:
        args.bias_dtype = input_code(bias, "bias")
        require_ndim(bias, "bias", 1)
        require_size(bias, "bias", args.n)
        args.bias = cnp.PyArray_DATA(bias)
    _run(&args, stacks, count, d)


def plain_product(
        cnp.ndarray a not None, cnp.ndarray b not None, cnp.dtype dtype,
        object out) -> object:
    """Return the product of two matrices that need no preparation, else None.

    `dtype` is that of the result, None for the operands'. Whatever is wrong is left to
    others, who say what.
    """
    cdef int32_t code
    cdef cnp.ndarray d
    if (cnp.PyArray_NDIM(a) != 2 or cnp.PyArray_NDIM(b) != 2
            or cnp.PyArray_DIM(a, 1) != cnp.PyArray_DIM(b, 0)):
        return None
    try:
        code = strided_code(a, "a")
        if code > MPCORE_DTYPE_BF16 or code != strided_code(b, "b"):
            return None
        if dtype is None:
            dtype = a.dtype
        elif dtype_code(dtype, "dtype") > MPCORE_DTYPE_BF16:
            return None
        shape = (cnp.PyArray_DIM(a, 0), cnp.PyArray_DIM(b, 1))
        if out is None:
            d = empty(shape, dtype)
        elif (cnp.PyArray_CheckExact(out) and out.dtype == dtype
                and out.shape == shape):
            d = out
        else:
            return None
        gemm(a, b, d)
    except ValueError:
        return None
    return d


def gemm_gathering(
        cnp.ndarray a not None, cnp.ndarray b not None,
        cnp.ndarray d not None) -> tuple[bool, float]:
    """Write a @ b to d; return whether d is finite and the sum of its squares."""
    cdef mpcore_gemm_args args
    cdef Stack stacks[3]
    cdef int32_t finite = 1
    cdef double sum_squares = 0
    memset(&args, 0, sizeof(args))
    args.struct_size = sizeof(args)
    args.alpha = 1
    args.finite = &finite
    args.sum_squares = &sum_squares
    require_ndim(d, "d", 2)
    require_writable(d, "d")
    _fill(&stacks[0], &args.a, a, "a", d)
    _fill(&stacks[1], &args.b, b, "b", d)
    _fill(&stacks[2], &args.d, d, "d", d)
    args.m = cnp.PyArray_DIM(d, 0)
    args.n = cnp.PyArray_DIM(d, 1)
    args.k = cnp.PyArray_DIM(a, 1)
    _require_matrix(a, "a", args.m, args.k)
    _require_matrix(b, "b", args.k, args.n)
    _run(&args, stacks, 3, d)
    return finite != 0, sum_squares


def packed_size(int64_t k, int64_t n, cnp.dtype dtype not None) -> int:
    """Return the bytes that a packed matrix of k by n takes."""
    cdef int64_t size = 0
    cdef int32_t code = dtype_code(dtype, "dtype")
    check(mpcore_gemm_pack_size(NULL, k, n, code, 0, &size))
    return size


def pack(cnp.ndarray b not None, cnp.ndarray packed not None) -> None:
    """Pack the right operand of products into an array of bytes."""
    cdef mpcore_matrix matrix
    cdef Stack stack
    cdef int32_t status
    cdef int64_t k, n, size
    require_ndim(b, "b", 2)
    memset(&matrix, 0, sizeof(matrix))
    _fill(&stack, &matrix, b, "b", b)
    output_code(packed, "packed")
    k = cnp.PyArray_DIM(b, 0)
    n = cnp.PyArray_DIM(b, 1)
    size = cnp.PyArray_NBYTES(packed)
    with nogil:
        status = mpcore_gemm_pack(
            NULL, k, n, &matrix, 0, cnp.PyArray_DATA(packed), size)
    check(status)


def set_float32_matmul_precision(int32_t precision) -> None:
    """Set how float32 products may be computed, by the core's number."""
    cdef int32_t status
    with nogil:
        status = mpcore_set_float32_matmul_precision(NULL, precision)
    check(status)


def get_float32_matmul_precision() -> int:
    """Return the core's number of the setting."""
    cdef int32_t precision = 0
    check(mpcore_get_float32_matmul_precision(NULL, &precision))
    return precision
