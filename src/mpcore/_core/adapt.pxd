"""What the modules of _core share: dtype codes, array checks, status to exception."""
from libc.stdint cimport int32_t, int64_t

cimport numpy as cnp

# Raises what a status other than MPCORE_OK stands for.
cdef int check(int32_t status) except -1

# The C code of a dtype.
cdef int32_t dtype_code(cnp.dtype dtype, str name) except -1

# The C code of an array that is C-contiguous and in native byte order; an output is
# writable too. A strided array may have any strides. Messages say `name`, or `name[index]`;
# nothing is formatted unless something is wrong, since one call checks hundreds of arrays.
cdef int32_t input_code(object array, str name, Py_ssize_t index=*) except -1
cdef int32_t output_code(object array, str name, Py_ssize_t index=*) except -1
cdef int32_t strided_code(object array, str name, Py_ssize_t index=*) except -1

cdef int require_ndim(cnp.ndarray array, str name, int ndim) except -1
cdef int require_size(
    cnp.ndarray array, str name, int64_t size, Py_ssize_t index=*) except -1
cdef int require_code(
    cnp.ndarray array, str name, int32_t code, int32_t expected,
    Py_ssize_t index=*) except -1
cdef int require_writable(cnp.ndarray array, str name) except -1
