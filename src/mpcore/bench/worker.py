"""The process of one implementation: makes problems ready, checks them, times them.

`python -m mpcore.bench.worker NAME THREADS` reads one JSON object per line from
standard input and answers each with one line on standard output. What libraries print
goes to standard error. See `process` for the other end.
"""

import gc
import json
import os
import sys
import time
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TextIO

import numpy as np

from mpcore import ops
from mpcore.bench import peers
from mpcore.bench.problem import Problem
from mpcore.bench.suite import Call, Data, Suite, Unsupported, get_suite, parse
from mpcore.ops import limits

_BRACKET_SECONDS = 1e-3
_WARM_CALLS = 3  # It takes three until a cache beyond L2 keeps what it can.
_WARM_SECONDS = 5e-3  # Threads may wake up on one CPU; the next tick parts them.
_WARM_AT_MOST = 20e-3  # Slow calls need no three; slower ones get warm by themselves.


@dataclass
class _Ready:
    """Something that can be timed."""

    repeat: Callable[[int], None]
    isa: str | None = None
    check: Callable[[], str | None] = lambda: None
    seconds: float = 0.0  # Of a call, when last timed.


class Worker:
    """Answers the messages."""

    def __init__(self, name: str, threads: int) -> None:
        self._name = name
        self._threads = threads
        self._ready: dict[str, _Ready] = {}
        self._bracket_iterations = 1

    def hello(self) -> Data:
        """Load the library."""
        return peers.start(self._name, self._threads)

    def prepare(
        self, key: str, problem: str, implementation: str, isa: str | None = None
    ) -> Data:
        """Make an implementation of a problem ready."""
        parsed, suite = parse(problem), get_suite(problem.partition(":")[0])
        ops.set_isa(isa)
        call = suite.builders[implementation](
            parsed, _data_of(suite, parsed), self._threads
        )
        self._ready[key] = _Ready(
            _repeated(call), isa, lambda: _wrong(suite, parsed, call)
        )
        return {}

    def probe(self, key: str, name: str, size: int) -> Data:
        """Make a limit of the machine ready; the reply has the amount of one call."""
        isa = _level_of(name)
        ops.set_isa(isa)
        if name in limits.PEAKS:
            amount = limits.run_peak(name, 1)
            run = limits.run_peak
            self._ready[key] = _Ready(lambda calls: _drop(run(name, calls)), isa)
            return {"amount": amount}
        count = limits.STREAM_ARRAYS[name]
        n = max(64, size // 4 // count // 64 * 64)
        arrays = [_aligned(n) for _ in range(count)]
        amount = limits.run_stream(name, 1, arrays)
        self._ready[key] = _Ready(
            lambda calls: _drop(limits.run_stream(name, calls, arrays)), isa
        )
        return {"amount": amount}

    def check(self, key: str) -> Data:
        """Compare the first results with the reference."""
        return {"wrong": self._ready[key].check()}

    def sample(self, key: str, calls: int, bracket: bool = False) -> Data:
        """Time some calls; `bracket`: and look at the rate of the AMX unit around."""
        ready = self._ready[key]
        before = self._amx_rate() if bracket else None
        ops.set_isa(ready.isa)
        gc.collect(0)
        gc.disable()
        self._warm_up(ready, calls)
        waited = _waited()
        cpu, wall = time.process_time(), time.perf_counter()
        ready.repeat(calls)
        wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
        ready.seconds = wall / calls
        waited = _waited() - waited
        gc.enable()
        after = self._amx_rate() if bracket else None
        rate = min(before, after) if before and after else None
        return {"wall": wall, "cpu": cpu, "waited": waited, "amx": rate}

    def warm(self, key: str) -> Data:
        """Make calls that are not timed: memory unused for a while gets warm."""
        ready = self._ready[key]
        ops.set_isa(ready.isa)
        self._warm_up(ready, 1)
        return {}

    def release(self, key: str) -> Data:
        """Forget what was made ready under a key."""
        del self._ready[key]
        gc.collect(1)
        return {}

    def _warm_up(self, ready: _Ready, calls: int) -> None:
        """Make calls that are not timed, until caches and threads are at their places.

        Other processes have had the caches since, and idle threads sleep.
        """
        if ready.seconds > _WARM_AT_MOST:
            return
        some, done, past, start = max(1, calls // 4), 0, 0.0, time.perf_counter()
        while past < _WARM_SECONDS or (done < _WARM_CALLS and past < _WARM_AT_MOST):
            ready.repeat(some)
            done, past = done + some, time.perf_counter() - start

    def _amx_rate(self) -> float:
        """Return the rate of the bare AMX loop on this thread, over a millisecond."""
        ops.set_isa("amx")
        threads = ops.get_num_threads()
        ops.set_num_threads(1)
        while True:
            start = time.process_time()
            operations = limits.run_peak("amx_bf16", self._bracket_iterations)
            seconds = time.process_time() - start
            # What is shorter says more about the start of the loop than about the unit.
            if seconds >= _BRACKET_SECONDS / 2:
                break
            self._bracket_iterations *= 2
        ops.set_num_threads(threads)
        return operations / seconds


def _waited() -> float:
    """Return the seconds that threads of this process could run but had no CPU."""
    total = 0
    for task in Path("/proc/self/task").iterdir():
        try:
            total += int((task / "schedstat").read_text().split()[1])
        except (OSError, IndexError):
            pass  # The thread has ended, or the system keeps no account.
    return total * 1e-9


def _drop(value: object) -> None:
    """Have no use for a result."""


def _level_of(probe: str) -> str | None:
    """Return the level that has the instruction; None: the default one."""
    return "amx" if probe == "amx_bf16" else None


def _aligned(n: int) -> np.ndarray:
    raw = np.full(n + 16, 0.5, np.float32)
    start = -raw.ctypes.data % 64 // 4
    return raw[start : start + n]


def _data_of(suite: Suite, problem: Problem) -> Data:
    """Return the same data in every process."""
    generator = np.random.default_rng(zlib.crc32(str(problem).encode()))
    return suite.data(problem, generator)


def _repeated(call: Call) -> Callable[[int], None]:
    run = call.run

    def repeat(calls: int) -> None:
        for _ in range(calls):
            run()

    return repeat


def _wrong(suite: Suite, problem: Problem, call: Call) -> str | None:
    call.run()
    return suite.check(problem, _data_of(suite, problem), call.outputs())


def answer(worker: Worker, message: Data) -> Data:
    """Return the reply to one message; errors become replies."""
    try:
        return dict(getattr(worker, message.pop("do"))(**message))
    except (Unsupported, peers.Refused) as reason:
        return {"unsupported": str(reason)}
    except Exception as error:  # The other end decides what it means.
        return {"error": f"{type(error).__name__}: {error}"}


def serve(worker: Worker, requests: TextIO, replies: TextIO) -> None:
    """Answer until there are no more messages."""
    for line in requests:
        replies.write(json.dumps(answer(worker, json.loads(line))) + "\n")
        replies.flush()


def _own_output() -> Any:
    """Keep standard output for replies; everyone else writes to standard error."""
    replies = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    return replies


if __name__ == "__main__":
    serve(Worker(sys.argv[1], int(sys.argv[2])), sys.stdin, _own_output())
