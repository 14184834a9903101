"""Thread counts, signals, callers at once."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import threading
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from reference import BF16, F32, assert_same_bits, operands
from scripts import PRODUCT, TIMEOUT, run
from small_models import classifier, data

import mpcore
from mpcore import _paths

# --- How many -------------------------------------------------------------------------


@pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="needs affinity masks")
def test_num_threads_follows_the_affinity_mask(tmp_path: Path) -> None:
    code = """
import os
cpus = sorted(os.sched_getaffinity(0))[:{count}]
os.sched_setaffinity(0, cpus)
import mpcore
print(mpcore.get_num_threads(), len(cpus))
"""
    assert run(code.format(count=1), tmp_path).split() == ["1", "1"]
    # A quota of the container may allow fewer than the mask.
    threads, cpus = map(int, run(code.format(count=None), tmp_path).split())
    assert 1 <= threads <= cpus


def test_num_threads_from_the_environment_is_the_default(tmp_path: Path) -> None:
    code = """
import mpcore
print(mpcore.get_num_threads())
mpcore.set_num_threads(1)
mpcore.set_num_threads(0)
print(mpcore.get_num_threads())
"""
    assert run(code, tmp_path, MPCORE_NUM_THREADS="3").split() == ["3", "3"]


@pytest.mark.parametrize("text", ["two", "0", "-1", "2.5", "1025", "9" * 30, "2 3"])
def test_num_threads_malformed_environment_is_an_error_that_names_it(
    text: str, tmp_path: Path
) -> None:
    code = """
import numpy as np
import mpcore

for call in (
    mpcore.get_num_threads,
    mpcore.cpu_info,
    lambda: mpcore.cast(np.ones(3), "float16"),
):
    try:
        call()
    except ValueError as error:
        print(error)
"""
    lines = run(code, tmp_path, MPCORE_NUM_THREADS=text).splitlines()
    assert (
        lines
        == [
            "MPCORE_NUM_THREADS must be an integer in [1, 1024] "
            f"(got MPCORE_NUM_THREADS={text})"
        ]
        * 3
    )


def test_limits_of_openmp_neither_hang_nor_count(tmp_path: Path) -> None:
    code = f"""{PRODUCT}
mpcore.set_num_threads(8)
product()
print(mpcore.get_num_threads())
"""
    printed = run(code, tmp_path, OMP_THREAD_LIMIT="1", OMP_NUM_THREADS="8")
    assert printed.split() == ["8"]


def test_threadpoolctl_lists_and_limits_the_threads() -> None:
    threadpoolctl = pytest.importorskip("threadpoolctl")
    mpcore.set_num_threads(3)
    (entry,) = [
        entry
        for entry in threadpoolctl.threadpool_info()
        if entry["internal_api"] == "mpcore"
    ]
    assert entry["user_api"] == "mpcore"
    assert entry["num_threads"] == 3
    assert entry["version"] == mpcore.__version__
    assert Path(entry["filepath"]).samefile(_paths.lib_dir() / "libmpcore.so.0")

    with threadpoolctl.threadpool_limits(1):
        assert mpcore.get_num_threads() == 1
        with threadpoolctl.threadpool_limits({"mpcore": 2}):
            assert mpcore.get_num_threads() == 2
    assert mpcore.get_num_threads() == 3
    with threadpoolctl.threadpool_limits(1, user_api="blas"):
        assert mpcore.get_num_threads() == 3


def test_threadpoolctl_is_not_needed(tmp_path: Path) -> None:
    code = f"""
