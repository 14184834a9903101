from typing import Any

import numpy as np
from numpy.typing import NDArray

def gemm(
    a: NDArray[Any],
    b: NDArray[Any] | None,
    d: NDArray[Any],
    bias: NDArray[Any] | None = None,
    activation: int = 0,
    alpha: float = 1.0,
    beta: float = 0.0,
    residual: NDArray[Any] | None = None,
    pre_activation: NDArray[Any] | None = None,
    packed: NDArray[Any] | None = None,
) -> None: ...
def plain_product(
    a: NDArray[Any],
    b: NDArray[Any],
    dtype: np.dtype[Any] | None,
    out: NDArray[Any] | None,
) -> NDArray[Any] | None: ...
def gemm_gathering(
    a: NDArray[Any], b: NDArray[Any], d: NDArray[Any]
) -> tuple[bool, float]: ...
def packed_size(k: int, n: int, dtype: np.dtype[Any]) -> int: ...
def pack(b: NDArray[Any], packed: NDArray[Any]) -> None: ...
def set_float32_matmul_precision(precision: int) -> None: ...
def get_float32_matmul_precision() -> int: ...
