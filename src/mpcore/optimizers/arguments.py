"""Checks of scalar arguments, with one form of message."""

import math
import numbers
from collections.abc import Callable
from functools import partial
from typing import Any, Generic, Self, TypeVar, overload

import numpy as np

T = TypeVar("T")
MAX_INT64 = 2**63 - 1


def _contains(interval: str, value: float) -> bool:
    """Tell whether `value` is in an interval written as "[0, 1)"."""
    low, high = (float(bound) for bound in interval[1:-1].split(","))
    above = value >= low if interval[0] == "[" else value > low
    below = value <= high if interval[-1] == "]" else value < high
    return above and below


def is_real(value: object) -> bool:
    """Tell whether `value` is one real number: Python's, NumPy's, or 0-d."""
    if isinstance(value, bool | np.bool_):
        return False
    if isinstance(value, numbers.Real):
        return True
    # 0-d arrays, Tensors, Variables, and the scalars of ml_dtypes.
    dtype = getattr(value, "dtype", None)
    return getattr(value, "shape", None) == () and str(dtype) not in ("bool", "object")


def real(name: str, value: Any, interval: str = "(-inf, inf)") -> float:
    """Return `value` as a float after checking that it is a number in `interval`.

    Parameters
    ----------
    name : str
        What the argument is called, for the message.
    value : real number
        Python or NumPy scalar, or a 0-d array.
    interval : str, default "(-inf, inf)"
        Such as "[0, 1)". NaN is in no interval.

    Raises
    ------
    TypeError
        If `value` is no real number.
    ValueError
        If it is outside the interval.
    """
    if not is_real(value):
        raise TypeError(f"`{name}` must be a real number. Received: {name}={value!r}")
    try:
        number = float(value)
    except OverflowError:
        number = math.inf
    if not _contains(interval, number):
        rule = "finite" if interval == "(-inf, inf)" else f"in {interval}"
        raise ValueError(f"`{name}` must be {rule}. Received: {name}={value!r}")
    return number


def optional_real(name: str, value: Any, interval: str = "(-inf, inf)") -> float | None:
    """Return None for None, else what `real` returns."""
    return None if value is None else real(name, value, interval)


def choice(name: str, value: Any, choices: tuple[str, ...]) -> None:
    """Check that `value` is one of some words.

    Raises
    ------
    ValueError
        If it is not.
    """
    if value not in choices:
        words = ", ".join(repr(word) for word in choices)
        raise ValueError(f"`{name}` must be one of {words}. Received: {name}={value!r}")


def flag(name: str, value: Any) -> bool:
    """Return `value` as a bool after checking that it is one.

    Raises
    ------
    TypeError
        If it is not; "False" is none, and would count as true.
    """
    if not isinstance(value, bool | np.bool_):
        raise TypeError(f"`{name}` must be True or False. Received: {name}={value!r}")
    return bool(value)


def integer(name: str, value: Any, minimum: int, maximum: int | None = None) -> int:
    """Return `value` as an int after checking that it is one, within bounds.

    Raises
    ------
    ValueError
        If it is not.
    """
    if (
        isinstance(value, bool)
        or not isinstance(value, numbers.Integral)
        or value < minimum
        or (maximum is not None and int(value) > maximum)
    ):
        bounds = f">= {minimum}" if maximum is None else f"in [{minimum}, {maximum}]"
        raise ValueError(
            f"`{name}` must be an integer {bounds}. Received: {name}={value!r}"
        )
    return int(value)


class Argument(Generic[T]):
    """An attribute of a class that is checked whenever it is set.

    Parameters
    ----------
    check : callable
        Given name and value; raises, or returns what is kept.
    """

    def __init__(self, check: Callable[[str, Any], T]) -> None:
        self._check = check

    def __set_name__(self, owner: type, name: str) -> None:
        """Take the name of the attribute."""
        self._name = name

    @overload
    def __get__(self, instance: None, owner: type) -> Self: ...

    @overload
    def __get__(self, instance: object, owner: type) -> T: ...

    def __get__(self, instance: object, owner: type) -> Self | T:
        """Return the value; of the class itself, this object."""
        if instance is None:
            return self
        try:
            value: T = vars(instance)[self._name]
        except KeyError:
            raise AttributeError(f"`{self._name}` has not been set") from None
        return value

    def __set__(self, instance: object, value: Any) -> None:
        """Keep what the check returns."""
        vars(instance)[self._name] = self._check(self._name, value)


class Real(Argument[float]):
    """One that is a real number in an interval, as `real` takes it."""

    def __init__(self, interval: str = "(-inf, inf)") -> None:
        super().__init__(partial(real, interval=interval))


class OptionalReal(Argument[float | None]):
    """The same, or None."""

    def __init__(self, interval: str = "(-inf, inf)") -> None:
        super().__init__(partial(optional_real, interval=interval))


class Integer(Argument[int]):
    """One that is an integer of at least `minimum` that fits 64 bits."""

    def __init__(self, minimum: int) -> None:
        super().__init__(partial(integer, minimum=minimum, maximum=MAX_INT64))


class Flag(Argument[bool]):
    """One that is True or False."""

    def __init__(self) -> None:
        super().__init__(flag)
