"""Layer: variables, a dtype policy and a call.

A layer is a composition of `mpcore.ops`; it never writes a backward of its own. What
belongs to a layer (variables, sublayers) is found by looking at its attributes when
asked, so lists and dicts of layers may grow at any time.
"""

import functools
from collections.abc import Callable, Iterator, Sequence
from contextlib import nullcontext
from typing import Any, Self

import numpy as np

from mpcore import autocast, constraints, dtypes, initializers, regularizers
from mpcore.layers.calling import (
    building,
    call_context,
    cast_floating,
    shape_of,
    training_position,
)
from mpcore.layers.super_init import set_in_init
from mpcore.mixed_precision import policy as policies
from mpcore.naming import Names, checked_name
from mpcore.tape import unwrap
from mpcore.variable import Variable, name_scope

Shape = tuple[int | None, ...]

_NAMES = Names()


def owned(value: object) -> Iterator["Layer | Variable"]:
    """Yield the layers and variables in an attribute, through containers."""
    if isinstance(value, Layer | Variable):
        yield value
    elif isinstance(value, list | tuple):
        for item in value:
            yield from owned(item)
    elif isinstance(value, dict):
        for item in value.values():
            yield from owned(item)


def _scoped(build: Callable[..., None]) -> Callable[..., None]:
    """Wrap a `build` method: names under the layer, no casting, built afterwards."""

    @functools.wraps(build)
    def wrapped(self: "Layer", *shapes: Any) -> None:
        if self._building:  # From `__call__` or through super(): the scope is open.
            with autocast.scope(None):
                build(self, *shapes)
        else:
            self._building = True
            try:
                with name_scope(self.name), autocast.scope(None):
                    build(self, *shapes)
            finally:
                self._building = False
        self.built = True

    return wrapped


