"""What this machine can do at most: probes to time, for benchmarks."""

from collections.abc import Sequence

import numpy as np

from mpcore._core import limits as _limits

PEAKS = {"fma_f32": 0, "dot_bf16": 1, "amx_bf16": 2}
"""Instructions and their C codes."""

STREAMS = {
    **{"read": 0, "negate": 1, "copy": 2, "copy_nontemporal": 3},
    **{"triad": 4, "update": 5},
}
"""Patterns of memory traffic and their C codes."""

STREAM_ARRAYS = {
    **{"read": 1, "negate": 1, "copy": 2, "copy_nontemporal": 2},
    **{"triad": 3, "update": 4},
}
"""How many arrays each pattern passes over."""


def run_peak(peak: str, iterations: int) -> int:
    """Run one instruction over and over on every thread.

    Parameters
    ----------
    peak : str
        ``"fma_f32"``, ``"dot_bf16"`` (VDPBF16PS), or ``"amx_bf16"`` (TDPBF16PS), on
        random numbers.
    iterations : int in [0, 2**31)
        Rounds of some thousands of them.

    Returns
    -------
    int
        Floating-point operations of all threads; a multiply and an add are two.

    Raises
    ------
    ValueError
        If there is no such peak, or the level in force lacks the instruction.
    """
    return _limits.run_peak(_code("peak", peak, PEAKS), iterations)


def run_stream(stream: str, iterations: int, arrays: Sequence[np.ndarray]) -> int:
    """Pass over arrays with next to no arithmetic.

    Parameters
    ----------
    stream : str
        With arrays a, b, c, d: ``"read"`` (a), ``"negate"`` (a = -a), ``"copy"`` and
        ``"copy_nontemporal"`` (b = a), ``"triad"`` (c = a + b / 2), or ``"update"``
        (a = d - a, b = max(b, d), c = min(c, d)).
    iterations : int in [0, 2**31)
        Number of passes. Threads share the arrays out and do not wait for each other.
    arrays : sequence of ndarray, float32
        As many as the pattern names, of one size; contiguous, writable, apart.

    Returns
    -------
    int
        Bytes read and written in all passes.

    Raises
    ------
    TypeError, ValueError
        If an argument is not valid.
    """
    code = _code("stream", stream, STREAMS)
    if len(arrays) != STREAM_ARRAYS[stream]:
        raise ValueError(
            f"`arrays` must hold {STREAM_ARRAYS[stream]} arrays for {stream!r}. "
            f"Received: {len(arrays)}"
        )
    return _limits.run_stream(code, iterations, tuple(arrays))


def _code(argument: str, name: str, codes: dict[str, int]) -> int:
    if name not in codes:
        raise ValueError(
            f"`{argument}` must be one of {', '.join(codes)}. "
            f"Received: {argument}={name!r}"
        )
    return codes[name]
