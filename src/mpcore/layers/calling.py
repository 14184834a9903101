"""What a layer's call needs to know about its arguments and its surroundings."""

import functools
import inspect
import os
import threading
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

import numpy as np

from mpcore import dtypes, ops
from mpcore.tape import Tensor, unwrap
from mpcore.variable import Variable


class _CallContext(threading.local):
    """Per thread: the `training` argument of the innermost call that has one."""

    training: bool | None = None


call_context = _CallContext()

_building = threading.RLock()


def building() -> AbstractContextManager[bool]:
    """Return the lock under which layers are built: one thread after the other."""
    return _building


def _forget_builders() -> None:
    """Let a forked child build: the thread that was at it is not there."""
    global _building
    _building = threading.RLock()


os.register_at_fork(after_in_child=_forget_builders)


@functools.cache
def training_position(call: Callable[..., Any]) -> int | None:
    """Position of `training` among the parameters of a method, without self."""
    names = list(inspect.signature(call).parameters)[1:]
    return names.index("training") if "training" in names else None


def cast_floating(value: Any, name: str, dtype: np.dtype[Any]) -> Any:
    """Return `value` with its floating arrays cast to `dtype`, called `name`.

    Lists, tuples and dicts of arrays are followed; lists of numbers are arrays. A
    Variable is left as it is, since it is read as the compute dtype anyway; so are
    scalars, which do not promote.
    """
    if isinstance(value, np.ndarray):
        value = unwrap(value)
        actual = value.dtype
        if actual == dtype or not dtypes.is_floating(actual):
            return value
        return ops.cast(value, name)
    if isinstance(value, Tensor):
        if (
            value.dtype == name
            or isinstance(value, Variable)
            or not dtypes.is_floating(value.dtype)
        ):
            return value
        return ops.cast(value, name)
    if isinstance(value, list | tuple):
        if _holds_numbers(value):
            return cast_floating(np.asarray(value), name, dtype)
        items = [cast_floating(item, name, dtype) for item in value]
        return tuple(items) if isinstance(value, tuple) else items
    if isinstance(value, dict):
        return {key: cast_floating(item, name, dtype) for key, item in value.items()}
    if hasattr(value, "__array__") and not isinstance(value, np.generic):
        return cast_floating(np.asarray(value), name, dtype)
    return value


def _holds_numbers(value: list[Any] | tuple[Any, ...]) -> bool:
    """Whether a (nested) list spells out an array."""
    while isinstance(value, list | tuple) and value:
        value = value[0]
    return isinstance(value, bool | int | float | np.generic)


def shape_of(value: Any) -> Any:
    """Return the shape of an array, or the structure of shapes of a structure."""
    if isinstance(value, list | tuple) and not _holds_numbers(value):
        return [shape_of(item) for item in value]
    if isinstance(value, dict):
        return {key: shape_of(item) for key, item in value.items()}
    return tuple(value.shape) if hasattr(value, "shape") else np.shape(value)
