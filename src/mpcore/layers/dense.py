"""Dense: y = activation(x W + b)."""

import operator
from typing import Any

from mpcore import constraints, initializers, ops, regularizers
from mpcore.layers import activation as activations
from mpcore.layers.layer import Layer, Shape
from mpcore.serialization import register


@register("layers")
class Dense(Layer):
    """Fully connected layer: y = activation(x W + b).

    Parameters
    ----------
    units : int, > 0
        Size of the output's last dimension.
    activation : str, callable or None, default None
        See `Activation`.
    use_bias : bool, default True
    kernel_initializer, bias_initializer : default 'glorot_uniform', 'zeros'
        See `mpcore.initializers`.
    kernel_regularizer, bias_regularizer : optional
        See `mpcore.regularizers`.
    kernel_constraint, bias_constraint : optional
        See `mpcore.constraints`.
    **kwargs
        See `Layer`.

    Attributes
    ----------
    kernel : Variable of shape (input features, units)
    bias : Variable of shape (units,) or None

    Raises
    ------
    TypeError
        On `units` that is no integer.
    ValueError
        On `units` < 1, and in a call on an input whose last dimension is not the
        kernel's first.

    Notes
    -----
    Input (..., features), output (..., units), both in the compute dtype. The product
    is accumulated in float32; bias and activation are applied there; one rounding.

    Examples
    --------
    >>> import numpy as np, mpcore
    >>> layer = mpcore.layers.Dense(3, activation="relu", dtype="mixed_bfloat16")
    >>> y = layer(np.ones((2, 4), np.float32))
    >>> y.shape, str(y.dtype), layer.kernel.dtype
    ((2, 3), 'bfloat16', 'float32')
    """

    def __init__(
        self,
        units: int,
        activation: object = None,
        use_bias: bool = True,
        kernel_initializer: object = "glorot_uniform",
        bias_initializer: object = "zeros",
        kernel_regularizer: object = None,
        bias_regularizer: object = None,
        kernel_constraint: object = None,
        bias_constraint: object = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        if isinstance(units, bool) or not hasattr(units, "__index__"):
            raise TypeError(f"`units` must be an integer. Received: units={units!r}")
        self.units = operator.index(units)
        if self.units < 1:
            raise ValueError(f"`units` must be at least 1. Received: units={units}")
        self.activation = activations.get(activation)
        self.use_bias = bool(use_bias)
        self.kernel_initializer = initializers.get(kernel_initializer)
        self.bias_initializer = initializers.get(bias_initializer)
        self.kernel_regularizer = regularizers.get(kernel_regularizer)
        self.bias_regularizer = regularizers.get(bias_regularizer)
        self.kernel_constraint = constraints.get(kernel_constraint)
        self.bias_constraint = constraints.get(bias_constraint)
        self._fused = activations.fused_name(self.activation)
        self.kernel: Any = None
        self.bias: Any = None

    def build(self, input_shape: Shape) -> None:
        """Create kernel and bias for inputs of shape (..., features)."""
        features = input_shape[-1] if len(input_shape) > 1 else None
        if features is None:
            raise ValueError(
                f"Layer '{self.name}' needs inputs (batch, ..., features) with a known "
                f"number of features. Received: input_shape={tuple(input_shape)}"
            )
        self.kernel = self.add_weight(
            (features, self.units),
            initializer=self.kernel_initializer,
            regularizer=self.kernel_regularizer,
            constraint=self.kernel_constraint,
            name="kernel",
        )
        if self.use_bias:
            self.bias = self.add_weight(
                (self.units,),
                initializer=self.bias_initializer,
                regularizer=self.bias_regularizer,
                constraint=self.bias_constraint,
                name="bias",
            )

    def call(self, inputs: Any) -> Any:
        """Return activation(inputs W + b)."""
        shape = inputs.shape
        if len(shape) < 2 or shape[-1] != self.kernel.shape[0]:
            raise ValueError(
                f"Layer '{self.name}' expects inputs of shape "
                f"(batch, ..., {self.kernel.shape[0]}). Received: shape {shape}"
            )
        if self._fused is not None:
            return ops.dense(inputs, self.kernel, self.bias, self._fused)
        return self.activation(ops.dense(inputs, self.kernel, self.bias))

    def compute_output_shape(self, input_shape: Shape) -> Shape:
        """Return the input's shape with `units` as last dimension."""
        return (*input_shape[:-1], self.units)

    def get_config(self) -> dict[str, Any]:
        """Return the JSON-plain constructor arguments."""
        return super().get_config() | {
            "units": self.units,
            "activation": activations.serialize(self.activation),
            "use_bias": self.use_bias,
            "kernel_initializer": initializers.serialize(self.kernel_initializer),
            "bias_initializer": initializers.serialize(self.bias_initializer),
            "kernel_regularizer": regularizers.serialize(self.kernel_regularizer),
            "bias_regularizer": regularizers.serialize(self.bias_regularizer),
            "kernel_constraint": constraints.serialize(self.kernel_constraint),
            "bias_constraint": constraints.serialize(self.bias_constraint),
        }
