from typing import Any

from numpy.typing import NDArray

def cast(src: NDArray[Any], dst: NDArray[Any]) -> None: ...
