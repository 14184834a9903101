"""Adam."""

from collections.abc import Sequence
from typing import Unpack

from mpcore.optimizers import rates
from mpcore.optimizers.arguments import Flag, Real
from mpcore.optimizers.fused import FusedOptimizer
from mpcore.optimizers.settings import FusedDecaySettings
from mpcore.serialization import register


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
        Those of `Optimizer` and `FusedOptimizer`.

    Raises
    ------
    ValueError
        If a beta is outside [0, 1) or `epsilon` < 0, and as `Optimizer` does.

    Notes
    -----
    Slots: `momentum` and `velocity` of each variable, then, with amsgrad, the
    `velocity_hat` of each.

    References
    ----------
    Kingma & Ba, "Adam: A Method for Stochastic Optimization", the form before section
    2.1. Reddi et al., "On the Convergence of Adam and Beyond" (amsgrad).

    Examples
    --------
    >>> from mpcore import Variable
    >>> w = Variable([1.0, 2.0])
    >>> optimizer = Adam(0.25)
    >>> optimizer.apply([[1.0, -1.0]], [w])
    >>> w.numpy().round(4).tolist()
    [0.75, 2.25]
    """

    _rule = "adam"
    beta_1 = Real("[0, 1)")
    beta_2 = Real("[0, 1)")
    epsilon = Real("[0, inf)")
    amsgrad = Flag()

    def __init__(
        self,
        learning_rate: rates.LearningRate = 0.001,
        beta_1: float = 0.9,
        beta_2: float = 0.999,
        epsilon: float = 1e-7,
        amsgrad: bool = False,
        **settings: Unpack[FusedDecaySettings],
    ) -> None:
        super().__init__(
            learning_rate,
            beta_1=beta_1,
            beta_2=beta_2,
            epsilon=epsilon,
            amsgrad=amsgrad,
            **settings,
        )

    def _slot_groups(self) -> Sequence[tuple[str, ...]]:
        groups: list[tuple[str, ...]] = [("momentum", "velocity")]
        return [*groups, ("velocity_hat",)] if self.amsgrad else groups
