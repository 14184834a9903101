"""Optimizer: everything of a training step that is not the update rule itself."""

from collections.abc import Sequence
from contextlib import AbstractContextManager
from itertools import compress

import numpy as np

from mpcore import autocast
from mpcore.optimizers import accumulation, averaging, clipping, rates
from mpcore.optimizers.gradients import (
    Update,
    match,
    scaled,
    wide,
    with_normal_factors,
)
from mpcore.optimizers.model_variables import ModelVariables, check
from mpcore.optimizers.settings import Settings
from mpcore.variable import Variable


class Optimizer(Settings):
    """Base of optimizers, and all that they share.

    One call of `apply` does, in this order: gradients are unscaled (divided by
    `loss_scale_factor`), accumulated, and clipped; weights decay
    (w -= w * weight_decay * learning_rate); `update_step` applies the rule; the moving
    average follows; constraints apply; the counter goes up by one. If an argument is
    wrong, an error says so before anything is changed.

    To write an optimizer, define `build` (call the base's, then add slots), the NumPy
    rule `update_step(gradient, variable, learning_rate)`, and `get_config`. Gradients
    reach it unscaled, clipped, and in the variable's gradient dtype.

    Parameters
    ----------
    learning_rate : real number, LearningRateSchedule, or callable without arguments
        A number becomes a float64 Variable.
    weight_decay : float, >= 0, optional
        Decoupled from the gradient.
    clipnorm : float, optional
        Largest norm of each gradient. None, 0 and less: off, as for the next two. Only
        one of the three may be given.
    clipvalue : float, optional
        Largest magnitude of each element.
    global_clipnorm : float, optional
        Largest norm of all gradients taken together.
    use_ema : bool, default False
        Keep an exponential moving average of the weights, once per update:
        average = ema_momentum * average + (1 - ema_momentum) * weights. The first
        update copies the weights.
    ema_momentum : float in [0, 1], default 0.99
    ema_overwrite_frequency : int >= 1, optional
        After so many updates the weights are set to the average; None or 0: never.
    loss_scale_factor : float, > 0, optional
        A fixed loss scale: `scale_loss` multiplies by it, `apply` divides by it.
    gradient_accumulation_steps : int >= 2, optional
        Update once in so many calls, with the mean of their gradients. None or 0: off.
    name : str, optional
        Default: the class name in snake case, made unique.

    Raises
    ------
    ValueError
        If a value is out of range, two kinds of clipping are given, or `learning_rate`
        is none of the three.
    TypeError
        If a number is none.

    Notes
    -----
    State of float32, float16 and bfloat16 variables is float32, of float64 variables
    float64. Scalars are double.

    Examples
    --------
    >>> class SignDescent(Optimizer):
    ...     def update_step(self, gradient, variable, learning_rate):
    ...         self.assign_sub(variable, learning_rate * np.sign(gradient))
    >>> w = Variable([1.0, 2.0])
    >>> SignDescent(0.5, weight_decay=0.5).apply([[3.0, -4.0]], [w])
    >>> w.numpy().tolist()
    [0.25, 2.0]
    """

    _built = False
    _model = ModelVariables()
    # Per built variable: whether weight decay acts on it.
    _decays: list[bool]
    _averages: list[Variable]
    _accumulators: list[Variable]

    @property
    def built(self) -> bool:
        """Whether `build` has been called."""
        return self._built

    @built.setter
    def built(self, value: bool) -> None:
        self._built = value

    @property
    def _trainable_variables(self) -> list[Variable]:
        return self._model.variables

    def _get_variable_index(self, variable: Variable) -> int:
        """Return the place of a variable in the built order, that of its slots."""
        return self._model.index(variable)

    def build(self, variables: Sequence[Variable]) -> None:
        """Make the state for the model's variables; a second call does nothing.

        Raises
        ------
        TypeError
            If one is no Variable.
        ValueError
            If one is not floating or occurs twice.
        """
        if self.built:
            return
        model = ModelVariables(variables)
        variables = model.variables
        if self.use_ema:
            self._averages = self.add_optimizer_variables(variables, "average")
        if self.gradient_accumulation_steps:
            self._accumulators = [
                self.add_variable_from_reference(variable, "gradient_accumulator")
                for variable in variables
            ]
        self._model = model
        self._decays = [variable not in self._exclusion for variable in variables]
        self.built = True

    def apply(
        self,
        grads: Sequence[object],
        trainable_variables: Sequence[Variable] | None = None,
    ) -> None:
        """Update variables by their gradients.

        Parameters
        ----------
        grads : sequence of (array-like or None)
            Of the variables' shapes and any real dtype; None leaves a variable alone.
            An empty list does nothing at all.
        trainable_variables : sequence of Variable, optional
            Which variables, in which order; all built ones by default. The first call
            builds the optimizer for them.

        Raises
        ------
        ValueError
            If a count or shape does not fit, a variable is unknown or given twice, all
            gradients are None, or the learning rate is not finite.
        TypeError
            If a gradient is not real, or a variable is no Variable.
        FloatingPointError
            If gradients are clipped by norm and one is not finite; names the variable.

        Warns
        -----
        UserWarning
            If some gradients are None.
        """
        gradients, variables = self._prepare(grads, trainable_variables)
        if gradients:
            self._step(gradients, variables, 1.0)

    def _prepare(
        self, grads: Sequence[object], trainable_variables: Sequence[Variable] | None
    ) -> tuple[list[np.ndarray], list[Variable]]:
        """Check the arguments of `apply`, build, and return what there is to update."""
        grads = list(grads)
        if trainable_variables is not None:
            variables = list(trainable_variables)
            if self.built:
                self._model.check(variables)
            else:
                check(variables)
        elif not grads or self.built:
            variables = list(self._trainable_variables) if grads else []
        else:
            raise ValueError(
                "When passing `grads` without `trainable_variables`, the optimizer "
                "must be built. Call `optimizer.build(trainable_variables)` first"
            )
        if not grads:
            return [], []
        result = match(grads, variables)
        if not self.built:
            self.build(variables)
            if not hasattr(self, "_decays"):
                name = type(self).__name__
                raise RuntimeError(f"`{name}.build` must call `super().build(...)`")
        return result

    def _step(
        self, gradients: list[np.ndarray], variables: list[Variable], factor: float
    ) -> None:
        """Make a step with gradients that are to be multiplied by `factor`."""
        steps = self.gradient_accumulation_steps
        updating = not steps or (int(self._iterations) + 1) % steps == 0
        if self.loss_scale_factor is not None:
            factor /= self.loss_scale_factor
        replaced = self._replacements(gradients, variables, updating)
        if replaced:
            kept = [not variable.overwrite_with_gradient for variable in variables]
            gradients = list(compress(gradients, kept))
            variables = list(compress(variables, kept))
        if updating:
            self._update_all(gradients, variables, factor)
            if self.use_ema and variables:
                self._move_averages()
        else:
            self._accumulate(gradients, variables, factor)
        for target, value in replaced:
            target.assign(value)
        for variable in variables:
            if variable.constraint is not None:
                variable.assign(variable.constraint(wide(variable)))
        self._iterations.assign_add(1)

    def _replacements(
        self, gradients: list[np.ndarray], variables: list[Variable], updating: bool
    ) -> list[tuple[Variable, np.ndarray]]:
        """Return what to assign for variables that take the gradient as their value.

        Under accumulation they take the maximum of a window.
        """
        result = []
        for gradient, variable in zip(gradients, variables, strict=True):
            if not variable.overwrite_with_gradient:
                continue
            target = variable
            if self.gradient_accumulation_steps:
                largest = self._accumulators[self._get_variable_index(variable)]
                gradient = np.maximum(gradient, largest.numpy())
                target = variable if updating else largest
            result.append((target, gradient))
        return result

    def _accumulate(
        self, gradients: list[np.ndarray], variables: list[Variable], factor: float
    ) -> None:
        """Add gradients to the accumulators; nothing else moves."""
        if clipping.norm_limit(self.clipnorm, self.global_clipnorm) is not None:
            # Once in the sum, an infinity would stop every later update.
            clipping.check_finite(gradients, variables)
        accumulation.add(
            self._model.pick(self._accumulators, variables), gradients, factor
        )

    def _update_all(
        self, gradients: list[np.ndarray], variables: list[Variable], factor: float
    ) -> None:
        """Update the weights; whatever can be wrong is found before any is changed."""
        steps = self.gradient_accumulation_steps
        if steps:
            sums = self._model.pick(self._accumulators, variables)
            gradients = accumulation.mean(sums, gradients, factor, steps)
            factor = 1.0
        gradients, factors = clipping.by_norm(
            gradients, variables, factor, self.clipnorm, self.global_clipnorm
        )
        gradients, factors = with_normal_factors(gradients, factors, variables)
        update = Update(
            gradients,
            variables,
            factors,
            self._decay_rates(variables),
            rates.finite(self.learning_rate),
            clipping.value_limit(self.clipvalue),
        )
        self._update(update)
        if steps:
            # All of them: what a variable without a gradient had summed up is dropped.
            for accumulator in self._accumulators:
                accumulator.stored.fill(0)

    def _decay_rates(self, variables: list[Variable]) -> list[float]:
        """Return the weight decay of each variable."""
        rate = self.weight_decay or 0.0
        return [
            rate if decays else 0.0
            for decays in self._model.pick(self._decays, variables)
        ]

    def _update(self, update: Update) -> None:
        """Update the weights, one variable at a time."""
        learning_rate = update.learning_rate
        with autocast.scope(None):
            for gradient, variable, factor, decay in zip(*update[:4], strict=True):
                effective = scaled(gradient, factor, variable, update.clipvalue)
                if decay:
                    weights = wide(variable)
                    variable.assign(weights - weights * (decay * learning_rate))
                self.update_step(effective, variable, learning_rate)

    def update_step(
        self, gradient: np.ndarray, variable: Variable, learning_rate: float
    ) -> None:
        """Update one variable and its slots by the optimizer's rule.

        Parameters
        ----------
        gradient : ndarray of the variable's shape, in its `gradient_dtype`
            Unscaled and clipped; may be written to.
        variable : Variable
            Already decayed.
        learning_rate : float
        """
        raise NotImplementedError(
            f"Optimizer '{type(self).__name__}' must define "
            "`update_step(self, gradient, variable, learning_rate)`"
        )

    # --- Moving average --------------------------------------------------------------

    def _move_averages(self) -> None:
        """Let the averages follow an update, and overwrite the weights when due."""
        updates = int(self.iterations)
        # The first average is the weights themselves.
        momentum = self.ema_momentum if updates else 0.0
        averaging.move(self._averages, self._trainable_variables, momentum)
        frequency = self.ema_overwrite_frequency
        if frequency and (updates + 1) % frequency == 0:
            averaging.overwrite(self._averages, self._trainable_variables)

    def finalize_variable_values(self, var_list: Sequence[Variable]) -> None:
        """Set variables to their moving average, if there is one (`use_ema`).

        Before the first update there is none, and the variables stay as they are.

        Raises
        ------
        ValueError
            If `var_list` is not, in any order, what the optimizer was built with.
        """
        if not self.use_ema:
            return
        variables = list(var_list)
        if len(variables) != len(self._trainable_variables):
            raise ValueError(
                "`var_list` must hold the variables the optimizer was built with, "
                f"{len(self._trainable_variables)}. Received: {len(variables)}"
            )
        averages = self._model.pick(self._averages, variables)
        if int(self.iterations):
            averaging.overwrite(averages, variables)

    def averaged(self) -> AbstractContextManager[None]:
        """Return a context in which the weights are their moving averages.

        Leaving it restores them, so that training goes on as if nothing had been.

        Raises
        ------
        RuntimeError
            Without `use_ema`, or before the first update.
        """
        if not self.use_ema or not int(self.iterations):
            raise RuntimeError(
                "`averaged()` needs `use_ema=True` and one update. Received: "
                f"use_ema={self.use_ema}, iterations={int(self.iterations)}"
            )
        return averaging.swapped(self._averages, self._trainable_variables)
