"""Whom mpcore is compared with: is it here, is it whole, how is it told its threads."""

import importlib.util
import os
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from typing import Any

from mpcore import ops
from mpcore.bench import blas, onednn
from mpcore.bench.libraries import foreign


def _nothing(threads: int) -> int | None:
    return None


def _torch(threads: int) -> int | None:
    torch = foreign("torch")

    if torch.version.debug:
        raise Refused("torch is a debug build")
    torch.set_num_threads(threads)
    return int(torch.get_num_threads())


def _jax(threads: int) -> int | None:
    # Its pool has a thread for each CPU that the process may use.
    jax = foreign("jax")

    jax.devices()
    return len(os.sched_getaffinity(0))


def _keras(threads: int) -> int | None:
    keras = foreign("keras")

    if keras.backend.backend() == "torch":
        return _torch(threads)
    return _jax(threads) if keras.backend.backend() == "jax" else None


def _openblas(threads: int) -> int | None:
    return int(blas.openblas().scipy_openblas_get_num_threads64_())


def _mkl(threads: int) -> int | None:
    return int(blas.mkl().MKL_Get_Max_Threads())


def _onednn(threads: int) -> int | None:
    onednn.library()
    return None  # Its OpenMP runtime is asked instead.


def _mpcore(threads: int) -> int | None:
    ops.set_num_threads(threads)
    return ops.get_num_threads()


class Refused(Exception):
    """A peer is here, but a comparison with it would not be fair; says why."""


@dataclass(frozen=True)
class Peer:
    """How one implementation is found and set up.

    Attributes
    ----------
    distribution : str
        What is installed, and whose version is reported.
    start : callable
        In its own process: loads it, sets the number of threads, and returns how many
        it says it has, or None if it cannot tell.
    module : str, optional
        What must be importable; None: its files are enough.
    few_cpus : bool
        The number of threads is set by the CPUs the process may use.
    crippling : tuple of str
        Environment variables that hold it back.
    """

    distribution: str
    start: Callable[[int], int | None]
    module: str | None = None
    few_cpus: bool = False
    crippling: tuple[str, ...] = ()


_OPENBLAS = ("OPENBLAS_CORETYPE", "OPENBLAS_L2_SIZE", "OPENBLAS_VERBOSE")
_NUMPY = (*_OPENBLAS, "NPY_DISABLE_CPU_FEATURES")
_ONEDNN = ("ONEDNN_MAX_CPU_ISA", "DNNL_MAX_CPU_ISA")
_MKL = ("MKL_CBWR", "MKL_ENABLE_INSTRUCTIONS", "MKL_DEBUG_CPU_TYPE")
_TORCH = ("ATEN_CPU_CAPABILITY", *_ONEDNN, *_MKL)
_JAX = ("JAX_DISABLE_JIT", "XLA_FLAGS")

PEERS: Mapping[str, Peer] = {
    "mpcore": Peer("mpcore", _mpcore),
    "limits": Peer("mpcore", _mpcore),
    "numpy": Peer("numpy", _nothing, crippling=_NUMPY),
    "ml_dtypes": Peer("ml_dtypes", _nothing, crippling=_NUMPY),
    "torch": Peer("torch", _torch, "torch", crippling=_TORCH),
    "mkl": Peer("mkl", _mkl, crippling=_MKL),
    "onednn": Peer("onednn-cpu-gomp", _onednn, crippling=_ONEDNN),
    "openblas": Peer("numpy", _openblas, crippling=_OPENBLAS),
    "jax": Peer("jax", _jax, "jax", few_cpus=True, crippling=_JAX),
    "keras": Peer("keras", _keras, "keras", few_cpus=True, crippling=_JAX),
    "deepspeed": Peer("deepspeed", _torch, "deepspeed", crippling=_TORCH),
}
"""By name."""

OWN = ("mpcore", "limits")
"""This package itself: always here, installed or not."""

_THREAD_VARIABLES = (
    *("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"),
    *("NUMEXPR_NUM_THREADS", "MPCORE_NUM_THREADS"),
)


def environment(threads: int) -> dict[str, str]:
    """Return the environment of a process that may use so many threads."""
    own = {name: str(threads) for name in _THREAD_VARIABLES}
    # Idle threads of OpenMP that spin would take the CPU from the next process.
    own |= {"OMP_WAIT_POLICY": "PASSIVE", "TF_CPP_MIN_LOG_LEVEL": "3"}
    own |= {"MKL_DYNAMIC": "FALSE", "OMP_DYNAMIC": "FALSE"}
    if "KERAS_BACKEND" not in os.environ:
        has_jax = importlib.util.find_spec("jax") is not None
        own["KERAS_BACKEND"] = "jax" if has_jax else "torch"
    return {**os.environ, **own, "PYTHONUNBUFFERED": "1"}


def absence(name: str) -> str | None:
    """Say why a peer cannot take part, or None if it seems it can."""
    peer = PEERS[name]
    if name in OWN:
        return None
    try:
        version(peer.distribution)
    except PackageNotFoundError:
        return f"not installed ({peer.distribution})"
    if peer.module is not None and importlib.util.find_spec(peer.module) is None:
        return f"not installed ({peer.module})"
    for variable in peer.crippling:
        if variable in os.environ:
            return f"refused: {variable}={os.environ[variable]} holds it back"
    return None


def start(name: str, threads: int) -> dict[str, Any]:
    """Load a peer into this process and return its version and thread count.

    Raises
    ------
    Refused
        If it is a debug build, or has another number of threads.
    """
    peer = PEERS[name]
    if hasattr(sys, "gettotalrefcount"):
        raise Refused("Python is a debug build")
    if peer.few_cpus:
        allowed = sorted(os.sched_getaffinity(0))
        os.sched_setaffinity(0, allowed[:threads])
    found = peer.start(threads)
    counts = {peer.distribution: found} if found is not None else {}
    counts |= _pool_sizes()
    wrong = {library: n for library, n in counts.items() if n != threads}
    if wrong:
        listed = ", ".join(f"{library} {n}" for library, n in wrong.items())
        raise Refused(f"it must run {threads} thread(s), but has: {listed}")
    own = name in OWN
    found_version = ops.version() if own else version(peer.distribution)
    return {"version": found_version, "threads": threads}


def _pool_sizes() -> dict[str, int]:
    """Return the size of each thread pool of this process, as threadpoolctl sees it."""
    try:
        pools = foreign("threadpoolctl").threadpool_info()
    except ModuleNotFoundError:
        return {}
    return {pool["internal_api"]: int(pool["num_threads"]) for pool in pools}
