"""mpcore: mixed-precision training on CPUs.

Models, optimizers, policies, and loss scaling in the terms of Keras; the arithmetic is
that of a C++ core with kernels for each instruction set. The parts:

``mpcore.layers``, ``Sequential``, ``Model``
    Models that compute in float32, float16, or bfloat16.
``mpcore.optimizers``, ``mpcore.mixed_precision``
    Updates of float32 weights; dtype policies and dynamic loss scaling.
``mpcore.ops``, ``GradientTape``, ``Variable``
    What they are made of, for training loops of one's own.
"""

from mpcore import (
    autocast,
    callbacks,
    constraints,
    datasets,
    dtypes,
    initializers,
    layers,
    losses,
    metrics,
    mixed_precision,
    models,
    ops,
    optimizers,
    random,
    regularizers,
    serialization,
)
from mpcore.dtypes import floatx, set_floatx
from mpcore.indexed_slices import IndexedSlices
from mpcore.models import Model, Sequential
from mpcore.ops import (
    all_finite,
    available_isas,
    cast,
    cpu_info,
    get_float32_matmul_precision,
    get_isa,
    get_num_threads,
    matmul,
    memory_info,
    set_float32_matmul_precision,
    set_isa,
    set_num_threads,
    trim_memory,
)
from mpcore.optimizers import Optimizer
from mpcore.random import set_random_seed
from mpcore.tape import GradientTape, Tensor
from mpcore.threads import register_controller
from mpcore.variable import Variable

__version__ = ops.version()

register_controller()

__all__ = [
    "GradientTape",
    "IndexedSlices",
    "Model",
    "Optimizer",
    "Sequential",
    "Tensor",
    "Variable",
    "__version__",
    "all_finite",
    "autocast",
    "available_isas",
    "callbacks",
    "cast",
    "constraints",
    "cpu_info",
    "datasets",
    "dtypes",
    "floatx",
    "get_float32_matmul_precision",
    "get_isa",
    "get_num_threads",
    "initializers",
    "layers",
    "losses",
    "matmul",
    "memory_info",
    "metrics",
    "mixed_precision",
    "models",
    "ops",
    "optimizers",
    "random",
    "regularizers",
    "serialization",
    "set_float32_matmul_precision",
    "set_floatx",
    "set_isa",
    "set_num_threads",
    "set_random_seed",
    "trim_memory",
]
