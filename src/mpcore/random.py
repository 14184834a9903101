"""Seeds and counter-based random streams.

Every consumer of randomness draws its own stream of one global seed, so that what one
of them uses up does not shift the numbers of another. A stream is Philox4x64 [1]_ keyed
by (seed, index of the stream). This file knows no other module of the package.

References
----------
.. [1] J. K. Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", SC 2011.
"""

import operator
import os
import threading
from typing import SupportsIndex

import numpy as np

__all__ = ["generator", "get_state", "set_random_seed", "set_state"]

_LIMIT = 2**64
# The stream of seeds given by hand. Those of the global seed count up from 0.
_FIXED_STREAM = _LIMIT - 1

_lock = threading.Lock()
os.register_at_fork(  # The child finds it free.
    before=_lock.acquire, after_in_parent=_lock.release, after_in_child=_lock.release
)
_seed = int.from_bytes(os.urandom(8), "little")
_next_stream = 0


def checked(name: str, value: SupportsIndex) -> int:
    """Return `value` as an int in [0, 2**64).

    Raises
    ------
    TypeError, ValueError
        If it is no integer, or out of range.
    """
    if isinstance(value, bool) or not hasattr(value, "__index__"):
        raise TypeError(f"`{name}` must be an integer. Received: {name}={value!r}")
    number = operator.index(value)
    if not 0 <= number < _LIMIT:
        raise ValueError(f"`{name}` must be in [0, 2**64). Received: {name}={number}")
    return number


def set_random_seed(seed: SupportsIndex) -> None:
    """Set the global seed and start its streams anew.

    Parameters
    ----------
    seed : int
        In [0, 2**64).

    Raises
    ------
    TypeError, ValueError
        If it is no integer, or out of range.
    """
    global _seed, _next_stream
    number = checked("seed", seed)
    with _lock:
        _seed, _next_stream = number, 0


def generator(seed: SupportsIndex | None = None) -> np.random.Generator:
    """Return a generator of random numbers.

    Parameters
    ----------
    seed : int in [0, 2**64) or None
        None: the next stream of the global seed. An integer: that seed's own stream,
        the same on every call.

    Returns
    -------
    numpy.random.Generator
        Over Philox; it belongs to the caller.
    """
    global _next_stream
    if seed is None:
        with _lock:
            key, stream = _seed, _next_stream
            _next_stream += 1
    else:
        key, stream = checked("seed", seed), _FIXED_STREAM
    words = np.array([key, stream], dtype=np.uint64)
    return np.random.Generator(np.random.Philox(key=words))


def get_state() -> tuple[int, int]:
    """Return (global seed, index of the next stream), for a checkpoint."""
    with _lock:
        return _seed, _next_stream


def set_state(state: tuple[int, int]) -> None:
    """Restore what `get_state` returned."""
    global _seed, _next_stream
    seed, stream = state
    seed, stream = checked("seed", seed), checked("stream", stream)
    with _lock:
        _seed, _next_stream = seed, stream
