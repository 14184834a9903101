import numpy as np
from numpy.typing import NDArray

def run_peak(peak: int, iterations: int) -> int: ...
def run_stream(
    stream: int, iterations: int, arrays: tuple[NDArray[np.float32], ...]
) -> int: ...