@set_in_init("name", "built", "_weights", "_policy", "_building", "_trainable")
class Layer:
    """Base of all layers: state plus a computation in the policy's compute dtype.

    Subclasses create variables with `add_weight` in `__init__` or `build`, and
    define `call`. Under a mixed policy the variables keep `variable_dtype` and are
    read as `compute_dtype` while `call` runs.

    Parameters
    ----------
    name : str, optional
        Without '/'. Default: the class name in snake case, made unique in the process.
    dtype : str, Policy, dtype-like, dict or None
        The dtype policy. None: the global policy at this moment; a later change of
        the global policy does not touch an existing layer.
    trainable : bool, default True
        False takes all variables, also of sublayers, out of `trainable_variables`.
    autocast : bool, default True
        Whether floating arguments of a call are cast to `compute_dtype`. Integers and
        booleans never are.

    Raises
    ------
    TypeError, ValueError
        For a name or policy that is none.
    """

    def __init__(
        self,
        *,
        name: str | None = None,
        dtype: object = None,
        trainable: bool = True,
        autocast: bool = True,
    ) -> None:
        self._weights: list[Variable] = []
        self.named_by_user = name is not None
        self.name = _NAMES.of_class(type(self)) if name is None else checked_name(name)
        self._policy = policies.get(dtype)
        compute_dtype = self._policy.compute_dtype
        # None: a policy of integers casts nothing.
        self._scope_dtype = compute_dtype if dtypes.is_floating(compute_dtype) else None
        self._input_dtype = dtypes.numpy_dtype(compute_dtype)
        self.autocast = bool(autocast)
        self.built = False
        self._building = False
        self._trainable = bool(trainable)
        self._training_position = training_position(type(self).call)

    def __init_subclass__(cls, **kwargs: Any) -> None:
        """Wrap the subclass's `build`."""
        super().__init_subclass__(**kwargs)
        if "build" in cls.__dict__:
            cls.build = _scoped(cls.build)  # type: ignore[method-assign]

    # Policy

    @property
    def dtype_policy(self) -> policies.Policy:
        """The dtype policy this layer was made with."""
        return self._policy

    @property
    def compute_dtype(self) -> str:
        """Dtype name of the layer's inputs, arithmetic and outputs."""
        return self._policy.compute_dtype

    @property
    def variable_dtype(self) -> str:
        """Dtype name in which variables are stored."""
        return self._policy.variable_dtype

    @property
    def dtype(self) -> str:
        """Alias of `variable_dtype`."""
        return self._policy.variable_dtype

    # State

    def add_weight(
        self,
        shape: Sequence[int] = (),
        initializer: object = None,
        dtype: object = None,
        trainable: bool = True,
        autocast: bool = True,
        regularizer: object = None,
        constraint: object = None,
        aggregation: str | None = "none",
        name: str | None = None,
    ) -> Variable:
        """Create a variable that belongs to this layer.

        Parameters
        ----------
        shape : sequence of int
        initializer : str, dict, Initializer or callable(shape, dtype), optional
            Default: 'glorot_uniform'.
        dtype : dtype-like, optional
            Default: the policy's `variable_dtype`.
        trainable : bool, default True
        autocast : bool, default True
            False: read in the stored dtype also inside this layer's call.
        regularizer, constraint : str, dict, callable or None
            See `mpcore.regularizers` and `mpcore.constraints`.
        aggregation : {'none', 'mean', 'sum', 'only_first_replica'} or None
        name : str, optional

        Returns
        -------
        Variable
            Its path is 'layer/name', with the names of enclosing layers before it.
        """
        make = initializers.get(
            "glorot_uniform" if initializer is None else initializer
        )
        dtype = self.variable_dtype if dtype is None else dtype
        with nullcontext() if self._building else name_scope(self.name):
            variable = Variable(
                make(tuple(shape), dtype=dtype),
                dtype=dtype,
                name=name,
                trainable=trainable,
                autocast=autocast,
                aggregation=aggregation,
                regularizer=regularizers.get(regularizer),
                constraint=constraints.get(constraint),
            )
        self._weights.append(variable)
        return variable

    def _own_state(self) -> tuple[list[Variable], list["Layer"]]:
        """Variables and sublayers directly below, in order of creation."""
        found = {id(item): item for v in vars(self).values() for item in owned(v)}
        variables = [item for item in found.values() if isinstance(item, Variable)]
        return variables, [item for item in found.values() if isinstance(item, Layer)]

    def _walk(self, *, trainable: bool, seen: set[int]) -> Iterator[Variable]:
        """Yield each variable of the tree once, parents before children."""
        if id(self) in seen or (trainable and not self._trainable):
            return
        seen.add(id(self))
        variables, layers = self._own_state()
        for variable in variables:
            if id(variable) not in seen and (variable.trainable or not trainable):
                seen.add(id(variable))
                yield variable
        for layer in layers:
            yield from layer._walk(trainable=trainable, seen=seen)

    @property
    def variables(self) -> list[Variable]:
        """All variables of this layer and its sublayers."""
        return list(self._walk(trainable=False, seen=set()))

    @property
    def trainable_variables(self) -> list[Variable]:
        """The variables an optimizer may change."""
        return list(self._walk(trainable=True, seen=set()))

    @property
    def non_trainable_variables(self) -> list[Variable]:
        """The variables an optimizer leaves alone."""
        trainable = {id(v) for v in self.trainable_variables}
        return [v for v in self.variables if id(v) not in trainable]

    weights = variables
    trainable_weights = trainable_variables
    non_trainable_weights = non_trainable_variables

    @property
    def trainable(self) -> bool:
        """Whether the variables may be trained; setting it reaches all sublayers."""
        return self._trainable

    @trainable.setter
    def trainable(self, value: bool) -> None:
        for layer in self._own_state()[1]:
            layer.trainable = value
        self._trainable = bool(value)

    def get_weights(self) -> list[np.ndarray]:
        """Return copies of all variables, in the order of `variables`."""
        return [variable.numpy() for variable in self.variables]

    def set_weights(self, weights: Sequence[object]) -> None:
        """Assign all variables; nothing is changed if one does not fit.

        Raises
        ------
        ValueError
            If the count or a shape differs, or one does not hold numbers.
        TypeError
            If one is a masked array.
        """
        variables = self.variables
        arrays = [unwrap(weight) for weight in weights]
        if len(arrays) != len(variables):
            raise ValueError(
                f"Layer '{self.name}' has {len(variables)} variables. "
                f"Received: {len(arrays)} arrays"
            )
        for variable, array in zip(variables, arrays, strict=True):
            if array.shape != variable.shape:
                raise ValueError(
                    f"Variable '{variable.path}' has shape {variable.shape}. "
                    f"Received: array of shape {array.shape}"
                )
        fitting = [v.fitting(array) for v, array in zip(variables, arrays, strict=True)]
        for variable, array in zip(variables, fitting, strict=True):
            variable.assign(array)

    def count_params(self) -> int:
        """Return the number of scalars in all variables."""
        return sum(variable.size for variable in self.variables)

    @property
    def losses(self) -> list[Any]:
        """Regularization losses, one scalar per regularized trainable variable.

        Evaluated in the variable dtype, whatever the compute dtype.
        """
        with autocast.scope(None):
            return [
                variable.regularizer(variable)
                for variable in self.trainable_variables
                if variable.regularizer is not None
            ]

    # Computation

    def build(self, input_shape: Any) -> None:
        """Create the variables; called once, before the first `call`.

        Parameters
        ----------
        input_shape : tuple of int or None, or a structure of such
            Shape of the first argument of the call.
        """
        self.built = True

    def call(self, *args: Any, **kwargs: Any) -> Any:
        """Compute the output; subclasses define it."""
        raise NotImplementedError(f"{type(self).__name__} does not define `call`.")

    def compute_output_shape(self, input_shape: Shape) -> Shape:
        """Return the output's shape for an input's; subclasses define it."""
        raise NotImplementedError(
            f"{type(self).__name__} does not define `compute_output_shape`: call the "
            "model on a batch to build it."
        )

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Cast the floating arguments, build if needed, and `call`."""
        if self.built:
            return self._call(args, kwargs)
        with building():
            if self.built:  # by another thread
                return self._call(args, kwargs)
            made = len(self._weights)
            with name_scope(self.name):
                self._building = True
                try:
                    self._build_for(args, kwargs)
                    output = self._call(args, kwargs)
                except BaseException:
                    if not self.built:
                        del self._weights[made:]
                    raise
                finally:
                    self._building = False
            self.built = True
            return output

    def _build_for(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """Build from the arguments of the first call."""
        first = args[0] if args else next(iter(kwargs.values()), None)
        self.build(shape_of(first))

    def _call(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Run `call` on cast arguments, in the autocast scope, with `training` set."""
        dtype = self._scope_dtype
        if self.autocast and dtype is not None:
            to = self._input_dtype
            args = tuple([cast_floating(arg, dtype, to) for arg in args])
            if kwargs:
                kwargs = {k: cast_floating(v, dtype, to) for k, v in kwargs.items()}
        context = call_context
        outer = training = context.training
        position = self._training_position
        if position is not None and len(args) > position:
            if args[position] is not None:
                training = args[position]
        else:
            given = kwargs.pop("training", None)
            training = training if given is None else given
            if position is not None and training is not None:
                kwargs["training"] = training
        context.training = training
        try:
            with autocast.scope(dtype):
                return self.call(*args, **kwargs)
        finally:
            context.training = outer

    # Configuration

    def get_config(self) -> dict[str, Any]:
        """Return the JSON-plain constructor arguments."""
        return {
            "name": self.name,
            "trainable": self._trainable,
            "autocast": self.autocast,
            "dtype": policies.serialize(self._policy),
        }

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> Self:
        """Make a layer from the result of `get_config`."""
        return cls(**config)

    def __repr__(self) -> str:
        """Name and policy."""
        return f"<{type(self).__name__} name={self.name} policy={self._policy.name}>"
