"""Variable: a stored value, and a low-precision copy of it that is kept true.

Under autocast a Variable reads as its compute copy, which is made once and then follows
every assignment; the optimizers write it in the pass that updates the value.
"""

import os
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any, Self

import numpy as np

from mpcore import autocast, dtypes, tape
from mpcore.naming import Names, checked_name
from mpcore.ops import arrays
from mpcore.ops.cast import convert

__all__ = ["AGGREGATIONS", "Variable", "name_scope"]

AGGREGATIONS = ("none", "mean", "sum", "only_first_replica", None)

_COPY_DTYPES = ("float16", "bfloat16")

_names = Names()
# Between a thread that makes a compute copy and one that assigns. A fork waits for it,
# so that the child finds it free.
_copies_lock = threading.Lock()
os.register_at_fork(
    before=_copies_lock.acquire,
    after_in_parent=_copies_lock.release,
    after_in_child=_copies_lock.release,
)


class _Scopes(threading.local):
    def __init__(self) -> None:
        self.prefixes: list[str] = []


_SCOPES = _Scopes()


@contextmanager
def name_scope(prefix: str) -> Iterator[None]:
    """Prefix the paths of Variables made inside; scopes nest.

    Parameters
    ----------
    prefix : str
        Non-empty; without "/".
    """
    checked_name(prefix)
    _SCOPES.prefixes.append(prefix)
    try:
        yield
    finally:
        _SCOPES.prefixes.pop()


class Variable(tape.Tensor):
    """A value that training changes.

    Parameters
    ----------
    value : array_like, or callable (shape, dtype) -> array
        The initial value, which is copied; or an initializer, which needs `shape`.
    dtype : str, numpy.dtype, or type, optional
        The dtype to store. Default: that of `value`; `floatx()` for Python floats and
        initializers.
    name : str, optional
        Without "/". Default: a unique "variable", "variable_1", ...
    trainable : bool, default True
    autocast : bool, default True
        Whether reads follow an autocast scope.
    aggregation : {"none", "mean", "sum", "only_first_replica", None}
        How replicas of a distributed run agree on the value.
    regularizer, constraint : callable, optional
    shape : tuple of int, optional
        For an initializer.

    Attributes
    ----------
    value : ndarray
        Read-only. Within ``autocast.scope(d)``, for floating variables, of dtype d.
    dtype : str
        The stored dtype, in and out of scopes.
    gradient_dtype : str
        float32; float64 for float64.
    name, path : str
        The path is the name, after the prefixes of `name_scope`.
    overwrite_with_gradient : bool
        False; True makes optimizers assign the gradient as the value.

    Raises
    ------
    TypeError, ValueError
        If an argument is not valid.

    Examples
    --------
    >>> v = Variable([1.0, 2.0])
    >>> v.assign_add([1.0, 1.0]).numpy().tolist()
    [2.0, 3.0]
    """

    is_variable = True

    def __init__(
        self,
        value: Any,
        dtype: Any = None,
        name: str | None = None,
        trainable: bool = True,
        autocast: bool = True,
        aggregation: str | None = "none",
        regularizer: Callable[..., Any] | None = None,
        constraint: Callable[..., Any] | None = None,
        *,
        shape: tuple[int, ...] | None = None,
    ) -> None:
        if aggregation not in AGGREGATIONS:
            raise ValueError(
                "`aggregation` must be 'none', 'mean', 'sum', 'only_first_replica', or "
                f"None. Received: aggregation={aggregation!r}"
            )
        for role, function in (
            ("regularizer", regularizer),
            ("constraint", constraint),
        ):
            if function is not None and not callable(function):
                raise TypeError(f"`{role}` must be callable. Received: {function!r}")
        if name is not None:
            checked_name(name)
        stored = _initial(value, dtype, shape)
        self._set_stored(stored)
        self.name = name if name is not None else _names.unique("variable")
        self.path = "/".join([*_SCOPES.prefixes, self.name])
        self.trainable = bool(trainable)
        self.autocast = bool(autocast)
        self.aggregation = aggregation
        self.regularizer = regularizer
        self.constraint = constraint
        self.overwrite_with_gradient = False

    def _set_stored(self, stored: np.ndarray) -> None:
        super().__init__(stored)
        self.version = 0
        self._dtype = dtypes.canonical(stored.dtype)
        self._floating = dtypes.is_floating(self._dtype)
        self._view = _read_only(stored)
        self._copy: np.ndarray | None = None
        self._copy_dtype: str | None = None
        self._copy_view: np.ndarray | None = None

    @property
    def value(self) -> np.ndarray:
        """The value, read-only; in the dtype of the autocast scope."""
        target = autocast.current()
        if target is None or target == self._dtype:
            return self._view
        copy = self._copy_view
        if copy is not None and target == self._copy_dtype and self.autocast:
            return copy
        return self._read_as(target)

    def _read_as(self, target: str) -> np.ndarray:
        """Return the value in another dtype, and keep a copy that is a half."""
        if not (self.autocast and self._floating and dtypes.is_floating(target)):
            return self._view
        with _copies_lock:
            copy = convert(self._value, dtypes.numpy_dtype(target))
            view = _read_only(copy)
            if target in _COPY_DTYPES:
                self._copy, self._copy_dtype, self._copy_view = copy, target, view
        return view

    @property
    def stored(self) -> np.ndarray:
        """The writable array itself; for optimizers.

        Who writes to it also writes `compute_copy`, if there is one. Asking for it
        counts as a write: a tape does not go back through earlier reads.
        """
        self.version += 1
        return self._value

    @property
    def compute_copy(self) -> np.ndarray | None:
        """The writable float16 or bfloat16 copy, once an autocast scope has read it.

        A read in the other half dtype replaces it: ask for it on every step.
        """
        return self._copy

    @property
    def dtype(self) -> str:
        """Name of the stored dtype."""
        return self._dtype

    @property
    def gradient_dtype(self) -> str:
        """Name of the dtype of gradients: float32; float64 for float64."""
        return dtypes.gradient_dtype(self._dtype)

    def numpy(self) -> np.ndarray:
        """Return a copy of the stored value."""
        return self._value.copy()

    def assign(self, value: Any) -> Self:
        """Replace the stored value.

        Parameters
        ----------
        value : array_like
            Of exactly this shape. It is rounded once to the stored dtype; an integer
            variable takes only what it can represent.

        Returns
        -------
        Variable
            This one.

        Raises
        ------
        ValueError
            If the shape differs, or an integer variable cannot hold the value.
        """
        return self._write(self.fitting(value))

    def assign_add(self, value: Any) -> Self:
        """Add to the stored value, in full precision; see `assign`."""
        return self._combine(np.add, value)

    def assign_sub(self, value: Any) -> Self:
        """Subtract from the stored value, in full precision; see `assign`."""
        return self._combine(np.subtract, value)

    def _combine(self, operation: np.ufunc, value: Any) -> Self:
        half = self._dtype in _COPY_DTYPES
        work = arrays.F32 if half else self._value.dtype
        operand = self._fitting(value, work)
        own = convert(self._value, work) if half else self._value
        with np.errstate(all="ignore"):
            result = operation(own, operand, out=arrays.empty(own.shape, work))
        return self._write(result)

    def fitting(self, value: Any) -> np.ndarray:
        """Return what `assign` would store, or raise what it would raise."""
        return self._fitting(value, self._value.dtype)

    def _fitting(self, value: Any, dtype: np.dtype) -> np.ndarray:
        """Return the value as an array of this shape in a dtype to compute in."""
        if isinstance(value, Variable):
            array = value._view
        else:
            array = tape.unwrap(value)
        if array.shape != self._value.shape:
            raise ValueError(
                f"The value of {self.name!r} must have shape {self._value.shape}. "
                f"Received: shape={array.shape}"
            )
        return _converted(array, dtype)

    def _write(self, array: np.ndarray) -> Self:
        with _copies_lock:
            if array.dtype == self._value.dtype:
                np.copyto(self._value, array)
            else:
                convert(array, self._value.dtype, out=self._value)
            self.version += 1
            if self._copy is not None:
                convert(self._value, self._copy.dtype, out=self._copy)
        return self

    def __reduce__(self) -> tuple[Any, ...]:
        """Copy and pickle by value: the copy is a variable of its own."""
        state = {
            "name": self.name,
            "path": self.path,
            "trainable": self.trainable,
            "autocast": self.autocast,
            "aggregation": self.aggregation,
            "regularizer": self.regularizer,
            "constraint": self.constraint,
            "overwrite_with_gradient": self.overwrite_with_gradient,
        }
        return _restore, (type(self), self._value, state)

    def __repr__(self) -> str:
        """Show path, shape, dtype, and value."""
        return (
            f"<Variable {self.path!r} shape={self.shape} dtype={self._dtype} "
            f"value={self._view}>"
        )


