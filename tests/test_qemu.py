"""The package on CPUs that this machine is not, emulated by QEMU.

The emulator's processor lacks what the newer levels need; a single instruction of them
outside its level ends the process.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from typing import Any

import pytest

QEMU = shutil.which("qemu-x86_64")

if QEMU is None:
    pytest.skip(
        "qemu-x86_64 is not installed (Debian: qemu-user)", allow_module_level=True
    )
if os.uname().machine != "x86_64":
    pytest.skip("this Python is not one for x86-64", allow_module_level=True)

# Casts, products, and a training step of a Dense layer, as bits; and which level.
SCRIPT = """
import hashlib
import json

import numpy as np

import mpcore
from mpcore import layers, losses, optimizers

DTYPES = ("float32", "float16", "bfloat16")
generator = np.random.default_rng(0)
bits = {}

def add(name, *arrays):
    data = b"".join(np.ascontiguousarray(a).tobytes() for a in arrays)
    bits[name] = hashlib.sha256(data).hexdigest()

scales = np.exp2(generator.integers(-30, 20, 3000))
x = (generator.standard_normal(3000) * scales).astype(np.float32)
for dtype in DTYPES:
    half = mpcore.cast(x, dtype)
    add(f"cast {dtype}", half, mpcore.cast(half, "float32"))
    a, b = half[:1200].reshape(30, 40), half[1200:2600].reshape(40, 35)
    add(f"matmul {dtype}", mpcore.matmul(a, b), mpcore.matmul(a, b, "float32"))

for policy in ("float32", "mixed_float16", "mixed_bfloat16"):
    mpcore.set_random_seed(1)
    model = mpcore.Sequential(
        [layers.Dense(19, "relu", dtype=policy), layers.Dense(5, dtype=policy)],
        dtype=policy,
    )
    model.compile(
        optimizer=optimizers.Adam(0.01),
        loss=losses.SparseCategoricalCrossentropy(from_logits=True),
    )
    x = generator.standard_normal((32, 11)).astype(np.float32)
    labels = generator.integers(0, 5, 32)
    loss = model.fit(x, labels, batch_size=16, epochs=1, verbose=0).history["loss"]
    assert np.isfinite(loss).all()
    add(f"train {policy}", *model.get_weights())

info = mpcore.cpu_info()
print(json.dumps({"isa": info["isa"], "levels": info["levels"], "bits": bits}))
"""


def run(*emulator: str, **environment: str) -> dict[str, Any]:
    clean = {k: v for k, v in os.environ.items() if not k.startswith("MPCORE_")}
    result = subprocess.run(
        [*emulator, sys.executable, "-c", SCRIPT],
        capture_output=True,
        text=True,
        timeout=600,
        cwd="/",
        env=clean | environment,
    )
    assert result.returncode == 0, result.stderr[-3000:]
    found: dict[str, Any] = json.loads(result.stdout)
    return found


@pytest.mark.parametrize(
    ("cpu", "level", "lacking"),
    [("Nehalem", "scalar", "AVX2"), ("Haswell", "avx2", "AVX512F")],
)
def test_old_cpu_runs_its_level_with_the_bits_of_this_machine(
    cpu: str, level: str, lacking: str
) -> None:
    assert QEMU is not None
    # Two threads, so that code of the workers is emulated too.
    emulated = run(QEMU, "-cpu", cpu, MPCORE_NUM_THREADS="2")
    assert emulated["isa"] == level
    above = [entry for entry in emulated["levels"] if not entry["available"]]
    assert above[0]["reason"] == f"the CPU lacks {lacking}"
    native = run(MPCORE_ISA="scalar")
    assert native["isa"] == "scalar"
    assert emulated["bits"] == native["bits"]
