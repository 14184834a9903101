"""What an optimizer is configured with: checked, changed, and described."""

import inspect
import warnings
from collections.abc import Iterable, Mapping
from typing import Any, ClassVar, Self, TypedDict

from mpcore import ops, serialization
from mpcore.optimizers import rates
from mpcore.optimizers.arguments import flag, integer, optional_real, real
from mpcore.optimizers.decay import DecayExclusion
from mpcore.optimizers.state import Stateful
from mpcore.tape import unwrap
from mpcore.variable import Variable

_HALVES = ("float16", "bfloat16")


def scaled_loss(loss: Any, scale: float) -> Any:
    """Return loss * scale; a 16-bit loss becomes float32, where there is room."""
    if unwrap(loss).dtype.name in _HALVES:
        loss = ops.cast(loss, "float32")
    return loss * scale


class SharedSettings(TypedDict, total=False):
    """The keyword arguments of every optimizer beside its own and `weight_decay`."""

    clipnorm: float | None
    clipvalue: float | None
    global_clipnorm: float | None
    use_ema: bool
    ema_momentum: float
    ema_overwrite_frequency: int | None
    loss_scale_factor: float | None
    gradient_accumulation_steps: int | None
    name: str | None


class FusedSettings(SharedSettings, total=False):
    """The same with what `FusedOptimizer` also takes."""

    state_dtype: str | None
    rounding: str
    compensated: bool
    seed: int | None


class DecaySettings(SharedSettings, total=False):
    """The same with `weight_decay`, for optimizers without a default of their own."""

    weight_decay: float | None


class FusedDecaySettings(FusedSettings, DecaySettings, total=False):
    """All of them."""


