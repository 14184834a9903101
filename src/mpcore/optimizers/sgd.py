"""Stochastic gradient descent."""

from collections.abc import Sequence
from typing import Unpack

from mpcore.optimizers import rates
from mpcore.optimizers.arguments import Flag, Real
from mpcore.optimizers.fused import FusedOptimizer
from mpcore.optimizers.settings import FusedDecaySettings
from mpcore.serialization import register


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
        Those of `Optimizer` and `FusedOptimizer`.

    Raises
    ------
    ValueError
        If `momentum` is outside [0, 1], and as `Optimizer` does.

    Notes
    -----
    Slot: `momentum`, one per variable, only if momentum > 0. The rate is part of it: a
    new rate scales new gradients only.

    References
    ----------
    Sutskever et al., "On the importance of initialization and momentum in deep
    learning", eq. 1-4 (Nesterov in the form of eq. 7 of Bengio et al., 2013).

    Examples
    --------
    >>> from mpcore import Variable
    >>> w = Variable([1.0, 2.0])
    >>> optimizer = SGD(0.5, momentum=0.9)
    >>> optimizer.apply([[1.0, -1.0]], [w])
    >>> w.numpy().round(4).tolist()
    [0.5, 2.5]
    """

    _rule = "sgd"
    momentum = Real("[0, 1]")
    nesterov = Flag()

    def __init__(
        self,
        learning_rate: rates.LearningRate = 0.01,
        momentum: float = 0.0,
        nesterov: bool = False,
        **settings: Unpack[FusedDecaySettings],
    ) -> None:
        super().__init__(
            learning_rate, momentum=momentum, nesterov=nesterov, **settings
        )

    def _slot_groups(self) -> Sequence[tuple[str, ...]]:
        return [("momentum",)] if self.momentum else []
