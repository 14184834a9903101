"""Activation: an element-wise (or softmax) function as a layer."""

from collections.abc import Callable
from typing import Any, cast

from mpcore import ops, serialization
from mpcore.layers.layer import Layer, Shape
from mpcore.serialization import register

BUILT_IN: dict[str, Callable[[Any], Any]] = {
    "linear": ops.linear,
    "relu": ops.relu,
    "sigmoid": ops.sigmoid,
    "tanh": ops.tanh,
    "gelu": ops.gelu,
    "silu": ops.silu,
    "softmax": ops.softmax,
}
for _function in BUILT_IN.values():
    register("activations")(_function)


def get(identifier: object) -> Callable[[Any], Any]:
    """Return the activation function that a name, config or callable stands for.

    Parameters
    ----------
    identifier : None, str, dict or callable
        None is 'linear'. A name is one of the above or registered by the user under
        the kind 'activations'. A callable takes and returns an array.

    Raises
    ------
    ValueError
        For an unknown name.
    TypeError
        For anything else.
    """
    if identifier is None:
        return ops.linear
    function: Any = identifier
    if isinstance(function, str):
        function = serialization.lookup("activations", function)
    elif isinstance(function, dict):
        function = serialization.deserialize(function)
    if callable(function):
        return cast(Callable[[Any], Any], function)
    raise TypeError(
        "`activation` must be a name, a config, a callable or None. "
        f"Received: activation={identifier!r}"
    )


def name_of(function: Callable[[Any], Any]) -> str | None:
    """Return the name of a built-in activation function, None for another one."""
    return next((name for name, known in BUILT_IN.items() if known is function), None)


# What a matrix product applies before its one rounding; others run after it.
_FUSED = ("linear", "relu", "sigmoid", "tanh", "gelu", "silu")


def fused_name(function: Callable[[Any], Any]) -> str | None:
    """Return the name by which `ops.dense` and `ops.conv` fuse it, None for no way."""
    name = name_of(function)
    return name if name in _FUSED else None


def serialize(function: Callable[[Any], Any]) -> Any:
    """Return an activation function for a config.

    Raises
    ------
    TypeError
        If it is neither built in nor registered.
    """
    return name_of(function) or serialization.serialize(function)


@register("layers")
class Activation(Layer):
    """Applies an activation function: y = f(x).

    Parameters
    ----------
    activation : str, callable or None
        'linear', 'relu', 'sigmoid', 'tanh', 'gelu', 'silu', 'softmax' (over the last
        axis), or a function of one array.
    **kwargs
        See `Layer`.

    Notes
    -----
    Input and output have the same shape and the compute dtype. The arithmetic is
    float32 with one rounding per element, softmax included.
    """

    def __init__(self, activation: object, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.activation = get(activation)

    def call(self, inputs: Any) -> Any:
        """Return f(inputs)."""
        return self.activation(inputs)

    def compute_output_shape(self, input_shape: Shape) -> Shape:
        """Return the input's shape."""
        return tuple(input_shape)

    def get_config(self) -> dict[str, Any]:
        """Return the JSON-plain constructor arguments."""
        return super().get_config() | {"activation": serialize(self.activation)}
