"""RMSprop."""

from collections.abc import Sequence
from typing import Unpack

from mpcore.optimizers import rates
from mpcore.optimizers.arguments import Flag, Real
from mpcore.optimizers.fused import FusedOptimizer
from mpcore.optimizers.settings import FusedDecaySettings
from mpcore.serialization import register


@register("optimizers")
class RMSprop(FusedOptimizer):
    """RMSprop: steps by the ratio of the gradient and its running magnitude.

    With g the gradient, lr the learning rate, and t = 1 at the first update::

        v = rho * v + (1 - rho) * g**2
        a = rho * a + (1 - rho) * g              centered; without it a = 0
        d = lr * g / sqrt(v - a**2 + epsilon)
        w -= d                                   momentum == 0
        b = momentum * b + d;  w -= b            momentum > 0

    Parameters
    ----------
    learning_rate : real number, LearningRateSchedule, or callable, default 0.001
    rho : float in [0, 1], default 0.9
    momentum : float in [0, 1], default 0
    epsilon : float, >= 0, default 1e-7
        Inside the root.
    centered : bool, default False
        Divide by the deviation of the gradient instead of its magnitude.
    **settings
        Those of `Optimizer` and `FusedOptimizer`.

    Raises
    ------
    ValueError
        If a number is out of range, and as `Optimizer` does.

    Notes
    -----
    Slots: the `velocity` of each variable, then, with momentum, the `momentum` of each,
    then, if centered, the `average_gradient` of each.

    References
    ----------
    Tieleman & Hinton, "Lecture 6.5: rmsprop", 2012. Graves, "Generating Sequences With
    Recurrent Neural Networks", eq. 38-45 (centered).

    Examples
    --------
    >>> from mpcore import Variable
    >>> w = Variable([1.0, 2.0])
    >>> optimizer = RMSprop(0.25)
    >>> optimizer.apply([[1.0, -1.0]], [w])
    >>> w.numpy().round(4)
    array([0.2094, 2.7906], dtype=float32)
    """

    _rule = "rmsprop"
    rho = Real("[0, 1]")
    momentum = Real("[0, 1]")
    epsilon = Real("[0, inf)")
    centered = Flag()

    def __init__(
        self,
        learning_rate: rates.LearningRate = 0.001,
        rho: float = 0.9,
        momentum: float = 0.0,
        epsilon: float = 1e-7,
        centered: bool = False,
        **settings: Unpack[FusedDecaySettings],
    ) -> None:
        super().__init__(
            learning_rate,
            rho=rho,
            momentum=momentum,
            epsilon=epsilon,
            centered=centered,
            **settings,
        )

    def _slot_groups(self) -> Sequence[tuple[str, ...]]:
        wanted = {
            "velocity": True,
            "momentum": self.momentum > 0,
            "average_gradient": self.centered,
        }
        return [(name,) for name, has in wanted.items() if has]
