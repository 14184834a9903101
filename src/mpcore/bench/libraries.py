"""How arrays of NumPy get into other libraries, and libraries that have no Python API.

Nothing here is imported before an implementation asks for it.
"""

import ctypes
from importlib import import_module
from importlib.metadata import PackageNotFoundError, files
from pathlib import Path
from typing import Any

import numpy as np

from mpcore.bench.suite import Unsupported


def foreign(name: str) -> Any:
    """Return a module that need not be installed, by name."""
    return import_module(name)


def torch_tensor(array: np.ndarray) -> Any:
    """Return a torch tensor over the same memory."""
    torch = foreign("torch")
    kind = getattr(torch, array.dtype.name)
    flat = torch.frombuffer(array.reshape(-1).view(np.uint8), dtype=kind)
    return flat.reshape(array.shape)


def jax_array(array: np.ndarray) -> Any:
    """Return a JAX array with the same values."""
    return foreign("jax").device_put(array)


def shared_library(distribution: str, pattern: str) -> ctypes.CDLL:
    """Load a shared library that an installed distribution brings.

    Raises
    ------
    Unsupported
        If the distribution is not installed, or has no such library.
    """
    try:
        found = [f for f in files(distribution) or [] if f.match(pattern)]
    except PackageNotFoundError:
        raise Unsupported(f"{distribution} is not installed") from None
    if not found:
        raise Unsupported(f"{distribution} has no {pattern}")
    path = min((Path(str(f.locate())) for f in found), key=lambda p: len(p.name))
    return ctypes.CDLL(str(path.resolve()), mode=ctypes.RTLD_GLOBAL)


def pointer(array: np.ndarray) -> ctypes.c_void_p:
    """Return the address of an array."""
    return ctypes.c_void_p(array.ctypes.data)
