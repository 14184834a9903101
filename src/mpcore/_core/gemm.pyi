from typing import Any

from numpy.typing import NDArray

def gemm(
    a: NDArray[Any],
    b: NDArray[Any],
    d: NDArray[Any],
    bias: NDArray[Any] | None = None,
    activation: int = 0,
    accumulate: bool = False,
) -> None: ...
