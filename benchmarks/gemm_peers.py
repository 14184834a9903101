"""Matrix products against PyTorch and NumPy, and the peaks of the CPU.

    python benchmarks/gemm_peers.py [--rounds 9] [--threads N] [-k RE] [--out FILE]

Contestants take turns within each round, so that a machine that changes its pace does
so for all. Medians count. All are Python calls that allocate the result. PyTorch's
float32 product is MKL's, those of halves are oneDNN's; NumPy's is OpenBLAS's. The
libraries by themselves are in ``mpcore bench``, which gives each its own process.
"""

import argparse
import json
import os
import platform
import re
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch

import mpcore
from mpcore import ops
from mpcore.bench.libraries import torch_tensor
from mpcore.dtypes import numpy_dtype
from mpcore.ops.limits import run_peak

HERE = Path(__file__).parent
TOP = mpcore.available_isas()[-1]
DTYPES = {"bf16": "bfloat16", "f16": "float16", "f32": "float32"}
SAMPLE = 3e-3  # seconds
PEAK_ITERATIONS = 1000  # about a millisecond


class Case(NamedTuple):
    """A product; `a` or `b` in `order` is stored transposed."""

    group: str
    dtype: str
    m: int
    n: int
    k: int
    order: str = ""
    isa: str = TOP
    precision: str = "highest"
    packed: bool = False

    @property
    def label(self) -> str:
        """Return group, dtype, shape, and level."""
        return f"{self.group} {self.dtype} {self.m}x{self.n}x{self.k} {self.isa}"


def cases() -> list[Case]:
    """Return what is measured."""
    squares = [Case("square", "bf16", n, n, n) for n in (64, 128, 256, 512, 1024, 2048)]
    thin = [
        Case("x W" + (".T" if order else ""), "bf16", m, 1024, 1024, order)
        for order in ("", "b")
        for m in (1, 2, 4, 8, 32, 128, 512)
    ]
    packed = [
        Case("x W packed", "bf16", m, 1024, 1024, packed=True)
        for m in (8, 32, 128, 512)
    ]
    weights = [Case("dW", "bf16", 1024, 1024, k, "a") for k in (32, 128, 512)]
    halves = [Case("square", "f16", n, n, n) for n in (256, 512, 1024)]
    singles = [Case("square", "f32", n, n, n) for n in (256, 512, 1024)]
    odd = [Case("odd", dtype, 1021, 1019, 1023) for dtype in ("bf16", "f16", "f32")] + [
        Case("odd", dtype, 127, 333, 65) for dtype in ("bf16", "f16", "f32")
    ]
    high = [Case("high", "f32", n, n, n, precision="high") for n in (512, 1024)]
    forced = [
        Case("forced", dtype, n, n, n, isa=isa)
        for isa in ("avx512", "avx2")
        if isa in mpcore.available_isas()
        for dtype in ("f32", "f16", "bf16")
        for n in (512, 1024)
    ]
    return [
        *(squares + thin + packed + weights + halves + singles),
        *(odd + high + forced),
    ]


def contestants(case: Case) -> dict[str, Callable[[], Any]]:
    """Return the same product in each library's words."""
    generator = np.random.default_rng(0)
    dtype = numpy_dtype(DTYPES[case.dtype])

    def matrix(rows: int, columns: int, transposed: bool) -> np.ndarray:
        shape = (columns, rows) if transposed else (rows, columns)
        x = generator.standard_normal(shape, dtype=np.float32).astype(dtype)
        return x.T if transposed else x

    a = matrix(case.m, case.k, "a" in case.order)
    b = matrix(case.k, case.n, "b" in case.order)

    def tensor(x: np.ndarray, transposed: bool) -> Any:
        return torch_tensor(x.T).T if transposed else torch_tensor(x)

    ta, tb = tensor(a, "a" in case.order), tensor(b, "b" in case.order)
    right = ops.PackedMatrix(b) if case.packed else b
    functions: dict[str, Callable[[], Any]] = {
        "mpcore": lambda: ops.matmul(a, right),
        "torch": lambda: torch.mm(ta, tb),
    }
    if case.dtype == "f32":
        functions["numpy"] = lambda: a @ b
    if case.group == "forced" and case.dtype != "f32":
        # What a level without instructions for halves is measured by.
        x, w = ta.float(), tb.float()
        functions["torch f32"] = lambda: torch.mm(x, w)
    return functions


def peak(case: Case) -> tuple[str, int]:
    """Return the peak that counts for a case, and how many products of parts it has."""
    if case.isa != "amx" or (case.dtype == "f32" and case.precision == "highest"):
        return "fma_f32", 1
    return "amx_bf16", {"bf16": 1, "f16": 4, "f32": 6}[case.dtype]


