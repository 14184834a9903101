"""The Python of README and quick start runs; the commands are where CI looks."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from mpcore import train

ROOT = Path(__file__).parent.parent
PAGES = ("README.md", "docs/quickstart.md")

if not (ROOT / "README.md").exists():
    pytest.skip(f"no source tree at {ROOT}", allow_module_level=True)


def blocks(page, language):
    text = (ROOT / page).read_text(encoding="utf-8")
    return re.findall(rf"^```{language}\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)


def run(script, *arguments, directory):
    return subprocess.run(
        [sys.executable, "-W", "error", script, *arguments],
        capture_output=True,
        text=True,
        cwd=directory,
        timeout=300,
    )


@pytest.mark.parametrize("page", PAGES)
def test_page_python_blocks_run_in_order(page, tmp_path):
    pytest.importorskip("sklearn")
    found = blocks(page, "python")
    assert len(found) >= 2
    script = tmp_path / "page.py"
    script.write_text("\n".join(found), encoding="utf-8")
    result = run(script, directory=tmp_path)
    assert result.returncode == 0, result.stderr
    assert list(tmp_path.glob("*.safetensors"))


@pytest.mark.parametrize("policy", train.POLICIES)
def test_example_digits_runs_under_each_policy(policy, tmp_path):
    pytest.importorskip("sklearn")
    result = run(ROOT / "examples" / "digits.py", policy, directory=tmp_path)
    assert result.returncode == 0, result.stderr
    last = result.stdout.splitlines()[-1]
    accuracy = re.fullmatch(
        rf"{policy}: test loss [\d.]+, test accuracy ([\d.]+)%", last
    )
    assert float(accuracy[1]) > 90


@pytest.mark.parametrize(
    ("mark", "holds"), [("main", "mpcore train"), ("test", "pytest")]
)
def test_readme_commands_stand_behind_their_marks(mark, holds):
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    (command,) = re.findall(
        rf"^<!-- ci:{mark} -->\n```bash\n(.*?)^```$", text, re.MULTILINE | re.DOTALL
    )
    assert command.rstrip().endswith(holds)
    assert len(command.splitlines()) == 1


@pytest.mark.parametrize(
    "page",
    [
        *PAGES,
        "CONTRIBUTING.md",
        "docs/add_a_layer.md",
        "docs/api.md",
        "docs/architecture.md",
        "docs/benchmarks.md",
        "docs/numerics.md",
        "benchmarks/README.md",
        "examples/embed_c/README.md",
    ],
)
def test_page_links_and_files_exist(page):
    path = ROOT / page
    text = path.read_text(encoding="utf-8")
    for target in re.findall(r"\]\(([^)#:]+)\)", text):
        assert (path.parent / target).exists(), target


def test_architecture_grid_names_files_that_exist():
    text = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| \*\*\w+\*\* \|(.+)\|$", text, re.MULTILINE)
    assert len(rows) == 6
    folders = (
        "csrc/include/mpcore",
        "csrc",
        "csrc",
        "src/mpcore",
        "src/mpcore",
        "tests",
    )
    for row in rows:
        names = re.findall(r"`([^`]+)`", row)
        for folder, name in zip(folders, names, strict=True):
            assert (ROOT / folder / name).exists(), f"{folder}/{name}"
