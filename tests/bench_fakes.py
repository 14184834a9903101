"""Suites and documents made up for the tests of the benchmarks."""

from __future__ import annotations

import copy
import random

import numpy as np

from mpcore.bench.suite import Call, Need, Probe, Suite, Unsupported


def _build(factor):
    def build(problem, data, threads):
        x = data["x"]
        y = np.empty_like(x)

        def run():
            np.multiply(x, factor, out=y)

        return Call(run, lambda: {"y": y})

    return build


def _refuses(problem, data, threads):
    raise Unsupported("it does not want to")


def doubling_suite(**builders):
    """Return a suite that doubles numbers; `builders` replace those by name."""
    return Suite(
        name="double",
        fields=("dtype", "n"),
        quick=("double:f32:4K",),
        full=("double:f32:64K",),
        unit="GB/s",
        amount=lambda p: 8.0 * p.sizes("n")[0],
        needs=lambda p: (Need(((Probe("read", 1 << 12), 8.0 * p.sizes("n")[0]),)),),
        data=lambda p, generator: {"x": generator.standard_normal(p.sizes("n"))},
        check=lambda p, data, outputs: (
            None if np.array_equal(outputs["y"], 2 * data["x"]) else "no double"
        ),
        builders={
            "mpcore": _build(2.0),
            "numpy": _build(2.0),
            "ml_dtypes": _build(3.0),
            "torch": _refuses,
            **builders,
        },
        smallest=lambda p: f"double:{p['dtype']}:1",
    )


def result(problem, samples, threads=1, limit=1e-3):
    """Return one result with mpcore alone, timed by `samples`, lists of seconds."""
    every = [x for one in samples for x in one]
    median = float(np.median(every))
    return {
        "problem": problem,
        "suite": problem.partition(":")[0],
        "fields": {},
        "threads": threads,
        "unit": "GB/s",
        "amount": 1e6,
        "operations": 0.0,
        "bytes": 1e6,
        "bounds": [{"name": "memory read", "seconds": limit, "probe": "read@64"}],
        "limit": {
            **{"name": "memory read", "seconds": limit, "probe": "read@64"},
            "rate": 1e6 / limit / 1e9,
        },
        "entries": [
            {
                "name": "mpcore",
                "kind": "implementation",
                "seconds": {
                    "median": median,
                    "p5": min(every),
                    "p95": max(every),
                    "min": min(every),
                    "mad": 0.0,
                    "spread": (max(every) - min(every)) / median,
                },
                "samples": samples,
                "calls_per_sample": 3,
                "rate": 1e6 / median / 1e9,
                "unit": "GB/s",
                "of_limit": limit / median,
                "times_slower_than_mpcore": 1.0,
                "dropped": 0,
                "disturbed": 0,
            }
        ],
    }


def noisy(generator, median, passes=5, rounds=4, drift=0.03, noise=0.03):
    """Return samples round a median: passes drift, samples scatter."""
    return [
        [median * mood * generator.lognormvariate(0, noise) for _ in range(rounds)]
        for mood in [generator.lognormvariate(0, drift) for _ in range(passes)]
    ]


def document(seed, problems=40, slower=(), factor=1.2):
    """Return a document of made-up timings; problems in `slower` take longer."""
    generator = random.Random(seed)
    results = []
    for i in range(problems):
        median = 2e-3 * (1 + i % 5) * (factor if i in slower else 1.0)
        name = f"cast:f32:bf16:{i + 1}"
        results.append(result(name, noisy(generator, median)))
    return {
        "schema_version": 1,
        "program": "mpcore bench",
        "started": "2030-01-01T00:00:00+00:00",
        "machine": {
            "cpu": "A CPU",
            "architecture": "x86_64",
            "cpus": 2,
            "usable_cpus": 2,
            "cgroup_quota": None,
            "system": "Linux 6",
            "levels": [{"name": "scalar", "available": True, "reason": "available"}],
        },
        "software": {
            "version": "0.1.0",
            "isa": "scalar",
            "build": {"compiler": "c", "type": "Release", "flags": "", "commit": "0"},
        },
        "environment": {},
        "load": {"before": [0.0, 0.0, 0.0], "after": [0.0, 0.0, 0.0]},
        "settings": {
            **{"threads": [1], "passes": 3, "rounds": 3},
            **{"least_seconds": 0.001, "seed": 0},
        },
        "peers": {"mpcore": {"version": "0.1.0"}, "torch": {"absent": "not installed"}},
        "results": results,
        "notices": [],
    }


def slowed(original, factor, problems):
    """Return a copy of a document in which some problems take longer."""
    changed = copy.deepcopy(original)
    for i in problems:
        for entry in changed["results"][i]["entries"]:
            if entry["kind"] == "implementation" and "samples" in entry:
                entry["samples"] = [
                    [x * factor for x in one] for one in entry["samples"]
                ]
    return changed
