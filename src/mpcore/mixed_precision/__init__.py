"""Mixed precision: dtype policies and loss scaling."""

from mpcore.mixed_precision.loss_scale_optimizer import LossScaleOptimizer
from mpcore.mixed_precision.policy import (
    DTypePolicy,
    Policy,
    dtype_policy,
    global_policy,
    set_dtype_policy,
    set_global_policy,
)

__all__ = [
    "DTypePolicy",
    "LossScaleOptimizer",
    "Policy",
    "dtype_policy",
    "global_policy",
    "set_dtype_policy",
    "set_global_policy",
]
