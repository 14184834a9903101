"""The scope that says in which dtype Variables are read.

A layer opens the scope for the time of its call; Variables look it up on every read.
Each thread has its own. This file knows no other module of the package.
"""

import threading
from types import TracebackType

__all__ = ["current", "scope"]


class _Current(threading.local):
    dtype: str | None = None


_CURRENT = _Current()


def current() -> str | None:
    """Return the dtype of the innermost scope of this thread; None: no casting."""
    return _CURRENT.dtype


class scope:
    """Context manager within which Variables are read as `dtype`.

    Scopes nest, and the outer one is restored also after an exception.

    Parameters
    ----------
    dtype : str or None
        Name of a dtype. None, or one that is not floating, switches casting off inside.

    Raises
    ------
    TypeError
        If `dtype` is neither a str nor None.
    """

    __slots__ = ("_dtype", "_outer")

    def __init__(self, dtype: str | None) -> None:
        if dtype is not None and not isinstance(dtype, str):
            raise TypeError(
                f"`dtype` must be the name of a dtype or None. Received: {dtype!r}"
            )
        self._dtype = dtype
        self._outer: list[str | None] = []

    def __enter__(self) -> None:
        """Enter the scope."""
        self._outer.append(_CURRENT.dtype)
        _CURRENT.dtype = self._dtype

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Restore what was in force before."""
        _CURRENT.dtype = self._outer.pop()
