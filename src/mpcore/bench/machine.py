"""What results depend on: the machine, the build, the environment, the load."""

import os
import platform
import re
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from mpcore import ops

_VARIABLE = re.compile(
    r"(MPCORE|OMP|KMP|GOMP|MKL|OPENBLAS|ONEDNN|DNNL|ATEN|NPY|XLA|JAX|KERAS|LD_PRELOAD"
    r"|MALLOC|MIMALLOC|GLIBC_TUNABLES)"
)
_PACKAGES = ("mpcore", "numpy", "ml_dtypes", "threadpoolctl")


def describe() -> dict[str, Any]:
    """Return the machine: CPU, caches, limits on this process, operating system."""
    cpu = ops.cpu_info()
    return {
        "cpu": cpu["name"],
        "architecture": platform.machine(),
        "flags": _cpu_flags(),
        "cpus": os.cpu_count(),
        "usable_cpus": len(os.sched_getaffinity(0)),
        "cgroup_quota": cgroup_quota(),
        "caches": caches(),
        "memory_bytes": os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"),
        "governor": _read("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor"),
        "huge_pages": _read("/sys/kernel/mm/transparent_hugepage/enabled"),
        "system": f"{platform.system()} {platform.release()}",
        "levels": cpu["levels"],
    }


def software() -> dict[str, Any]:
    """Return the build of the library, and versions."""
    return {
        "version": ops.version(),
        "isa": ops.get_isa(),
        "build": ops.build_info(),
        "python": platform.python_version(),
        "packages": {name: v for name in _PACKAGES if (v := _version(name))},
    }


def environment() -> dict[str, str]:
    """Return the environment variables that numerical libraries look at."""
    return {k: os.environ[k] for k in sorted(os.environ) if _VARIABLE.match(k)}


def load() -> list[float]:
    """Return the load averages of 1, 5, and 15 minutes."""
    return [round(x, 2) for x in os.getloadavg()]


def cgroup_quota() -> float | None:
    """Return how many CPUs the control group may use at a time, or None: no limit."""
    text = _read("/sys/fs/cgroup/cpu.max")
    if text is None or text.startswith("max"):
        return None
    quota, period = text.split()
    return int(quota) / int(period)


def caches() -> list[dict[str, Any]]:
    """Return level, kind, and size of each cache of the first CPU."""
    found = []
    for folder in sorted(Path("/sys/devices/system/cpu/cpu0/cache").glob("index*")):
        size = _read(folder / "size")
        if size is None:
            continue
        found.append(
            {
                "level": int(_read(folder / "level") or 0),
                "type": _read(folder / "type") or "",
                "bytes": int(size.removesuffix("K")) * 1024,
            }
        )
    return found


def cache_bytes(level: int) -> int:
    """Return the size of the data cache of a level; 0 if it is not known."""
    return max(
        (
            cache["bytes"]
            for cache in caches()
            if cache["level"] == level and cache["type"] != "Instruction"
        ),
        default=0,
    )


def _cpu_flags() -> list[str]:
    text = _read("/proc/cpuinfo") or ""
    found = re.search(r"^(?:flags|Features)\s*:\s*(.*)$", text, re.MULTILINE)
    return sorted(found[1].split()) if found else []


def _read(path: str | Path) -> str | None:
    try:
        return Path(path).read_text().strip()
    except OSError:
        return None


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None
