"""Finite check, unscaling, and norms against NumPy and PyTorch, and the read limit.

    python benchmarks/grad_peers.py [--rounds 15] [--threads N] [--out FILE]

Contestants take turns within each round, so that a machine that changes its pace does
so for all. Medians count. Needs PyTorch, and a C compiler for the read limit.
"""

import argparse
import ctypes
import itertools
import json
import math
import os
import platform
import statistics
import subprocess
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import torch

import mpcore
from mpcore import ops

HERE = Path(__file__).parent
LAYOUTS = {
    "1x100M": (1, 100_000_000),
    "200x125k": (200, 125_000),
    "2000x1k": (2000, 1000),
}
CALLS = {"1x100M": 1, "200x125k": 1, "2000x1k": 5}  # per sample

Contestants = dict[str, Callable[[], Any]]


def read_limit(threads: int) -> Callable[[np.ndarray], Any]:
    """Return a function that reads an array with all threads, as fast as it goes."""
    with tempfile.TemporaryDirectory() as folder:
        library = Path(folder) / "read_limit.so"
        source = HERE / "read_limit.c"
        compiler = os.environ.get("CC", "cc")
        subprocess.run(
            [compiler, "-O3", "-shared", "-fPIC", source, "-o", library], check=True
        )
        function = ctypes.CDLL(str(library)).read_memory
    function.argtypes = [ctypes.c_void_p, ctypes.c_int64]
    function.restype = ctypes.c_uint64
    pool = ThreadPoolExecutor(threads)

    def read(array: np.ndarray) -> None:
        share = -(-array.nbytes // threads)
        start, end = array.ctypes.data, array.ctypes.data + array.nbytes
        parts = [(at, min(share, end - at)) for at in range(start, end, share)]
        list(pool.map(lambda part: function(*part), parts))

    return read


def contestants(arrays: list[np.ndarray]) -> dict[str, Contestants]:
    """Return the same work in each library's words."""
    tensors = [torch.from_numpy(x) for x in arrays]
    found_inf = torch.zeros(1)
    # There and back, exactly: the values stay what they are.
    factors = itertools.cycle([0.5, 2.0])
    torch_factors = itertools.cycle([torch.tensor([0.5]), torch.tensor([2.0])])
    numpy_factors = itertools.cycle([np.float32(0.5), np.float32(2.0)])

    def numpy_unscale() -> bool:
        factor = next(numpy_factors)
        for x in arrays:
            np.multiply(x, factor, out=x)
        return all(math.isfinite(np.dot(x, x)) for x in arrays)

    return {
        "all_finite": {
            "mpcore": lambda: ops.all_finite(arrays),
            "numpy isfinite": lambda: all(np.isfinite(x).all() for x in arrays),
            # Looks at a sum: large finite numbers are false alarms.
            "numpy dot": lambda: all(math.isfinite(np.dot(x, x)) for x in arrays),
            "torch isfinite": lambda: all(torch.isfinite(t).all() for t in tensors),
        },
        "unscale": {
            "mpcore": lambda: ops.unscale(arrays, next(factors), out=arrays),
            "numpy": numpy_unscale,
            "torch amp": lambda: torch._amp_foreach_non_finite_check_and_unscale_(
                tensors, found_inf, next(torch_factors)
            ),
        },
        "norms": {
            "mpcore": lambda: ops.norms(arrays),
            # Both sum in float32.
            "numpy dot": lambda: [math.sqrt(np.dot(x, x)) for x in arrays],
            "torch foreach": lambda: torch._foreach_norm(tensors),
        },
    }


def measure(
    functions: Contestants, calls: int, rounds: int, clock: Callable[[], float]
) -> dict[str, list[float]]:
    """Return seconds per call, one sample per round."""
    samples: dict[str, list[float]] = {name: [] for name in functions}
    for turn in range(rounds + 1):
        for name, function in functions.items():
            start = clock()
            for _ in range(calls):
                function()
            if turn:  # the first one warms up
                samples[name].append((clock() - start) / calls)
    return samples


def rows(
    layout: str,
    rounds: int,
    read: Callable[[np.ndarray], Any],
    clock: Callable[[], float],
) -> list[dict[str, Any]]:
    """Measure one layout."""
    count, size = LAYOUTS[layout]
    generator = np.random.default_rng(0)
    arrays = [generator.standard_normal(size, dtype=np.float32) for _ in range(count)]
    total = count * size * 4
    result = []
    for operation, functions in contestants(arrays).items():
        if count == 1 and operation != "unscale":  # which writes as well
            functions["read limit"] = lambda: read(arrays[0])
        samples = measure(functions, CALLS[layout], rounds, clock)
        medians = {name: statistics.median(times) for name, times in samples.items()}
        ours, limit = medians.pop("mpcore"), medians.pop("read limit", None)
        best_peer = min(medians, key=medians.__getitem__)
        moved = total * (2 if operation == "unscale" else 1)
        row = {
            "operation": operation,
            "layout": layout,
            "seconds": {
                name: {
                    "median": statistics.median(times),
                    "best": min(times),
                    "worst": max(times),
                }
                for name, times in samples.items()
            },
            "gigabytes_per_second": moved / ours / 1e9,
            "best_peer": best_peer,
            "times_best_peer": medians[best_peer] / ours,
            "of_read_limit": None if limit is None else limit / ours,
        }
        result.append(row)
        shown = "" if limit is None else f", {limit / ours:.2f} of the read limit"
        print(
            f"{operation:10} {layout:9} {moved / ours / 1e9:6.1f} GB/s, "
            f"{row['times_best_peer']:5.2f} x {best_peer}{shown}",
            flush=True,
        )
    return result


def main() -> None:
    """Measure all layouts and write the figures."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--threads", type=int, default=mpcore.get_num_threads())
    parser.add_argument("--layouts", nargs="+", choices=LAYOUTS, default=list(LAYOUTS))
    parser.add_argument(
        "--out", type=Path, default=HERE / "results" / "grad_peers.json"
    )
    arguments = parser.parse_args()
    mpcore.set_num_threads(arguments.threads)
    torch.set_num_threads(arguments.threads)
    read = read_limit(arguments.threads)
    # One thread's own time is told apart from what else runs; that of several is not.
    clock = time.process_time if arguments.threads == 1 else time.perf_counter

    load_before = os.getloadavg()
    measured = [
        row
        for name in arguments.layouts
        for row in rows(name, arguments.rounds, read, clock)
    ]
    report = {
        "machine": {
            "cpu": mpcore.cpu_info(),
            "isa": mpcore.get_isa(),
            "threads": arguments.threads,
            "clock": clock.__name__,
            "load_before": load_before,
            "load_after": os.getloadavg(),
        },
        "versions": {
            "python": platform.python_version(),
            "mpcore": mpcore.__version__,
            "numpy": np.__version__,
            "torch": torch.__version__,
        },
        "rounds": arguments.rounds,
        "rows": measured,
    }
    arguments.out.parent.mkdir(parents=True, exist_ok=True)
    arguments.out.write_text(json.dumps(report, indent=1) + "\n")
    print(f"written: {arguments.out}")


if __name__ == "__main__":
    main()
