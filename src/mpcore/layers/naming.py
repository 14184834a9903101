"""Names of layers: snake case of the class, unique in the process."""

import re
from collections import Counter

_counts: Counter[str] = Counter()


def snake_case(name: str) -> str:
    """Return `name` in snake case: 'BatchNorm' -> 'batch_norm'."""
    name = re.sub(r"(.)([A-Z][a-z]+)", r"\1_\2", name)
    return re.sub(r"([a-z0-9])([A-Z])", r"\1_\2", name).lower()


def numbered(base: str, counts: Counter[str]) -> str:
    """Return 'base', then 'base_1', 'base_2', ... as `counts` goes up."""
    count = counts[base]
    counts[base] += 1
    return f"{base}_{count}" if count else base


def unique_name(cls: type) -> str:
    """Return the next free name for an object of `cls`."""
    return numbered(snake_case(cls.__name__).lstrip("_"), _counts)


def checked_name(name: object) -> str:
    """Return `name` if it can name a layer.

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
