"""Who may know whom, and where special things may stand. Read from the source tree."""

from __future__ import annotations

import ast
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
CSRC = ROOT / "csrc"
PACKAGE = ROOT / "src" / "mpcore"

if not (CSRC.is_dir() and PACKAGE.is_dir()):
    pytest.skip(f"no source tree at {ROOT}", allow_module_level=True)

LEAVES = {"dtypes", "serialization", "tape", "autocast", "random", "naming"}
ROUND_VARIABLE = LEAVES | {"ops", "variable", "indexed_slices"}
LAYER_PARTS = {
    "mixed_precision.policy",
    "initializers",
    "regularizers",
    "constraints",
}
BELOW_MODELS = {
    "layers",
    "losses",
    "metrics",
    "optimizers",
    "mixed_precision.loss_scale_optimizer",
    "callbacks",
}
MODELS = ROUND_VARIABLE | LAYER_PARTS | BELOW_MODELS

# Python: a unit of src/mpcore (module or package) and the other units it may import.
PYTHON_ARROWS = {
    "autocast": set(),
    "dtypes": set(),
    "random": set(),
    "naming": set(),
    "serialization": set(),
    "tape": {"dtypes"},  # What is floating, and in which dtype its gradient is.
    "indexed_slices": {"dtypes", "tape"},
    "_core": set(),
    "_paths": set(),
    "ops": LEAVES | {"_core", "indexed_slices"},
    "variable": LEAVES | {"ops"},
    "optimizers": ROUND_VARIABLE,
    "mixed_precision.policy": ROUND_VARIABLE,
    "mixed_precision.loss_scale_optimizer": ROUND_VARIABLE | {"optimizers"},
    "mixed_precision": {
        "mixed_precision.policy",
        "mixed_precision.loss_scale_optimizer",
    },
    "initializers": ROUND_VARIABLE,
    "regularizers": ROUND_VARIABLE,
    "constraints": ROUND_VARIABLE,
    "layers": ROUND_VARIABLE | LAYER_PARTS,
    "losses": LEAVES | {"ops"},
    "metrics": LEAVES | {"ops"},
    "callbacks": LEAVES,
    "datasets": {"random"},
    "threads": {"ops"},
    "models": MODELS,
    "train": MODELS | {"datasets", "models"},
    "info": {"ops"},
    # Layers, losses, and models only inside the suite that trains.
    "bench": {"info", "ops", "random", "optimizers", "layers", "losses", "models"}
    | {"mixed_precision.loss_scale_optimizer"},
    "cli": MODELS | {"_paths", "datasets", "models", "train", "info", "bench"},
    "__main__": {"cli"},
    "__init__": MODELS | {"models", "mixed_precision", "datasets", "threads"},
}

# C++: a folder of csrc and what of the others it includes (a folder, or one header).
CPP_ARROWS = {
    "include": set(),
    # The contract that both sides share.
    "kernels": {"include", "dispatch/kernel_table.h"},
    "isa": {"kernels", "dispatch/tile_kernels.h"},
    # It knows the tables of isa by name alone.
    "dispatch": {"include"},
    # A context holds the table of its level.
    "runtime": {"include", "dispatch/kernel_table.h", "dispatch/dispatch.h"},
    "api": {"include", "runtime", "dispatch"},
}
SOURCE_SUFFIXES = {".py", ".pyi", ".pyx", ".pxd", ".c", ".cpp", ".h", ".sh"}


def without_comments(path: Path) -> str:
    text = path.read_text(encoding="utf-8")
    return re.sub(r"//[^\n]*|/\*.*?\*/", "", text, flags=re.DOTALL)


def unit_of(module: str) -> str:
    """The unit of PYTHON_ARROWS that mpcore.<module> belongs to."""
    parts = module.split(".")
    if parts[0] == "mixed_precision" and len(parts) > 1:
        return ".".join(parts[:2])
    return parts[0]


def module_of(path: Path) -> str:
    parts = path.relative_to(PACKAGE).with_suffix("").parts
    return ".".join(parts[:-1] if len(parts) > 1 and parts[-1] == "__init__" else parts)


def is_module(name: str) -> bool:
    path = PACKAGE.parent.joinpath(*name.split("."))
    return path.is_dir() or any(
        path.with_suffix(suffix).exists() for suffix in (".py", ".pyx")
    )


