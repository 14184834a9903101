"""Lion."""

from collections.abc import Sequence
from typing import Unpack

from mpcore.optimizers import rates
from mpcore.optimizers.arguments import Real
from mpcore.optimizers.fused import FusedOptimizer
from mpcore.optimizers.settings import FusedDecaySettings
from mpcore.serialization import register


@register("optimizers")
class Lion(FusedOptimizer):
    """Lion: steps of one size, in the direction of the sign of an average.

    With g the gradient, lr the learning rate, and t = 1 at the first update::

        w -= lr * sign(beta_1 * m + (1 - beta_1) * g)
        m = beta_2 * m + (1 - beta_2) * g

    Parameters
    ----------
    learning_rate : real number, LearningRateSchedule, or callable, default 0.001
    beta_1 : float in (0, 1], default 0.9
    beta_2 : float in [0, 1], default 0.99
    **settings
        Those of `Optimizer` and `FusedOptimizer`.

    Raises
    ------
    ValueError
        If a number is out of range, and as `Optimizer` does.

    Notes
    -----
    Slot: the `momentum` of each variable.

    References
    ----------
    Chen et al., "Symbolic Discovery of Optimization Algorithms", program 1.

    Examples
    --------
    >>> from mpcore import Variable
    >>> w = Variable([1.0, 2.0])
    >>> optimizer = Lion(0.25)
    >>> optimizer.apply([[1.0, -1.0]], [w])
    >>> w.numpy().round(4)
    array([0.75, 2.25], dtype=float32)
    """

    _rule = "lion"
    beta_1 = Real("(0, 1]")
    beta_2 = Real("[0, 1]")

    def __init__(
        self,
        learning_rate: rates.LearningRate = 0.001,
        beta_1: float = 0.9,
        beta_2: float = 0.99,
        **settings: Unpack[FusedDecaySettings],
    ) -> None:
        super().__init__(learning_rate, beta_1=beta_1, beta_2=beta_2, **settings)

    def _slot_groups(self) -> Sequence[tuple[str, ...]]:
        return [("momentum",)]
