"""The layer of docs/add_a_layer.md runs as it stands there."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

PAGE = Path(__file__).parent.parent / "docs" / "add_a_layer.md"

if not PAGE.exists():
    pytest.skip(f"no source tree at {PAGE.parent.parent}", allow_module_level=True)


def test_add_a_layer_page_runs() -> None:
    text = PAGE.read_text(encoding="utf-8")
    (block,) = re.findall(r"^```python\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    assert block.count("assert") == 2
    exec(compile(block, PAGE, "exec"), {"__name__": "page"})


def test_add_a_layer_page_fits_on_one() -> None:
    assert len(PAGE.read_text(encoding="utf-8").splitlines()) <= 90
