"""What is in the installed package, and what importing it does to the process."""

from __future__ import annotations

import re
import subprocess
import sys
import sysconfig
from importlib.metadata import distribution, version
from pathlib import Path

import pytest

import mpcore
from mpcore import _paths
from mpcore._core import runtime

GOLDEN = Path(__file__).parent / "golden"
CORE_MODULES = (
    *("adapt", "cast", "gemm", "grad", "limits", "nn", "nn_attention", "nn_conv"),
    *("nn_norm", "optim", "runtime"),
)
HEADERS = ("base", "cast", "gemm", "grad", "limits", "mpcore", "nn", "optim")
DIRECTORY_OPTIONS = {
    "--includedir": "mpcore/mpcore.h",
    "--libdir": "libmpcore.so.0",
    "--cmakedir": "mpcoreConfig.cmake",
    "--pkgconfigdir": "mpcore.pc",
}


def package_files() -> list[str]:
    files = distribution("mpcore").files
    assert files is not None
    return [
        file.as_posix().removeprefix("mpcore/")
        for file in files
        if file.parts[0] == "mpcore" and "__pycache__" not in file.parts
    ]


def run_python(code: str, *args: str) -> str:
    """Run code in a new interpreter, away from the source tree."""
    return subprocess.run(
        [sys.executable, "-c", code, *args],
        check=True,
        capture_output=True,
        text=True,
        cwd="/",
    ).stdout


def test_package_version_has_one_home() -> None:
    config = (_paths.cmake_dir() / "mpcoreConfigVersion.cmake").read_text()
    pc = (_paths.pkgconfig_dir() / "mpcore.pc").read_text()

    assert version("mpcore") == runtime.version() == mpcore.__version__
    assert f'set(PACKAGE_VERSION "{runtime.version()}")' in config
    assert f"Version: {runtime.version()}\n" in pc


def test_wheel_holds_core_modules_with_stubs() -> None:
    free_threaded = bool(sysconfig.get_config_var("Py_GIL_DISABLED"))
    suffix = sysconfig.get_config_var("EXT_SUFFIX") if free_threaded else ".abi3.so"
    modules = {f for f in package_files() if f.startswith("_core/")}

    assert modules == {
        "_core/__init__.py",
        *(f"_core/{name}{suffix}" for name in CORE_MODULES),
        *(f"_core/{name}.pyi" for name in CORE_MODULES),
    }
    assert "py.typed" in package_files()


def test_wheel_holds_what_c_users_need() -> None:
    files = set(package_files())
    headers = {f for f in files if f.startswith("include/")}

    assert headers == {f"include/mpcore/{name}.h" for name in HEADERS}
    assert {
        "lib/cmake/mpcore/mpcoreConfig.cmake",
        "lib/cmake/mpcore/mpcoreConfigVersion.cmake",
        "lib/cmake/mpcore/mpcoreTargets.cmake",
        "lib/pkgconfig/mpcore.pc",
        "bin/mpcore_bench",
        "bench/schema.json",
    } <= files


def test_wheel_library_is_there_once() -> None:
    names = [f for f in package_files() if "libmpcore" in f]
    binaries = [
        name
        for name in names
        if (_paths.lib_dir().parent / name).read_bytes().startswith(b"\x7fELF")
    ]

    assert sorted(names) == ["lib/libmpcore.so", "lib/libmpcore.so.0"]
    assert binaries == ["lib/libmpcore.so.0"]
    linker_script = (_paths.lib_dir() / "libmpcore.so").read_text()
    assert linker_script == "INPUT ( libmpcore.so.0 )\n"


def test_process_has_one_instance_of_the_library() -> None:
    code = """
import ctypes, sys
import mpcore
ctypes.CDLL(sys.argv[1])
with open("/proc/self/maps") as maps:
    mapped = {line.split()[-1] for line in maps if "libmpcore" in line}
print(*mapped, sep="\\n")
"""
    library = str(_paths.lib_dir() / "libmpcore.so.0")

    mapped = run_python(code, library).splitlines()

    assert [Path(path).resolve() for path in mapped] == [Path(library).resolve()]


@pytest.mark.parametrize("option", DIRECTORY_OPTIONS)
def test_command_line_directory_option_prints_a_directory_that_exists(
    option: str,
) -> None:
    command = [sys.executable, "-m", "mpcore", option]
    printed = subprocess.run(
        command, check=True, capture_output=True, text=True, cwd="/"
    ).stdout

    assert (Path(printed.rstrip("\n")) / DIRECTORY_OPTIONS[option]).is_file()


def test_library_exported_symbols_equal_golden_list() -> None:
    library = _paths.lib_dir() / "libmpcore.so.0"
    try:
        table = subprocess.run(
            ["nm", "--dynamic", "--defined-only", "--with-symbol-versions", library],
            check=True,
            capture_output=True,
            text=True,
        ).stdout
    except FileNotFoundError:
        pytest.skip("nm (binutils) is not installed")
    symbols = [line.split()[-1] for line in table.splitlines()]
    golden = (GOLDEN / "symbols.txt").read_text().split()

    functions = sorted(s for s in symbols if not s.startswith("MPCORE_"))
    assert functions == [f"{name}@@MPCORE_0" for name in golden]


def test_headers_declare_the_golden_symbols() -> None:
    declared = set()
    for header in (_paths.include_dir() / "mpcore").glob("*.h"):
        declared |= set(
            re.findall(r"MPCORE_API [^;()]*?\b(mpcore_\w+)\(", header.read_text())
        )

    assert sorted(declared) == (GOLDEN / "symbols.txt").read_text().split()


def test_core_stubs_match_the_modules() -> None:
    pytest.importorskip("mypy", reason="stubtest comes with mypy")
    command = [sys.executable, "-m", "mypy.stubtest", "mpcore._core"]
    allowlist = GOLDEN / "stubtest_allowlist.txt"

    result = subprocess.run(
        [*command, "--allowlist", allowlist],
        check=False,
        capture_output=True,
        text=True,
        cwd="/",
    )

    assert result.returncode == 0, result.stdout + result.stderr


def test_pkgconf_finds_the_library_through_the_entry_point() -> None:
    pytest.importorskip("pkgconf", reason="PyPI's pkgconf reads the entry point")
    command = [sys.executable, "-m", "pkgconf", "--variable=libdir", "mpcore"]
    printed = subprocess.run(
        command, check=True, capture_output=True, text=True, cwd="/"
    ).stdout

    assert Path(printed.strip()).resolve() == _paths.lib_dir().resolve()
