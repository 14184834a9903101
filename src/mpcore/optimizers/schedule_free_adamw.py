"""AdamW that needs no schedule."""

from collections.abc import Sequence
from typing import Unpack

from mpcore.optimizers import rates
from mpcore.optimizers.arguments import Integer, Real
from mpcore.optimizers.fused import FusedOptimizer
from mpcore.optimizers.settings import FusedDecaySettings
from mpcore.serialization import register
from mpcore.variable import Variable


@register("optimizers")
class ScheduleFreeAdamW(FusedOptimizer):
    """AdamW that needs no schedule: it averages its iterates as it goes.

    With g the gradient, lr the learning rate, and t = 1 at the first update::

        a = lr * min(1, t / warmup_steps)
        v += (g**2 - v) * (1 - beta_2)
        y = z;  z -= a * g / (sqrt(v / (1 - beta_2**t)) + epsilon)
        x = (w - (1 - beta_1) * y) / beta_1
        w = (1 - beta_1) * z + beta_1 * ((1 - 1/t) * x + z / t)

    Parameters
    ----------
    learning_rate : real number, LearningRateSchedule, or callable, default 0.0025
    beta_1 : float in (0, 1], default 0.9
        The weight of the average x in w, where gradients are taken.
    beta_2 : float in [0, 1), default 0.999
    epsilon : float, >= 0, default 1e-8
    warmup_steps : int, >= 0, default 0
    **settings
        Those of `Optimizer` and `FusedOptimizer`.

    Raises
    ------
    ValueError
        If a number is out of range, and as `Optimizer` does.

    Notes
    -----
    Slots: `momentum`, which is z and starts as the weights, and `velocity` of each
    variable.

    References
    ----------
    Defazio et al., "The Road Less Scheduled", 2024.

    Examples
    --------
    >>> w = Variable([1.0, 2.0])
    >>> optimizer = ScheduleFreeAdamW(0.25)
    >>> optimizer.apply([[1.0, -1.0]], [w])
    >>> w.numpy().round(4)
    array([0.75, 2.25], dtype=float32)
    """

    _rule = "schedule_free_adamw"
    beta_1 = Real("(0, 1]")
    beta_2 = Real("[0, 1)")
    epsilon = Real("[0, inf)")
    warmup_steps = Integer(0)

    def __init__(
        self,
        learning_rate: rates.LearningRate = 0.0025,
        beta_1: float = 0.9,
        beta_2: float = 0.999,
        epsilon: float = 1e-8,
        warmup_steps: int = 0,
        **settings: Unpack[FusedDecaySettings],
    ) -> None:
        super().__init__(
            learning_rate,
            beta_1=beta_1,
            beta_2=beta_2,
            epsilon=epsilon,
            warmup_steps=warmup_steps,
            **settings,
        )

    def _slot_groups(self) -> Sequence[tuple[str, ...]]:
        return [("momentum", "velocity")]

    def build(self, variables: Sequence[Variable]) -> None:
        """Make the slots; z starts as the weights."""
        if self.built:
            return
        super().build(variables)
        for slots, variable in zip(self._slots, self._trainable_variables, strict=True):
            slots[0].assign(variable.numpy())
