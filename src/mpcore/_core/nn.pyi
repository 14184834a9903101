from typing import Any

import numpy as np
from numpy.typing import NDArray

def activation_forward(code: int, x: NDArray[Any], y: NDArray[Any]) -> None: ...
def dense_backward(
    code: int,
    y: NDArray[Any] | None,
    dy: NDArray[Any],
    dz: NDArray[Any] | None,
    db: NDArray[np.float32] | None,
) -> None: ...
def softmax(x: NDArray[Any], y: NDArray[Any]) -> None: ...
def softmax_backward(y: NDArray[Any], dy: NDArray[Any], dx: NDArray[Any]) -> None: ...
def log_softmax(x: NDArray[Any], y: NDArray[Any]) -> None: ...
def log_softmax_backward(
    y: NDArray[Any], dy: NDArray[Any], dx: NDArray[Any]
) -> None: ...
def softmax_xent(
    x: NDArray[Any],
    labels: NDArray[np.int64] | None,
    targets: NDArray[np.float32] | None,
    smoothing: float,
    scale: NDArray[np.float32] | None,
    loss: NDArray[np.float32] | None,
    dx: NDArray[Any] | None,
) -> None: ...
