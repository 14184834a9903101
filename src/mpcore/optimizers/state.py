"""State of an optimizer: set, saved, loaded, lent. Knows no update rule."""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, MutableMapping, Sequence
from typing import Any

import numpy as np

from mpcore import dtypes
from mpcore.optimizers.slots import SlotOwner
from mpcore.tape import unwrap
from mpcore.variable import Variable


class Stateful(SlotOwner, ABC):
    """What has `variables` that are saved and restored with the training state.

    Every method that sets them checks count, shapes and dtypes first and changes
    nothing if one does not fit.
    """

    @property
    @abstractmethod
    def built(self) -> bool:
        """Whether the state of the model's variables exists."""

    @property
    @abstractmethod
    def _counter(self) -> Variable:
        """The number of `apply` calls that were not skipped."""

    @property
    @abstractmethod
    def _trainable_variables(self) -> list[Variable]:
        """The variables that are updated, in built order."""

    def assign(self, variable: Variable, value: object) -> None:
        """Assign a value to a variable of the model or of the optimizer."""
        variable.assign(value)

    def assign_add(self, variable: Variable, value: object) -> None:
        """Add a value to a variable of the model or of the optimizer."""
        variable.assign_add(value)

    def assign_sub(self, variable: Variable, value: object) -> None:
        """Subtract a value from a variable of the model or of the optimizer."""
        variable.assign_sub(value)

    def _set_state(self, values: Sequence[object]) -> None:
        """Assign all of `variables` after checking that every value fits."""
        variables = self.variables
        if len(values) != len(variables):
            raise ValueError(
                f"The state of optimizer '{self.name}' has {len(variables)} variables. "
                f"Received: {len(values)}. An optimizer that is not yet built has no "
                "state of the model's variables"
            )
        arrays = [unwrap(value) for value in values]
        for variable, array in zip(variables, arrays, strict=True):
            wanted = (variable.shape, dtypes.numpy_dtype(variable.dtype))
            if (array.shape, array.dtype) != wanted:
                raise ValueError(
                    f"Optimizer variable '{variable.path}' must have shape "
                    f"{wanted[0]} and dtype {wanted[1]}. Received: shape "
                    f"{array.shape} and dtype {array.dtype}"
                )
        for variable, array in zip(variables, arrays, strict=True):
            variable.assign(array)

    def get_weights(self) -> list[np.ndarray]:
        """Return copies of the values of `variables`."""
        return [variable.numpy() for variable in self.variables]

    def set_weights(self, weights: Sequence[object]) -> None:
        """Set all of `variables`.

        Raises
        ------
        ValueError
            If the optimizer is not built, or a count, shape or dtype differs; then
            nothing is changed.
        """
        if not self.built:
            raise ValueError(
                "`set_weights()` needs an optimizer that is built. Call "
                "`optimizer.build(trainable_variables)` first"
            )
        self._set_state(list(weights))

    def save_own_variables(self, store: MutableMapping[str, Any]) -> None:
        """Write each of `variables` to `store`, under "0", "1", ... in order."""
        for i, value in enumerate(self.get_weights()):
            store[str(i)] = value

    def load_own_variables(self, store: Mapping[str, Any]) -> None:
        """Read what `save_own_variables` wrote.

        Raises
        ------
        ValueError
            If keys, a shape or a dtype differ; then nothing is changed.
        """
        keys = [str(i) for i in range(len(self.variables))]
        if set(store.keys()) != set(keys):
            raise ValueError(
                f"The state of optimizer '{self.name}' must have the {len(keys)} keys "
                f"'0' to '{len(keys) - 1}'. Received {len(store.keys())} keys: "
                f"{sorted(store.keys())[:8]}. Build the optimizer before loading"
            )
        self._set_state([store[key] for key in keys])

    @abstractmethod
    def apply(
        self,
        grads: Sequence[object],
        trainable_variables: Sequence[Variable] | None = None,
    ) -> None:
        """Update the variables by their gradients."""

    def apply_gradients(
        self, grads_and_vars: Iterable[tuple[object, Variable]]
    ) -> Variable:
        """Apply (gradient, variable) pairs; return the counter of `apply` calls.

        Raises
        ------
        ValueError
            If there are no pairs, and as `apply` does.
        """
        pairs = list(grads_and_vars)
        if not pairs:
            raise ValueError("`grads_and_vars` must not be empty. Received: []")
        self.apply([g for g, _ in pairs], [v for _, v in pairs])
        return self._counter

    def stateless_apply(
        self,
        optimizer_variables: Sequence[object],
        grads: Sequence[object],
        trainable_variables: Sequence[object],
    ) -> tuple[list[np.ndarray], list[np.ndarray]]:
        """Compute a step from given values and leave optimizer and model untouched.

        Parameters
        ----------
        optimizer_variables : sequence of array-like
            Values of `variables`.
        grads : sequence of (array-like or None)
        trainable_variables : sequence of array-like
            Values of the variables the optimizer was built with.

        Returns
        -------
        trainable_variables, optimizer_variables : list of ndarray
            The values after the step.

        Raises
        ------
        ValueError
            If the optimizer is not built or a count, shape or dtype differs, and as
            `apply` does.
        """
        model = self._trainable_variables
        if not self.built:
            raise ValueError(
                f"To call `stateless_apply`, {type(self).__name__} must be built. Call "
                "`optimizer.build(trainable_variables)` first"
            )
        if len(trainable_variables) != len(model):
            raise ValueError(
                "`trainable_variables` must correspond to the variables the optimizer "
                f"was built with, {len(model)}. Received: {len(trainable_variables)}"
            )
        saved = [(v, v.numpy()) for v in [*model, *self.variables]]
        try:
            self._set_state(list(optimizer_variables))
            for variable, value in zip(model, trainable_variables, strict=True):
                variable.assign(value)
            self.apply(grads)
            return [v.numpy() for v in model], self.get_weights()
        finally:
            for variable, value in saved:
                variable.assign(value)
