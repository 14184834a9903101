"""What the modules of _core share: dtype codes, array checks, status to exception."""
import sys

import ml_dtypes
import numpy as np

from libc.stdint cimport int32_t, int64_t

cimport numpy as cnp

from mpcore._core.capi cimport *

cnp.import_array()

# NumPy numbers an extension dtype when it is registered, so the number is not a constant.
cdef int _bfloat16 = np.dtype(ml_dtypes.bfloat16).num


cdef int check(int32_t status) except -1:
    if status == MPCORE_OK:
        return 0
    message = mpcore_last_error().decode("utf-8", "replace")
    if status == MPCORE_INVALID_ARGUMENT or status == MPCORE_UNSUPPORTED:
        raise ValueError(message)
    if status == MPCORE_OUT_OF_MEMORY:
        raise MemoryError(message)
    name = mpcore_status_name(status).decode("utf-8", "replace")
    raise RuntimeError(f"{name}: {message}")


cdef int32_t _integer_code(size_t size, bint is_signed) noexcept:
    if size == 1:
        return MPCORE_DTYPE_I8 if is_signed else MPCORE_DTYPE_U8
    if size == 2:
        return MPCORE_DTYPE_I16 if is_signed else MPCORE_DTYPE_U16
    if size == 4:
        return MPCORE_DTYPE_I32 if is_signed else MPCORE_DTYPE_U32
    return MPCORE_DTYPE_I64 if is_signed else MPCORE_DTYPE_U64


cdef int32_t _code(cnp.dtype dtype) noexcept:
    # The C code, or -1.
    cdef int num = dtype.type_num
    if not cnp.PyDataType_ISNOTSWAPPED(dtype):
        return -1
    if num == cnp.NPY_FLOAT:
        return MPCORE_DTYPE_F32
    if num == cnp.NPY_FLOAT16:
        return MPCORE_DTYPE_F16
    if num == _bfloat16:
        return MPCORE_DTYPE_BF16
    if num == cnp.NPY_DOUBLE:
        return MPCORE_DTYPE_F64
    if num == cnp.NPY_BOOL:
        return MPCORE_DTYPE_BOOL
    if num == cnp.NPY_BYTE:
        return _integer_code(sizeof(signed char), True)
    if num == cnp.NPY_UBYTE:
        return _integer_code(sizeof(unsigned char), False)
    if num == cnp.NPY_SHORT:
        return _integer_code(sizeof(short), True)
    if num == cnp.NPY_USHORT:
        return _integer_code(sizeof(unsigned short), False)
    if num == cnp.NPY_INT:
        return _integer_code(sizeof(int), True)
    if num == cnp.NPY_UINT:
        return _integer_code(sizeof(unsigned int), False)
    if num == cnp.NPY_LONG:
        return _integer_code(sizeof(long), True)
    if num == cnp.NPY_ULONG:
        return _integer_code(sizeof(unsigned long), False)
    if num == cnp.NPY_LONGLONG:
        return _integer_code(sizeof(long long), True)
    if num == cnp.NPY_ULONGLONG:
        return _integer_code(sizeof(unsigned long long), False)
    return -1


cdef int _refuse(cnp.dtype dtype, str label, str more="") except -1:
    if not cnp.PyDataType_ISNOTSWAPPED(dtype):
        raise ValueError(
            f"`{label}` must be in native byte order. Received: dtype={dtype.str}")
    raise ValueError(
        f"`{label}` must have one of the dtypes float32, float16, bfloat16, float64, "
        f"int8..int64, uint8..uint64, bool. Received: dtype={dtype}{more}")


cdef int32_t dtype_code(cnp.dtype dtype, str name) except -1:
    cdef int32_t code = _code(dtype)
    if code < 0:
        _refuse(dtype, name)
    return code


cdef bint _is_masked(object array):
    # numpy.ma is imported by whoever makes such an array.
    return "numpy.ma" in sys.modules and isinstance(array, np.ma.MaskedArray)


cdef str _label(str name, Py_ssize_t index):
    return name if index < 0 else f"{name}[{index}]"


cdef int32_t strided_code(object array, str name, Py_ssize_t index=-1) except -1:
    if not cnp.PyArray_Check(array):
        raise TypeError(
            f"`{_label(name, index)}` must be an ndarray. "
            f"Received: {type(array).__name__}")
    if not cnp.PyArray_CheckExact(array) and _is_masked(array):
        raise TypeError(
            f"`{_label(name, index)}` must not be a masked array, since the mask would "
            f"be lost. Received: dtype={array.dtype}, shape={array.shape}")
    # Not array.dtype, which is looked up by name.
    cdef cnp.dtype dtype = <cnp.dtype>cnp.PyArray_DESCR(<cnp.ndarray>array)
    cdef int32_t code = _code(dtype)
    if code < 0:
        _refuse(dtype, _label(name, index), f", shape={array.shape}")
    return code


cdef int32_t input_code(object array, str name, Py_ssize_t index=-1) except -1:
    cdef int32_t code = strided_code(array, name, index)
    if not cnp.PyArray_IS_C_CONTIGUOUS(<cnp.ndarray>array):
        raise ValueError(
            f"`{_label(name, index)}` must be C-contiguous. "
            f"Received: shape={array.shape}, strides={array.strides}")
    return code


cdef int32_t output_code(object array, str name, Py_ssize_t index=-1) except -1:
    cdef int32_t code = input_code(array, name, index)
    if not cnp.PyArray_ISWRITEABLE(<cnp.ndarray>array):
        require_writable(array, _label(name, index))
    return code


cdef int require_ndim(cnp.ndarray array, str name, int ndim) except -1:
    if cnp.PyArray_NDIM(array) != ndim:
        raise ValueError(
            f"`{name}` must have {ndim} dimension(s). Received: shape="
            f"{(<object>array).shape}")
    return 0


cdef int require_size(
        cnp.ndarray array, str name, int64_t size, Py_ssize_t index=-1) except -1:
    if cnp.PyArray_SIZE(array) != size:
        raise ValueError(
            f"`{_label(name, index)}` must have {size} element(s). "
            f"Received: shape={(<object>array).shape}")
    return 0


cdef int require_code(
        cnp.ndarray array, str name, int32_t code, int32_t expected,
        Py_ssize_t index=-1) except -1:
    if code != expected:
        wanted = mpcore_dtype_name(expected).decode()
        raise ValueError(
            f"`{_label(name, index)}` must have dtype {wanted}. "
            f"Received: dtype={array.dtype}")
    return 0


cdef int require_writable(cnp.ndarray array, str name) except -1:
    if not cnp.PyArray_ISWRITEABLE(array):
        raise ValueError(f"`{name}` must be writable. Received: a read-only array")
    return 0
