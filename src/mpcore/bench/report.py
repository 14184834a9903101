"""What a run found, as plain data: the JSON that everything else is made from."""

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

from mpcore.bench import machine
from mpcore.bench.run import Measurement, Run
from mpcore.bench.suite import Need, get_suite
from mpcore.bench.timing import Sample, at_full_rate, summary
from mpcore.ops import limits

SCHEMA_VERSION = 1
_SCALES = {"GB/s": 1e9, "GFLOP/s": 1e9, "steps/s": 1.0, "per second": 1.0}
_FEWEST = 3  # Samples that must be left after dropping; else the best so many stay.


def document(run: Run, before: dict[str, Any]) -> dict[str, Any]:
    """Return everything about a run.

    Parameters
    ----------
    run : Run
    before : dict
        What `start` returned before it.
    """
    best = _best_amx_rate(run.measurements.values())
    groups: dict[tuple[str, int], list[Measurement]] = {}
    for (problem, threads, _), measurement in run.measurements.items():
        groups.setdefault((problem, threads), []).append(measurement)
    results = [_result(group, best) for group in groups.values()]
    return {
        **before,
        "load": {**before["load"], "after": machine.load()},
        "peers": {
            **{name: {"version": v} for name, v in sorted(run.versions.items())},
            **{name: {"absent": why} for name, why in sorted(run.absent.items())},
        },
        "results": results,
        "notices": [*_busy(before), *notices(results)],
    }


def _busy(before: dict[str, Any]) -> list[str]:
    """Say that the machine had other things to do, if it had."""
    load, cpus = before["load"]["before"][0], before["machine"]["usable_cpus"]
    if load <= cpus:
        return []
    return [f"The machine was busy before the run: load {load} on {cpus} CPU(s)."]


def start(run: Run) -> dict[str, Any]:
    """Return what is known before a run."""
    settings = run.settings
    return {
        "schema_version": SCHEMA_VERSION,
        "program": "mpcore bench",
        "started": datetime.now(UTC).isoformat(timespec="seconds"),
        "machine": machine.describe(),
        "software": machine.software(),
        "environment": machine.environment(),
        "load": {"before": machine.load()},
        "settings": {
            "threads": list(settings.threads),
            "passes": settings.passes,
            "rounds": settings.rounds,
            "least_seconds": settings.least,
            "seed": settings.seed,
        },
    }


def _best_amx_rate(measurements: Any) -> float:
    rates = [s.amx for m in measurements for s in m.samples if s.amx is not None]
    return max(rates, default=0.0)


def _kept(samples: Sequence[Sample], best: float) -> list[Sample]:
    """Return the samples that nothing disturbed; if hardly any, the best of all."""
    kept = [s for s in at_full_rate(samples, best) if not s.disturbed]
    if len(kept) >= min(_FEWEST, len(samples)):
        return kept
    return sorted(samples, key=lambda s: (s.disturbed, -(s.amx or 0.0)))[:_FEWEST]


def _result(group: list[Measurement], best: float) -> dict[str, Any]:
    """Return one problem with one number of threads."""
    problem, threads = group[0].problem, group[0].threads
    suite = get_suite(problem.suite)
    entries = {m.name: _entry(m, suite.unit, best) for m in group}
    rates = {
        m.name: m.amount / entries[m.name]["seconds"]["median"]
        for m in group
        if m.kind == "limit" and m.samples
    }
    bounds = _bounds(suite.needs(problem), rates)
    limit = max(bounds, key=lambda b: b["seconds"], default=None)
    mine = entries.get("mpcore", {}).get("seconds")
    for m in group:
        entry = entries[m.name]
        if m.kind != "implementation" or "seconds" not in entry:
            continue
        median = entry["seconds"]["median"]
        entry["of_limit"] = limit["seconds"] / median if limit else 0.0
        if mine is not None:
            entry["times_slower_than_mpcore"] = median / mine["median"]
    return {
        "problem": str(problem),
        "suite": problem.suite,
        "fields": dict(problem.fields),
        "threads": threads,
        "unit": suite.unit,
        "amount": suite.amount(problem),
        **_work(suite.needs(problem)),
        "bounds": bounds,
        "limit": limit and {**limit, "rate": _rate(suite, problem, limit["seconds"])},
        "entries": list(entries.values()),
    }