def stored_arrays(variables: Iterable[Variable]) -> list[np.ndarray]:
    """Return `stored` of many; who writes to them calls `note_writes`."""
    return [variable._value for variable in variables]


def compute_copies(variables: Iterable[Variable]) -> list[np.ndarray | None]:
    """Return `compute_copy` of many."""
    return [variable._copy for variable in variables]


def note_writes(variables: Iterable[Variable]) -> None:
    """Count a write to each, as `stored` does."""
    for variable in variables:
        variable.version += 1


def _restore(cls: type[Variable], value: np.ndarray, state: dict[str, Any]) -> Variable:
    variable = cls.__new__(cls)
    variable._set_stored(_initial(value, None, None))
    for name, item in state.items():
        setattr(variable, name, item)
    return variable


def _read_only(array: np.ndarray) -> np.ndarray:
    view = array.view()
    view.flags.writeable = False
    return view


def _initial(value: Any, dtype: Any, shape: tuple[int, ...] | None) -> np.ndarray:
    """Return the first value in an array of the variable's own."""
    if callable(value) and not isinstance(value, tape.Tensor):
        if shape is None:
            raise ValueError("`shape` is needed with an initializer. Received: None")
        name = dtypes.floatx() if dtype is None else dtypes.canonical(dtype)
        array = tape.unwrap(value(tuple(shape), dtype=name))
        if array.shape != tuple(shape):
            raise ValueError(
                f"The initializer must return shape {tuple(shape)}. Received: "
                f"shape={array.shape}"
            )
        dtype = name
    elif isinstance(value, Variable):
        array = value._view
    elif dtype is None:
        array = arrays.as_array(value)
    else:
        array = tape.unwrap(value)
    if shape is not None and array.shape != tuple(shape):
        raise ValueError(
            f"`shape` must be that of the value, {array.shape}. Received: shape={shape}"
        )
    target = dtypes.numpy_dtype(dtypes.of_array(array) if dtype is None else dtype)
    stored = arrays.empty(array.shape, target)
    np.copyto(stored, _converted(array, target))
    return stored


def _converted(array: np.ndarray, dtype: np.dtype) -> np.ndarray:
    """Return the array in a dtype: rounded once to a floating one, else exactly."""
    if array.dtype == dtype:
        return array
    dtypes.of_array(array)
    if dtypes.is_floating(dtype):
        return convert(array, dtype)
    with np.errstate(all="ignore"):
        exact = array.astype(dtype)
    if not np.array_equal(exact, array):
        raise ValueError(
            f"A variable of dtype {dtype.name} takes only what it can represent. "
            f"Received: {array}"
        )
    return exact
