"""Nadam."""

from collections.abc import Sequence
from typing import Any, Unpack

from mpcore.optimizers import rates
from mpcore.optimizers.arguments import Real
from mpcore.optimizers.fused import FusedOptimizer
from mpcore.optimizers.gradients import Update
from mpcore.optimizers.settings import FusedDecaySettings
from mpcore.serialization import register
from mpcore.variable import Variable


@register("optimizers")
class Nadam(FusedOptimizer):
    """Nadam: Adam with Nesterov's momentum.

    With g the gradient, lr the learning rate, and t = 1 at the first update::

        mu(t) = beta_1 * (1 - 0.96**t / 2);  p = mu(1) * ... * mu(t)
        m += (g - m) * (1 - beta_1)
        v += (g**2 - v) * (1 - beta_2)
        M = mu(t+1) * m / (1 - p * mu(t+1)) + (1 - mu(t)) * g / (1 - p)
        w -= lr * M / (sqrt(v / (1 - beta_2**t)) + epsilon)

    Parameters
    ----------
    learning_rate : real number, LearningRateSchedule, or callable, default 0.001
    beta_1 : float in [0, 1), default 0.9
    beta_2 : float in [0, 1), default 0.999
    epsilon : float, >= 0, default 1e-7
    **settings
        Those of `Optimizer` and `FusedOptimizer`.

    Raises
    ------
    ValueError
        If a number is out of range, and as `Optimizer` does.

    Notes
    -----
    Slots: `momentum` and `velocity` of each variable, then one number, p, which moves
    once per update.

    References
    ----------
    Dozat, "Incorporating Nesterov Momentum into Adam", 2016.

    Examples
    --------
    >>> w = Variable([1.0, 2.0])
    >>> optimizer = Nadam(0.25)
    >>> optimizer.apply([[1.0, -1.0]], [w])
    >>> w.numpy().round(4)
    array([0.7343, 2.2657], dtype=float32)
    """

    _rule = "nadam"
    beta_1 = Real("[0, 1)")
    beta_2 = Real("[0, 1)")
    epsilon = Real("[0, inf)")

    def __init__(
        self,
        learning_rate: rates.LearningRate = 0.001,
        beta_1: float = 0.9,
        beta_2: float = 0.999,
        epsilon: float = 1e-7,
        **settings: Unpack[FusedDecaySettings],
    ) -> None:
        super().__init__(
            learning_rate, beta_1=beta_1, beta_2=beta_2, epsilon=epsilon, **settings
        )

    def build(self, variables: Sequence[Variable]) -> None:
        """Make the slots."""
        if self.built:
            return
        super().build(variables)
        self._product = Variable(1.0, dtype="float64", name="variable")

    def _slot_groups(self) -> Sequence[tuple[str, ...]]:
        return [("momentum", "velocity")]

    def _scalars(self) -> dict[str, Any]:
        return super()._scalars() | {"momentum_product": float(self._product)}

    def _update(self, update: Update) -> None:
        before = float(self._product)
        decay: float = 0.96 ** (int(self.iterations) + 1)
        self._product.assign(before * self.beta_1 * (1 - 0.5 * decay))
        try:
            super()._update(update)
        except BaseException:
            self._product.assign(before)
            raise
