from typing import Any

import numpy as np
from numpy.typing import NDArray

def layer_norm(
    x: NDArray[Any],
    gamma: NDArray[np.float32] | None,
    beta: NDArray[np.float32] | None,
    epsilon: float,
    y: NDArray[Any],
    mean: NDArray[np.float32] | None,
    rstd: NDArray[np.float32] | None,
) -> None: ...
def layer_norm_backward(
    x: NDArray[Any],
    gamma: NDArray[np.float32] | None,
    mean: NDArray[np.float32],
    rstd: NDArray[np.float32],
    dy: NDArray[Any],
    dx: NDArray[Any] | None,
    dgamma: NDArray[np.float32] | None,
    dbeta: NDArray[np.float32] | None,
) -> None: ...
def rms_norm(
    x: NDArray[Any],
    gamma: NDArray[np.float32] | None,
    epsilon: float,
    y: NDArray[Any],
    rstd: NDArray[np.float32] | None,
) -> None: ...
def rms_norm_backward(
    x: NDArray[Any],
    gamma: NDArray[np.float32] | None,
    rstd: NDArray[np.float32],
    dy: NDArray[Any],
    dx: NDArray[Any] | None,
    dgamma: NDArray[np.float32] | None,
) -> None: ...
def batch_norm_moments(
    x: NDArray[Any], mean: NDArray[np.float32], variance: NDArray[np.float32]
) -> None: ...
def batch_norm(
    x: NDArray[Any],
    mean: NDArray[np.float32],
    variance: NDArray[np.float32],
    epsilon: float,
    gamma: NDArray[np.float32] | None,
    beta: NDArray[np.float32] | None,
    y: NDArray[Any],
) -> None: ...
def batch_norm_backward(
    x: NDArray[Any],
    mean: NDArray[np.float32],
    variance: NDArray[np.float32],
    epsilon: float,
    gamma: NDArray[np.float32] | None,
    dy: NDArray[Any],
    constant_moments: bool,
    dx: NDArray[Any] | None,
    dgamma: NDArray[np.float32] | None,
    dbeta: NDArray[np.float32] | None,
) -> None: ...
