"""Adadelta."""

from collections.abc import Sequence
from typing import Unpack

from mpcore.optimizers import rates
from mpcore.optimizers.arguments import Real
from mpcore.optimizers.fused import FusedOptimizer
from mpcore.optimizers.settings import FusedDecaySettings
from mpcore.serialization import register


@register("optimizers")
class Adadelta(FusedOptimizer):
    """Adadelta: steps by the ratio of two running magnitudes.

    With g the gradient, lr the learning rate, and t = 1 at the first update::

        s = rho * s + (1 - rho) * g**2
        x = sqrt(d + epsilon) / sqrt(s + epsilon) * g
        d = rho * d + (1 - rho) * x**2
        w -= lr * x

    Parameters
    ----------
    learning_rate : real number, LearningRateSchedule, or callable, default 0.001
    rho : float in [0, 1], default 0.95
    epsilon : float, >= 0, default 1e-7
        Inside the roots.
    **settings
        Those of `Optimizer` and `FusedOptimizer`.

    Raises
    ------
    ValueError
        If a number is out of range, and as `Optimizer` does.

    Notes
    -----
    Slots: `accumulated_grad` and `accumulated_delta_var` of each variable.

    References
    ----------
    Zeiler, "ADADELTA: An Adaptive Learning Rate Method", algorithm 1.

    Examples
    --------
    >>> from mpcore import Variable
    >>> w = Variable([1.0, 2.0])
    >>> optimizer = Adadelta(0.25)
    >>> optimizer.apply([[1.0, -1.0]], [w])
    >>> w.numpy().round(4)
    array([0.9996, 2.0004], dtype=float32)
    """

    _rule = "adadelta"
    rho = Real("[0, 1]")
    epsilon = Real("[0, inf)")

    def __init__(
        self,
        learning_rate: rates.LearningRate = 0.001,
        rho: float = 0.95,
        epsilon: float = 1e-7,
        **settings: Unpack[FusedDecaySettings],
    ) -> None:
        super().__init__(learning_rate, rho=rho, epsilon=epsilon, **settings)

    def _slot_groups(self) -> Sequence[tuple[str, ...]]:
        return [("accumulated_grad", "accumulated_delta_var")]
