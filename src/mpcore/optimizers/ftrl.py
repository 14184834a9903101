"""FTRL-Proximal."""

from collections.abc import Sequence
from typing import Any, Unpack

from mpcore.optimizers import rates
from mpcore.optimizers.arguments import Real
from mpcore.optimizers.fused import FusedOptimizer
from mpcore.optimizers.settings import FusedDecaySettings
from mpcore.optimizers.slots import Initializer, constant
from mpcore.serialization import register


@register("optimizers")
class Ftrl(FusedOptimizer):
    """FTRL-Proximal: follows the regularized leader.

    With g the gradient, lr the learning rate, and t = 1 at the first update::

        p = -learning_rate_power;  N = n + g**2
        z += g + 2 * l2_shrinkage * w - (N**p - n**p) / lr * w
        w = (clip(z, -l1, l1) - z) / (N**p / lr + 2 * l2 + beta / lr);  n = N

    Parameters
    ----------
    learning_rate : real number, LearningRateSchedule, or callable, default 0.001
    learning_rate_power : float, <= 0, default -0.5
    initial_accumulator_value : float, >= 0, default 0.1
        What n starts with.
    l1_regularization_strength : float, >= 0, default 0
    l2_regularization_strength : float, >= 0, default 0
    l2_shrinkage_regularization_strength : float, >= 0, default 0
    beta : float, >= 0, default 0
    **settings
        Those of `Optimizer` and `FusedOptimizer`.

    Raises
    ------
    ValueError
        If a number is out of range, if a learning rate is not > 0, and as `Optimizer`
        does.

    Notes
    -----
    Slots: `accumulator`, n, and `linear`, z, of each variable. The weights themselves
    count only by way of decay, of shrinkage and of what they add to z.

    References
    ----------
    McMahan et al., "Ad Click Prediction: a View from the Trenches", algorithm 1.

    Examples
    --------
    >>> from mpcore import Variable
    >>> w = Variable([1.0, 2.0])
    >>> optimizer = Ftrl(0.25)
    >>> optimizer.apply([[1.0, -1.0]], [w])
    >>> w.numpy().round(4)
    array([0.4601, 1.6353], dtype=float32)
    """

    _rule = "ftrl"
    _rates = "(0, inf)"
    learning_rate_power = Real("(-inf, 0]")
    initial_accumulator_value = Real("[0, inf)")
    l1_regularization_strength = Real("[0, inf)")
    l2_regularization_strength = Real("[0, inf)")
    l2_shrinkage_regularization_strength = Real("[0, inf)")
    beta = Real("[0, inf)")

    def __init__(
        self,
        learning_rate: rates.LearningRate = 0.001,
        learning_rate_power: float = -0.5,
        initial_accumulator_value: float = 0.1,
        l1_regularization_strength: float = 0.0,
        l2_regularization_strength: float = 0.0,
        l2_shrinkage_regularization_strength: float = 0.0,
        beta: float = 0.0,
        **settings: Unpack[FusedDecaySettings],
    ) -> None:
        super().__init__(
            learning_rate,
            learning_rate_power=learning_rate_power,
            initial_accumulator_value=initial_accumulator_value,
            l1_regularization_strength=l1_regularization_strength,
            l2_regularization_strength=l2_regularization_strength,
            l2_shrinkage_regularization_strength=l2_shrinkage_regularization_strength,
            beta=beta,
            **settings,
        )

    def _slot_groups(self) -> Sequence[tuple[str, ...]]:
        return [("accumulator", "linear")]

    def _initializers(self) -> dict[str, Initializer]:
        return {"accumulator": constant(self.initial_accumulator_value)}

    def _scalars(self) -> dict[str, Any]:
        return {
            "learning_rate_power": self.learning_rate_power,
            "l1": self.l1_regularization_strength,
            "l2": self.l2_regularization_strength,
            "l2_shrinkage": self.l2_shrinkage_regularization_strength,
            "beta": self.beta,
        }
