from typing import Any

import numpy as np
from numpy.typing import NDArray

def attention(
    q: NDArray[Any],
    k: NDArray[Any],
    v: NDArray[Any],
    bias: NDArray[np.float32] | None,
    mask: NDArray[np.bool_] | None,
    scale: float,
    causal: bool,
    y: NDArray[Any],
) -> None: ...
def attention_backward(
    q: NDArray[Any],
    k: NDArray[Any],
    v: NDArray[Any],
    bias: NDArray[np.float32] | None,
    mask: NDArray[np.bool_] | None,
    scale: float,
    causal: bool,
    dy: NDArray[Any],
    dq: NDArray[Any],
    dk: NDArray[Any],
    dv: NDArray[Any],
) -> None: ...
