from collections.abc import Iterable
from typing import Any

import numpy as np
from numpy.typing import NDArray

def all_finite(arrays: Iterable[NDArray[Any] | None]) -> bool: ...
def unscale(
    arrays: Iterable[NDArray[Any] | None],
    outputs: Iterable[NDArray[Any]] | None,
    multiplier: float,
) -> bool: ...
def accumulate(
    totals: Iterable[NDArray[Any]], arrays: Iterable[NDArray[Any]], multiplier: float
) -> None: ...
def lerp(
    averages: Iterable[NDArray[Any]], arrays: Iterable[NDArray[Any]], momentum: float
) -> None: ...
def norms(arrays: Iterable[NDArray[Any]]) -> tuple[NDArray[np.float64], float]: ...
def loss_scale_update(
    scale: float,
    step_counter: int,
    growth_steps: int,
    min_scale: float,
    max_scale: float,
    finite: bool,
) -> tuple[float, int]: ...