def imported_modules(path: Path) -> Iterator[str]:
    """Modules of mpcore that a file imports, without the leading "mpcore."."""
    package = ["mpcore", *path.relative_to(PACKAGE).parent.parts]
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        found = []
        if isinstance(node, ast.Import):
            found = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            above = package[: len(package) - node.level + 1] if node.level else []
            base = ".".join(above + ([node.module] if node.module else []))
            names = [f"{base}.{alias.name}" for alias in node.names]
            found = [name if is_module(name) else base for name in names]
        for name in found:
            if name.partition(".")[0] == "mpcore":
                yield name.removeprefix("mpcore").removeprefix(".") or "__init__"


def python_files() -> list[Path]:
    return sorted(PACKAGE.rglob("*.py"))


def cpp_files(*folders: str) -> list[Path]:
    return sorted(
        path
        for folder in folders or CPP_ARROWS
        for path in (CSRC / folder).rglob("*")
        if path.suffix in {".h", ".cpp"}
    )


def relative(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


@pytest.mark.parametrize("path", python_files(), ids=relative)
def test_python_module_imports_only_what_it_may_know(path: Path) -> None:
    unit = unit_of(module_of(path))
    assert unit in PYTHON_ARROWS, f"{unit} has no line in PYTHON_ARROWS"

    known = {unit_of(module) for module in imported_modules(path)}

    assert known - PYTHON_ARROWS[unit] - {unit} == set()


def test_python_arrows_have_no_cycle() -> None:
    order: list[str] = []
    while len(order) < len(PYTHON_ARROWS):
        ready = [
            unit
            for unit, known in PYTHON_ARROWS.items()
            if unit not in order and known <= set(order)
        ]
        assert ready, sorted(set(PYTHON_ARROWS) - set(order))
        order += ready


def foreign_includes(path: Path) -> Iterator[tuple[str, str]]:
    """Headers of other folders that a file includes, each with its folder."""
    for name in re.findall(r'#include "([^"]+)"', path.read_text(encoding="utf-8")):
        target = "include" if name.startswith("mpcore/") else name.partition("/")[0]
        if target != path.relative_to(CSRC).parts[0]:
            yield name, target


@pytest.mark.parametrize("path", cpp_files(), ids=relative)
def test_cpp_file_includes_only_what_it_may_know(path: Path) -> None:
    known = CPP_ARROWS[path.relative_to(CSRC).parts[0]]

    foreign = {n for n, target in foreign_includes(path) if not {n, target} & known}

    assert foreign == set()


@pytest.mark.parametrize("folder", CPP_ARROWS)
def test_cpp_arrows_are_all_in_use(folder: str) -> None:
    used = {x for path in cpp_files(folder) for x in foreign_includes(path)}

    assert CPP_ARROWS[folder] - {x for pair in used for x in pair} == set()


def test_cpp_arrows_are_those_of_the_documentation() -> None:
    text = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
    drawn = re.findall(r"^(\w+) +-> (.+)$", text, re.MULTILINE)

    assert {name: set(known.split(", ")) for name, known in drawn} == {
        name: known for name, known in CPP_ARROWS.items() if known
    }


def build_files() -> list[Path]:
    names = ["CMakeLists.txt", "CMakePresets.json", "pyproject.toml", ".ci/run"]
    found = [ROOT / name for name in names if (ROOT / name).exists()]
    for folder in ("cmake", "csrc", "examples", "benchmarks", "tests"):
        for pattern in ("CMakeLists.txt", "*.cmake", "*.cmake.in", "Makefile"):
            found += (ROOT / folder).rglob(pattern)
    return found


def test_build_only_csrc_names_machine_flags() -> None:
    flag = re.compile(r"-m(avx|fma|f16c|amx|sse|arch|tune|cpu)")

    naming = {relative(path) for path in build_files() if flag.search(path.read_text())}

    assert naming == {"csrc/CMakeLists.txt"}


def test_build_has_no_flag_that_changes_results() -> None:
    forbidden = re.compile(
        r"-ffast-math|-Ofast|-funsafe-math|-march=native|-mtune=native|-flto"
        r"|INTERPROCEDURAL_OPTIMIZATION\s+(?!OFF)"
    )

    naming = {relative(p) for p in build_files() if forbidden.search(p.read_text())}

    assert naming == set()
    assert "-ffp-contract=off" in (CSRC / "CMakeLists.txt").read_text()


def test_cpp_only_cpu_cpp_asks_the_cpu() -> None:
    asks = re.compile(r"cpuid|xgetbv|__builtin_cpu_supports|arch_prctl", re.IGNORECASE)

    asking = {relative(p) for p in cpp_files() if asks.search(without_comments(p))}

    assert asking == {"csrc/dispatch/cpu.cpp"}


def test_cpp_no_intrinsics_in_api_and_runtime() -> None:
    intrinsic = re.compile(r"\w*intrin\.h|arm_neon\.h|\b_mm\d*_\w+|\b__m\d+\w*")

    using = {
        relative(path)
        for path in cpp_files("api", "runtime", "dispatch")
        if intrinsic.search(without_comments(path))
    }

    # MXCSR is read and written by intrinsics; there is no other portable way.
    assert using <= {"csrc/runtime/fpenv.cpp", "csrc/dispatch/cpu.cpp"}


def test_cpp_kernels_know_no_stl_allocation_or_threads() -> None:
    header = re.compile(
        r"#include <(?!std(int|def)\.h|string\.h|\w*intrin\.h|arm_)\S+>"
    )

    including = {
        f"{relative(path)}: {match[0]}"
        for path in cpp_files("kernels", "isa")
        for match in header.finditer(path.read_text(encoding="utf-8"))
    }

    assert including == set()


@pytest.fixture(scope="module")
def isa_objects(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """The object file of each ISA unit, compiled as in the wheel."""
    programs = {}
    for name in ("cmake", "ninja", "nm"):
        beside_python = shutil.which(name, path=str(Path(sys.executable).parent))
        programs[name] = beside_python or shutil.which(name)
        if programs[name] is None:
            pytest.skip(f"{name} is not installed")
    build = tmp_path_factory.mktemp("isa")
    make_program = f"-DCMAKE_MAKE_PROGRAM={programs['ninja']}"
    configure = ["-G", "Ninja", "-DCMAKE_BUILD_TYPE=Release", make_program]
    names = [path.name for path in sorted((CSRC / "isa").glob("*.cpp"))]
    objects = [f"csrc/CMakeFiles/mpcore_objects.dir/isa/{name}.o" for name in names]
    for command in (
        [programs["cmake"], "-S", ROOT, "-B", build, *configure],
        [programs["ninja"], "-C", build, *objects],
    ):
        result = subprocess.run(command, check=False, capture_output=True, text=True)
        assert result.returncode == 0, result.stdout + result.stderr
    return {name: build / obj for name, obj in zip(names, objects, strict=True)}


def test_isa_unit_exports_exactly_one_symbol(isa_objects: dict[str, Path]) -> None:
    exported = {}
    for name, path in isa_objects.items():
        table = subprocess.run(
            ["nm", "-C", "--defined-only", path],
            check=True,
            capture_output=True,
            text=True,
        ).stdout
        # Capitals are external symbols; u, v, w (any case) are weak or unique ones,
        # which the linker would share with units for older CPUs.
        exported[name] = re.findall(r"^\w+ ([A-Zuvw]) (.+)$", table, re.MULTILINE)

    assert isa_objects
    for name, symbols in exported.items():
        assert len(symbols) == 1, f"{name}: {symbols}"
        kind, symbol = symbols[0]
        assert kind in {"R", "D"}
        assert re.fullmatch(r"mpcore::k\w+Table", symbol)


def source_files() -> list[Path]:
    folders = ("csrc", "src", "tests", "benchmarks", "examples")
    return [
        path
        for folder in folders
        for path in sorted((ROOT / folder).rglob("*"))
        if path.suffix in SOURCE_SUFFIXES
    ]


def test_source_files_have_at_most_400_lines() -> None:
    lengths = {
        relative(path): len(path.read_text(encoding="utf-8").splitlines())
        for path in source_files()
    }

    assert len(lengths) > 50
    assert {name: n for name, n in lengths.items() if n > 400} == {}


def test_source_files_have_no_catch_all_names() -> None:
    catch_all = {"utils", "util", "helpers", "helper", "misc", "common"}

    assert [relative(p) for p in source_files() if p.stem in catch_all] == []
