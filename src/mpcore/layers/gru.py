"""GRU: a gated recurrent unit over sequences."""

import operator
from typing import Any

from mpcore import constraints, initializers, ops, regularizers
from mpcore.layers import activation as activations
from mpcore.layers.layer import Layer, Shape
from mpcore.serialization import register


@register("layers")
class GRU(Layer):
    """Gated recurrent unit: (batch, steps, features) to (batch, units).

    With [x_z, x_r, x_c] = x_t W + b_0 and [h_z, h_r, h_c] = h U + b_1::

        z = sigmoid(x_z + h_z)    r = sigmoid(x_r + h_r)
        c = tanh(x_c + r h_c)     h = z h + (1 - z) c

    Parameters
    ----------
    units : int, >= 1
        Size of the state h.
    activation, recurrent_activation : 'tanh', 'sigmoid'
        The fused kernel has no others.
    use_bias : bool, default True
    kernel_initializer, recurrent_initializer, bias_initializer : optional
        Default: 'glorot_uniform', 'orthogonal', 'zeros'.
    kernel_regularizer, recurrent_regularizer, bias_regularizer : optional
    kernel_constraint, recurrent_constraint, bias_constraint : optional
    return_sequences : bool, default False
        Return h after each step, (batch, steps, units), instead of the last.
    return_state : bool, default False
        Return (output, last h).
    go_backwards : bool, default False
        Begin with the last step; outputs come in the order they are computed.
    reset_after : True
        The kernel has the formula above alone.
    **kwargs
        See `Layer`.

    Attributes
    ----------
    kernel : Variable of shape (features, 3 units)
    recurrent_kernel : Variable of shape (units, 3 units)
    bias : Variable of shape (2, 3 units) or None
    """

    def __init__(
        self,
        units: int,
        activation: object = "tanh",
        recurrent_activation: object = "sigmoid",
        use_bias: bool = True,
        kernel_initializer: object = "glorot_uniform",
        recurrent_initializer: object = "orthogonal",
        bias_initializer: object = "zeros",
        kernel_regularizer: object = None,
        recurrent_regularizer: object = None,
        bias_regularizer: object = None,
        kernel_constraint: object = None,
        recurrent_constraint: object = None,
        bias_constraint: object = None,
        return_sequences: bool = False,
        return_state: bool = False,
        go_backwards: bool = False,
        reset_after: bool = True,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.units = operator.index(units)
        if self.units < 1:
            raise ValueError(f"`units` must be at least 1. Received: units={units}")
        names = [
            activations.name_of(activations.get(a))
            for a in (activation, recurrent_activation)
        ]
        if names != ["tanh", "sigmoid"] or not reset_after:
            raise ValueError(
                "GRU has the formula of activation='tanh', recurrent_activation="
                "'sigmoid', reset_after=True alone. Received: activation="
                f"{activation!r}, recurrent_activation={recurrent_activation!r}, "
                f"reset_after={reset_after}"
            )
        self.use_bias = bool(use_bias)
        self.kernel_initializer = initializers.get(kernel_initializer)
        self.recurrent_initializer = initializers.get(recurrent_initializer)
        self.bias_initializer = initializers.get(bias_initializer)
        self.kernel_regularizer = regularizers.get(kernel_regularizer)
        self.recurrent_regularizer = regularizers.get(recurrent_regularizer)
        self.bias_regularizer = regularizers.get(bias_regularizer)
        self.kernel_constraint = constraints.get(kernel_constraint)
        self.recurrent_constraint = constraints.get(recurrent_constraint)
        self.bias_constraint = constraints.get(bias_constraint)
        self.return_sequences = bool(return_sequences)
        self.return_state = bool(return_state)
        self.go_backwards = bool(go_backwards)
        self.kernel: Any = None
        self.recurrent_kernel: Any = None
        self.bias: Any = None

    def build(self, input_shape: Shape) -> None:
        """Create the variables for inputs of shape (batch, steps, features)."""
        features = input_shape[-1] if len(input_shape) == 3 else None
        if features is None:
            raise ValueError(
                f"Layer '{self.name}' needs inputs (batch, steps, features) with a "
                f"known number of features. Received: shape {tuple(input_shape)}"
            )
        for role, shape in (
            ("kernel", (features, 3 * self.units)),
            ("recurrent", (self.units, 3 * self.units)),
            ("bias", (2, 3 * self.units)),
        ):
            name = "recurrent_kernel" if role == "recurrent" else role
            if role == "bias" and not self.use_bias:
                continue
            variable = self.add_weight(
                shape,
                initializer=getattr(self, f"{role}_initializer"),
                regularizer=getattr(self, f"{role}_regularizer"),
                constraint=getattr(self, f"{role}_constraint"),
                name=name,
            )
            setattr(self, name, variable)

    def call(self, inputs: Any, initial_state: Any = None) -> Any:
        """Run over the steps, from `initial_state` (batch, units) or zeros."""
        features = self.kernel.shape[0]
        if len(inputs.shape) != 3 or inputs.shape[-1] != features:
            raise ValueError(
                f"Layer '{self.name}' expects inputs of shape (batch, steps, "
                f"{features}). Received: shape {inputs.shape}"
            )
        if not inputs.shape[1]:
            raise ValueError(
                f"Layer '{self.name}' expects at least one step. "
                f"Received: shape {inputs.shape}"
            )
        if self.go_backwards:
            inputs = ops.getitem(inputs, (slice(None), slice(None, None, -1)))
        y = ops.gru(
            inputs, self.kernel, self.recurrent_kernel, self.bias, initial_state
        )
        needs_last = self.return_state or not self.return_sequences
        last = ops.getitem(y, (slice(None), -1)) if needs_last else None
        output = y if self.return_sequences else last
        return (output, last) if self.return_state else output

    def compute_output_shape(self, input_shape: Shape) -> Any:
        """Return the shape of the output, and of the state if it is returned."""
        state = (input_shape[0], self.units)
        output = (*input_shape[:2], self.units) if self.return_sequences else state
        return (output, state) if self.return_state else output

    def get_config(self) -> dict[str, Any]:
        """Return the JSON-plain constructor arguments."""
        parts: dict[str, Any] = {}
        for role in ("kernel", "recurrent", "bias"):
            for module, what in (
                (initializers, "initializer"),
                (regularizers, "regularizer"),
                (constraints, "constraint"),
            ):
                name = f"{role}_{what}"
                parts[name] = module.serialize(getattr(self, name))
        return (
            super().get_config()
            | {
                "units": self.units,
                "activation": "tanh",
                "recurrent_activation": "sigmoid",
                "use_bias": self.use_bias,
            }
            | parts
            | {
                "return_sequences": self.return_sequences,
                "return_state": self.return_state,
                "go_backwards": self.go_backwards,
                "reset_after": True,
            }
        )
