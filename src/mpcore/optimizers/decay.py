"""Which variables weight decay leaves alone."""

import re
from collections.abc import Iterable

from mpcore.variable import Variable


class DecayExclusion:
    """Variables excluded from weight decay, by identity or by name.

    Parameters
    ----------
    var_list : iterable of Variable, optional
    var_names : iterable of str, optional
        Regular expressions searched for in a variable's name (not its path), so that
        a plain word matches where it occurs.

    Raises
    ------
    TypeError
        If an entry has another type, or one string is given in place of a list.
    ValueError
        If an entry is no regular expression.
    """

    def __init__(
        self,
        var_list: Iterable[Variable] | None = None,
        var_names: Iterable[str] | None = None,
    ) -> None:
        variables = list(var_list or ())
        if isinstance(var_names, str):
            raise TypeError(
                f"`var_names` must be a list of str. Received: var_names={var_names!r}"
            )
        names = list(var_names or ())
        for kind, argument, entries in (
            (Variable, "var_list", variables),
            (str, "var_names", names),
        ):
            for entry in entries:
                if not isinstance(entry, kind):
                    raise TypeError(
                        f"`{argument}` must be a list of {kind.__name__}. "
                        f"Received an entry {entry!r}"
                    )
        self._variables = frozenset(variables)
        try:
            self._patterns = [re.compile(name) for name in names]
        except re.error as error:
            raise ValueError(
                "`var_names` must hold regular expressions. Received: "
                f"{error.pattern!r} ({error})"
            ) from error

    def __contains__(self, variable: Variable) -> bool:
        """Tell whether a variable is excluded."""
        return variable in self._variables or any(
            pattern.search(variable.name) for pattern in self._patterns
        )
