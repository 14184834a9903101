"""LossScaleOptimizer: dynamic loss scaling around any optimizer."""

import warnings
from collections.abc import Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any, Self

import numpy as np

from mpcore import ops, serialization
from mpcore.optimizers.arguments import integer, real
from mpcore.optimizers.optimizer import Optimizer
from mpcore.optimizers.settings import scaled_loss
from mpcore.optimizers.slots import SlotOwner
from mpcore.variable import Variable

_MIN_SCALE = 2.0**-126
_MAX_SCALE = 2.0**126
_WARN_AFTER = 50

# What belongs to the inner optimizer; configurations from Keras hold the defaults.
_INNER_DEFAULTS = {
    "weight_decay": None,
    "clipnorm": None,
    "global_clipnorm": None,
    "clipvalue": None,
    "use_ema": False,
    "ema_momentum": 0.99,
    "ema_overwrite_frequency": None,
    "loss_scale_factor": None,
    "gradient_accumulation_steps": None,
}


def _refuse(arguments: dict[str, Any]) -> None:
    """Raise for arguments that do something in an optimizer but not here."""
    if not arguments.pop("dynamic", True):
        raise ValueError(
            "LossScaleOptimizer does not support `dynamic=False`. Instead, set "
            "`loss_scale_factor` on the optimizer itself"
        )
    for name, default in _INNER_DEFAULTS.items():
        if arguments.pop(name, default) != default:
            raise ValueError(
                f"LossScaleOptimizer does not support `{name}`. Instead, set `{name}` "
                "on the `inner_optimizer`"
            )
    if arguments:
        raise ValueError(
            "LossScaleOptimizer does not support arguments: "
            f"`{'`, `'.join(arguments)}`."
        )


