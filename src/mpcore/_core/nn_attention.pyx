"""Scaled dot-product attention."""
from libc.stdint cimport int32_t, int64_t, uint8_t
from libc.string cimport memset

cimport numpy as cnp

from mpcore._core.adapt cimport (
    check, input_code, output_code, require_code, require_ndim, require_size,
    strided_code)
from mpcore._core.capi cimport *

cnp.import_array()


cdef int _addend(
        cnp.ndarray array, str name, int32_t code, mpcore_attention_args* args,
        int64_t* strides) except -1:
    # An array of shape (batch, heads, queries, keys) that may repeat but along its keys.
    cdef cnp.npy_intp itemsize = cnp.PyArray_ITEMSIZE(array)
    cdef int axis
    require_code(array, name, strided_code(array, name), code)
    require_ndim(array, name, 4)
    require_size(array, name, args.batch * args.heads * args.queries * args.keys)
    if cnp.PyArray_SIZE(array) == 0:
        return 0
    if args.keys > 1 and cnp.PyArray_STRIDE(array, 3) != itemsize:
        raise ValueError(
            f"`{name}` must be contiguous along its last axis. "
            f"Received: strides={(<object>array).strides}")
    for axis in range(3):
        if cnp.PyArray_DIM(array, axis) > 1:
            strides[axis] = cnp.PyArray_STRIDE(array, axis) // itemsize
    return 0


cdef int _fill(
        mpcore_attention_args* args, cnp.ndarray q, cnp.ndarray k, cnp.ndarray v,
        cnp.ndarray bias, cnp.ndarray mask, float scale, bint causal) except -1:
    memset(args, 0, sizeof(mpcore_attention_args))
    args.struct_size = sizeof(mpcore_attention_args)
    args.dtype = input_code(q, "q")
    require_code(k, "k", input_code(k, "k"), args.dtype)
    require_code(v, "v", input_code(v, "v"), args.dtype)
    require_ndim(q, "q", 4)
    require_ndim(k, "k", 4)
    require_ndim(v, "v", 4)
    args.batch = cnp.PyArray_DIM(q, 0)
    args.queries = cnp.PyArray_DIM(q, 1)
    args.heads = cnp.PyArray_DIM(q, 2)
    args.depth = cnp.PyArray_DIM(q, 3)
    args.keys = cnp.PyArray_DIM(k, 1)
    args.value_depth = cnp.PyArray_DIM(v, 3)
    require_size(k, "k", args.batch * args.keys * args.heads * args.depth)
    require_size(v, "v", args.batch * args.keys * args.heads * args.value_depth)
    args.q = cnp.PyArray_DATA(q)
    args.k = cnp.PyArray_DATA(k)
    args.v = cnp.PyArray_DATA(v)
    args.scale = scale
    args.causal = causal
    if bias is not None:
        _addend(bias, "bias", MPCORE_DTYPE_F32, args, args.bias_strides)
        args.bias = <float*>cnp.PyArray_DATA(bias)
    if mask is not None:
        _addend(mask, "mask", MPCORE_DTYPE_BOOL, args, args.mask_strides)
        args.mask = <uint8_t*>cnp.PyArray_DATA(mask)
    return 0


cdef void* _output(
        cnp.ndarray array, str name, int64_t size, int32_t dtype) except? NULL:
    require_code(array, name, output_code(array, name), dtype)
    require_size(array, name, size)
    return cnp.PyArray_DATA(array)


def attention(
        cnp.ndarray q not None, cnp.ndarray k not None, cnp.ndarray v not None,
        cnp.ndarray bias, cnp.ndarray mask, float scale, bint causal,
        cnp.ndarray y not None) -> None:
    """Write softmax(scale q k^T + bias) v to y."""
    cdef mpcore_attention_args args
    cdef int32_t status
    _fill(&args, q, k, v, bias, mask, scale, causal)
    cdef void* y_data = _output(
        y, "y", args.batch * args.queries * args.heads * args.value_depth, args.dtype)
    with nogil:
        status = mpcore_attention(NULL, &args, y_data)
    check(status)


def attention_backward(
        cnp.ndarray q not None, cnp.ndarray k not None, cnp.ndarray v not None,
        cnp.ndarray bias, cnp.ndarray mask, float scale, bint causal,
        cnp.ndarray dy not None, cnp.ndarray dq not None, cnp.ndarray dk not None,
        cnp.ndarray dv not None) -> None:
    """Write the gradients of q, k, and v."""
    cdef mpcore_attention_args args
    cdef int32_t status
    _fill(&args, q, k, v, bias, mask, scale, causal)
    require_code(dy, "dy", input_code(dy, "dy"), args.dtype)
    require_size(
        dy, "dy", args.batch * args.queries * args.heads * args.value_depth)
    cdef void* dq_data = _output(dq, "dq", cnp.PyArray_SIZE(q), args.dtype)
    cdef void* dk_data = _output(dk, "dk", cnp.PyArray_SIZE(k), args.dtype)
    cdef void* dv_data = _output(dv, "dv", cnp.PyArray_SIZE(v), args.dtype)
    with nogil:
        status = mpcore_attention_backward(
            NULL, &args, cnp.PyArray_DATA(dy), dq_data, dk_data, dv_data)
    check(status)
