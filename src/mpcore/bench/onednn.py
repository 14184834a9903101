"""Matrix products of oneDNN (v3), through its C interface."""

import ctypes
from collections.abc import Callable

import numpy as np

from mpcore.bench.libraries import pointer, shared_library
from mpcore.bench.problem import Problem
from mpcore.bench.suite import Unsupported

_DTYPES = {"f16": 1, "bf16": 2, "f32": 3}
_CPU = 1
_SOURCE, _DESTINATION, _WEIGHTS = 1, 17, 33


class _Argument(ctypes.Structure):
    _fields_ = (("argument", ctypes.c_int), ("memory", ctypes.c_void_p))


def library() -> ctypes.CDLL:
    """Load oneDNN."""
    return shared_library("onednn-cpu-gomp", "libdnnl.so*")


def _checked(status: int, what: str) -> None:
    if status != 0:
        raise Unsupported(f"oneDNN: {what} returned status {status}")


def _made(dnnl: ctypes.CDLL, function: str, *arguments: object) -> ctypes.c_void_p:
    """Return what a `create` function puts into its first argument."""
    result = ctypes.c_void_p()
    _checked(getattr(dnnl, function)(ctypes.byref(result), *arguments), function)
    return result


def product(
    problem: Problem, a: np.ndarray, b: np.ndarray, d: np.ndarray
) -> Callable[[], object]:
    """Return d = a b by a matmul primitive, made once."""
    dnnl = library()
    engine = _made(dnnl, "dnnl_engine_create", _CPU, ctypes.c_size_t(0))
    stream = _made(dnnl, "dnnl_stream_create", engine, 1)

    def description(array: np.ndarray, dtype: str) -> ctypes.c_void_p:
        dims = (ctypes.c_int64 * 12)(*array.shape)
        strides = (ctypes.c_int64 * 12)(array.shape[1], 1)
        function = "dnnl_memory_desc_create_with_strides"
        return _made(dnnl, function, 2, dims, _DTYPES[dtype], strides)

    arrays = (a, b, d)
    dtypes = (problem["dtype"], problem["dtype"], problem["out"])
    descriptions = [description(x, t) for x, t in zip(arrays, dtypes, strict=True)]
    wanted = _made(
        dnnl,
        "dnnl_matmul_primitive_desc_create",
        *(engine, descriptions[0], descriptions[1], None, descriptions[2], None),
    )
    primitive = _made(dnnl, "dnnl_primitive_create", wanted)
    arguments = (_Argument * 3)(
        *(
            _Argument(slot, _made(dnnl, "dnnl_memory_create", text, engine, pointer(x)))
            for slot, text, x in zip(
                (_SOURCE, _WEIGHTS, _DESTINATION), descriptions, arrays, strict=True
            )
        )
    )

    def run() -> None:
        status = dnnl.dnnl_primitive_execute(primitive, stream, 3, arguments)
        _checked(status, "dnnl_primitive_execute")
        dnnl.dnnl_stream_wait(stream)

    return run
