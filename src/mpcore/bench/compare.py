"""Two results of the same machine: what became slower for certain, and what not."""

import argparse
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from mpcore.bench.timing import BETWEEN_RUNS

_RESAMPLES = 20_000
_ERROR = 0.2  # Chance of calling anything changed if nothing is; `threshold` cuts most.
_FEWEST = 3  # Passes that tell how much passes differ.
_SAME = (
    ("machine", "cpu"),
    ("machine", "usable_cpus"),
    ("machine", "cgroup_quota"),
    ("software", "isa"),
)


def percent(text: str) -> float:
    """Return 0.1 for ``10%`` (or ``0.1``)."""
    try:
        value = float(text.removesuffix("%")) / (100 if text.endswith("%") else 1)
    except ValueError:
        value = -1.0
    if not 0 <= value < float("inf"):
        raise argparse.ArgumentTypeError(f"must be like 10%, not {text}")
    return value


@dataclass(frozen=True)
class Change:
    """How the time of one problem changed, as a ratio; 1.2 is 20 % slower.

    Attributes
    ----------
    ratio, low, high : float
        Of the times, with the ends of its 95 % interval.
    lost, won : float
        How much slower and how much faster the limits with as many threads became
        meanwhile: three quarters of them less than that. At least and at most 1.
    not_slower, not_faster : float
        Shares of the resamples that say so, of the kernel by itself; both 1 if nobody
        can tell.
    """

    problem: str
    threads: int
    name: str
    ratio: float
    low: float
    high: float
    lost: float
    won: float
    not_slower: float
    not_faster: float


def slower(found: Sequence[Change], threshold: float) -> list[Change]:
    """Return what is slower for certain, and by more than `threshold` by itself.

    By itself: without what the machine became slower by.
    """
    certain = _certain(found, [c.not_slower for c in found])
    return [c for c in certain if c.ratio / c.lost > 1 + threshold]


def faster(found: Sequence[Change], threshold: float) -> list[Change]:
    """Return what is faster, in the same way."""
    certain = _certain(found, [c.not_faster for c in found])
    return [c for c in certain if c.won / c.ratio > 1 + threshold]


def _certain(found: Sequence[Change], chances: Sequence[float]) -> list[Change]:
    """Return what stands although so many were looked at, by Holm's procedure."""
    certain = []
    for done, i in enumerate(sorted(range(len(found)), key=lambda i: chances[i])):
        if chances[i] > _ERROR / (len(found) - done):
            break
        certain.append(found[i])
    return certain


def read(path: Path) -> dict[str, Any]:
    """Return what ``mpcore bench run --json`` wrote.

    Raises
    ------
    OSError
        If the file cannot be read.
    ValueError
        If it holds something else.
    """
    text = path.read_bytes()
    try:
        document = json.loads(text)
    except ValueError:
        document = None
    fields = {"schema_version": int, "machine": dict, "software": dict, "results": list}
    entry = {"problem", "threads", "entries", "limit"}
    if not (
        isinstance(document, dict)
        and all(isinstance(document.get(k), kind) for k, kind in fields.items())
        and all(isinstance(r, dict) and entry <= set(r) for r in document["results"])
    ):
        raise ValueError(f"{path} must come from `mpcore bench run --json`.")
    return document


def require_comparable(
    before: dict[str, Any], after: dict[str, Any], force: bool
) -> None:
    """Refuse results of different machines, levels, or versions of the schema.

    Raises
    ------
    ValueError
        Names what differs. `force` lets all but the schema pass.
    """
    versions = before["schema_version"], after["schema_version"]
    if versions[0] != versions[1]:
        raise ValueError(
            "Both files must have the same schema_version. Received: "
            f"{versions[0]} and {versions[1]}"
        )
    for part, key in _SAME:
        values = before[part].get(key), after[part].get(key)
        if values[0] != values[1] and not force:
            raise ValueError(
                f"Both files must have the same {key} (--force compares anyway). "
                f"Received: {values[0]!r} and {values[1]!r}"
            )


def changes(before: dict[str, Any], after: dict[str, Any]) -> list[Change]:
    """Return the changes of mpcore where both files have it.

    Raises
    ------
    ValueError
        If they have nothing in common.
    """
    old, new = _timed(before), _timed(after)
    machine = _change_of_machine(old, new)
    common = [k for k in old if k in new and old[k].kind == "implementation"]
    if not common:
        raise ValueError("The files must have a problem in common. They have none.")
    return [_change(k, old[k], new[k], *machine.get(k[1], (0.0, 0.0))) for k in common]


