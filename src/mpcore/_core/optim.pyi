from collections.abc import Iterable
from typing import Any

from numpy.typing import NDArray

OPTIMIZERS: dict[str, int]

def can_read(grads: list[object], params: list[NDArray[Any]]) -> bool: ...
def step(
    optimizer: str,
    params: Iterable[NDArray[Any]],
    grads: Iterable[NDArray[Any]],
    copies: Iterable[NDArray[Any] | None],
    states: Iterable[Iterable[NDArray[Any]]],
    grad_multipliers: float | Iterable[float],
    weight_decays: float | Iterable[float],
    remainders: Iterable[NDArray[Any] | None] | None = None,
    indices: Iterable[int] | None = None,
    *,
    learning_rate: float,
    step: int = 1,
    clipvalue: float = 0.0,
    beta_1: float = 0.0,
    beta_2: float = 0.0,
    epsilon: float = 0.0,
    momentum: float = 0.0,
    rho: float = 0.0,
    learning_rate_power: float = 0.0,
    l1: float = 0.0,
    l2: float = 0.0,
    l2_shrinkage: float = 0.0,
    beta: float = 0.0,
    momentum_product: float = 0.0,
    warmup_steps: int = 0,
    nesterov: bool = False,
    amsgrad: bool = False,
    centered: bool = False,
    stochastic: bool = False,
    seed: int = 0,
) -> None: ...
