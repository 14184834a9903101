from typing import Any

import numpy as np
from numpy.typing import NDArray

_Pair = tuple[int, int]

def conv2d(
    x: NDArray[Any],
    kernel: NDArray[Any],
    bias: NDArray[np.float32] | None,
    activation: int,
    y: NDArray[Any],
    pre_activation: NDArray[Any] | None,
    size: _Pair,
    stride: _Pair,
    dilation: _Pair,
    padding: _Pair,
    groups: int,
) -> None: ...
def conv2d_backward_input(
    dz: NDArray[Any],
    kernel: NDArray[Any],
    dx: NDArray[Any],
    size: _Pair,
    stride: _Pair,
    dilation: _Pair,
    padding: _Pair,
    groups: int,
) -> None: ...
def conv2d_backward_kernel(
    x: NDArray[Any],
    dz: NDArray[Any],
    dkernel: NDArray[np.float32],
    size: _Pair,
    stride: _Pair,
    dilation: _Pair,
    padding: _Pair,
    groups: int,
) -> None: ...
def pool2d(
    pooling: int,
    x: NDArray[Any],
    y: NDArray[Any],
    argmax: NDArray[np.int32] | None,
    size: _Pair,
    stride: _Pair,
    padding: _Pair,
) -> None: ...
def pool2d_backward(
    pooling: int,
    argmax: NDArray[np.int32] | None,
    dy: NDArray[Any],
    dx: NDArray[Any],
    size: _Pair,
    stride: _Pair,
    padding: _Pair,
) -> None: ...
