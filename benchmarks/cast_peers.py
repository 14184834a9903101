"""Casts against torch, NumPy with ml_dtypes, and a copy past the caches.

    python benchmarks/cast_peers.py [--quick] [--threads N] [--out FILE]

All candidates of a case run in turn, round after round, so that a slow phase of the
machine meets them alike; the medians of the rounds are compared. GB/s counts bytes read
and written. mpcore's C function is called in a loop in C. `copy` moves as many bytes
with non-temporal stores and prefetching: what memory gives. Both are a few lines of C
that this script compiles. With one thread its CPU time is taken, so that other
processes disturb less.
"""

from __future__ import annotations

import argparse
import ctypes
import importlib.util
import json
import os
import platform
import statistics
import subprocess
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import ml_dtypes
import numpy as np

import mpcore
from mpcore import _paths

CODES = {
    **{"float32": 0, "float16": 1, "bfloat16": 2, "float64": 3},
    **{"int8": 8, "int32": 10, "int64": 11, "uint8": 12, "bool": 16},
}
HALF_PAIRS = [
    ("float32", "bfloat16"),
    ("bfloat16", "float32"),
    ("float32", "float16"),
    ("float16", "float32"),
    ("bfloat16", "float16"),
    ("float16", "bfloat16"),
]
OTHER_PAIRS = [
    ("float64", "float32"),
    ("float32", "float64"),
    ("float64", "float16"),
    ("float64", "bfloat16"),
    ("float16", "float64"),
    ("bfloat16", "float64"),
    ("float32", "int8"),
    ("float32", "uint8"),
    ("float32", "int32"),
    ("float32", "int64"),
    ("float64", "int64"),
    ("bfloat16", "int32"),
    ("int64", "bfloat16"),
    ("int64", "float32"),
    ("int32", "float32"),
    ("uint8", "float32"),
    ("uint8", "bfloat16"),
    ("int64", "int32"),
    ("int32", "int64"),
    ("bool", "float32"),
    ("float32", "bool"),
]
# What a pair must reach, as a multiple of torch, in and out of the caches.
BARS = {
    ("float32", "bfloat16"): (3.5, 1.8),
    ("bfloat16", "float16"): (None, 3.0),
    ("float16", "bfloat16"): (None, 3.0),
}
OTHER_BAR = (None, 1.45)

HELPER = """
#include <immintrin.h>
#include <stdint.h>
typedef int32_t (*cast_function)(void*, int64_t, const void*, int32_t, void*, int32_t);
int32_t repeat(cast_function cast, int64_t times, int64_t n, const void* src,
               int32_t from, void* dst, int32_t to) {
  int32_t status = 0;
  for (int64_t i = 0; i < times; ++i) status |= cast(0, n, src, from, dst, to);
  return status;
}
/* Reads `from` bytes and writes `to` bytes at four places at once; both are multiples
   of 512, and one is a multiple of the other; 64-byte aligned. */
__attribute__((target("avx512f")))
void copy(const char* src, int64_t from, char* dst, int64_t to) {
  const int64_t lines = (from < to ? from : to) / 64 / 4, f = from / 4, t = to / 4;
  const int64_t reads = from > to ? from / to : 1, writes = to > from ? to / from : 1;
  for (int64_t i = 0; i < lines; ++i) {
    for (int64_t s = 0; s < 4; ++s) {
      const char* r = src + s * f + i * reads * 64;
      char* w = dst + s * t + i * writes * 64;
      __m512i x = _mm512_setzero_si512();
      for (int64_t k = 0; k < reads; ++k) {
        _mm_prefetch(r + k * 64 + 1024, _MM_HINT_T0);
        x = _mm512_xor_si512(x, _mm512_load_si512(r + k * 64));
      }
      for (int64_t k = 0; k < writes; ++k) _mm512_stream_si512((void*)(w + k * 64), x);
    }
  }
  _mm_sfence();
}
"""


def compile_helper(folder: Path) -> ctypes.CDLL:
    """Return the library with the copy and the loop around mpcore's function."""
    source, library = folder / "helper.c", folder / "helper.so"
    source.write_text(HELPER)
    compiler = os.environ.get("CC", "cc")
    subprocess.run(
        [compiler, "-O2", "-shared", "-fPIC", source, "-o", library], check=True
    )
    return ctypes.CDLL(str(library))


def aligned(size: int, dtype: np.dtype) -> np.ndarray:
    """Return zeros that start at a multiple of 64 bytes and are in memory already."""
    raw = np.zeros(size * dtype.itemsize + 64, np.uint8)
    raw += 1
    start = -raw.ctypes.data % 64
    return raw[start : start + size * dtype.itemsize].view(dtype)


def source_values(size: int, dtype: np.dtype) -> np.ndarray:
    """Return ordinary numbers."""
    x = aligned(size, dtype)
    some = np.random.default_rng(0).standard_normal(1 << 16) * 50
    if dtype.kind == "u":
        some = abs(some)
    x[:] = np.resize(some.astype(dtype), size)
    return x


def torch_cast(x: np.ndarray, y: np.ndarray) -> Callable[[], object] | None:
    """Return torch's `copy_` over the same memory, or None without torch."""
    if importlib.util.find_spec("torch") is None:
        return None
    import torch

    def tensor(a: np.ndarray) -> torch.Tensor:
        kind = getattr(torch, a.dtype.name)
        return torch.frombuffer(a.view(np.uint8), dtype=kind)

    source, target = tensor(x), tensor(y)
    return lambda: target.copy_(source)


