"""Forked children, and processes of multiprocessing, compute."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from scripts import PRODUCT, run


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_forked_child_computes_after_the_parent_used_threads(
    tmp_path: Path,
) -> None:
    code = f"""{PRODUCT}
mpcore.set_num_threads(2)
expected = product().tobytes()
for _ in range(3):
    child = os.fork()
    if child == 0:
        same = product().tobytes() == expected and mpcore.get_num_threads() == 2
        grandchild = os.fork()
        if grandchild == 0:
            os._exit(0 if product().tobytes() == expected else 1)
        os._exit(0 if same and os.waitpid(grandchild, 0)[1] == 0 else 1)
    assert os.waitpid(child, 0)[1] == 0
    assert product().tobytes() == expected
"""
    run(code, tmp_path)


@pytest.mark.parametrize("method", ["fork", "spawn", "forkserver"])
def test_multiprocessing_computes_after_threads_were_used(
    method: str, tmp_path: Path
) -> None:
    code = f"""{PRODUCT}
import multiprocessing

def work(_):
    return product().tobytes()

if __name__ == "__main__":
    mpcore.set_num_threads(2)
    expected = product().tobytes()
    with multiprocessing.get_context("{method}").Pool(2) as pool:
        assert pool.map(work, range(4)) == [expected] * 4
    assert product().tobytes() == expected
"""
    run(code, tmp_path)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_fork_while_another_thread_computes(tmp_path: Path) -> None:
    code = f"""{PRODUCT}
import threading

mpcore.set_num_threads(2)
expected = product().tobytes()
stop = threading.Event()

def loop():
    while not stop.is_set():
        product()

busy = threading.Thread(target=loop)
busy.start()
for _ in range(5):
    child = os.fork()
    if child == 0:
        os._exit(0 if product().tobytes() == expected else 1)
    assert os.waitpid(child, 0)[1] == 0
stop.set()
busy.join()
"""
    run(code, tmp_path)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
@pytest.mark.parametrize(
    "held", ["variable._copies_lock", "random._lock", "naming._lock"]
)
def test_forked_child_finds_locks_free_that_another_thread_held(
    held: str, tmp_path: Path
) -> None:
    code = f"""
import os
import signal
import threading
import time
import mpcore
from mpcore import naming, random, variable

weights = mpcore.Variable([1.0])
taken = threading.Event()

def hold():
    with {held}:
        taken.set()
        time.sleep(0.2)

threading.Thread(target=hold).start()
taken.wait()
child = os.fork()
if child == 0:
    signal.alarm(10)
    weights.assign([2.0])
    mpcore.random.generator()
    mpcore.Variable([3.0])
    os._exit(0)
assert os.waitpid(child, 0)[1] == 0
"""
    run(code, tmp_path)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_forked_child_builds_a_layer_while_another_thread_builds_one(
    tmp_path: Path,
) -> None:
    code = """
import os
import signal
import threading
import numpy as np
import mpcore

inside, forked = threading.Event(), threading.Event()
x = np.ones((2, 3), np.float32)

class Slow(mpcore.layers.Layer):
    def build(self, shape):
        inside.set()
        assert forked.wait(10)

    def call(self, x):
        return x

builder = threading.Thread(target=Slow(), args=(x,))
builder.start()
inside.wait()
child = os.fork()
if child == 0:
    signal.alarm(10)
    os._exit(0 if mpcore.layers.Dense(2)(x).shape == (2, 2) else 1)
assert os.waitpid(child, 0)[1] == 0
forked.set()
builder.join()
"""
    run(code, tmp_path)
