"""When a sample counts, how many calls it has, and what many samples say."""

import math
import statistics
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mpcore.bench.process import Process

# Of the best AMX probe of the run. Work just before slows the unit to 0.75 of it, a
# slow phase to 0.35.
FULL_RATE = 0.6
BETWEEN_RUNS = 0.03  # Standard deviation of what nobody changed, from run to run.
_TRIES = 4
_PATIENCE = 0.03  # Share of a sample that its threads may wait for CPUs.
_QUIET_SECONDS = 0.2  # To wait for a sample;
_QUIET_SECONDS_IN_ALL = 15.0  # and for all samples of a run.


@dataclass(frozen=True)
class Sample:
    """One timing.

    Attributes
    ----------
    seconds : float
        Per call: CPU time with one thread, wall time with more.
    amx : float or None
        Rate of the bare AMX loop just before or after, whichever is lower.
    disturbed : bool
        Another process took a CPU meanwhile, and trying again did not help.
    """

    seconds: float
    amx: float | None = None
    disturbed: bool = False


class Quiet:
    """Waits until nobody else runs; not for ever if somebody always does."""

    def __init__(self) -> None:
        self._left = _QUIET_SECONDS_IN_ALL

    @property
    def is_hopeless(self) -> bool:
        """Whether all the patience of a run is used up."""
        return self._left <= 0

    def wait(self) -> None:
        """Wait for a moment at most."""
        start = time.perf_counter()
        end = start + min(self._left, _QUIET_SECONDS)
        while running_processes() > 1 and time.perf_counter() < end:
            time.sleep(1e-3)
        self._left -= time.perf_counter() - start


def take(process: Process, key: str, calls: int, bracket: bool, quiet: Quiet) -> Sample:
    """Time some calls.

    CPU time does not count what other processes take; with more threads than one the
    machine must be quiet, so that is waited for, and disturbed samples are taken again.
    """
    many = process.threads > 1
    for _ in range(_TRIES if many and not quiet.is_hopeless else 1):
        if many:
            quiet.wait()
        reply = process.ask("sample", key=key, calls=calls, bracket=bracket)
        disturbed = many and _is_disturbed(reply)
        if not disturbed:
            break
    seconds = reply["wall"] if many else reply["cpu"]
    return Sample(seconds / calls, reply["amx"], disturbed)


def _is_disturbed(reply: dict[str, Any]) -> bool:
    """Tell whether threads had to wait for a CPU longer than waking up takes."""
    return bool(reply["waited"] > _PATIENCE * reply["wall"])


def running_processes() -> int:
    """Return how many threads of the whole system run or want to, this one included."""
    return int(Path("/proc/loadavg").read_text().split()[3].partition("/")[0])


def calibrate(process: Process, key: str, least: float) -> int:
    """Return how many calls take at least `least` seconds."""
    calls = 1
    while True:
        reply = process.ask("sample", key=key, calls=calls)
        if reply["wall"] >= least:
            return calls
        grown = least / max(reply["wall"], 1e-9) * 1.2 * calls
        calls = max(calls + 1, min(int(grown) + 1, calls * 100))


def at_full_rate(samples: Sequence[Sample], best: float) -> list[Sample]:
    """Return the samples taken while the AMX unit was at full rate."""
    return [s for s in samples if s.amx is None or s.amx >= FULL_RATE * best]


def quantile(values: Sequence[float], share: float) -> float:
    """Return a quantile, linear between the values."""
    ordered = sorted(values)
    at = share * (len(ordered) - 1)
    low = int(at)
    high = min(low + 1, len(ordered) - 1)
    return ordered[low] + (at - low) * (ordered[high] - ordered[low])


def summary(seconds: Sequence[float]) -> dict[str, float]:
    """Return median, 5 and 95 % quantiles, minimum, and spread.

    The spread is the distance of the quantiles, as a share of the median, with that of
    what runs differ by added as independent errors are: it is for another run, too.
    """
    median = statistics.median(seconds)
    low, high = quantile(seconds, 0.05), quantile(seconds, 0.95)
    return {
        "median": median,
        "p5": low,
        "p95": high,
        "min": min(seconds),
        "mad": statistics.median(abs(s - median) for s in seconds),
        "spread": math.hypot((high - low) / median, 3.29 * BETWEEN_RUNS),
    }
