"""Adamax."""

from collections.abc import Sequence
from typing import Unpack

from mpcore.optimizers import rates
from mpcore.optimizers.arguments import Real
from mpcore.optimizers.fused import FusedOptimizer
from mpcore.optimizers.settings import FusedDecaySettings
from mpcore.serialization import register


@register("optimizers")
class Adamax(FusedOptimizer):
    """Adamax: Adam with the largest gradient in place of the second moment.

    With g the gradient, lr the learning rate, and t = 1 at the first update::

        m += (g - m) * (1 - beta_1)
        u = max(beta_2 * u, |g|)
        w -= lr / (1 - beta_1**t) * m / (u + epsilon)

    Parameters
    ----------
    learning_rate : real number, LearningRateSchedule, or callable, default 0.001
    beta_1 : float in [0, 1), default 0.9
    beta_2 : float in [0, 1], default 0.999
    epsilon : float, >= 0, default 1e-7
    **settings
        Those of `Optimizer` and `FusedOptimizer`.

    Raises
    ------
    ValueError
        If a number is out of range, and as `Optimizer` does.

    Notes
    -----
    Slots: `momentum` and `norm` of each variable.

    References
    ----------
    Kingma & Ba, "Adam: A Method for Stochastic Optimization", section 7.1.

    Examples
    --------
    >>> from mpcore import Variable
    >>> w = Variable([1.0, 2.0])
    >>> optimizer = Adamax(0.25)
    >>> optimizer.apply([[1.0, -1.0]], [w])
    >>> w.numpy().round(4)
    array([0.75, 2.25], dtype=float32)
    """

    _rule = "adamax"
    beta_1 = Real("[0, 1)")
    beta_2 = Real("[0, 1]")
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
        return [("momentum", "norm")]