def _work(needs: Sequence[Need]) -> dict[str, float]:
    """Return the operations and the bytes of one call, for the roofline."""
    found = {"operations": 0.0, "bytes": 0.0}
    for need in needs:
        probe, amount = need.alternatives[0]
        found["operations" if probe.name in limits.PEAKS else "bytes"] += amount
    return found


def _rate(suite: Any, problem: Any, seconds: float) -> float:
    return float(suite.amount(problem) / seconds / _SCALES[suite.unit])


def _entry(m: Measurement, unit: str, best: float) -> dict[str, Any]:
    """Return one implementation, limit, or empty call."""
    entry: dict[str, Any] = {"name": m.name, "kind": m.kind}
    if m.unsupported is not None or m.wrong is not None or not m.samples:
        reason = {"unsupported": m.unsupported, "wrong": m.wrong}
        return {**entry, **{k: v for k, v in reason.items() if v is not None}}
    kept = _kept(m.samples, best)
    scale = 1e9 if m.kind == "limit" else _SCALES[unit]
    passes = [[s.seconds for s in one if s in kept] for one in m.passes]
    seconds = summary([s.seconds for s in kept])
    return {
        **entry,
        "seconds": seconds,
        "samples": passes,
        "calls_per_sample": m.calls,
        "rate": m.amount / seconds["median"] / scale,
        "unit": _limit_unit(m.name) if m.kind == "limit" else unit,
        "dropped": len(m.samples) - len(kept),
        "disturbed": sum(s.disturbed for s in kept),
    }


def _limit_unit(name: str) -> str:
    return "GFLOP/s" if name in limits.PEAKS else "GB/s"


def _bounds(needs: Sequence[Need], rates: dict[str, float]) -> list[dict[str, Any]]:
    """Return for each need the least time it takes, by its best alternative."""
    bounds = []
    for need in needs:
        ways = [
            (amount / rates[probe.key], probe)
            for probe, amount in need.alternatives
            if probe.key in rates
        ]
        if not ways:
            continue
        seconds, probe = min(ways, key=lambda way: way[0])
        place = _place(probe.name, probe.bytes)
        bounds.append({"name": place, "seconds": seconds, "probe": probe.key})
    return bounds


def _place(name: str, size: int) -> str:
    """Return a limit in the words of the table: ``L2 copy``, ``memory read``, AMX."""
    if name in limits.PEAKS:
        return {"fma_f32": "FMA", "dot_bf16": "VDPBF16PS", "amx_bf16": "AMX"}[name]
    where = "memory"
    for level in (2, 1):
        if size <= machine.cache_bytes(level):
            where = f"L{level}"
    return f"{where} {name.removesuffix('_nontemporal')}"


def notices(results: Sequence[dict[str, Any]]) -> list[str]:
    """Say what a reader should know: products in halves slower than in float32."""
    found = []
    for half in ("bf16", "f16"):
        ratios = []
        for result in results:
            if result["suite"] != "gemm" or result["fields"]["dtype"] != half:
                continue
            fields = result["fields"]
            twin = f"gemm:{fields['shape']}:f32:f32"
            mine = _median_of(results, result["problem"], result["threads"])
            other = _median_of(results, twin, result["threads"])
            if mine is not None and other is not None:
                ratios.append((mine / other, result["problem"], result["threads"]))
        if not ratios:
            continue
        ratio, problem, threads = max(ratios)
        if sorted(r for r, _, _ in ratios)[len(ratios) // 2] > 1.0:
            name = {"bf16": "bfloat16", "f16": "float16"}[half]
            found.append(
                f"Products in {name} are slower than in float32 on this machine: "
                f"{problem} with {threads} thread(s) takes {ratio:.2f} times as long."
            )
    return found


def _median_of(
    results: Sequence[dict[str, Any]], problem: str, threads: int
) -> float | None:
    for result in results:
        if (result["problem"], result["threads"]) == (problem, threads):
            for entry in result["entries"]:
                if entry["name"] == "mpcore" and "seconds" in entry:
                    return float(entry["seconds"]["median"])
    return None
