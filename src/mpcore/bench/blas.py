"""Matrix products of MKL and OpenBLAS, through their C interfaces."""

import ctypes
from collections.abc import Callable
from typing import Any

import numpy as np

from mpcore.bench.libraries import pointer, shared_library
from mpcore.bench.problem import Problem
from mpcore.bench.suite import Unsupported

_ROW_MAJOR, _NO_TRANSPOSE = 101, 111

_MKL_FUNCTIONS = {
    ("f32", "f32"): "cblas_sgemm",
    ("bf16", "f32"): "cblas_gemm_bf16bf16f32",
    # Accumulates in float32; cblas_hgemm is faster because it does not.
    ("f16", "f32"): "cblas_gemm_f16f16f32",
}


def mkl() -> ctypes.CDLL:
    """Load MKL."""
    return shared_library("mkl", "libmkl_rt.so*")


def openblas() -> ctypes.CDLL:
    """Load the OpenBLAS that NumPy brings."""
    return shared_library("numpy", "libscipy_openblas64_*.so*")


def mkl_product(
    problem: Problem, a: np.ndarray, b: np.ndarray, d: np.ndarray
) -> Callable[[], object]:
    """Return d = a b by MKL."""
    name = _MKL_FUNCTIONS.get((problem["dtype"], problem["out"]))
    if name is None:
        raise Unsupported("MKL's products with float32 sums give float32")
    return _product(getattr(mkl(), name), ctypes.c_int, a, b, d)


def openblas_product(
    problem: Problem, a: np.ndarray, b: np.ndarray, d: np.ndarray
) -> Callable[[], object]:
    """Return d = a b by OpenBLAS."""
    if (problem["dtype"], problem["out"]) != ("f32", "f32"):
        raise Unsupported("NumPy's OpenBLAS multiplies float32 and float64")
    function = openblas().scipy_cblas_sgemm64_
    return _product(function, ctypes.c_int64, a, b, d)


def _product(
    function: Any, index: Any, a: np.ndarray, b: np.ndarray, d: np.ndarray
) -> Callable[[], object]:
    function.restype = None
    (m, k), n = a.shape, b.shape[1]
    arguments = (
        *(ctypes.c_int(_ROW_MAJOR), ctypes.c_int(_NO_TRANSPOSE)),
        *(ctypes.c_int(_NO_TRANSPOSE), index(m), index(n), index(k)),
        *(ctypes.c_float(1.0), pointer(a), index(k), pointer(b), index(n)),
        *(ctypes.c_float(0.0), pointer(d), index(n)),
    )
    return lambda: function(*arguments)
