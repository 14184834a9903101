"""`mpcore selftest`: whether every level of this machine computes what it should."""

import statistics
import time
from collections.abc import Iterator
from typing import Any

import numpy as np

from mpcore import ops
from mpcore.bench.problem import DTYPES
from mpcore.bench.suite import Data, get_suite, parse

_SIZES = ("1", "1003", "100K")
PROBLEMS = (
    *(
        f"cast:{a}:{b}:{n}"
        for a, b in (("f32", "bf16"), ("f32", "f16"))
        for n in _SIZES
    ),
    *(
        f"cast:{a}:{b}:{n}"
        for a, b in (("bf16", "f32"), ("f16", "f32"))
        for n in _SIZES
    ),
    *("cast:f64:bf16:1003", "cast:f32:i32:1003", "cast:i64:f32:1003"),
    *(
        f"grad:{op}:{dtype}:3x40003"
        for op in ("all_finite", "unscale", "norms")
        for dtype in ("f32", "f16", "bf16")
    ),
    *(
        f"gemm:{shape}:{dtype}:{dtype}"
        for shape in ("1x1x1", "3x70x33", "65x33x129", "256x128x320")
        for dtype in ("f32", "f16", "bf16")
    ),
    *("optim:sgd:none:3x1003", "optim:adamw:none:3x1003", "optim:adamw:bf16:2x40003"),
    *(
        f"nn:{op}:{dtype}:33x77"
        for op in ("relu", "tanh", "sigmoid", "softmax")
        for dtype in ("f32", "f16", "bf16")
    ),
)
"""Small problems of every column, with tails."""

_SPEED_SIZE = 384
_SPEED_SAMPLES = 5


def run(threads: int) -> Iterator[tuple[str, str | None]]:
    """Test every level; yield each name with None for good, or with what is wrong.

    Parameters
    ----------
    threads : int
        Tested beside one thread.
    """
    first: dict[str, Data] = {}
    before = ops.get_isa(), ops.get_num_threads()
    try:
        for level in ops.cpu_info()["levels"]:
            if level["available"]:
                yield level["name"], _tested(level["name"], threads, first)
    finally:
        ops.set_isa(before[0])
        ops.set_num_threads(before[1])


def _tested(level: str, threads: int, first: dict[str, Data]) -> str | None:
    """Return what is wrong at a level; the first level's results are remembered."""
    ops.set_isa(level)
    for count in sorted({1, threads}):
        ops.set_num_threads(count)
        for text in PROBLEMS:
            outputs, wrong = _outcome(text)
            if wrong is None and not _may_differ(text, level):
                wrong = _difference(first.setdefault(text, outputs), outputs)
            if wrong is not None:
                return f"{text} with {count} thread(s): {wrong}"
    return None


def _may_differ(text: str, level: str) -> bool:
    """Products of float16 have an order of their own on tiles."""
    return level == "amx" and text.startswith("gemm:") and ":f16:" in text


def _outcome(text: str) -> tuple[Data, str | None]:
    """Return the results of a problem, and what the reference says is wrong."""
    problem, suite = parse(text), get_suite(text.partition(":")[0])
    call = suite.builders["mpcore"](
        problem, suite.data(problem, np.random.default_rng(0)), 1
    )
    call.run()
    outputs = call.outputs()
    return outputs, suite.check(
        problem, suite.data(problem, np.random.default_rng(0)), outputs
    )


def _difference(expected: Data, got: Data) -> str | None:
    for name, value in expected.items():
        if _bits(value) != _bits(got[name]):
            return f"`{name}` has other bits than at the lowest level"
    return None


def _bits(value: Any) -> Any:
    if isinstance(value, np.ndarray):
        return value.tobytes()
    return [_bits(x) for x in value] if isinstance(value, list) else value


def slow_halves() -> list[str]:
    """Say which products of halves are slower than those of float32 here."""
    seconds = {name: _product_seconds(name) for name in ("f32", "bf16", "f16")}
    return [
        f"Products in {DTYPES[half].name} are slower than in float32 on this machine: "
        f"{seconds[half] / seconds['f32']:.2f} times as long "
        f"({_SPEED_SIZE} x {_SPEED_SIZE} x {_SPEED_SIZE})."
        for half in ("bf16", "f16")
        if seconds[half] > 1.05 * seconds["f32"]
    ]


def _product_seconds(dtype: str) -> float:
    shape = f"{_SPEED_SIZE}x{_SPEED_SIZE}x{_SPEED_SIZE}"
    problem, suite = parse(f"gemm:{shape}:{dtype}:{dtype}"), get_suite("gemm")
    data = suite.data(problem, np.random.default_rng(0))
    call = suite.builders["mpcore"](problem, data, ops.get_num_threads())
    call.run()
    samples = []
    for _ in range(_SPEED_SAMPLES):
        start = time.perf_counter()
        call.run()
        samples.append(time.perf_counter() - start)
    return statistics.median(samples)