@dataclass(frozen=True)
class _Timed:
    """Logarithms of the fastest sample of each pass: what disturbs makes slower."""

    kind: str
    passes: np.ndarray
    is_doubtful: bool


Key = tuple[str, int, str]
"""Problem, threads, and name of what was timed."""


def _timed(document: dict[str, Any]) -> dict[Key, _Timed]:
    """Return what was timed of mpcore, and the limits."""
    found = {}
    for result in document["results"]:
        for entry in result["entries"]:
            kind, owner = entry["kind"], entry["name"].partition("@")[0]
            if "samples" in entry and (kind == "limit" or owner == "mpcore"):
                passes = np.log([min(one) for one in entry["samples"] if one])
                is_doubtful = passes.size < _FEWEST or entry.get("disturbed", 0) > 0
                key = (result["problem"], result["threads"], entry["name"])
                found[key] = _Timed(kind, passes, is_doubtful)
    return found


def _change_of_machine(
    old: Mapping[Key, _Timed], new: Mapping[Key, _Timed]
) -> dict[int, tuple[float, float]]:
    """Return what three quarters of the limits lost, and won, less than.

    By number of threads, as logarithms. Limits are the same code in both files. Their
    quartiles: what waits for itself loses more than the median limit does when the
    machine gets slower.
    """
    shifts: dict[int, list[float]] = {}
    for key in old:
        if key in new and old[key].kind == "limit":
            shift = float(_typical(new[key].passes) - _typical(old[key].passes))
            shifts.setdefault(key[1], []).append(shift)
    return {
        threads: (
            max(0.0, float(np.quantile(x, 0.75))),
            min(0.0, float(np.quantile(x, 0.25))),
        )
        for threads, x in shifts.items()
    }


def _change(key: Key, old: _Timed, new: _Timed, lost: float, won: float) -> Change:
    ratios = _resampled(old.passes, new.passes)
    is_doubtful = old.is_doubtful or new.is_doubtful
    low, high = np.exp(np.quantile(ratios, (0.025, 0.975)))
    return Change(
        *key,
        ratio=float(np.exp(_typical(new.passes) - _typical(old.passes))),
        low=float(low),
        high=float(high),
        lost=float(np.exp(lost)),
        won=float(np.exp(won)),
        not_slower=1.0 if is_doubtful else float(np.mean(ratios <= lost)),
        not_faster=1.0 if is_doubtful else float(np.mean(ratios >= won)),
    )


def _typical(passes: np.ndarray) -> np.ndarray:
    """Return the mean of the faster half: of the passes that nothing disturbed."""
    half = (passes.shape[-1] + 1) // 2
    return np.asarray(np.sort(passes)[..., :half].mean(axis=-1))


def _resampled(old: np.ndarray, new: np.ndarray) -> np.ndarray:
    """Return the logarithm of the ratio of times, of passes drawn at random.

    What passes of one run cannot show is added: how much runs differ by themselves.
    """
    generator = np.random.default_rng(0)
    drawn = [
        _typical(x[generator.integers(x.size, size=(_RESAMPLES, x.size))])
        for x in (new, old)
    ]
    noise = generator.normal(0.0, BETWEEN_RUNS, _RESAMPLES)
    return np.asarray(drawn[0] - drawn[1] + noise)


def text(found: Sequence[Change], threshold: float | None) -> str:
    """Return a line for each change, the slowest first, and a verdict."""
    least = threshold if threshold is not None else 0.0
    marks = dict.fromkeys(faster(found, least), "  faster")
    marks |= dict.fromkeys(slower(found, least), "  SLOWER")
    width = max(len(c.problem) for c in found)
    lines = [f"{'problem':<{width}}  thr  {'time':>7}  {'95% interval':>15}  machine"]
    for c in sorted(found, key=lambda c: -c.ratio):
        is_doubtful = c.not_slower == c.not_faster == 1
        mark = "  cannot tell" if is_doubtful else marks.get(c, "")
        level = c.name.partition("@")[2]
        lines.append(
            f"{c.problem:<{width}}  {c.threads:>3}  {c.ratio:>6.3f}x  "
            f"{c.low:>6.3f} .. {c.high:<5.3f}  {c.won:.2f}-{c.lost:.2f}{mark}"
            f"{f'  ({level})' if level else ''}"
        )
    count = len(slower(found, least))
    return "\n".join(
        [
            *lines,
            f"{count} of {len(found)} slower by more than {100 * least:g}%",
            "time: after / before; machine: that of the limits, which nobody changed; "
            f"cannot tell: disturbed, or fewer than {_FEWEST} passes",
        ]
    )
