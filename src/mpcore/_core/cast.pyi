from typing import Any

import numpy as np
from numpy.typing import NDArray

def cast(src: NDArray[Any], dst: NDArray[Any]) -> None: ...
def cast_new(src: NDArray[Any], dtype: np.dtype[Any]) -> NDArray[Any]: ...
def cast_stochastic(
    src: NDArray[Any], dst: NDArray[Any], seed: int, offset: int
) -> None: ...
