"""The limits themselves, for a look at the machine alone."""

import numpy as np

from mpcore.bench.problem import Problem
from mpcore.bench.suite import Data, Need, Probe, Suite, register
from mpcore.ops import limits

_STREAMS = ("read", "copy", "triad", "update")
_MORE = ("copy_nontemporal", "negate")


def _probe(problem: Problem) -> Probe:
    (size,) = problem.sizes("n")
    return Probe(problem["probe"], size)


def _needs(problem: Problem) -> tuple[Need, ...]:
    if (problem["probe"] in limits.PEAKS) != (problem.sizes("n") == (0,)):
        raise ValueError(
            f"`n` must be 0 for a peak, and bytes for a stream. Received: {problem}"
        )
    return (Need(((_probe(problem), 1.0),)),)


def _no_data(problem: Problem, generator: np.random.Generator) -> Data:
    return {}


register(
    Suite(
        name="limits",
        fields=("probe", "n"),
        quick=(
            *(f"limits:{peak}:0" for peak in limits.PEAKS),
            *(f"limits:{stream}:{n}" for stream in _STREAMS for n in ("1M", "128M")),
        ),
        full=(
            *(f"limits:{s}:{n}" for s in _STREAMS for n in ("32K", "16M")),
            *(f"limits:{s}:{n}" for s in _MORE for n in ("32K", "1M", "16M", "128M")),
        ),
        unit="per second",
        amount=lambda problem: 1.0,
        needs=_needs,
        data=_no_data,
        check=lambda problem, data, outputs: None,
        choices={"probe": (*limits.PEAKS, *limits.STREAMS)},
    )
)
