"""Stochastic gradient descent."""

from collections.abc import Sequence
from typing import Any, Unpack

import numpy as np

from mpcore import ops
from mpcore.optimizers import rates
from mpcore.optimizers.arguments import real
from mpcore.optimizers.fused import FusedOptimizer
from mpcore.optimizers.settings import DecaySettings
from mpcore.serialization import register
from mpcore.variable import Variable


@register("optimizers")
class SGD(FusedOptimizer):
    """Stochastic gradient descent, with momentum if wanted.

    With g the gradient and lr the learning rate::

        w -= lr * g                              momentum == 0
        v = momentum * v - lr * g;  w += v       momentum > 0
        v = momentum * v - lr * g;  w += momentum * v - lr * g     nesterov

    Parameters
    ----------
    learning_rate : real number, LearningRateSchedule, or callable, default 0.01
    momentum : float in [0, 1], default 0
    nesterov : bool, default False
        Without momentum it changes nothing.
    **settings
        Those of `Optimizer`.

    Raises
    ------
    ValueError
        If `momentum` is outside [0, 1], and as `Optimizer` does.

    Notes
    -----
    Slot: `momentum`, one per variable, only if momentum > 0. The rate is part of it: a
    new rate scales new gradients only. Arithmetic is fp32 (f64 for f64 variables),
    rounded once to the variable's dtype, and has the same bits on every ISA level and
    number of threads; one pass over memory.

    References
    ----------
    Sutskever et al., "On the importance of initialization and momentum in deep
    learning", eq. 1-4 (Nesterov in the form of eq. 7 of Bengio et al., 2013).

    Examples
    --------
    >>> w = Variable([1.0, 2.0])
    >>> optimizer = SGD(0.5, momentum=0.9)
    >>> optimizer.apply([[1.0, -1.0]], [w])
    >>> w.numpy().round(4).tolist()
    [0.5, 2.5]
    """

    def __init__(
        self,
        learning_rate: rates.LearningRate = 0.01,
        momentum: float = 0.0,
        nesterov: bool = False,
        **settings: Unpack[DecaySettings],
    ) -> None:
        momentum = real("momentum", momentum, "[0, 1]")
        super().__init__(learning_rate, **settings)
        self.momentum = momentum
        self.nesterov = nesterov

    def build(self, variables: Sequence[Variable]) -> None:
        """Make the momentum slots, if there is momentum."""
        if self.built:
            return
        super().build(variables)
        if self.momentum:
            self._momentums = self.add_optimizer_variables(
                self._trainable_variables, "momentum"
            )

    def _fused(
        self,
        gradients: list[np.ndarray],
        variables: Sequence[Variable],
        learning_rate: float,
        factors: list[float],
        decays: list[float],
        clipvalue: float,
    ) -> None:
        slots = [self._momentums] if self.momentum else []
        ops.sgd_step(
            **self._tensors(gradients, variables, *slots),
            grad_multipliers=factors,
            weight_decays=decays,
            learning_rate=learning_rate,
            momentum=self.momentum,
            nesterov=self.nesterov,
            clipvalue=clipvalue,
        )

    def get_config(self) -> dict[str, Any]:
        """Return the constructor's arguments, with the current learning rate."""
        return super().get_config() | {
            "momentum": self.momentum,
            "nesterov": self.nesterov,
        }