def times(call: Callable[[], object]) -> Callable[[int], None]:
    """Return a function that makes the call as often as it is told."""

    def repeated(repeats: int) -> None:
        for _ in range(repeats):
            call()

    return repeated


def candidates(
    library: ctypes.CDLL, helper: ctypes.CDLL, x: np.ndarray, y: np.ndarray
) -> dict[str, Callable[[int], None]]:
    """Return what is compared, by name; each takes a number of repeats."""
    size, address = ctypes.c_int64, ctypes.c_void_p
    source, target = address(x.ctypes.data), address(y.ctypes.data)
    codes = CODES[x.dtype.name], CODES[y.dtype.name]
    cast = ctypes.cast(library.mpcore_cast, address)

    def mine(repeats: int) -> None:
        counts = size(repeats), size(x.size)
        if helper.repeat(cast, *counts, source, codes[0], target, codes[1]) != 0:
            raise RuntimeError("mpcore_cast failed")

    found = {"mpcore": mine}
    found["numpy"] = times(lambda: np.copyto(y, x, casting="unsafe"))
    moved = size(x.nbytes), size(y.nbytes)
    found["copy"] = times(lambda: helper.copy(source, moved[0], target, moved[1]))
    theirs = torch_cast(x, y)
    if theirs is not None:
        found["torch"] = times(theirs)
    return found


def seconds(
    function: Callable[[int], None], repeats: int, clock: Callable[[], float]
) -> float:
    """Return the time of one call."""
    start = clock()
    function(repeats)
    return (clock() - start) / repeats


def measure(
    functions: dict[str, Callable[[int], None]],
    moved: int,
    rounds: int,
    repeats: int,
    clock: Callable[[], float],
) -> dict[str, dict[str, float]]:
    """Return GB/s by candidate: median, lowest, and highest of the rounds."""
    for function in functions.values():
        function(1)
    measured: dict[str, list[float]] = {name: [] for name in functions}
    for _ in range(rounds):
        for name, function in functions.items():
            measured[name].append(seconds(function, repeats, clock))
    return {
        name: {
            "median": moved / statistics.median(taken) * 1e-9,
            "low": moved / max(taken) * 1e-9,
            "high": moved / min(taken) * 1e-9,
        }
        for name, taken in measured.items()
    }


def main() -> None:
    """Measure, print a table, and write the figures."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="fewer pairs and rounds")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--large", type=int, default=1 << 26, help="elements")
    parser.add_argument("--rounds", type=int, default=0)
    parser.add_argument(
        "--out",
        type=Path,
        default=Path(__file__).parent / "results" / "cast_peers.json",
    )
    options = parser.parse_args()
    pairs = HALF_PAIRS if options.quick else HALF_PAIRS + OTHER_PAIRS
    mpcore.set_num_threads(options.threads)
    clock = time.thread_time if options.threads == 1 else time.perf_counter
    if importlib.util.find_spec("torch") is not None:
        import torch

        torch.set_num_threads(options.threads)
    (path,) = _paths.lib_dir().glob("libmpcore.so.*")
    library = ctypes.CDLL(str(path))
    rows = []
    print(f"load {os.getloadavg()[0]:.2f}, threads {options.threads}, GB/s")
    with tempfile.TemporaryDirectory() as folder:
        helper = compile_helper(Path(folder))
        for size in (1024, 16384, 1 << 20, options.large):
            small = size <= 1 << 20
            rounds = options.rounds or (5 if options.quick else 15 if small else 9)
            for source, target in pairs:
                x = source_values(size, np.dtype(getattr(ml_dtypes, source, source)))
                y = aligned(size, np.dtype(getattr(ml_dtypes, target, target)))
                repeats = max(1, (1 << 21) // size)
                functions = candidates(library, helper, x, y)
                moved = x.nbytes + y.nbytes
                found = measure(functions, moved, rounds, repeats, clock)
                row = {"from": source, "to": target, "n": size, "gb_per_s": found}
                bar = BARS.get((source, target), OTHER_BAR)[0 if size == 16384 else 1]
                if "torch" in found and size in (16384, options.large):
                    row["times_torch"] = (
                        found["mpcore"]["median"] / found["torch"]["median"]
                    )
                    row["bar"] = bar
                if size == options.large:
                    row["of_copy"] = found["mpcore"]["median"] / found["copy"]["median"]
                rows.append(row)
                shown = " ".join(f"{k} {v['median']:7.2f}" for k, v in found.items())
                extra = " ".join(
                    f"{k}={row[k]:.2f}" for k in ("times_torch", "of_copy") if k in row
                )
                print(
                    f"{source:>9} -> {target:<9} n={size:<9} {shown} {extra}",
                    flush=True,
                )
    options.out.parent.mkdir(exist_ok=True)
    head = {
        "cpu": mpcore.cpu_info(),
        "isa": mpcore.get_isa(),
        "threads": options.threads,
        "load": os.getloadavg(),
        "numpy": np.__version__,
        "ml_dtypes": ml_dtypes.__version__,
        "python": platform.python_version(),
    }
    if importlib.util.find_spec("torch") is not None:
        head["torch"] = torch.__version__
    options.out.write_text(
        json.dumps(head | {"rows": rows}, indent=1, default=str) + "\n"
    )


if __name__ == "__main__":
    main()
