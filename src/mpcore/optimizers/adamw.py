"""Adam with decoupled weight decay."""

from typing import Unpack

from mpcore.optimizers import rates
from mpcore.optimizers.adam import Adam
from mpcore.optimizers.settings import FusedSettings
from mpcore.serialization import register


@register("optimizers")
class AdamW(Adam):
    """Adam with weight decay that does not pass through the moments.

    w -= w * weight_decay * lr, then Adam's rule.

    Parameters
    ----------
    learning_rate : real number, LearningRateSchedule, or callable, default 0.001
    weight_decay : float, >= 0, default 0.004
    beta_1, beta_2, epsilon, amsgrad, **settings
        Those of `Adam`.

    Raises
    ------
    ValueError
        If `weight_decay` is None or negative, and as `Adam` does.

    References
    ----------
    Loshchilov & Hutter, "Decoupled Weight Decay Regularization", algorithm 2.
    """

    def __init__(
        self,
        learning_rate: rates.LearningRate = 0.001,
        weight_decay: float = 0.004,
        beta_1: float = 0.9,
        beta_2: float = 0.999,
        epsilon: float = 1e-7,
        amsgrad: bool = False,
        **settings: Unpack[FusedSettings],
    ) -> None:
        if weight_decay is None:
            raise ValueError(
                "`weight_decay` must be a number >= 0. Received: weight_decay=None; "
                "without weight decay, use Adam"
            )
        super().__init__(
            learning_rate,
            beta_1,
            beta_2,
            epsilon,
            amsgrad,
            weight_decay=weight_decay,
            **settings,
        )
