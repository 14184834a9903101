"""What results depend on: `mpcore info`."""

import os
import platform
from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path
from typing import Any

from mpcore import ops

_PACKAGES = ("mpcore", "numpy", "ml_dtypes")


def machine() -> dict[str, Any]:
    """Return CPU, levels, kernels, limits on this process, build, and versions."""
    return {
        "cpu": ops.cpu_info(),
        "usable_cpus": len(os.sched_getaffinity(0)),
        "cgroup_quota": cgroup_quota(),
        "kernels": ops.kernel_notes(),
        "build": ops.build_info(),
        "environment": {
            key: os.environ[key]
            for key in sorted(os.environ)
            if key.startswith("MPCORE_")
        },
        "python": platform.python_version(),
        "packages": {name: version(name) for name in _PACKAGES},
    }


def cgroup_quota() -> float | None:
    """Return how many CPUs the control group may use at a time, or None: no limit."""
    try:
        text = Path("/sys/fs/cgroup/cpu.max").read_text()
    except OSError:
        return None
    quota, period = text.split()
    return None if quota == "max" else int(quota) / int(period)


def lines(machine: dict[str, Any]) -> Iterator[str]:
    """Write down what `machine` returned for people to read."""
    cpu, build = machine["cpu"], machine["build"]
    quota = machine["cgroup_quota"]
    yield f"CPU       {cpu['name']}"
    yield f"          {machine['usable_cpus']} may be used; quota: {quota or 'none'}"
    yield f"threads   {cpu['num_threads']}"
    yield f"level     {cpu['isa']}"
    for level in cpu["levels"]:
        state = "yes" if level["available"] else f"no: {level['reason']}"
        yield f"          {level['name']:<12} {state}"
    yield from _kernel_lines(machine["kernels"])
    for key, value in machine["environment"].items():
        yield f"set       {key}={value}"
    yield f"build     {build['compiler']}, {build['type']}, {build['flags']}"
    yield f"          commit {build['commit']}"
    packages = [f"{name} {number}" for name, number in machine["packages"].items()]
    yield f"versions  {', '.join(packages)}, Python {machine['python']}"


def _kernel_lines(kernels: dict[str, dict[str, str]]) -> Iterator[str]:
    """Join columns that have the same kernels."""
    joined: dict[tuple[tuple[str, str], ...], list[str]] = {}
    for column, notes in kernels.items():
        joined.setdefault(tuple(notes.items()), []).append(column)
    for pairs, columns in joined.items():
        yield f"kernels   {', '.join(columns)}"
        for dtype, note in pairs:
            yield f"          {dtype:<12} {note}"