@serialization.register("optimizers")
class LossScaleOptimizer(Optimizer):
    """Scales the loss so that small gradients survive in float16.

    `scale_loss` multiplies the loss by `dynamic_scale`; `apply` takes the gradients of
    that scaled loss. If all are finite, the inner optimizer applies them divided by the
    scale; otherwise the step is skipped as a whole: weights, slots, the counter,
    schedules, averages and accumulators stay as they are, and the scale is halved.
    After `dynamic_growth_steps` finite steps in a row the scale is doubled.

    Whatever one may ask of an optimizer is asked of the inner one: `learning_rate`,
    `iterations`, its hyperparameters, exclusions from decay, averages.

    Parameters
    ----------
    inner_optimizer : Optimizer
        Not a LossScaleOptimizer. Its `loss_scale_factor` is set to None, lest gradients
        be unscaled twice.
    initial_scale : float in [min_scale, max_scale], default 2**15
        A power of two unscales without rounding.
    dynamic_growth_steps : int in [1, 2**31 - 1], default 2000
    name : str, optional
    min_scale, max_scale : float, default 2**-126 and 2**126
        Bounds of the scale, themselves within these defaults: what fp32 can both
        multiply and divide by.
    max_consecutive_skips : int >= 0, optional
        So many steps in a row may be skipped; one more raises. By default there is a
        warning after 50.

    Attributes
    ----------
    dynamic_scale : Variable, float32 scalar
    step_counter : Variable, int64 scalar
        Finite steps since the scale last changed.
    skipped_steps : int
        Steps skipped since this object was made.
    last_step_applied : bool
        Whether the last `apply` was not skipped; True at the start.

    Raises
    ------
    TypeError
        If `inner_optimizer` is no optimizer, or scales losses itself.
    ValueError
        If a scale or number of steps is out of range, or for an argument that belongs
        to the inner optimizer.

    Notes
    -----
    `variables` are iteration and learning_rate (idle, for the order of Keras),
    step_counter, dynamic_scale, and those of the inner optimizer.

    References
    ----------
    Micikevicius et al., "Mixed Precision Training", section 3.2.

    Examples
    --------
    >>> from mpcore import GradientTape, Variable
    >>> from mpcore.optimizers import SGD
    >>> w = Variable(3.0)
    >>> optimizer = LossScaleOptimizer(SGD(0.25))
    >>> with GradientTape() as tape:
    ...     loss = optimizer.scale_loss(w * w)
    >>> optimizer.apply(tape.gradient(loss, [w]), [w])
    >>> float(w), optimizer.last_step_applied
    (1.5, True)
    """

    # A plain attribute: reading it must not go through __getattr__.
    inner_optimizer: Optimizer

    def __init__(
        self,
        inner_optimizer: Optimizer,
        initial_scale: float = 2.0**15,
        dynamic_growth_steps: int = 2000,
        name: str | None = None,
        *,
        min_scale: float = _MIN_SCALE,
        max_scale: float = _MAX_SCALE,
        max_consecutive_skips: int | None = None,
        **kwargs: Any,
    ) -> None:
        _refuse(kwargs)
        if isinstance(inner_optimizer, LossScaleOptimizer) or not isinstance(
            inner_optimizer, Optimizer
        ):
            raise TypeError(
                "`inner_optimizer` must be an optimizer, and no LossScaleOptimizer. "
                f"Received: inner_optimizer={inner_optimizer!r}"
            )
        low = real("min_scale", min_scale, f"[{_MIN_SCALE}, {_MAX_SCALE}]")
        high = real("max_scale", max_scale, f"[{low}, {_MAX_SCALE}]")
        initial_scale = real("initial_scale", initial_scale, f"[{low}, {high}]")
        growth = integer("dynamic_growth_steps", dynamic_growth_steps, 1, 2**31 - 1)
        if max_consecutive_skips is not None:
            integer("max_consecutive_skips", max_consecutive_skips, 0)
        # Not Optimizer.__init__: its settings are those of the inner optimizer.
        SlotOwner.__init__(self, name)
        self._add_scalar("iteration", "int64", 0)
        self._add_scalar("learning_rate", "float64", 0.0)
        self.step_counter = self._add_scalar("step_counter", "int64", 0)
        self.dynamic_scale = self._add_scalar("dynamic_scale", "float32", initial_scale)
        self.initial_scale = initial_scale
        self.dynamic_growth_steps = growth
        self.min_scale = low
        self.max_scale = high
        self.max_consecutive_skips = max_consecutive_skips
        self.skipped_steps = 0
        self.last_step_applied = True
        self._skips_in_a_row = 0
        inner_optimizer.loss_scale_factor = None
        self.inner_optimizer = inner_optimizer

    # --- A step ----------------------------------------------------------------------

    def scale_loss(self, loss: Any) -> Any:
        """Return the loss times the current scale; a 16-bit loss becomes float32."""
        return scaled_loss(loss, float(self.dynamic_scale))

    def apply(
        self,
        grads: Sequence[object],
        trainable_variables: Sequence[Variable] | None = None,
    ) -> None:
        """Apply the gradients of a scaled loss, or skip the step.

        Takes and raises what `Optimizer.apply` does; after an error the scale is as it
        was. An empty list of gradients counts as a finite step.

        Raises
        ------
        FloatingPointError
            If more than `max_consecutive_skips` steps in a row are not finite.

        Warns
        -----
        RuntimeWarning
            Once in a run of skipped steps, after 50 of them.
        """
        inner = self.inner_optimizer
        gradients, variables = inner._prepare(grads, trainable_variables)
        finite = ops.all_finite(gradients)
        scale = float(self.dynamic_scale)
        # Before the step: it refuses a state that makes no sense.
        next_scale, counter = ops.loss_scale_update(
            scale,
            int(self.step_counter),
            self.dynamic_growth_steps,
            self.min_scale,
            self.max_scale,
            finite,
        )
        if finite:
            if gradients:
                inner._step(gradients, variables, 1.0 / scale)
            self._skips_in_a_row = 0
        else:
            self._count_skip(gradients, variables)
        self.last_step_applied = finite
        self.dynamic_scale.assign(next_scale)
        self.step_counter.assign(counter)

    def _count_skip(
        self, gradients: list[np.ndarray], variables: list[Variable]
    ) -> None:
        """Count a skipped step, and tell the user when it is one of too many."""
        run, limit = self._skips_in_a_row + 1, self.max_consecutive_skips
        too_many = limit is not None and run > limit
        if too_many or (limit is None and run == _WARN_AFTER):
            culprit = next(
                variable.path
                for gradient, variable in zip(gradients, variables, strict=True)
                if not ops.all_finite([gradient])
            )
            message = (
                f"Gradients were not finite in {run} steps in a row; in this one that "
                f"of variable '{culprit}' is the first. The loss scale is "
                f"{float(self.dynamic_scale)}"
            )
            if too_many:
                raise FloatingPointError(message)
            warnings.warn(message, RuntimeWarning, stacklevel=3)
        self._skips_in_a_row = run
        self.skipped_steps += 1

    def stateless_apply(
        self,
        optimizer_variables: Sequence[object],
        grads: Sequence[object],
        trainable_variables: Sequence[object],
    ) -> tuple[list[np.ndarray], list[np.ndarray]]:
        """Compute a step from given values; see `Optimizer.stateless_apply`."""
        counts = (self.skipped_steps, self.last_step_applied, self._skips_in_a_row)
        try:
            return super().stateless_apply(
                optimizer_variables, grads, trainable_variables
            )
        finally:
            self.skipped_steps, self.last_step_applied, self._skips_in_a_row = counts

    # --- The inner optimizer ---------------------------------------------------------

    def __getattr__(self, name: str) -> Any:
        """Return an attribute of the inner optimizer."""
        if name.startswith("_") or name == "inner_optimizer":
            raise AttributeError(f"{type(self).__name__} has no attribute {name!r}")
        return getattr(self.inner_optimizer, name)

    def __setattr__(self, name: str, value: object) -> None:
        """Set an attribute here if it lives here, else on the inner optimizer."""
        inner = self.__dict__.get("inner_optimizer")
        here = name in self.__dict__ or hasattr(type(self), name)
        if inner is not None and not here and hasattr(inner, name):
            setattr(inner, name, value)
        else:
            super().__setattr__(name, value)

    @property
    def variables(self) -> list[Variable]:
        """Own state, then that of the inner optimizer."""
        return super().variables + self.inner_optimizer.variables

    @property
    def built(self) -> bool:
        """Whether the inner optimizer is built."""
        return self.inner_optimizer.built

    @built.setter
    def built(self, value: bool) -> None:
        self.inner_optimizer.built = value

    @property
    def _trainable_variables(self) -> list[Variable]:
        return self.inner_optimizer._trainable_variables

    @property
    def _counter(self) -> Variable:
        return self.inner_optimizer._counter

    @property
    def iterations(self) -> Any:
        """Number of updates the inner optimizer has made."""
        return self.inner_optimizer.iterations

    @property
    def learning_rate(self) -> Any:
        """The rate of the inner optimizer."""
        return self.inner_optimizer.learning_rate

    @learning_rate.setter
    def learning_rate(self, value: Any) -> None:
        self.inner_optimizer.learning_rate = value

    def build(self, variables: Sequence[Variable]) -> None:
        """Build the inner optimizer."""
        self.inner_optimizer.build(variables)

    def exclude_from_weight_decay(
        self,
        var_list: Iterable[Variable] | None = None,
        var_names: Iterable[str] | None = None,
    ) -> None:
        """Exclude variables from the weight decay of the inner optimizer."""
        self.inner_optimizer.exclude_from_weight_decay(var_list, var_names)

    def update_step(
        self, gradient: np.ndarray, variable: Variable, learning_rate: float
    ) -> None:
        """Update one variable by the rule of the inner optimizer."""
        self.inner_optimizer.update_step(gradient, variable, learning_rate)

    def finalize_variable_values(self, var_list: Sequence[Variable]) -> None:
        """Set variables to the moving average of the inner optimizer, if any."""
        self.inner_optimizer.finalize_variable_values(var_list)

    def averaged(self) -> AbstractContextManager[None]:
        """Return the inner optimizer's context of averaged weights."""
        return self.inner_optimizer.averaged()

    def get_config(self) -> dict[str, Any]:
        """Return the constructor's arguments, the inner optimizer serialized."""
        return {
            "name": self.name,
            "inner_optimizer": serialization.serialize(self.inner_optimizer),
            "initial_scale": self.initial_scale,
            "dynamic_growth_steps": self.dynamic_growth_steps,
            "min_scale": self.min_scale,
            "max_scale": self.max_scale,
            "max_consecutive_skips": self.max_consecutive_skips,
        }

    @classmethod
    def from_config(
        cls,
        config: Mapping[str, Any],
        custom_objects: Mapping[str, Any] | None = None,
    ) -> Self:
        """Make an optimizer from what `get_config` returned; without its state."""
        arguments = dict(config)
        inner = serialization.deserialize(
            arguments.pop("inner_optimizer"), custom_objects, kind="optimizers"
        )
        return cls(inner, **arguments)
