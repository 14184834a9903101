"""Windows that slide over images: convolution and pooling."""
from libc.stdint cimport int32_t, int64_t
from libc.string cimport memset

cimport numpy as cnp

from mpcore._core.adapt cimport (
    check, input_code, output_code, require_code, require_ndim, require_size)
from mpcore._core.capi cimport *

cnp.import_array()


cdef int _fill(
        mpcore_window2d* w, cnp.ndarray x, cnp.ndarray y, tuple size, tuple stride,
        tuple dilation, tuple padding) except -1:
    # Images of x and y: one dtype, (batch, height, width, channels).
    memset(w, 0, sizeof(mpcore_window2d))
    w.struct_size = sizeof(mpcore_window2d)
    w.dtype = input_code(x, "x")
    require_code(y, "y", input_code(y, "y"), w.dtype)
    require_ndim(x, "x", 4)
    require_ndim(y, "y", 4)
    if cnp.PyArray_DIM(x, 0) != cnp.PyArray_DIM(y, 0):
        raise ValueError(
            "`x` and `y` must hold equally many images. Received: shapes "
            f"{(<object>x).shape} and {(<object>y).shape}")
    w.batch = cnp.PyArray_DIM(x, 0)
    w.height = cnp.PyArray_DIM(x, 1)
    w.width = cnp.PyArray_DIM(x, 2)
    w.channels = cnp.PyArray_DIM(x, 3)
    w.out_height = cnp.PyArray_DIM(y, 1)
    w.out_width = cnp.PyArray_DIM(y, 2)
    w.window_height, w.window_width = size
    w.stride_height, w.stride_width = stride
    w.dilation_height, w.dilation_width = dilation
    w.pad_top, w.pad_left = padding
    return 0


cdef int64_t _filters(
        mpcore_window2d* w, cnp.ndarray kernel, cnp.ndarray y, int64_t groups,
        int32_t code, int32_t dtype) except -1:
    cdef int64_t filters = cnp.PyArray_DIM(y, 3)
    require_code(kernel, "kernel", code, dtype)
    require_size(
        kernel, "kernel",
        w.window_height * w.window_width * (w.channels // groups) * filters)
    return filters


def conv2d(
        cnp.ndarray x not None, cnp.ndarray kernel not None, cnp.ndarray bias,
        int32_t activation, cnp.ndarray y not None, cnp.ndarray pre_activation,
        tuple size, tuple stride, tuple dilation, tuple padding,
        int64_t groups) -> None:
    """Write activation(x * kernel + bias) to y, and its argument to pre_activation."""
    cdef mpcore_window2d w
    cdef void* bias_data = NULL
    cdef void* z_data = NULL
    cdef int32_t status
    _fill(&w, x, y, size, stride, dilation, padding)
    output_code(y, "y")
    cdef int64_t filters = _filters(
        &w, kernel, y, groups, input_code(kernel, "kernel"), w.dtype)
    if bias is not None:
        require_code(bias, "bias", input_code(bias, "bias"), MPCORE_DTYPE_F32)
        require_size(bias, "bias", filters)
        bias_data = cnp.PyArray_DATA(bias)
    if pre_activation is not None:
        require_code(
            pre_activation, "pre_activation",
            output_code(pre_activation, "pre_activation"), w.dtype)
        require_size(pre_activation, "pre_activation", cnp.PyArray_SIZE(y))
        z_data = cnp.PyArray_DATA(pre_activation)
    with nogil:
        status = mpcore_conv2d(
            NULL, &w, filters, groups, activation, cnp.PyArray_DATA(x),
            cnp.PyArray_DATA(kernel), <float*>bias_data, cnp.PyArray_DATA(y), z_data)
    check(status)


def conv2d_backward_input(
        cnp.ndarray dz not None, cnp.ndarray kernel not None, cnp.ndarray dx not None,
        tuple size, tuple stride, tuple dilation, tuple padding,
        int64_t groups) -> None:
    """Write the gradient of the images to dx."""
    cdef mpcore_window2d w
    cdef int32_t status
    _fill(&w, dx, dz, size, stride, dilation, padding)
    output_code(dx, "dx")
    cdef int64_t filters = _filters(
        &w, kernel, dz, groups, input_code(kernel, "kernel"), w.dtype)
    with nogil:
        status = mpcore_conv2d_backward_input(
            NULL, &w, filters, groups, cnp.PyArray_DATA(dz), cnp.PyArray_DATA(kernel),
            cnp.PyArray_DATA(dx))
    check(status)


def conv2d_backward_kernel(
        cnp.ndarray x not None, cnp.ndarray dz not None, cnp.ndarray dkernel not None,
        tuple size, tuple stride, tuple dilation, tuple padding,
        int64_t groups) -> None:
    """Write the gradient of the kernel, float32, to dkernel."""
    cdef mpcore_window2d w
    cdef int32_t status
    _fill(&w, x, dz, size, stride, dilation, padding)
    cdef int64_t filters = _filters(
        &w, dkernel, dz, groups, output_code(dkernel, "dkernel"), MPCORE_DTYPE_F32)
    with nogil:
        status = mpcore_conv2d_backward_kernel(
            NULL, &w, filters, groups, cnp.PyArray_DATA(x), cnp.PyArray_DATA(dz),
            <float*>cnp.PyArray_DATA(dkernel))
    check(status)


cdef int32_t* _places(
        cnp.ndarray argmax, cnp.ndarray y, bint output) except? NULL:
    if argmax is None:
        return NULL
    require_code(
        argmax, "argmax",
        output_code(argmax, "argmax") if output else input_code(argmax, "argmax"),
        MPCORE_DTYPE_I32)
    require_size(argmax, "argmax", cnp.PyArray_SIZE(y))
    return <int32_t*>cnp.PyArray_DATA(argmax)


cdef int _require_channels(mpcore_window2d* w, cnp.ndarray y) except -1:
    if cnp.PyArray_DIM(y, 3) != w.channels:
        raise ValueError(
            f"`y` must have {w.channels} channels. Received: shape={(<object>y).shape}")
    return 0


def pool2d(
        int32_t pooling, cnp.ndarray x not None, cnp.ndarray y not None,
        cnp.ndarray argmax, tuple size, tuple stride, tuple padding) -> None:
    """Write the maximum or average of each window to y, its place to argmax."""
    cdef mpcore_window2d w
    cdef int32_t status
    _fill(&w, x, y, size, stride, (1, 1), padding)
    _require_channels(&w, y)
    output_code(y, "y")
    cdef int32_t* places = _places(argmax, y, True)
    with nogil:
        status = mpcore_pool2d(
            NULL, &w, pooling, cnp.PyArray_DATA(x), cnp.PyArray_DATA(y), places)
    check(status)


def pool2d_backward(
        int32_t pooling, cnp.ndarray argmax, cnp.ndarray dy not None,
        cnp.ndarray dx not None, tuple size, tuple stride, tuple padding) -> None:
    """Write the gradient of the images to dx."""
    cdef mpcore_window2d w
    cdef int32_t status
    _fill(&w, dx, dy, size, stride, (1, 1), padding)
    _require_channels(&w, dy)
    output_code(dx, "dx")
    cdef int32_t* places = _places(argmax, dy, False)
    with nogil:
        status = mpcore_pool2d_backward(
            NULL, &w, pooling, places, cnp.PyArray_DATA(dy), cnp.PyArray_DATA(dx))
    check(status)
