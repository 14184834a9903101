"""Optimizers whose rule is a kernel: one call per step for all variables."""

from abc import abstractmethod
from collections.abc import Sequence
from typing import Any

import numpy as np

from mpcore.optimizers.gradients import convert
from mpcore.optimizers.optimizer import Optimizer
from mpcore.variable import Variable


class FusedOptimizer(Optimizer):
    """Base of the built-in optimizers; a subclass defines `_fused` and its slots.

    Weights, slots and low-precision copies are read and written once per step.
    """

    @abstractmethod
    def _fused(
        self,
        gradients: list[np.ndarray],
        variables: Sequence[Variable],
        learning_rate: float,
        factors: list[float],
        decays: list[float],
        clipvalue: float,
    ) -> None:
        """Update the weights by clip(gradient * factor) in one call of the core."""

    def _update(
        self,
        gradients: list[np.ndarray],
        variables: list[Variable],
        learning_rate: float,
        factors: list[float],
        decays: list[float],
        clipvalue: float,
    ) -> None:
        """Update all at once, unless a subclass has replaced the rule."""
        replaced = type(self).update_step is not FusedOptimizer.update_step
        update = super()._update if replaced else self._fused
        update(gradients, variables, learning_rate, factors, decays, clipvalue)

    def update_step(
        self, gradient: np.ndarray, variable: Variable, learning_rate: float
    ) -> None:
        """Update one variable and its slots by the optimizer's rule."""
        array = convert(gradient, variable)
        self._fused([array], [variable], float(learning_rate), [1.0], [0.0], 0.0)

    def _tensors(
        self,
        gradients: list[np.ndarray],
        variables: Sequence[Variable],
        *slots: Sequence[Variable],
    ) -> dict[str, Any]:
        """Return the arrays of a kernel call, with one state array per kind of slot."""
        states = [self._model.pick(slot, variables) for slot in slots]
        return {
            "params": [variable.stored for variable in variables],
            "grads": gradients,
            "copies": [variable.compute_copy for variable in variables],
            "states": [
                tuple(slot[i].stored for slot in states) for i in range(len(variables))
            ],
        }
