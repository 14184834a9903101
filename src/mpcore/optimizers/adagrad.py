"""Adagrad."""

from collections.abc import Sequence
from typing import Any, Unpack

from mpcore.optimizers import rates
from mpcore.optimizers.arguments import Real
from mpcore.optimizers.fused import FusedOptimizer
from mpcore.optimizers.settings import FusedDecaySettings
from mpcore.optimizers.slots import Initializer, constant
from mpcore.serialization import register


@register("optimizers")
class Adagrad(FusedOptimizer):
    """Adagrad: steps by the ratio of the gradient and all that came before.

    With g the gradient, lr the learning rate, and t = 1 at the first update::

        n += g**2
        w -= lr * g / sqrt(n + epsilon)

    Parameters
    ----------
    learning_rate : real number, LearningRateSchedule, or callable, default 0.001
    initial_accumulator_value : float, >= 0, default 0.1
        What n starts with.
    epsilon : float, >= 0, default 1e-7
        Inside the root.
    **settings
        Those of `Optimizer` and `FusedOptimizer`.

    Raises
    ------
    ValueError
        If a number is out of range, and as `Optimizer` does.

    Notes
    -----
    Slot: the `accumulator` of each variable.

    References
    ----------
    Duchi et al., "Adaptive Subgradient Methods for Online Learning and Stochastic
    Optimization", 2011.

    Examples
    --------
    >>> from mpcore import Variable
    >>> w = Variable([1.0, 2.0])
    >>> optimizer = Adagrad(0.25)
    >>> optimizer.apply([[1.0, -1.0]], [w])
    >>> w.numpy().round(4)
    array([0.7616, 2.2384], dtype=float32)
    """

    _rule = "adagrad"
    initial_accumulator_value = Real("[0, inf)")
    epsilon = Real("[0, inf)")

    def __init__(
        self,
        learning_rate: rates.LearningRate = 0.001,
        initial_accumulator_value: float = 0.1,
        epsilon: float = 1e-7,
        **settings: Unpack[FusedDecaySettings],
    ) -> None:
        super().__init__(
            learning_rate,
            initial_accumulator_value=initial_accumulator_value,
            epsilon=epsilon,
            **settings,
        )

    def _slot_groups(self) -> Sequence[tuple[str, ...]]:
        return [("accumulator",)]

    def _initializers(self) -> dict[str, Initializer]:
        return {"accumulator": constant(self.initial_accumulator_value)}

    def _scalars(self) -> dict[str, Any]:
        return {"epsilon": self.epsilon}
