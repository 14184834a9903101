"""Where the C library, its headers, and its build-system files are installed."""

from importlib.resources import files
from pathlib import Path


def _inside_package(*parts: str) -> Path:
    # Not relative to this file: an editable install keeps sources and results apart.
    return Path(str(files("mpcore").joinpath(*parts)))


def include_dir() -> Path:
    """Return the directory to put on a C compiler's include path."""
    return _inside_package("include")


def lib_dir() -> Path:
    """Return the directory that holds the C library."""
    return _inside_package("lib")


def cmake_dir() -> Path:
    """Return the directory of the CMake package, a value for `mpcore_DIR`."""
    return _inside_package("lib", "cmake", "mpcore")


def pkgconfig_dir() -> Path:
    """Return the directory of `mpcore.pc`, an entry for `PKG_CONFIG_PATH`."""
    return _inside_package("lib", "pkgconfig")