import sys
sys.modules["threadpoolctl"] = None
{PRODUCT}
product()
print(mpcore.threads.register_controller())
"""
    assert run(code, tmp_path).split() == ["False"]


# --- Several callers, the interpreter lock, signals -----------------------------------


def in_threads(count: int, body: Callable[[int], None]) -> None:
    """Run body(i) on `count` threads at once; raise the first error of any."""
    errors: list[BaseException] = []
    together = threading.Barrier(count)

    def guarded(i: int) -> None:
        try:
            together.wait(TIMEOUT)
            body(i)
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=guarded, args=(i,)) for i in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(TIMEOUT)
        assert not thread.is_alive()
    if errors:
        raise errors[0]


def test_threads_that_call_at_once_get_the_bits_of_one(num_threads: int) -> None:
    cases = [
        operands(65 + i, 130, 50, dtype) for i, dtype in enumerate([F32, BF16] * 2)
    ]
    expected = [mpcore.matmul(a, b) for a, b in cases]

    def work(i: int) -> None:
        for _ in range(20):
            a, b = cases[i]
            assert_same_bits(mpcore.matmul(a, b), expected[i])
            assert mpcore.all_finite([a, b])
            assert_same_bits(mpcore.cast(a, a.dtype), a)

    in_threads(4, work)


def test_threads_may_change_the_count_while_others_compute() -> None:
    a, b = operands(80, 90, 70, F32)
    expected = mpcore.matmul(a, b)

    def work(i: int) -> None:
        for round_ in range(20):
            if i < 2:
                mpcore.set_num_threads(1 + (i + round_) % 3)
                assert mpcore.get_num_threads() in (1, 2, 3)
            assert_same_bits(mpcore.matmul(a, b), expected)

    in_threads(4, work)


def test_threads_may_change_the_level_while_others_compute() -> None:
    a, b = operands(40, 50, 30, F32)
    levels = mpcore.available_isas()
    expected = mpcore.matmul(a, b)

    def work(i: int) -> None:
        for round_ in range(20):
            if i == 0:
                mpcore.set_isa(levels[round_ % len(levels)])
            assert_same_bits(mpcore.matmul(a, b), expected)

    in_threads(3, work)


def test_other_threads_run_while_a_product_is_in_c() -> None:
    mpcore.set_isa("scalar")  # long enough
    mpcore.set_num_threads(1)
    a, b = operands(900, 900, 900, F32)
    began, ended = threading.Event(), threading.Event()

    def work() -> None:
        began.set()
        mpcore.matmul(a, b)
        ended.set()

    thread = threading.Thread(target=work)
    thread.start()
    began.wait(TIMEOUT)
    # Had the call kept the interpreter lock, this thread would go round a few times
    # before it and not once during it.
    rounds = 0
    while not ended.is_set():
        time.sleep(1e-3)
        rounds += 1
    thread.join()
    assert rounds >= 20


def test_interrupt_stops_fit_at_once_and_leaves_the_model_usable() -> None:
    model = classifier("mixed_float16")
    x, y = data()
    model.fit(x, y, epochs=1, verbose=0)
    sent: list[float] = []

    def interrupt() -> None:
        sent.append(time.perf_counter())
        os.kill(os.getpid(), signal.SIGINT)

    timer = threading.Timer(0.3, interrupt)
    timer.start()
    try:
        with pytest.raises(KeyboardInterrupt):
            model.fit(x, y, epochs=10**6, verbose=0)
    finally:
        timer.cancel()
        timer.join()
    assert time.perf_counter() - sent[0] < 1.0
    first = model.fit(x, y, epochs=20, verbose=0).history["loss"]
    assert np.isfinite(first).all()
    assert first[-1] < first[0]


# --- No runtime of its own ------------------------------------------------------------


def test_binaries_link_no_openmp_runtime() -> None:
    libraries = [_paths.lib_dir() / "libmpcore.so.0"]
    libraries += (_paths.lib_dir().parent / "_core").glob("*.so")
    assert len(libraries) > 5
    for library in libraries:
        needed = subprocess.run(
            ["ldd", library], capture_output=True, text=True, check=True
        ).stdout
        assert "libc.so" in needed
        assert not re.search(r"lib(g|i)?omp|libtbb", needed), (library, needed)


@pytest.mark.parametrize("first", ["mpcore", "sklearn"])
def test_works_before_and_after_scikit_learn(first: str, tmp_path: Path) -> None:
    pytest.importorskip("sklearn")
    parts = {
        "mpcore": PRODUCT + "\nexpected = product().tobytes()\n",
        "sklearn": """
from sklearn.cluster import KMeans
import numpy as np
KMeans(3, n_init=1).fit(np.random.default_rng(0).standard_normal((2000, 8)))
""",
    }
    second = "sklearn" if first == "mpcore" else "mpcore"
    code = parts[first] + parts[second] + parts[first]
    run(code + "\nassert product().tobytes() == expected\n", tmp_path)
