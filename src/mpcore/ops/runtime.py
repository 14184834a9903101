"""Threads, ISA levels, and memory of the core."""

from typing import Any

from mpcore._core import gemm as _gemm
from mpcore._core import runtime as _runtime
from mpcore.dtypes import numpy_dtype

_COLUMNS = ("cast", "gemm", "nn", "grad", "optim")  # In the order of the C codes.
_NOTED = ("float32", "float16", "bfloat16")


def version() -> str:
    """Return the version of the core, which is that of the package."""
    return _runtime.version()


def build_info() -> dict[str, str]:
    """Return ``compiler``, build ``type``, ``flags``, and ``commit`` of the core."""
    return _runtime.build_info()


def get_isa() -> str:
    """Return the name of the ISA level the kernels use."""
    return _runtime.get_isa()


def set_isa(name: str | None) -> None:
    """Force the kernels to use an ISA level.

    Parameters
    ----------
    name : str or None
        One of `available_isas()`. None: the default again, which is ``MPCORE_ISA``, or
        the highest level this CPU can run.

    Raises
    ------
    TypeError
        If it is neither a str nor None.
    ValueError
        If there is no such level, or this CPU lacks it; the message lists valid ones.
    """
    if name is not None and not isinstance(name, str):
        raise TypeError(f"`name` must be a str or None. Received: name={name!r}")
    _runtime.set_isa(name)


def available_isas() -> list[str]:
    """Return the names of the ISA levels this CPU can run, lowest first."""
    return [name for name, available, _ in _runtime.isa_levels() if available]


def get_num_threads() -> int:
    """Return how many threads a kernel may use, the calling one included."""
    return _runtime.get_num_threads()


def set_num_threads(num_threads: int) -> None:
    """Set how many threads a kernel may use.

    Parameters
    ----------
    num_threads : int
        At least 1; or 0 for the default: ``MPCORE_NUM_THREADS``, else the CPUs this
        process may use.

    Raises
    ------
    TypeError, ValueError
        If it is no integer, or negative.
    """
    if isinstance(num_threads, bool) or not hasattr(num_threads, "__index__"):
        raise TypeError(
            f"`num_threads` must be an integer. Received: num_threads={num_threads!r}"
        )
    if not 0 <= num_threads < 2**31:
        raise ValueError(
            f"`num_threads` must be >= 0. Received: num_threads={num_threads}"
        )
    _runtime.set_num_threads(num_threads)


_PRECISIONS = ("highest", "high", "medium")


def get_float32_matmul_precision() -> str:
    """Return how float32 products may be computed: 'highest', 'high', or 'medium'."""
    return _PRECISIONS[_gemm.get_float32_matmul_precision() - 1]


def set_float32_matmul_precision(precision: str) -> None:
    """Set how float32 products may be computed.

    Parameters
    ----------
    precision : {"highest", "high", "medium"}
        "highest", the default: float32 products in one chain of additions, the same
        bits on every ISA level. "high": at least each operand as a sum of three
        bfloat16. "medium": at least each operand rounded to bfloat16.

    Raises
    ------
    TypeError, ValueError
        If it is none of these.

    Notes
    -----
    A permission, not a demand: a level that gains nothing by it computes the float32
    chain whatever is asked, so results are never less exact than asked. Sums are
    float32 always.
    """
    if not isinstance(precision, str):
        raise TypeError(f"`precision` must be a str. Received: precision={precision!r}")
    if precision not in _PRECISIONS:
        raise ValueError(
            "`precision` must be 'highest', 'high', or 'medium'. "
            f"Received: precision={precision!r}"
        )
    _gemm.set_float32_matmul_precision(_PRECISIONS.index(precision) + 1)


def cpu_info() -> dict[str, Any]:
    """Describe the CPU and what of it is used.

    Returns
    -------
    dict
        ``name`` of the CPU, ``isa`` in use, ``num_threads``, ``version`` of the core,
        and ``levels``: a list of ``{"name", "available", "reason"}``, lowest first.
        The reason is ``"available"``, or the first thing the CPU lacks, or why the
        operating system does not let it be used.

    Notes
    -----
    Whether AMX is available is known only by asking the operating system for it, so
    this asks. It refuses while a thread has a small signal stack; once it has granted
    AMX, signal stacks of this process must be larger.
    """
    return {
        "name": _runtime.cpu_name(),
        "isa": _runtime.get_isa(),
        "num_threads": _runtime.get_num_threads(),
        "version": _runtime.version(),
        "levels": [
            {"name": name, "available": available, "reason": reason}
            for name, available, reason in _runtime.isa_levels()
        ],
    }


def kernel_notes() -> dict[str, dict[str, str]]:
    """Say in words which kernel each column uses for each dtype, at the level in force.

    Returns
    -------
    dict
        By column (``"cast"``, ``"gemm"``, ``"nn"``, ``"grad"``, ``"optim"``) and dtype
        (``"float32"``, ``"float16"``, ``"bfloat16"``).
    """
    return {
        column: {name: _runtime.kernel_note(code, numpy_dtype(name)) for name in _NOTED}
        for code, column in enumerate(_COLUMNS)
    }


def memory_info() -> dict[str, int]:
    """Return the state of the buffer pool, which holds the results of kernels.

    Returns
    -------
    dict
        Bytes: ``in_use`` by arrays that are alive; ``cached``, freed and kept for the
        next array; and the ``limit`` of ``cached``: an eighth of the memory this
        process may use, 1 GiB at most.
    """
    return _runtime.buffer_info()


def trim_memory() -> None:
    """Give all cached memory back to the system; arrays that are alive stay."""
    _runtime.buffer_trim()
