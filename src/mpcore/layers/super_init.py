"""What a subclass of Layer hears if its `__init__` forgot that of Layer."""

from collections.abc import Callable
from typing import Any, TypeVar

C = TypeVar("C", bound=type)


class _Missing:
    """Stands on the class for an attribute that instances set in `__init__`."""

    def __get__(self, instance: object, cls: type) -> Any:
        if instance is None:
            return self
        raise RuntimeError(
            f"In layer '{cls.__name__}', you forgot to call `super().__init__()` as "
            "the first statement in the `__init__()` method. Go add it!"
        )


def set_in_init(*names: str) -> Callable[[C], C]:
    """Decorate a class: reading one of these too early is a RuntimeError."""

    def decorate(cls: C) -> C:
        for name in names:
            setattr(cls, name, _Missing())
        return cls

    return decorate
