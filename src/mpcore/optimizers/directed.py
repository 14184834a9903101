"""Optimizers whose rule looks at a variable as a whole: its rows, norms, products."""

from abc import abstractmethod

import numpy as np

from mpcore import ops
from mpcore.optimizers.fused import FusedOptimizer
from mpcore.optimizers.gradients import Update, scaled
from mpcore.variable import Variable


class DirectedOptimizer(FusedOptimizer):
    """Base of optimizers that compute a direction for each variable from arrays.

    The core takes the step w -= size * direction, for all variables in one call, with
    decay, rounding and copies as for every other rule.
    """

    @abstractmethod
    def _direction(
        self,
        gradient: np.ndarray,
        variable: Variable,
        learning_rate: float,
        decay: float,
    ) -> tuple[np.ndarray, float]:
        """Move the slots; return where to step to, and the size of the step.

        `gradient` is unscaled, clipped, of the variable's gradient dtype, and may be
        written to. The variable has yet to decay: w -= w * decay * learning_rate.
        """

    def _fused(self, update: Update) -> None:
        rate = update.learning_rate
        directions, sizes = [], []
        with np.errstate(all="ignore"):  # a NaN is for the caller to find
            for gradient, variable, factor, decay in zip(*update[:4], strict=True):
                effective = scaled(gradient, factor, variable, update.clipvalue)
                direction, size = self._direction(effective, variable, rate, decay)
                directions.append(np.ascontiguousarray(direction))
                sizes.append(size)
        decays = [decay * rate for decay in update.decays]
        step = Update(directions, update.variables, sizes, decays, 1.0)
        self._call("sgd", {}, [()] * len(sizes), step)

    def _slot(self, variable: Variable, place: int) -> Variable:
        """Return one of the slots of a variable."""
        return self._slots[self._model.index(variable)][place]

    def _keep(self, variable: Variable, place: int, value: np.ndarray) -> None:
        """Set a slot of a variable, rounded as the core rounds states."""
        slot = self._slot(variable, place)
        if slot.dtype == "bfloat16":
            index = self._model.index(variable)
            key = [int(self._seed), int(self.iterations), index, place]
            (seed,) = np.random.SeedSequence(key).generate_state(1, np.uint64)
            value = np.asarray(
                ops.cast(value, "bfloat16", rounding="stochastic", seed=int(seed))
            )
        slot.assign(value)