class Settings(Stateful):
    """The arguments all optimizers share; `Optimizer` documents them."""

    __signature__: ClassVar[inspect.Signature]
    # The learning rates that the rule has a meaning for.
    _rates: ClassVar[str] = "(-inf, inf)"

    def __init_subclass__(cls, **kwargs: Any) -> None:
        """Let `help` show the shared arguments where `__init__` says `**settings`."""
        super().__init_subclass__(**kwargs)
        own = inspect.signature(cls.__init__).parameters
        if "settings" not in own:
            return
        parameters = {n: p for n, p in own.items() if n not in ("self", "settings")}
        shared = dict(inspect.signature(Settings).parameters)
        rest = {"kwargs": shared.pop("kwargs")}
        for base in cls.__mro__[1:]:
            if "__init__" in vars(base):
                inherited = inspect.signature(vars(base)["__init__"]).parameters
                shared |= {
                    n: p for n, p in inherited.items() if p.kind is p.KEYWORD_ONLY
                }
        for name, parameter in shared.items():
            keyword = parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY)
            parameters.setdefault(name, keyword)
        cls.__signature__ = inspect.Signature(list((parameters | rest).values()))

    def __init__(
        self,
        learning_rate: rates.LearningRate,
        weight_decay: float | None = None,
        clipnorm: float | None = None,
        clipvalue: float | None = None,
        global_clipnorm: float | None = None,
        use_ema: bool = False,
        ema_momentum: float = 0.99,
        ema_overwrite_frequency: int | None = None,
        loss_scale_factor: float | None = None,
        gradient_accumulation_steps: int | None = None,
        name: str | None = None,
        **kwargs: Any,
    ) -> None:
        if kwargs.pop("decay", None) is not None:
            warnings.warn(
                "Argument `decay` is no longer supported and will be ignored.",
                stacklevel=2,
            )
        if kwargs:
            raise ValueError(f"Argument(s) not recognized: {kwargs}")
        limits = {
            "clipnorm": clipnorm,
            "clipvalue": clipvalue,
            "global_clipnorm": global_clipnorm,
        }
        if sum(limit is not None for limit in limits.values()) > 1:
            raise ValueError(
                "Only one of `clipnorm`, `clipvalue` and `global_clipnorm` can be set. "
                f"Received: {limits}"
            )
        rate: Any = rates.checked(learning_rate, self._rates)
        super().__init__(name)
        self.weight_decay = optional_real("weight_decay", weight_decay, "[0, inf)")
        self.clipnorm = optional_real("clipnorm", clipnorm)
        self.clipvalue = optional_real("clipvalue", clipvalue)
        self.global_clipnorm = optional_real("global_clipnorm", global_clipnorm)
        self.use_ema = flag("use_ema", use_ema)
        self.ema_momentum = ema_momentum
        self.ema_overwrite_frequency = ema_overwrite_frequency
        if use_ema:
            self.ema_momentum = real("ema_momentum", ema_momentum, "[0, 1]")
            if ema_overwrite_frequency:
                integer("ema_overwrite_frequency", ema_overwrite_frequency, 1)
        self.loss_scale_factor = optional_real(
            "loss_scale_factor", loss_scale_factor, "(0, inf)"
        )
        self.gradient_accumulation_steps = gradient_accumulation_steps
        if gradient_accumulation_steps:
            integer("gradient_accumulation_steps", gradient_accumulation_steps, 2)

        self._exclusion = DecayExclusion()
        self._iterations = self._add_scalar("iteration", "int64", 0)
        if isinstance(rate, float):
            rate = self._add_scalar("learning_rate", "float64", rate)
        self._learning_rate: rates.Stored = rate

    @property
    def _counter(self) -> Variable:
        return self._iterations

    @property
    def iterations(self) -> Any:
        """Number of updates made: the counter, or calls // accumulation steps."""
        if self.gradient_accumulation_steps:
            return int(self._iterations) // self.gradient_accumulation_steps
        return self._iterations

    @property
    def learning_rate(self) -> Any:
        """The current rate: the Variable, or what the schedule or callable returns.

        Setting a number assigns the Variable; setting a schedule or callable replaces
        what was there. A number in place of a schedule is a TypeError.
        """
        return rates.current(self._learning_rate, self._iterations)

    @learning_rate.setter
    def learning_rate(self, value: rates.LearningRate) -> None:
        old, new = self._learning_rate, rates.checked(value, self._rates)
        if not isinstance(new, float):
            if isinstance(old, Variable):
                self._untrack_variable(old)
            self._learning_rate = new
        elif isinstance(old, Variable):
            old.assign(new)
        else:
            raise TypeError(
                "`learning_rate` can only be set to a number if the optimizer was made "
                f"with one. Received: {value!r} in place of {old!r}"
            )

    def exclude_from_weight_decay(
        self,
        var_list: Iterable[Variable] | None = None,
        var_names: Iterable[str] | None = None,
    ) -> None:
        """Exclude variables from weight decay; replaces what was excluded before.

        Parameters
        ----------
        var_list : iterable of Variable, optional
        var_names : iterable of str, optional
            Regular expressions, searched for in `variable.name`.

        Raises
        ------
        ValueError
            If the optimizer is built, or an entry is no regular expression.
        TypeError
            If an entry is no Variable, or no str.
        """
        if self.built:
            raise ValueError(
                "`exclude_from_weight_decay()` can only be configured before the "
                "optimizer is built"
            )
        self._exclusion = DecayExclusion(var_list, var_names)

    def scale_loss(self, loss: Any) -> Any:
        """Return the loss times `loss_scale_factor`; a 16-bit loss becomes float32."""
        if self.loss_scale_factor is None:
            return loss
        return scaled_loss(loss, self.loss_scale_factor)

    def get_config(self) -> dict[str, Any]:
        """Return the constructor's arguments, with the current learning rate.

        Returns
        -------
        dict
            Plain values only; a schedule or registered function appears as what
            `serialize` makes of it.

        Raises
        ------
        TypeError
            If the learning rate is a callable that is not registered.
        """
        rate = self._learning_rate
        return {
            "name": self.name,
            "learning_rate": (
                float(rate)
                if isinstance(rate, Variable)
                else serialization.serialize(rate)
            ),
            "weight_decay": self.weight_decay,
            "clipnorm": self.clipnorm,
            "global_clipnorm": self.global_clipnorm,
            "clipvalue": self.clipvalue,
            "use_ema": self.use_ema,
            "ema_momentum": self.ema_momentum,
            "ema_overwrite_frequency": self.ema_overwrite_frequency,
            "loss_scale_factor": self.loss_scale_factor,
            "gradient_accumulation_steps": self.gradient_accumulation_steps,
        }

    @classmethod
    def from_config(
        cls,
        config: Mapping[str, Any],
        custom_objects: Mapping[str, Any] | None = None,
    ) -> Self:
        """Make an optimizer from what `get_config` returned; without its state.

        Parameters
        ----------
        config : mapping
            Left as it is.
        custom_objects : mapping from names to classes or functions, optional
            For a learning rate that is not registered.

        Raises
        ------
        ValueError
            For an unknown argument.
        """
        arguments = dict(config)
        if isinstance(arguments.get("learning_rate"), Mapping):
            arguments["learning_rate"] = serialization.deserialize(
                arguments["learning_rate"], custom_objects
            )
        return cls(**arguments)
