"""What a suite is, and the one registration that makes it known."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from importlib import import_module
from typing import Any

import numpy as np

from mpcore.bench.problem import DTYPES, Problem

SUITES = ("cast", "grad", "gemm", "optim", "nn", "train", "limits")
"""Modules of `mpcore.bench.suites`, in the order they run in."""

Data = dict[str, Any]


class Unsupported(Exception):
    """An implementation cannot do a problem, or cannot do it fairly; says why."""


@dataclass(frozen=True)
class Probe:
    """A limit of the machine, measured beside a problem (see `mpcore.ops.limits`)."""

    name: str
    bytes: int = 0  # Of all its arrays together; streams only.

    @property
    def key(self) -> str:
        """The probe in one word."""
        return f"{self.name}@{self.bytes}" if self.bytes else self.name


@dataclass(frozen=True)
class Need:
    """An amount of something the machine gives at a limited rate.

    The alternatives are ways to get it done: (probe, amount). Whichever is fastest on
    this machine is the limit.
    """

    alternatives: tuple[tuple[Probe, float], ...]


@dataclass(frozen=True)
class Call:
    """An implementation made ready: `run` does the work once."""

    run: Callable[[], object]
    outputs: Callable[[], Data]  # What the last run computed.


Builder = Callable[[Problem, Data, int], Call]
"""Makes an implementation ready: (problem, its data, number of threads)."""


@dataclass(frozen=True)
class Suite:
    """A family of problems.

    Attributes
    ----------
    name : str
    fields : tuple of str
        What a problem string says after the name of the suite, in order.
    quick, full : tuple of str
        Problem strings; `full` holds those that a quick run leaves out.
    unit : {"GB/s", "GFLOP/s", "steps/s"}
        Of the rates; `amount` is what is counted.
    amount : callable
        Bytes, operations, or steps of one call.
    needs : callable
        What the machine must give for one call.
    data : callable
        (problem, generator) -> arrays that the problem starts from.
    check : callable
        (problem, data, outputs) -> None, or what is wrong with the outputs.
    builders : dict of str to Builder
        By implementation. What stands before a slash is the peer that runs it.
    choices : dict of str to tuple of str
        What a field may say; those named like dtypes may name any, unless they are
        here.
    smallest : callable, optional
        A problem with next to no work, whose time is the cost of a call.
    """

    name: str
    fields: tuple[str, ...]
    quick: tuple[str, ...]
    full: tuple[str, ...]
    unit: str
    amount: Callable[[Problem], float]
    needs: Callable[[Problem], tuple[Need, ...]]
    data: Callable[[Problem, np.random.Generator], Data]
    check: Callable[[Problem, Data, Data], str | None]
    builders: Mapping[str, Builder] = field(default_factory=dict)
    choices: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    smallest: Callable[[Problem], str] | None = None

    def parse(self, text: str) -> Problem:
        """Return the problem that a string names.

        Raises
        ------
        ValueError
            If a field is missing, or says nothing that can be read.
        """
        name, *values = text.split(":")
        if name != self.name or len(values) != len(self.fields):
            raise ValueError(
                f"A problem of this suite must be {self.name}:{':'.join(self.fields)}. "
                f"Received: {text!r}"
            )
        problem = Problem(name, tuple(zip(self.fields, values, strict=True)))
        for key, value in problem.fields:
            if key in ("shape", "n"):
                self._require_sizes(problem, key)
            elif value not in (known := self.choices.get(key, tuple(DTYPES))):
                raise ValueError(
                    f"`{key}` must be one of {', '.join(known)}. "
                    f"Received: {problem} with {key}={value}"
                )
        self.needs(problem)  # It knows what else can be wrong.
        return problem

    def _require_sizes(self, problem: Problem, key: str) -> None:
        """Refuse another number of sizes than the suite's own problems have, or 0."""
        sizes = problem.sizes(key)
        values = self.quick[0].split(":")[1:]
        example = dict(zip(self.fields, values, strict=True))[key]
        count = len(example.split("x"))
        if len(sizes) != count or (0 in sizes and example != "0"):
            raise ValueError(
                f"`{key}` must be {count} size(s) of at least 1, such as {example}. "
                f"Received: {problem}"
            )


_suites: dict[str, Suite] = {}


def register(suite: Suite) -> Suite:
    """Make a suite known by its name."""
    _suites[suite.name] = suite
    return suite


def get_suite(name: str) -> Suite:
    """Return a suite; its module is imported when first asked for.

    Raises
    ------
    ValueError
        If there is no such suite.
    """
    if name not in _suites:
        if name not in SUITES:
            known = ", ".join(dict.fromkeys([*SUITES, *_suites]))
            raise ValueError(f"A suite must be one of {known}. Received: {name!r}")
        import_module(f"mpcore.bench.suites.{name}")
    return _suites[name]


def parse(text: str) -> Problem:
    """Return the problem that a string names."""
    return get_suite(text.partition(":")[0]).parse(text)


def bytes_moved(needs: Iterable[Need]) -> float:
    """Return the bytes that the needs say are read and written."""
    ways = [need.alternatives[0] for need in needs]
    return sum(amount for probe, amount in ways if probe.bytes)


def probes_of(needs: Iterable[Need]) -> list[Probe]:
    """Return the probes that tell how far the needs can be met, each once."""
    return list(dict.fromkeys(p for n in needs for p, _ in n.alternatives))
