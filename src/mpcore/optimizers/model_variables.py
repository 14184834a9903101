"""The variables an optimizer updates, and the place of each."""

from collections.abc import Sequence
from operator import is_
from typing import TypeVar

from mpcore import dtypes
from mpcore.variable import Variable

T = TypeVar("T")


def check(variables: Sequence[object]) -> None:
    """Check that these can be updated in one step.

    Raises
    ------
    TypeError
        If one is no Variable.
    ValueError
        If one is not floating or occurs twice.
    """
    for variable in variables:
        if not isinstance(variable, Variable):
            raise TypeError(
                f"Only a Variable can be updated. Received: {type(variable).__name__}"
            )
        if not dtypes.is_floating(variable.dtype):
            raise ValueError(
                "Only a floating variable can be updated. Received: "
                f"'{variable.path}' of dtype {variable.dtype}"
            )
    if len(set(variables)) != len(variables):
        paths = [v.path for v in variables if isinstance(v, Variable)]
        raise ValueError(f"A variable must be given once. Received: {paths}")


class ModelVariables:
    """Variables in built order; everything kept per variable is in that order."""

    def __init__(self, variables: Sequence[Variable] = ()) -> None:
        self.variables = list(variables)
        check(self.variables)
        self._indices = {variable: i for i, variable in enumerate(self.variables)}

    def _are_all(self, variables: Sequence[object]) -> bool:
        """Tell whether these are all of them in their order: the usual case."""
        return len(variables) == len(self.variables) and all(
            map(is_, variables, self.variables)
        )

    def check(self, variables: Sequence[Variable]) -> None:
        """Check that these can be updated in one step and are known."""
        if not self._are_all(variables):
            check(variables)
            self.pick(self.variables, variables)

    def index(self, variable: Variable) -> int:
        """Return the place of a variable.

        Raises
        ------
        ValueError
            If it is not one of them.
        """
        if variable not in self._indices:
            raise ValueError(
                f"Unknown variable: '{variable.path}'. An optimizer can only be called "
                "for the variables it was built with; make a new one for other "
                "variables"
            )
        return self._indices[variable]

    def pick(self, items: Sequence[T], variables: Sequence[Variable]) -> list[T]:
        """Return the items of some variables, out of one for each."""
        if self._are_all(variables):
            return list(items)
        return [items[self.index(variable)] for variable in variables]
