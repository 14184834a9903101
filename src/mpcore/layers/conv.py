"""Conv1D and Conv2D: y = activation(x * W + b)."""

import operator
from typing import Any

from mpcore import constraints, initializers, ops, regularizers
from mpcore.layers import activation as activations
from mpcore.layers.layer import Layer, Shape
from mpcore.ops import windows
from mpcore.serialization import register


def checked_data_format(data_format: object) -> str:
    """Return 'channels_last', the one layout there is.

    Raises
    ------
    ValueError
        For 'channels_first' and whatever else.
    """
    if data_format not in (None, "channels_last"):
        raise ValueError(
            "`data_format` must be 'channels_last' or None: the kernels have no other "
            f"layout; transpose the data. Received: data_format={data_format!r}"
        )
    return "channels_last"


class _Conv(Layer):
    """What convolutions over one and two axes share."""

    _rank: int
    _paddings: tuple[str, ...]

    def __init__(
        self,
        filters: int,
        kernel_size: Any,
        strides: Any,
        padding: str,
        data_format: str | None,
        dilation_rate: Any,
        groups: int,
        activation: object,
        use_bias: bool,
        kernel_initializer: object,
        bias_initializer: object,
        kernel_regularizer: object,
        bias_regularizer: object,
        kernel_constraint: object,
        bias_constraint: object,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.filters = operator.index(filters)
        self.groups = operator.index(groups)
        if self.filters < 1 or self.groups < 1 or self.filters % self.groups:
            raise ValueError(
                "`filters` and `groups` must be at least 1, and `filters` a multiple "
                f"of `groups`. Received: filters={filters}, groups={groups}"
            )
        self.kernel_size = windows.numbers(kernel_size, self._rank, "kernel_size")
        self.strides = windows.numbers(strides, self._rank, "strides")
        self.dilation_rate = windows.numbers(dilation_rate, self._rank, "dilation_rate")
        self.padding = windows.checked_padding(padding, self._paddings)
        self.data_format = checked_data_format(data_format)
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
        """Create kernel and bias for inputs of shape (batch, ..., channels)."""
        channels = input_shape[-1] if len(input_shape) == self._rank + 2 else None
        if channels is None or channels % self.groups:
            raise ValueError(
                f"Layer '{self.name}' needs inputs with {self._rank + 2} dimensions, "
                f"the last a known multiple of {self.groups} channels. "
                f"Received: input_shape={tuple(input_shape)}"
            )
        self.kernel = self.add_weight(
            (*self.kernel_size, channels // self.groups, self.filters),
            initializer=self.kernel_initializer,
            regularizer=self.kernel_regularizer,
            constraint=self.kernel_constraint,
            name="kernel",
        )
        if self.use_bias:
            self.bias = self.add_weight(
                (self.filters,),
                initializer=self.bias_initializer,
                regularizer=self.bias_regularizer,
                constraint=self.bias_constraint,
                name="bias",
            )

    def call(self, inputs: Any) -> Any:
        """Return activation(inputs * W + b)."""
        shape, channels = inputs.shape, self.kernel.shape[-2] * self.groups
        if len(shape) != self._rank + 2 or shape[-1] != channels:
            raise ValueError(
                f"Layer '{self.name}' expects inputs with {self._rank + 2} dimensions, "
                f"the last of {channels} channels. Received: shape {shape}"
            )
        y = ops.conv(
            inputs,
            self.kernel,
            self.bias,
            self._fused,
            self.strides,
            self.padding,
            self.dilation_rate,
        )
        return y if self._fused is not None else self.activation(y)

    def compute_output_shape(self, input_shape: Shape) -> Shape:
        """Return (batch, ..., filters)."""
        lengths = [
            None if n is None else windows.along(n, size, stride, gap, self.padding)[0]
            for n, size, stride, gap in zip(
                input_shape[1:-1],
                self.kernel_size,
                self.strides,
                self.dilation_rate,
                strict=True,
            )
        ]
        return (input_shape[0], *lengths, self.filters)

    def get_config(self) -> dict[str, Any]:
        """Return the JSON-plain constructor arguments."""
        return super().get_config() | {
            "filters": self.filters,
            "kernel_size": list(self.kernel_size),
            "strides": list(self.strides),
            "padding": self.padding,
            "data_format": self.data_format,
            "dilation_rate": list(self.dilation_rate),
            "groups": self.groups,
            "activation": activations.serialize(self.activation),
            "use_bias": self.use_bias,
            "kernel_initializer": initializers.serialize(self.kernel_initializer),
            "bias_initializer": initializers.serialize(self.bias_initializer),
            "kernel_regularizer": regularizers.serialize(self.kernel_regularizer),
            "bias_regularizer": regularizers.serialize(self.bias_regularizer),
            "kernel_constraint": constraints.serialize(self.kernel_constraint),
            "bias_constraint": constraints.serialize(self.bias_constraint),
        }


@register("layers")
class Conv1D(_Conv):
    """Convolution over signals: (batch, steps, channels) to (batch, steps', filters).

    Parameters
    ----------
    filters : int, >= 1
        Channels of the output.
    kernel_size, strides, dilation_rate : int or (int,); the latter two default to 1
    padding : {'valid', 'same', 'causal'}, default 'valid'
        'same' pads evenly with zeros, 'causal' at the beginning alone.
    data_format : 'channels_last' or None
    groups : int, default 1
        Must divide the channels and `filters`; each group sees its own channels.
    activation : str, callable or None
        See `Activation`.
    use_bias : bool, default True
    kernel_initializer, bias_initializer : default 'glorot_uniform', 'zeros'
    kernel_regularizer, bias_regularizer, kernel_constraint, bias_constraint : optional
    **kwargs
        See `Layer`.

    Attributes
    ----------
    kernel : Variable of shape (kernel_size, channels / groups, filters)
    bias : Variable of shape (filters,) or None

    Notes
    -----
    In the compute dtype; sums, bias and activation in float32, one rounding.
    """

    _rank, _paddings = 1, ("valid", "same", "causal")

    def __init__(
        self,
        filters: int,
        kernel_size: Any,
        strides: Any = 1,
        padding: str = "valid",
        data_format: str | None = None,
        dilation_rate: Any = 1,
        groups: int = 1,
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
        super().__init__(
            filters,
            kernel_size,
            strides,
            padding,
            data_format,
            dilation_rate,
            groups,
            activation,
            use_bias,
            kernel_initializer,
            bias_initializer,
            kernel_regularizer,
            bias_regularizer,
            kernel_constraint,
            bias_constraint,
            **kwargs,
        )


@register("layers")
class Conv2D(_Conv):
    """Convolution over images: (batch, height, width, channels) to (..., filters).

    Parameters
    ----------
    filters : int, >= 1
        Channels of the output.
    kernel_size, strides, dilation_rate : int or (int, int); the latter two default to 1
    padding : {'valid', 'same'}, default 'valid'
    data_format, groups, activation, use_bias, ...
        See `Conv1D`.

    Attributes
    ----------
    kernel : Variable of shape (*kernel_size, channels / groups, filters)
    bias : Variable of shape (filters,) or None

    Examples
    --------
    >>> import numpy as np, mpcore
    >>> layer = mpcore.layers.Conv2D(4, 3, padding="same", activation="relu")
    >>> layer(np.ones((2, 8, 8, 3), np.float32)).shape
    (2, 8, 8, 4)
    """

    _rank, _paddings = 2, ("valid", "same")

    def __init__(
        self,
        filters: int,
        kernel_size: Any,
        strides: Any = (1, 1),
        padding: str = "valid",
        data_format: str | None = None,
        dilation_rate: Any = (1, 1),
        groups: int = 1,
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
        super().__init__(
            filters,
            kernel_size,
            strides,
            padding,
            data_format,
            dilation_rate,
            groups,
            activation,
            use_bias,
            kernel_initializer,
            bias_initializer,
            kernel_regularizer,
            bias_regularizer,
            kernel_constraint,
            bias_constraint,
            **kwargs,
        )
