"""Names of variables, layers, and optimizers."""

import os
import re
import threading
from collections import Counter

_lock = threading.Lock()
os.register_at_fork(  # The child finds it free.
    before=_lock.acquire, after_in_parent=_lock.release, after_in_child=_lock.release
)


def snake_case(name: str) -> str:
    """Return `name` in snake case: 'BatchNorm' -> 'batch_norm', 'SGD' -> 'sgd'."""
    name = re.sub(r"(.)([A-Z][a-z]+)", r"\1_\2", name)
    return re.sub(r"([a-z0-9])([A-Z])", r"\1_\2", name).lower()


def numbered(base: str, counts: Counter[str]) -> str:
    """Return 'base', then 'base_1', 'base_2', ... as `counts` goes up."""
    count = counts[base]
    counts[base] += 1
    return f"{base}_{count}" if count else base


class Names:
    """Names of one kind of object, each given out once in the process."""

    def __init__(self) -> None:
        self._counts: Counter[str] = Counter()

    def unique(self, base: str) -> str:
        """Return the next free name that begins with `base`."""
        with _lock:
            return numbered(base, self._counts)

    def of_class(self, cls: type) -> str:
        """Return the next free name for an object of a class."""
        return self.unique(snake_case(cls.__name__).lstrip("_"))


def checked_name(name: object) -> str:
    """Return `name` if it can be part of a path.

    Raises
    ------
    TypeError
        If it is no string.
    ValueError
        If it is empty or holds the path separator.
    """
    if not isinstance(name, str):
        raise TypeError(f"`name` must be a string. Received: name={name!r}")
    if not name or "/" in name:
        raise ValueError(
            f"`name` must not be empty nor hold '/'. Received: name={name!r}"
        )
    return name
