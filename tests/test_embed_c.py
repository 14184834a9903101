"""A C program finds the installed library, by either build system, and trains."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from mpcore import _paths

EXAMPLE = Path(__file__).parent.parent / "examples" / "embed_c"


def need_program(*names: str) -> str:
    """Path of the first program that is installed; skip if none is."""
    beside_python = str(Path(sys.executable).parent)
    for name in names:
        path = shutil.which(name, path=beside_python) or shutil.which(name)
        if path:
            return path
    pytest.skip(f"none of these programs is installed: {', '.join(names)}")


def run(command: list[str | Path], cwd: Path, **environment: str) -> str:
    result = subprocess.run(
        command,
        check=False,
        capture_output=True,
        text=True,
        cwd=cwd,
        env={**os.environ, **environment},
    )
    assert result.returncode == 0, result.stdout + result.stderr
    return result.stdout


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    if not EXAMPLE.is_dir():
        pytest.skip(f"the example is not beside the tests: {EXAMPLE}")
    need_program("cc")
    copy = tmp_path_factory.mktemp("embed") / "embed_c"
    shutil.copytree(EXAMPLE, copy)
    return copy


@pytest.fixture(scope="module")
def built_with_cmake(source: Path) -> Path:
    cmake = need_program("cmake")
    generator = ["-G", "Ninja", f"-DCMAKE_MAKE_PROGRAM={need_program('ninja')}"]
    find = f"-Dmpcore_DIR={_paths.cmake_dir()}"
    run([cmake, "-B", "build", *generator, find], source)
    run([cmake, "--build", "build"], source)
    return source / "build" / "train"


@pytest.fixture(scope="module")
def built_with_make(source: Path) -> Path:
    make, pkg_config = need_program("make"), need_program("pkg-config", "pkgconf")
    warnings = "-std=c99 -O2 -Wall -Wextra -Wpedantic -Werror"
    run(
        [make, f"PKG_CONFIG={pkg_config}", f"CFLAGS={warnings}"],
        source,
        PKG_CONFIG_PATH=str(_paths.pkgconfig_dir()),
    )
    return source / "train"


@pytest.mark.parametrize("build", ["cmake", "make"])
@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_c_program_trains_to_the_bound(
    build: str, dtype: str, request: pytest.FixtureRequest
) -> None:
    program = request.getfixturevalue(f"built_with_{build}")

    output = run([program, dtype], Path("/"))

    losses = [float(x) for x in re.findall(r"loss (\d\.\d+)", output)]
    accuracy = re.search(rf"{dtype}  accuracy (\d\.\d+)", output)
    assert len(losses) == 4
    assert losses[-1] < 0.1 < losses[0]
    assert accuracy is not None
    assert float(accuracy[1]) >= 0.95


@pytest.mark.parametrize(
    ("way", "programs"), [("find_package", ["cmake"]), ("pkg-config", ["pkg-config"])]
)
def test_readme_commands_build_and_train(
    way: str, programs: list[str], source: Path, tmp_path: Path
) -> None:
    for program in ("bash", "make", *programs):
        need_program(program)
    text = (source / "README.md").read_text(encoding="utf-8")
    (commands,) = re.findall(rf"<!-- ci:{way} -->\n```sh\n(.*?)```", text, re.DOTALL)
    assert len(commands.splitlines()) == 3
    shutil.copytree(source, tmp_path / "copy", ignore=lambda *_: ["build", "train"])
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"

    output = run(["bash", "-euc", commands], tmp_path / "copy", PATH=path)

    assert re.search(r"^bfloat16  accuracy ", output, re.MULTILINE)


def test_makefile_says_what_to_set_if_pkg_config_finds_nothing(source: Path) -> None:
    make = need_program("make")
    result = subprocess.run(
        [make, "-B", "PKG_CONFIG=false"],
        check=False,
        capture_output=True,
        text=True,
        cwd=source,
    )
    assert result.returncode == 2
    assert "'false --libs mpcore' finds nothing" in result.stderr
    assert 'export PKG_CONFIG_PATH="$(mpcore --pkgconfigdir)"' in result.stderr
    assert result.stdout == ""
    run([make, "--dry-run", "clean", "PKG_CONFIG=false"], source)


def test_c_program_unknown_dtype_is_an_error(built_with_cmake: Path) -> None:
    result = subprocess.run(
        [built_with_cmake, "float8"], check=False, capture_output=True, text=True
    )

    assert result.returncode == 2
    assert "usage" in result.stderr
