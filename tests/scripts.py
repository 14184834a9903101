"""Scripts that tests run in processes of their own."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

TIMEOUT = 60

# What a script may start with: a product that several threads share.
PRODUCT = """
import os
import numpy as np
import mpcore

def product():
    a = np.random.default_rng(0).standard_normal((600, 600)).astype(np.float32)
    return mpcore.matmul(a, a)
"""


def run(code: str, tmp_path: Path, **environment: str) -> str:
    """Run a script in a process of its own and return what it printed."""
    script = tmp_path / "script.py"
    script.write_text(code)
    clean = {
        k: v for k, v in os.environ.items() if not k.startswith(("MPCORE_", "OMP"))
    }
    result = subprocess.run(
        [sys.executable, "-W", "ignore", script],
        capture_output=True,
        text=True,
        timeout=TIMEOUT,
        cwd=tmp_path,
        env=clean | environment,
    )
    assert result.returncode == 0, result.stdout + result.stderr
    return result.stdout
