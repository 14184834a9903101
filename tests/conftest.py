"""What all tests share: the header, ISA levels, thread counts, global state."""

from __future__ import annotations

import os
from collections.abc import Iterator
from importlib.util import find_spec

import pytest

from mpcore import dtypes, random
from mpcore._core import gemm, runtime
from mpcore.mixed_precision import policy

ISA_LEVELS = runtime.isa_levels()
EXTRAS = ("sklearn", "scipy", "keras", "jax", "matplotlib", "hypothesis", "mypy")


def required_levels() -> set[str]:
    """Levels that must be tested here, from MPCORE_REQUIRE_ISA (comma-separated)."""
    names = os.environ.get("MPCORE_REQUIRE_ISA", "").replace(",", " ").split()
    unknown = set(names) - {name for name, _, _ in ISA_LEVELS}
    if unknown:
        known = ", ".join(name for name, _, _ in ISA_LEVELS)
        raise pytest.UsageError(
            f"MPCORE_REQUIRE_ISA must name levels of this build: {known}. "
            f"Received: {', '.join(sorted(unknown))}"
        )
    return set(names)


def pytest_report_header(config: pytest.Config) -> list[str]:
    required_levels()  # a misspelt level fails the run at once
    lines = [f"mpcore {runtime.version()} on {runtime.cpu_name()}"]
    run = [name for name, available, _ in ISA_LEVELS if available]
    lines.append(
        f"ISA levels that run: {', '.join(run)} (default: {runtime.get_isa()})"
    )
    lines += [
        f"ISA level skipped: {name} ({reason})"
        for name, available, reason in ISA_LEVELS
        if not available
    ]
    present = [name for name in EXTRAS if find_spec(name)]
    absent = [name for name in EXTRAS if not find_spec(name)]
    lines.append(f"extras present: {', '.join(present) or 'none'}")
    lines.append(f"extras absent, their tests skip: {', '.join(absent) or 'none'}")
    return lines


@pytest.fixture(autouse=True)
def _restore_global_state() -> Iterator[None]:
    """Go back to the defaults of the core, floatx, and policy; keep the seed."""
    floatx, seed = dtypes.floatx(), random.get_state()
    yield
    runtime.set_isa(None)
    runtime.set_num_threads(0)
    gemm.set_float32_matmul_precision(1)
    dtypes.set_floatx(floatx)
    policy.set_global_policy(None)
    random.set_state(seed)


@pytest.fixture(params=[name for name, _, _ in ISA_LEVELS])
def isa(request: pytest.FixtureRequest) -> str:
    """Run the test at each level of this build; the name of the level in force."""
    name = request.param
    _, available, reason = next(level for level in ISA_LEVELS if level[0] == name)
    if not available:
        message = f"this CPU cannot run {name}: {reason}"
        if name in required_levels():
            pytest.fail(message)
        pytest.skip(message)
    runtime.set_isa(name)
    return name


@pytest.fixture(params=[1, 2], ids=["threads1", "threads2"])
def num_threads(request: pytest.FixtureRequest) -> int:
    """Run the test with one thread and with two."""
    runtime.set_num_threads(request.param)
    return request.param
