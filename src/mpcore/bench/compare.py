"""Two results of the same machine: what became slower for certain, and what not."""

import argparse
import json
import random
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mpcore.bench.timing import quantile

_RESAMPLES = 1000
_CONFIDENCE = 0.95
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
        Of the medians, with the ends of its confidence interval.
    of_machine : float
        How much the limit of the problem became slower meanwhile, for certain: the
        lower end of its interval, at least 1.
    """

    problem: str
    threads: int
    name: str
    ratio: float
    low: float
    high: float
    of_machine: float

    def is_slower_by(self, threshold: float) -> bool:
        """Tell whether it is slower than that, certainly slower, and by itself.

        The estimate, without what the machine certainly became slower by, must exceed
        the threshold, and the whole interval half of it.
        """
        alone = self.ratio / self.of_machine
        return alone > 1 + threshold and self.low > 1 + threshold / 2

    def is_faster(self) -> bool:
        """Tell whether it is faster for certain."""
        return self.high < 1


def read(path: Path) -> dict[str, Any]:
    """Return what ``mpcore bench run --json`` wrote.

    Raises
    ------
    OSError
        If the file cannot be read.
    ValueError
        If it holds something else.
    """
    document = json.loads(path.read_text())
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
    common = [key for key in old if key in new]
    if not common:
        raise ValueError("The files must have a problem in common. They have none.")
    return [_change(key, old[key], new[key]) for key in common]


@dataclass(frozen=True)
class _Timed:
    passes: list[list[float]]
    limit: list[list[float]]  # The same of its limit; empty: not known.


def _timed(document: dict[str, Any]) -> dict[tuple[str, int, str], _Timed]:
    found = {}
    for result in document["results"]:
        samples = {e["name"]: e.get("samples", []) for e in result["entries"]}
        limit = samples.get((result["limit"] or {}).get("probe"), [])
        for entry in result["entries"]:
            is_mine = entry["name"].partition("@")[0] == "mpcore"
            if is_mine and entry["kind"] == "implementation" and "samples" in entry:
                key = (result["problem"], result["threads"], entry["name"])
                found[key] = _Timed(_filled(entry["samples"]), _filled(limit))
    return found


def _change(key: tuple[str, int, str], old: _Timed, new: _Timed) -> Change:
    low, high = _interval(old.passes, new.passes)
    of_machine = 1.0
    if old.limit and new.limit:
        of_machine = max(1.0, _interval(old.limit, new.limit)[0])
    return Change(
        *key,
        ratio=_median(new.passes) / _median(old.passes),
        low=low,
        high=high,
        of_machine=of_machine,
    )


def _filled(passes: list[list[float]]) -> list[list[float]]:
    return [one for one in passes if one]


def _interval(
    old: Sequence[Sequence[float]], new: Sequence[Sequence[float]]
) -> tuple[float, float]:
    """Return the confidence interval of the ratio of two medians."""
    generator = random.Random(0)
    ratios = [
        _resampled(new, generator) / _resampled(old, generator)
        for _ in range(_RESAMPLES)
    ]
    return quantile(ratios, (1 - _CONFIDENCE) / 2), quantile(
        ratios, (1 + _CONFIDENCE) / 2
    )


def _median(passes: Sequence[Sequence[float]]) -> float:
    return statistics.median(x for one in passes for x in one)


def _resampled(passes: Sequence[Sequence[float]], generator: random.Random) -> float:
    """Return the median of passes drawn at random, and of samples drawn in each.

    Samples of one pass are alike: drawing passes too lets the interval be as wide as
    the machine's moods make it.
    """
    drawn = generator.choices(passes, k=len(passes))
    return _median([generator.choices(one, k=len(one)) for one in drawn])


def text(found: Sequence[Change], threshold: float | None) -> str:
    """Return a line for each change, the slowest first, and a verdict."""
    limit = threshold if threshold is not None else 0.0
    width = max(len(c.problem) for c in found)
    lines = [f"{'problem':<{width}}  thr  {'time':>7}  {'95% interval':>15}  limit"]
    for c in sorted(found, key=lambda c: -c.ratio):
        mark = ""
        if c.is_slower_by(limit):
            mark = "  SLOWER"
        elif c.is_faster():
            mark = "  faster"
        level = c.name.partition("@")[2]
        lines.append(
            f"{c.problem:<{width}}  {c.threads:>3}  {c.ratio:>6.3f}x  "
            f"{c.low:>6.3f} .. {c.high:<5.3f}  {c.of_machine:.3f}x{mark}"
            f"{f'  ({level})' if level else ''}"
        )
    slower = sum(c.is_slower_by(limit) for c in found)
    lines.append(
        f"{slower} of {len(found)} slower by more than {100 * limit:g}% "
        "(time: after / before; limit: what the machine certainly lost meanwhile)"
    )
    return "\n".join(lines)
