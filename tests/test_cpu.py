"""Levels of this CPU, what the system refuses, the floating-point environment.

Invented CPUs are in csrc/tests/test_dispatch.cpp.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from reference import BF16, F16, F32, assert_same_bits, operands

import mpcore

# What a level needs of the flags in /proc/cpuinfo, over the level before it.
FLAGS = {
    "scalar": set(),
    "avx2": {"avx2", "fma", "f16c"},
    "avx512": {"avx512f", "avx512bw", "avx512dq", "avx512vl", "avx512cd"},
    "avx512_bf16": {"avx512_bf16"},
    "avx512_fp16": {"avx512_fp16"},
    "amx": {"amx_tile", "amx_bf16"},
}

# Puts a small signal stack on the main thread, as some hosts and debuggers do.
SMALL_STACK = """
import ctypes

class Stack(ctypes.Structure):
    _fields_ = [("pointer", ctypes.c_void_p), ("flags", ctypes.c_int),
                ("size", ctypes.c_size_t)]

SS_DISABLE = 2
memory = ctypes.create_string_buffer(8192)
libc = ctypes.CDLL(None, use_errno=True)

def set_stack(flags):
    stack = Stack(ctypes.addressof(memory), flags, 8192)
    assert libc.sigaltstack(ctypes.byref(stack), None) == 0, ctypes.get_errno()
"""


def cpu_flags() -> set[str]:
    try:
        text = Path("/proc/cpuinfo").read_text()
    except OSError:
        pytest.skip("there is no /proc/cpuinfo")
    for line in text.splitlines():
        name, _, value = line.partition(":")
        if name.strip() in {"flags", "Features"}:
            return set(value.split())
    pytest.skip("/proc/cpuinfo lists no flags")


def python(code: str, **environment: str) -> subprocess.CompletedProcess[str]:
    clean = {k: v for k, v in os.environ.items() if not k.startswith("MPCORE_")}
    return subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        timeout=60,
        cwd="/",
        env=clean | environment,
    )


def level(name: str) -> dict[str, object]:
    levels = mpcore.cpu_info()["levels"]
    return next(entry for entry in levels if entry["name"] == name)


# --- Which levels ---------------------------------------------------------------------


def test_levels_match_the_flags_of_the_cpu() -> None:
    """By feature, not by vendor; AMX may be refused on top of that."""
    flags = cpu_flags()
    needed: set[str] = set()
    for entry in mpcore.cpu_info()["levels"]:
        needed |= FLAGS[entry["name"]]
        present = needed <= flags
        if entry["name"] == "amx" and "operating system" in entry["reason"]:
            assert not entry["available"]
            continue
        assert entry["available"] == present, (entry, needed - flags)
        if not present:
            assert entry["reason"].startswith("the CPU lacks ")
            lacking = entry["reason"].removeprefix("the CPU lacks ").lower()
            assert lacking in needed - flags
        else:
            assert entry["reason"] == "available"


def test_default_level_is_the_highest_available() -> None:
    highest = mpcore.available_isas()[-1]
    assert mpcore.cpu_info()["isa"] == mpcore.get_isa() == highest


@pytest.mark.parametrize("use", ["default", "named"])
def test_amx_is_asked_for_when_it_is_to_be_used_not_on_import(use: str) -> None:
    """What is granted shows in the size the kernel demands of signal stacks."""
    if not level("amx")["available"]:
        pytest.skip(f"no AMX here: {level('amx')['reason']}")
    code = f"""{SMALL_STACK}
import numpy as np
import mpcore
if "{use}" == "named":
    mpcore.matmul(*[np.ones((9, 9), "f4")] * 2)
set_stack(0)  # refused once AMX is granted
set_stack(SS_DISABLE)
if "{use}" == "named":
    mpcore.set_isa("amx")
mpcore.matmul(*[np.ones((9, 9), "f4")] * 2)
try:
    set_stack(0)
except AssertionError:
    print("granted")
"""
    below = {"MPCORE_ISA": "avx512_fp16"} if use == "named" else {}
    result = python(code, **below)
    assert result.stdout.split() == ["granted"], result.stderr


def test_amx_refused_for_a_small_signal_stack_says_so_and_falls_back() -> None:
    if not level("amx")["available"]:
        pytest.skip(f"no AMX here: {level('amx')['reason']}")
    code = f"""{SMALL_STACK}
set_stack(0)
import numpy as np
import mpcore

amx = mpcore.cpu_info()["levels"][-1]
assert amx["name"] == "amx" and not amx["available"], amx
assert "signal stack" in amx["reason"], amx
assert "amx" not in mpcore.available_isas()
ones = np.ones((3, 3), np.float32)
assert mpcore.matmul(ones, ones).tolist() == [[3.0] * 3] * 3
assert mpcore.get_isa() == mpcore.available_isas()[-1]
try:
    mpcore.set_isa("amx")
except ValueError as error:
    print(error)
assert mpcore.get_isa() == mpcore.available_isas()[-1]

