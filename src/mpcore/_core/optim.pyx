"""Optimizer updates: one call per step for any number of tensors."""
cimport cython
from cpython.mem cimport PyMem_Calloc, PyMem_Free
from libc.stdint cimport int32_t, int64_t
from libc.string cimport memset

cimport numpy as cnp

from mpcore._core.adapt cimport (
    check, input_code, output_code, require_size)
from mpcore._core.capi cimport *

cnp.import_array()

cdef enum:
    MAX_STATES = 4  # mpcore_optim_tensor.state

OPTIMIZERS = {
    "sgd": MPCORE_OPTIMIZER_SGD,
    "adam": MPCORE_OPTIMIZER_ADAM,
    "adamax": MPCORE_OPTIMIZER_ADAMAX,
    "nadam": MPCORE_OPTIMIZER_NADAM,
    "rmsprop": MPCORE_OPTIMIZER_RMSPROP,
    "adagrad": MPCORE_OPTIMIZER_ADAGRAD,
    "adadelta": MPCORE_OPTIMIZER_ADADELTA,
    "ftrl": MPCORE_OPTIMIZER_FTRL,
    "lion": MPCORE_OPTIMIZER_LION,
    "lamb": MPCORE_OPTIMIZER_LAMB,
    "schedule_free_adamw": MPCORE_OPTIMIZER_SCHEDULE_FREE_ADAMW,
}


cdef int _fill(
        mpcore_optim_tensor* tensor, param, grad, copy, tuple states, remainder,
        int64_t index, double multiplier, double decay, Py_ssize_t i) except -1:
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
    if remainder is not None:
        if output_code(remainder, "remainders", i) != MPCORE_DTYPE_BF16:
            raise ValueError(
                f"`remainders[{i}]` must have dtype bfloat16. "
                f"Received: dtype={remainder.dtype}")
        require_size(remainder, "remainders", tensor.size, i)
        tensor.remainder = cnp.PyArray_DATA(<cnp.ndarray>remainder)
    if len(states) > MAX_STATES:
        raise ValueError(
            f"`states[{i}]` must hold at most {MAX_STATES} arrays. "
            f"Received: {len(states)}")
    tensor.state_dtype = (
        MPCORE_DTYPE_F64 if tensor.param_dtype == MPCORE_DTYPE_F64
        else MPCORE_DTYPE_F32)
    for j in range(len(states)):
        state = states[j]
        code = output_code(state, "states", i)
        if j == 0:
            tensor.state_dtype = code
        elif code != tensor.state_dtype:
            raise ValueError(
                f"`states[{i}]` must be of one dtype. "
                f"Received: {[x.dtype.name for x in states]}")
        require_size(state, "states", tensor.size, i)
        tensor.state[j] = cnp.PyArray_DATA(<cnp.ndarray>state)
    tensor.index = index
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
            self, params, grads, copies, states, grad_multipliers, weight_decays,
            remainders, indices):
        cdef Py_ssize_t i
        params = tuple(params)
        self.count = len(params)
        grads = _per_tensor(grads, self.count, "grads")
        copies = _per_tensor(copies, self.count, "copies")
        states = tuple(
            [tuple(s) for s in _per_tensor(states, self.count, "states")])
        multipliers = _per_tensor(grad_multipliers, self.count, "grad_multipliers")
        decays = _per_tensor(weight_decays, self.count, "weight_decays")
        remainders = (
            (None,) * self.count if remainders is None
            else _per_tensor(remainders, self.count, "remainders"))
        indices = (
            tuple(range(self.count)) if indices is None
            else _per_tensor(indices, self.count, "indices"))
        self.held = [params, grads, copies, states, remainders]
        self.data = <mpcore_optim_tensor*>PyMem_Calloc(
            self.count, sizeof(mpcore_optim_tensor))
        if self.data == NULL:
            raise MemoryError
        for i in range(self.count):
            _fill(
                &self.data[i], params[i], grads[i], copies[i], states[i],
                remainders[i], indices[i], multipliers[i], decays[i], i)

    def __dealloc__(self):
        PyMem_Free(self.data)


def can_read(list grads, list params) -> bool:
    """Tell whether all gradients can be read as they are: the usual case.

    They are float32, C-contiguous, aligned, native, no read-only views, and of the
    shapes of their parameters, none of which is float64.
    """
    cdef Py_ssize_t i
    cdef cnp.ndarray grad, param
    if len(grads) != len(params):
        return False
    for i in range(len(grads)):
        if not cnp.PyArray_CheckExact(grads[i]):
            return False
        grad, param = grads[i], params[i]
        if (
            cnp.PyArray_TYPE(grad) != cnp.NPY_FLOAT
            or cnp.PyArray_TYPE(param) == cnp.NPY_DOUBLE
            or not cnp.PyArray_ISCARRAY(grad)
            or not cnp.PyArray_SAMESHAPE(grad, param)
        ):
            return False
    return True


def step(
        str optimizer, params, grads, copies, states, grad_multipliers,
        weight_decays, remainders=None, indices=None, *, double learning_rate,
        int64_t step=1, double clipvalue=0.0, double beta_1=0.0, double beta_2=0.0,
        double epsilon=0.0, double momentum=0.0, double rho=0.0,
        double learning_rate_power=0.0, double l1=0.0, double l2=0.0,
        double l2_shrinkage=0.0, double beta=0.0, double momentum_product=0.0,
        int64_t warmup_steps=0, bint nesterov=False, bint amsgrad=False,
        bint centered=False, bint stochastic=False, unsigned long long seed=0) -> None:
    """Update params, states, remainders, and copies by one step."""
    if optimizer not in OPTIMIZERS:
        raise ValueError(
            f"`optimizer` must be one of {list(OPTIMIZERS)}. Received: {optimizer!r}")
    cdef _Tensors tensors = _Tensors(
        params, grads, copies, states, grad_multipliers, weight_decays, remainders,
        indices)
    cdef mpcore_optim_args args
    cdef int32_t status
    memset(&args, 0, sizeof(args))
    args.struct_size = sizeof(args)
    args.optimizer = OPTIMIZERS[optimizer]
    args.step = step
    args.learning_rate = learning_rate
    args.clipvalue = clipvalue
    args.beta_1 = beta_1
    args.beta_2 = beta_2
    args.epsilon = epsilon
    args.momentum = momentum
    args.rho = rho
    args.learning_rate_power = learning_rate_power
    args.l1 = l1
    args.l2 = l2
    args.l2_shrinkage = l2_shrinkage
    args.beta = beta
    args.momentum_product = momentum_product
    args.warmup_steps = warmup_steps
    args.nesterov = nesterov
    args.amsgrad = amsgrad
    args.centered = centered
    args.rounding = stochastic
    args.seed = seed
    with nogil:
        status = mpcore_optim_step(NULL, &args, tensors.count, tensors.data)
    check(status)
