"""Variables an optimizer owns: made and listed."""

from collections.abc import Callable, Iterable, Sequence
from typing import Any, overload

import numpy as np

from mpcore import dtypes, serialization
from mpcore.naming import Names
from mpcore.variable import Variable, name_scope

# A name, or a callable of (shape, dtype).
Initializer = str | Callable[..., Any]

_NAMES = Names()


def constant(value: float) -> Initializer:
    """Return an initializer that fills with one value."""
    return lambda shape, dtype=None: np.full(shape, value)


def _initializer(identifier: Initializer) -> Callable[..., Any]:
    """Return an initializer given as such or by name."""
    if callable(identifier):
        return identifier
    # Through the registry: optimizers and initializers do not know each other.
    made: Callable[..., Any] = serialization.lookup("initializers", identifier)()
    return made


class SlotOwner:
    """Owns variables, in the order in which they were made.

    A Variable set as an attribute becomes one of them.
    """

    name: str
    # Ordered, and keyed by identity: Variables do not compare by value.
    _variables: dict[Variable, None]

    def __init__(self, name: str | None) -> None:
        """Start with no variables, under `name` (None: a unique name)."""
        # Its presence tells __setattr__ that this constructor has run.
        self.__dict__["_variables"] = {}
        self.name = _NAMES.of_class(type(self)) if name is None else name

    def __setattr__(self, name: str, value: object) -> None:
        """Set an attribute; a Variable set so becomes one of `variables`."""
        if "_variables" not in self.__dict__:
            raise RuntimeError(
                f"In optimizer '{type(self).__name__}', you forgot to call "
                "`super().__init__()` as the first statement in the `__init__()` "
                "method."
            )
        # A property such as `learning_rate` takes the value, not the Variable.
        settable = isinstance(getattr(type(self), name, None), property)
        if isinstance(value, Variable) and not settable:
            self._track_variable(value)
        super().__setattr__(name, value)

    @property
    def variables(self) -> list[Variable]:
        """All state, as a new list in the order in which it is saved."""
        return list(self._variables)

    def _track_variable(self, variable: Variable) -> None:
        self._variables[variable] = None

    def _untrack_variable(self, variable: Variable) -> None:
        self._variables.pop(variable, None)

    def add_variable(
        self,
        shape: Sequence[int],
        initializer: Initializer = "zeros",
        dtype: object = None,
        aggregation: str | None = "none",
        name: str | None = None,
        *,
        layout: None = None,
    ) -> Variable:
        """Add a variable to the optimizer's state.

        Parameters
        ----------
        shape : sequence of int
            Fully known; no None.
        initializer : str or callable, default "zeros"
            Name of an initializer, or called with (shape, dtype).
        dtype : dtype, optional
            Default: `mpcore.floatx()`.
        aggregation : {"none", "mean", "sum", "only_first_replica"} or None
            How replicas of it are combined.
        name : str, optional
            Default: unique.
        layout : None
            Reserved.

        Returns
        -------
        Variable
            Not trainable; its path is "<optimizer>/<name>".

        Raises
        ------
        ValueError
            For a shape with None or a negative entry, or a `layout`.
        """
        if layout is not None:
            raise ValueError(f"`layout` must be None. Received: layout={layout!r}")
        dims = tuple(shape)
        if any(dim is None or int(dim) < 0 for dim in dims):
            raise ValueError(
                f"`shape` must be fully known, of integers >= 0. Received: shape={dims}"
            )
        with name_scope(self.name):
            variable = Variable(
                _initializer(initializer),
                shape=dims,
                dtype=dtypes.floatx() if dtype is None else dtype,
                trainable=False,
                autocast=False,
                aggregation=aggregation,
                name=name,
            )
        self._track_variable(variable)
        return variable

    def _add_scalar(self, name: str, dtype: str, value: float) -> Variable:
        """Add one number that all replicas share."""
        scalar = self.add_variable(
            (), dtype=dtype, aggregation="only_first_replica", name=name
        )
        return scalar.assign(value)

    def add_variable_from_reference(
        self,
        reference_variable: Variable,
        name: str | None = None,
        initializer: Initializer = "zeros",
        *,
        dtype: str | None = None,
    ) -> Variable:
        """Add a variable with the shape of a model variable.

        Unless `dtype` says otherwise, its dtype is the one updates are computed in:
        float32 for float32, float16 and bfloat16 variables, float64 for float64. Its
        name is that of the reference (its path with "_" for "/") and `name` (default
        "var"), joined by "_".
        """
        return self.add_variable(
            reference_variable.shape,
            initializer,
            dtype=dtype or reference_variable.gradient_dtype,
            name=f"{reference_variable.path.replace('/', '_')}_{name or 'var'}",
        )

    @overload
    def add_optimizer_variables(
        self,
        trainable_variables: Iterable[Variable],
        name: str,
        initializer: Initializer = "zeros",
    ) -> list[Variable]: ...

    @overload
    def add_optimizer_variables(
        self,
        trainable_variables: Iterable[Variable],
        name: list[str] | tuple[str, ...],
        initializer: Initializer | Sequence[Initializer] = "zeros",
    ) -> tuple[list[Variable], ...]: ...

    def add_optimizer_variables(
        self,
        trainable_variables: Iterable[Variable],
        name: str | list[str] | tuple[str, ...],
        initializer: Initializer | Sequence[Initializer] = "zeros",
    ) -> list[Variable] | tuple[list[Variable], ...]:
        """Add one variable per model variable and name.

        Parameters
        ----------
        trainable_variables : iterable of Variable
        name : str or sequence of str
            With several names, the new variables are interleaved: all of the first
            model variable, then all of the second.
        initializer : str, callable, or one of them per name
            Default: "zeros".

        Returns
        -------
        list of Variable, or tuple of such lists
            One list per name, in the order of `trainable_variables`.

        Raises
        ------
        ValueError
            If there is another number of initializers than of names.
        """
        names = [name] if isinstance(name, str) else list(name)
        if isinstance(initializer, str) or not isinstance(initializer, Sequence):
            initializers = [initializer] * len(names)
        else:
            initializers = list(initializer)
        if len(names) != len(initializers):
            raise ValueError(
                "There must be one initializer per name. Received: "
                f"name={names}, initializer={initializers}"
            )
        lists: tuple[list[Variable], ...] = tuple([] for _ in names)
        for variable in trainable_variables:
            for made, one_name, one in zip(lists, names, initializers, strict=True):
                made.append(self.add_variable_from_reference(variable, one_name, one))
        return lists[0] if isinstance(name, str) else lists
