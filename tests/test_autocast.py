"""The autocast scope."""

from __future__ import annotations

import threading

import pytest

from mpcore import autocast


def test_scope_nests_and_restores() -> None:
    assert autocast.current() is None
    with autocast.scope("float16"):
        with autocast.scope(None):
            assert autocast.current() is None
        with autocast.scope("bfloat16"):
            assert autocast.current() == "bfloat16"
        assert autocast.current() == "float16"
    assert autocast.current() is None


def test_scope_restores_after_an_exception() -> None:
    with pytest.raises(KeyError), autocast.scope("float16"):
        raise KeyError
    assert autocast.current() is None


def test_scope_object_can_be_entered_twice() -> None:
    scope = autocast.scope("float16")
    with scope, autocast.scope("bfloat16"):
        with scope:
            assert autocast.current() == "float16"
        assert autocast.current() == "bfloat16"
    assert autocast.current() is None


def test_scope_belongs_to_its_thread() -> None:
    seen = []
    with autocast.scope("float16"):
        thread = threading.Thread(target=lambda: seen.append(autocast.current()))
        thread.start()
        thread.join()
    assert seen == [None]


@pytest.mark.parametrize("dtype", [16, b"float16", float])
def test_scope_of_what_is_no_name_raises(dtype: object) -> None:
    with pytest.raises(TypeError, match="`dtype` must be the name"):
        autocast.scope(dtype)