set_stack(SS_DISABLE)
mpcore.set_isa("amx")
assert mpcore.get_isa() == "amx"
"""
    result = python(code)
    assert result.returncode == 0, result.stderr
    assert "isa=amx cannot be selected here" in result.stdout
    assert "signal stack" in result.stdout
    assert "Available: scalar" in result.stdout


def test_amx_forced_by_the_environment_and_refused_is_an_error() -> None:
    if not level("amx")["available"]:
        pytest.skip(f"no AMX here: {level('amx')['reason']}")
    result = python(
        f"{SMALL_STACK}\nset_stack(0)\nimport mpcore\nmpcore.get_isa()",
        MPCORE_ISA="amx",
    )
    assert result.returncode == 1
    assert "MPCORE_ISA=amx cannot be selected here" in result.stderr
    assert "signal stack" in result.stderr


def test_level_forced_by_the_environment_is_in_force() -> None:
    for name in mpcore.available_isas():
        result = python(
            "import mpcore; print(mpcore.cpu_info()['isa'])", MPCORE_ISA=name
        )
        assert result.stdout.split() == [name], result.stderr


def test_level_that_does_not_exist_is_an_error_that_lists_the_valid() -> None:
    result = python("import mpcore; mpcore.get_isa()", MPCORE_ISA="sse9")
    assert result.returncode == 1
    assert "MPCORE_ISA must be one of scalar" in result.stderr
    assert "MPCORE_ISA=sse9" in result.stderr


@pytest.mark.parametrize("dtype", [F32, BF16], ids=lambda d: d.name)
def test_every_level_gives_the_bits_of_scalar(isa: str, dtype: np.dtype) -> None:
    a, b = operands(37, 65, 21, dtype)
    results = [mpcore.matmul(a, b), mpcore.cast(a, F16), mpcore.cast(a, F32)]
    mpcore.set_isa("scalar")
    for result, expected in zip(
        results,
        [mpcore.matmul(a, b), mpcore.cast(a, F16), mpcore.cast(a, F32)],
        strict=True,
    ):
        assert_same_bits(result, expected)


# --- The floating-point environment ---------------------------------------------------


def test_import_and_use_leave_subnormals_alone() -> None:
    code = """
import sys
import threading
import numpy as np
import mpcore

def kept():
    tiny = np.array([2.0**-140], np.float32)
    return sys.float_info.min / 2 > 0 and bool(np.all(tiny * np.float32(1) > 0))

assert kept()
for name in mpcore.available_isas():
    mpcore.set_isa(name)
    for dtype in ("float32", "float16", "bfloat16"):
        x = mpcore.cast(np.full((300, 300), 1e-20), dtype)
        mpcore.matmul(x, x)
        mpcore.all_finite(x)
    w = np.full(99999, 1e-39, np.float32)
    m, v = w.copy(), w.copy()
    mpcore.ops.adam_step([w], [w.copy()], [None], [(m, v)], learning_rate=0.1, step=1)
    assert kept()
there = []
thread = threading.Thread(target=lambda: (mpcore.matmul(x, x), there.append(kept())))
thread.start()
thread.join()
print(kept() and there == [True])
"""
    result = python(code, MPCORE_NUM_THREADS="2")
    assert result.stdout.split() == ["True"], result.stderr


def test_results_do_not_depend_on_the_mode_the_host_has_set(isa: str) -> None:
    """A host that flushes subnormals gets the same bits, and keeps its mode."""
    code = f"""
import ctypes, mmap, sys
import numpy as np
import mpcore

pages = []

def machine_code(*code):
    page = mmap.mmap(-1, 4096, prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC)
    page.write(bytes(code))
    pages.append(page)
    address = ctypes.addressof(ctypes.c_char.from_buffer(page))
    return ctypes.CFUNCTYPE(None, ctypes.c_void_p)(address)

store = machine_code(0x0F, 0xAE, 0x1F, 0xC3)  # stmxcsr [rdi]; ret
load = machine_code(0x0F, 0xAE, 0x17, 0xC3)  # ldmxcsr [rdi]; ret
word = ctypes.c_uint32()

mpcore.set_isa("{isa}")
a = np.full((40, 40), 1e-30, np.float32)
b = np.full((40, 40), 1e-10, np.float32)
w, g = np.full(999, 1e-39, np.float32), np.full(999, 1e-38, np.float32)

def results():
    p = w.copy()
    mpcore.ops.sgd_step([p], [g], [None], [()], learning_rate=0.125)
    y = mpcore.matmul(a, b), mpcore.cast(w, "bfloat16"), mpcore.cast(a[:1], "float16")
    return b"".join(x.tobytes() for x in (*y, p))

expected = results()
store(ctypes.addressof(word))
found = word.value
for mode in (0x9FC0, 0x5F80, 0x1F80):  # FTZ and DAZ; rounding up; as usual
    word.value = mode
    load(ctypes.addressof(word))
    actual = results()
    store(ctypes.addressof(word))
    left, word.value = word.value, found
    load(ctypes.addressof(word))
    assert actual == expected, hex(mode)
    assert left & 0xFFC0 == mode & 0xFFC0, (hex(mode), hex(left))
print("same")
"""
    if os.uname().machine != "x86_64":
        pytest.skip("the mode is set by x86 instructions")
    for threads in ("1", "2"):
        result = python(code, MPCORE_NUM_THREADS=threads)
        assert result.stdout.split() == ["same"], result.stderr
