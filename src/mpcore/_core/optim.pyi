from collections.abc import Iterable
from typing import Any

from numpy.typing import NDArray

def sgd_step(
    params: Iterable[NDArray[Any]],
    grads: Iterable[NDArray[Any]],
    copies: Iterable[NDArray[Any] | None],
    states: Iterable[Iterable[NDArray[Any]]],
    grad_multipliers: float | Iterable[float],
    weight_decays: float | Iterable[float],
    learning_rate: float,
    momentum: float,
    nesterov: bool,
    clipvalue: float,
) -> None: ...
def adam_step(
    params: Iterable[NDArray[Any]],
    grads: Iterable[NDArray[Any]],
    copies: Iterable[NDArray[Any] | None],
    states: Iterable[Iterable[NDArray[Any]]],
    grad_multipliers: float | Iterable[float],
    weight_decays: float | Iterable[float],
    learning_rate: float,
    beta_1: float,
    beta_2: float,
    epsilon: float,
    step: int,
    amsgrad: bool,
    clipvalue: float,
) -> None: ...