def measure(
    functions: dict[str, Callable[[], Any]], rounds: int, clock: Callable[[], float]
) -> dict[str, list[float]]:
    """Return seconds per call, one sample per round."""
    calls: dict[str, int] = {}
    for name, function in functions.items():
        function()
        start = clock()
        function()
        calls[name] = max(1, int(SAMPLE / max(clock() - start, 1e-6)))
    samples: dict[str, list[float]] = {name: [] for name in functions}
    for turn in range(rounds + 1):
        for name, function in functions.items():
            function()
            start = clock()
            for _ in range(calls[name]):
                function()
            if turn:  # the first one warms up
                samples[name].append((clock() - start) / calls[name])
    return samples


def row(case: Case, rounds: int, clock: Callable[[], float]) -> dict[str, Any]:
    """Measure one case."""
    mpcore.set_isa(case.isa)
    mpcore.set_float32_matmul_precision(case.precision)
    functions = contestants(case)
    limit, terms = peak(case)
    operations = run_peak(limit, PEAK_ITERATIONS)
    functions[limit] = lambda: run_peak(limit, PEAK_ITERATIONS)
    samples = measure(functions, rounds, clock)
    peak_rate = operations / statistics.median(samples.pop(limit)) / 1e9 / terms
    medians = {name: statistics.median(times) for name, times in samples.items()}
    rates = {
        name: 2e-9 * case.m * case.n * case.k / seconds
        for name, seconds in medians.items()
    }
    ours = rates["mpcore"]
    times = {name: ours / rate for name, rate in rates.items() if name != "mpcore"}
    shown = "  ".join(f"{x:5.2f} x {name}" for name, x in times.items())
    of_peak = f"{ours / peak_rate:.2f} of {limit}"
    print(f"{case.label:40} {ours:6.0f} GFLOP/s  {shown}  {of_peak}")
    return {
        **case._asdict(),
        "gigaflops": rates,
        "times": times,
        "best_and_worst_seconds": {
            name: [min(x), max(x)] for name, x in samples.items()
        },
        "peak": {limit: peak_rate},
        "of_peak": ours / peak_rate,
    }


def markdown(rows: list[dict[str, Any]]) -> str:
    """Return the table of the documentation."""
    lines = [
        "| product | dtype | m x n x k | level | GFLOP/s | torch | others | of peak |",
        "|---|---|---|---|---:|---:|---|---:|",
    ]
    for r in rows:
        others = ", ".join(
            f"{n} {x:.2f}" for n, x in r["times"].items() if n != "torch"
        )
        shape = f"{r['m']}x{r['n']}x{r['k']}"
        lines.append(
            f"| {r['group']} | {r['dtype']} | {shape} | {r['isa']} "
            f"| {r['gigaflops']['mpcore']:.0f} | {r['times']['torch']:.2f} | {others} "
            f"| {r['of_peak']:.2f} |"
        )
    return "\n".join(lines) + "\n"


def with_threads(threads: int) -> None:
    """Start anew where the environment would hold a peer back or let it loose."""
    wanted = {
        "OMP_NUM_THREADS": str(threads),
        "MKL_NUM_THREADS": str(threads),
        "OPENBLAS_NUM_THREADS": str(threads),
    }
    held_back = [name for name in ("OPENBLAS_CORETYPE",) if name in os.environ]
    if not held_back and all(os.environ.get(k) == v for k, v in wanted.items()):
        return
    environment = {k: v for k, v in os.environ.items() if k not in held_back} | wanted
    os.execve(sys.executable, [sys.executable, *sys.argv], environment)


def main() -> None:
    """Measure all cases and write the figures."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--threads", type=int, default=mpcore.get_num_threads())
    parser.add_argument("-k", default="", help="only cases that this expression finds")
    parser.add_argument(
        "--out", type=Path, default=HERE / "results" / "gemm_peers.json"
    )
    parser.add_argument("--markdown", type=Path)
    arguments = parser.parse_args()
    with_threads(arguments.threads)
    mpcore.set_num_threads(arguments.threads)
    torch.set_num_threads(arguments.threads)
    # One thread's own time is told apart from what else runs; that of several is not.
    clock = time.process_time if arguments.threads == 1 else time.perf_counter
    load_before = os.getloadavg()
    measured = [
        row(case, arguments.rounds, clock)
        for case in cases()
        if re.search(arguments.k, case.label)
    ]
    mpcore.set_isa(TOP)
    report = {
        "machine": {
            "cpu": mpcore.cpu_info(),
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
    if arguments.markdown is not None:
        arguments.markdown.write_text(markdown(measured))
    print(f"written: {arguments.out}")


if __name__ == "__main__":
    main()
