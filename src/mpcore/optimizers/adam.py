"""Adam."""

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
class Adam(FusedOptimizer):
    """Adam: steps by the ratio of two moving averages of the gradient.

    With g the gradient, lr the learning rate, and t = 1 at the first update::

        m += (g - m) * (1 - beta_1)
        v += (g**2 - v) * (1 - beta_2)
        u = max(u, v)                            amsgrad; without it u = v
        w -= lr * sqrt(1 - beta_2**t) / (1 - beta_1**t) * m / (sqrt(u) + epsilon)

    Parameters
    ----------
    learning_rate : real number, LearningRateSchedule, or callable, default 0.001
    beta_1 : float in [0, 1), default 0.9
    beta_2 : float in [0, 1), default 0.999
    epsilon : float, >= 0, default 1e-7
        The "epsilon hat" of the paper: outside the bias correction.
    amsgrad : bool, default False
    **settings
        Those of `Optimizer`.

    Raises
    ------
    ValueError
        If a beta is outside [0, 1) or `epsilon` < 0, and as `Optimizer` does.

    Notes
    -----
    Slots: `momentum` and `velocity` of each variable, then, with amsgrad, the
    `velocity_hat` of each. Powers and rates are double; the rest is fp32 (f64 for f64
    variables), rounded once to the variable's dtype, with the same bits on every ISA
    level and number of threads; one pass over memory. Subnormal numbers count as zero.

    References
    ----------
    Kingma & Ba, "Adam: A Method for Stochastic Optimization", the form before section
    2.1. Reddi et al., "On the Convergence of Adam and Beyond" (amsgrad).

    Examples
    --------
    >>> w = Variable([1.0, 2.0])
    >>> optimizer = Adam(0.25)
    >>> optimizer.apply([[1.0, -1.0]], [w])
    >>> w.numpy().round(4).tolist()
    [0.75, 2.25]
    """

    def __init__(
        self,
        learning_rate: rates.LearningRate = 0.001,
        beta_1: float = 0.9,
        beta_2: float = 0.999,
        epsilon: float = 1e-7,
        amsgrad: bool = False,
        **settings: Unpack[DecaySettings],
    ) -> None:
        beta_1 = real("beta_1", beta_1, "[0, 1)")
        beta_2 = real("beta_2", beta_2, "[0, 1)")
        epsilon = real("epsilon", epsilon, "[0, inf)")
        super().__init__(learning_rate, **settings)
        self.beta_1 = beta_1
        self.beta_2 = beta_2
        self.epsilon = epsilon
        self.amsgrad = amsgrad

    def build(self, variables: Sequence[Variable]) -> None:
        """Make the slots."""
        if self.built:
            return
        super().build(variables)
        model = self._trainable_variables
        self._momentums, self._velocities = self.add_optimizer_variables(
            model, ["momentum", "velocity"]
        )
        if self.amsgrad:
            self._velocity_hats = self.add_optimizer_variables(model, "velocity_hat")

    def _fused(
        self,
        gradients: list[np.ndarray],
        variables: Sequence[Variable],
        learning_rate: float,
        factors: list[float],
        decays: list[float],
        clipvalue: float,
    ) -> None:
        slots = [self._momentums, self._velocities]
        if self.amsgrad:
            slots.append(self._velocity_hats)
        ops.adam_step(
            **self._tensors(gradients, variables, *slots),
            grad_multipliers=factors,
            weight_decays=decays,
            learning_rate=learning_rate,
            beta_1=self.beta_1,
            beta_2=self.beta_2,
            epsilon=self.epsilon,
            step=int(self.iterations) + 1,
            amsgrad=self.amsgrad,
            clipvalue=clipvalue,
        )

    def get_config(self) -> dict[str, Any]:
        """Return the constructor's arguments, with the current learning rate."""
        return super().get_config() | {
            "beta_1": self.beta_1,
            "beta_2": self.beta_2,
            "epsilon": self.epsilon,
            "amsgrad": self.amsgrad,
        }
