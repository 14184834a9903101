"""The examples in docstrings give what they say."""

import doctest
import importlib
import pkgutil

import pytest

import mpcore

MODULES = [
    name
    for _, name, _ in pkgutil.walk_packages(mpcore.__path__, "mpcore.")
    if "._core" not in name and not name.endswith("__main__")
]


@pytest.mark.parametrize("name", MODULES)
def test_doctest_examples_of_a_module_give_what_they_say(name):
    failed, _ = doctest.testmod(importlib.import_module(name))
    assert failed == 0


def test_doctest_there_are_examples():
    finder = doctest.DocTestFinder()
    modules = [importlib.import_module(name) for name in MODULES]
    tests = [test for module in modules for test in finder.find(module)]
    assert sum(bool(test.examples) for test in tests) > 10
