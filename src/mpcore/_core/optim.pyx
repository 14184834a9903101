"""Optimizer updates: one call per step for any number of tensors."""
cimport cython
from cpython.mem cimport PyMem_Calloc, PyMem_Free
from libc.stdint cimport int32_t, int64_t
from libc.string cimport memset

cimport numpy as cnp

from mpcore._core.adapt cimport (
    check, input_code, output_code, require_code, require_size)
from mpcore._core.capi cimport *

cnp.import_array()

cdef enum:
    MAX_STATES = 4  # mpcore_optim_tensor.state


cdef int _fill(
        mpcore_optim_tensor* tensor, param, grad, copy, tuple states, double multiplier,
        double decay, Py_ssize_t i) except -1:
    cdef int32_t state_dtype
    cdef Py_ssize_t j
    tensor.param_dtype = output_code(param, "params", i)
    tensor.param = cnp.PyArray_DATA(<cnp.ndarray>param)
    tensor.size = cnp.PyArray_SIZE(<cnp.ndarray>param)
    tensor.grad_dtype = input_code(grad, "grads", i)
    require_size(grad, "grads", tensor.size, i)
    tensor.grad = cnp.PyArray_DATA(<cnp.ndarray>grad)
    if copy is not None:
        tensor.copy_dtype = output_code(copy, "copies", i)
        require_size(copy, "copies", tensor.size, i)
        tensor.copy = cnp.PyArray_DATA(<cnp.ndarray>copy)
    if len(states) > MAX_STATES:
        raise ValueError(
            f"`states[{i}]` must hold at most {MAX_STATES} arrays. "
            f"Received: {len(states)}")
    state_dtype = (
        MPCORE_DTYPE_F64 if tensor.param_dtype == MPCORE_DTYPE_F64
        else MPCORE_DTYPE_F32)
    for j in range(len(states)):
        state = states[j]
        require_code(state, "states", output_code(state, "states", i), state_dtype, i)
        require_size(state, "states", tensor.size, i)
        tensor.state[j] = cnp.PyArray_DATA(<cnp.ndarray>state)
    tensor.grad_multiplier = multiplier
    tensor.weight_decay = decay
    return 0


cdef tuple _per_tensor(value, Py_ssize_t count, str name):
    if isinstance(value, (int, float)):
        return (value,) * count
    values = tuple(value)
    if len(values) != count:
        raise ValueError(
            f"`{name}` must have one entry per parameter ({count}). "
            f"Received: {len(values)}")
    return values


@cython.auto_pickle(False)
cdef class _Tensors:
    """The C array of one call; keeps alive what it points into."""

    cdef mpcore_optim_tensor* data
    cdef int64_t count
    cdef list held

    def __cinit__(
            self, params, grads, copies, states, grad_multipliers, weight_decays):
        cdef Py_ssize_t i
        params = tuple(params)
        self.count = len(params)
        grads = _per_tensor(grads, self.count, "grads")
        copies = _per_tensor(copies, self.count, "copies")
        states = tuple(
            [tuple(s) for s in _per_tensor(states, self.count, "states")])
        multipliers = _per_tensor(grad_multipliers, self.count, "grad_multipliers")
        decays = _per_tensor(weight_decays, self.count, "weight_decays")
        self.held = [params, grads, copies, states]
        self.data = <mpcore_optim_tensor*>PyMem_Calloc(
            self.count, sizeof(mpcore_optim_tensor))
        if self.data == NULL:
            raise MemoryError
        for i in range(self.count):
            _fill(
                &self.data[i], params[i], grads[i], copies[i], states[i],
                multipliers[i], decays[i], i)

    def __dealloc__(self):
        PyMem_Free(self.data)


def sgd_step(
        params, grads, copies, states, grad_multipliers, weight_decays,
        double learning_rate, double momentum, bint nesterov,
        double clipvalue) -> None:
    """Update params, states, and copies by one step of SGD."""
    cdef _Tensors tensors = _Tensors(
        params, grads, copies, states, grad_multipliers, weight_decays)
    cdef mpcore_sgd_args args
    cdef int32_t status
    memset(&args, 0, sizeof(args))
    args.struct_size = sizeof(args)
    args.nesterov = nesterov
    args.learning_rate = learning_rate
    args.momentum = momentum
    args.clipvalue = clipvalue
    with nogil:
        status = mpcore_sgd_step(NULL, &args, tensors.count, tensors.data)
    check(status)


def adam_step(
        params, grads, copies, states, grad_multipliers, weight_decays,
        double learning_rate, double beta_1, double beta_2, double epsilon,
        int64_t step, bint amsgrad, double clipvalue) -> None:
    """Update params, states, and copies by one step of Adam."""
    cdef _Tensors tensors = _Tensors(
        params, grads, copies, states, grad_multipliers, weight_decays)
    cdef mpcore_adam_args args
    cdef int32_t status
    memset(&args, 0, sizeof(args))
    args.struct_size = sizeof(args)
    args.amsgrad = amsgrad
    args.learning_rate = learning_rate
    args.beta_1 = beta_1
    args.beta_2 = beta_2
    args.epsilon = epsilon
    args.step = step
    args.clipvalue = clipvalue
    with nogil:
        status = mpcore_adam_step(NULL, &args, tensors.count, tensors.data)
    check(status)
