"""Lamb."""

from collections.abc import Sequence
from typing import Unpack

from mpcore.optimizers import rates
from mpcore.optimizers.arguments import Real
from mpcore.optimizers.fused import FusedOptimizer
from mpcore.optimizers.settings import FusedDecaySettings
from mpcore.serialization import register


@register("optimizers")
class Lamb(FusedOptimizer):
    """Lamb: Adam whose step has, per variable, the size of the weights.

    With g the gradient, lr the learning rate, and t = 1 at the first update::

        m += (g - m) * (1 - beta_1)
        v += (g**2 - v) * (1 - beta_2)
        u = m / (1 - beta_1**t) / (sqrt(v / (1 - beta_2**t)) + epsilon)
        w -= lr * |w| / |u| * u                  lr * u where a norm is 0

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
    Slots: `momentum` and `velocity` of each variable. The norms are summed in double,
    in an order that depends on the shape alone; two passes over memory.

    References
    ----------
    You et al., "Large Batch Optimization for Deep Learning: Training BERT in 76
    minutes", algorithm 2.

    Examples
    --------
    >>> from mpcore import Variable
    >>> w = Variable([1.0, 2.0])
    >>> optimizer = Lamb(0.25)
    >>> optimizer.apply([[1.0, -1.0]], [w])
    >>> w.numpy().round(4)
    array([0.6047, 2.3953], dtype=float32)
    """

    _rule = "lamb"
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

    def _slot_groups(self) -> Sequence[tuple[str, ...]]:
        return [("momentum", "velocity")]
