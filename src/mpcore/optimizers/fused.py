"""Optimizers whose rule is a kernel: one call per step for all variables."""

import inspect
from collections.abc import Sequence
from itertools import chain
from typing import Any, ClassVar

import numpy as np

from mpcore import random
from mpcore.ops.optim import fitting_step
from mpcore.optimizers import rates
from mpcore.optimizers.arguments import MAX_INT64, Argument, choice, flag, integer
from mpcore.optimizers.gradients import Update, convert
from mpcore.optimizers.optimizer import Optimizer
from mpcore.optimizers.slots import Initializer
from mpcore.variable import Variable, compute_copies, note_writes, stored_arrays


class FusedOptimizer(Optimizer):
    """Base of the built-in optimizers, whose rules are in the core.

    Weights, slots and low-precision copies are read and written once per step. A
    subclass names its rule, its arguments, and its slots.

    Parameters
    ----------
    state_dtype : {"bfloat16"}, optional
        Keep the slots of float32, float16 and bfloat16 variables in bfloat16, rounded
        stochastically; default: float32. Those of float64 variables stay float64.
    rounding : {"nearest", "stochastic"}, default "nearest"
        How float16 and bfloat16 variables are rounded.
    compensated : bool, default False
        Keep for each bfloat16 variable, in a bfloat16 slot `remainder`, what rounding
        it leaves over, so that small steps add up.
    seed : int in [0, 2**63), optional
        Of stochastic rounding; default: from `mpcore.random`.

    Notes
    -----
    Scalars, their powers and the rate are double; the rest is fp32 (f64 for f64
    variables), rounded once to the variable's dtype, with the same bits on every ISA
    level and number of threads; one pass over memory. Subnormal numbers count as zero.

    The random numbers depend on the seed, the update, the variable's place in the
    built order and the place of the element, on nothing else. The seed is part of the
    state.
    """

    # What the core calls the rule.
    _rule: ClassVar[str]
    # Per variable the arrays of its slots, once they have been needed.
    _states: list[tuple[np.ndarray, ...]] | None = None
    # The names of the `Argument` attributes, in the order of the config.
    _arguments: ClassVar[tuple[str, ...]] = ()

    def __init_subclass__(cls, **kwargs: Any) -> None:
        """List the arguments that the class has beside the shared ones."""
        super().__init_subclass__(**kwargs)
        own = (name for name, v in vars(cls).items() if isinstance(v, Argument))
        cls._arguments = (*cls._arguments, *own)

    def __init__(
        self,
        learning_rate: rates.LearningRate,
        *,
        state_dtype: str | None = None,
        rounding: str = "nearest",
        compensated: bool = False,
        seed: int | None = None,
        **settings: Any,
    ) -> None:
        own = {name: settings.pop(name) for name in self._arguments}
        if state_dtype is not None:
            choice("state_dtype", state_dtype, ("float32", "bfloat16"))
        choice("rounding", rounding, ("nearest", "stochastic"))
        if flag("compensated", compensated) and rounding == "stochastic":
            raise ValueError(
                "`compensated` weights are rounded to nearest. Received: "
                "compensated=True, rounding='stochastic'"
            )
        if seed is not None:
            integer("seed", seed, 0, MAX_INT64)
        super().__init__(learning_rate, **settings)
        for name, value in own.items():
            setattr(self, name, value)
        self.state_dtype = state_dtype
        self.rounding = rounding
        self.compensated = bool(compensated)
        self.seed = seed

    def _slot_groups(self) -> Sequence[tuple[str, ...]]:
        """Return the names of the slots; those of a group alternate in `variables`."""
        return ()

    def _initializers(self) -> dict[str, Initializer]:
        """Return what the slots start with that do not start with zeros."""
        return {}

    def _scalars(self) -> dict[str, Any]:
        """Return what the rule reads beside the rate and the step."""
        return {name: getattr(self, name) for name in self._arguments}

    @property
    def _is_random(self) -> bool:
        return self.rounding == "stochastic" or self.state_dtype == "bfloat16"

    def build(self, variables: Sequence[Variable]) -> None:
        """Make the slots."""
        if self.built:
            return
        super().build(variables)
        initial = self._initializers()
        made: list[list[Variable]] = [[] for _ in self._trainable_variables]
        for group in self._slot_groups():
            for variable, slots in zip(self._trainable_variables, made, strict=True):
                slots += [
                    self._add_slot(variable, name, initial.get(name, "zeros"))
                    for name in self._own_slots(variable, group)
                ]
        # Per variable: its slots in the order of the rule.
        self._slots = [tuple(slots) for slots in made]
        self._remainders = [
            self.add_variable_from_reference(variable, "remainder", dtype="bfloat16")
            if self.compensated and variable.dtype == "bfloat16"
            else None
            for variable in self._trainable_variables
        ]
        if self._is_random:
            seed = self.seed
            if seed is None:
                seed = int(random.generator().integers(MAX_INT64))
            self._seed = self._add_scalar("seed", "int64", seed)

    def _own_slots(self, variable: Variable, group: Sequence[str]) -> Sequence[str]:
        """Return which slots of a group a variable has."""
        return group

    def _slot_dtype(self, variable: Variable) -> str:
        low = self.state_dtype == "bfloat16" and variable.dtype != "float64"
        return "bfloat16" if low else variable.gradient_dtype

    def _add_slot(self, variable: Variable, name: str, start: Initializer) -> Variable:
        return self.add_variable_from_reference(
            variable, name, start, dtype=self._slot_dtype(variable)
        )

    def _fused(self, update: Update) -> None:
        """Update the weights in one call of the core."""
        if self._states is None:
            self._states = [tuple(stored_arrays(slots)) for slots in self._slots]
        slots = self._model.pick(self._slots, update.variables)
        states = self._model.pick(self._states, update.variables)
        note_writes(chain.from_iterable(slots))
        self._call(self._rule, self._scalars(), states, update)

    def __getstate__(self) -> dict[str, Any]:
        """Leave out the arrays: those of a copy's slots are others."""
        return self.__dict__ | {"_states": None}

    def _call(
        self,
        rule: str,
        scalars: dict[str, Any],
        states: list[tuple[np.ndarray, ...]],
        update: Update,
    ) -> None:
        """Call the core, which also rounds as it was asked to."""
        variables = update.variables
        note_writes(variables)
        if self.compensated:
            scalars["remainders"] = [
                None if remainder is None else remainder.stored
                for remainder in self._model.pick(self._remainders, variables)
            ]
        if self._is_random:
            scalars["indices"] = [self._model.index(v) for v in variables]
            scalars["stochastic"] = self.rounding == "stochastic"
            scalars["seed"] = int(self._seed)
        fitting_step(
            rule,
            stored_arrays(variables),
            update.gradients,
            compute_copies(variables),
            states,
            update.factors,
            update.decays,
            learning_rate=update.learning_rate,
            clipvalue=update.clipvalue,
            step=int(self.iterations) + 1,
            **scalars,
        )

    def _update(self, update: Update) -> None:
        """Update all at once, unless a subclass has replaced the rule."""
        if type(self).update_step is FusedOptimizer.update_step:
            self._fused(update)
        else:
            super()._update(update)

    def update_step(
        self, gradient: np.ndarray, variable: Variable, learning_rate: float
    ) -> None:
        """Update one variable and its slots by the optimizer's rule."""
        array = convert(gradient, variable)
        self._fused(Update([array], [variable], [1.0], [0.0], float(learning_rate)))

    def get_config(self) -> dict[str, Any]:
        """Return the constructor's arguments, with the current learning rate.

        Those that Keras does not know are there if they are not the default.
        """
        own = inspect.signature(FusedOptimizer.__init__).parameters.values()
        precision = {
            p.name: getattr(self, p.name)
            for p in own
            if p.kind is p.KEYWORD_ONLY and getattr(self, p.name) != p.default
        }
        arguments = {name: getattr(self, name) for name in self._arguments}
        return super().get_config() | arguments | precision
