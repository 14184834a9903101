"""docs/api.md lists every public name with the first line of its docstring."""

import inspect
import re
from pathlib import Path
from types import ModuleType

import pytest

import mpcore

PAGE = Path(__file__).parent.parent / "docs" / "api.md"
SHOWN_PARAMETERS = 4

if not PAGE.exists():
    pytest.skip(f"no source tree at {PAGE.parent.parent}", allow_module_level=True)


def public_names(module):
    if hasattr(module, "__all__"):
        return sorted(module.__all__, key=str.lower)
    own = [
        name
        for name, value in vars(module).items()
        if name[0] != "_" and getattr(value, "__module__", None) == module.__name__
    ]
    return sorted(own, key=str.lower)


def public_modules(module):
    yield module
    for name in public_names(module):
        value = getattr(module, name)
        if isinstance(value, ModuleType):
            yield from public_modules(value)


def summary(thing):
    paragraph = inspect.getdoc(thing).split("\n\n")[0]
    return re.sub(r"\s+", " ", paragraph).replace("``", "`")


def signature(thing):
    """The parameters without types, those beyond the first few left out."""
    parameters = [
        parameter.replace(annotation=inspect.Parameter.empty)
        for parameter in inspect.signature(thing).parameters.values()
        if parameter.kind is not inspect.Parameter.VAR_KEYWORD
    ]
    shown = [str(parameter) for parameter in parameters[:SHOWN_PARAMETERS]]
    return ", ".join(shown + ["..."] * (len(parameters) > SHOWN_PARAMETERS))


def lines_of(module):
    yield f"## `{module.__name__}`"
    yield summary(module)
    for name in public_names(module):
        value = getattr(module, name)
        if isinstance(value, str):
            yield f"- `{name}`: a string."
        elif not isinstance(value, ModuleType):
            yield f"- `{name}({signature(value)})`: {summary(value)}"


def test_api_page_lists_every_public_name_with_its_summary():
    text = PAGE.read_text(encoding="utf-8")
    page = [line for line in text[text.index("\n## ") :].splitlines() if line]

    expected = [line for module in public_modules(mpcore) for line in lines_of(module)]
    assert [line for line in expected if line not in page] == []
    assert [line for line in page if line not in expected] == []
    assert page == expected


def test_api_page_knows_the_modules_a_user_needs():
    names = {module.__name__ for module in public_modules(mpcore)}
    needed = {
        "layers",
        "losses",
        "optimizers.schedules",
        "callbacks",
        "mixed_precision",
    }
    assert {f"mpcore.{name}" for name in needed} < names
    assert public_names(mpcore.callbacks)[0] == "Callback"
