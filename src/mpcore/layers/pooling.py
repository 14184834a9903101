"""Pooling layers over signals and images, windowed and global."""

from typing import Any

from mpcore import ops
from mpcore.layers.conv import checked_data_format
from mpcore.layers.layer import Layer, Shape
from mpcore.ops import windows
from mpcore.serialization import register


class _Pooling(Layer):
    """What layers that pool windows share."""

    _rank: int

    def __init__(
        self,
        pool_size: Any,
        strides: Any = None,
        padding: str = "valid",
        data_format: str | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.pool_size = windows.numbers(pool_size, self._rank, "pool_size")
        self.strides = (
            self.pool_size
            if strides is None
            else windows.numbers(strides, self._rank, "strides")
        )
        self.padding = windows.checked_padding(padding, ("valid", "same"))
        self.data_format = checked_data_format(data_format)

    def _checked(self, inputs: Any) -> Any:
        if len(inputs.shape) != self._rank + 2:
            raise ValueError(
                f"Layer '{self.name}' expects inputs with {self._rank + 2} dimensions. "
                f"Received: shape {inputs.shape}"
            )
        return inputs

    def compute_output_shape(self, input_shape: Shape) -> Shape:
        """Return (batch, windows along each axis, channels)."""
        spatial = zip(input_shape[1:-1], self.pool_size, self.strides, strict=True)
        lengths = [
            None if n is None else windows.along(n, size, stride, 1, self.padding)[0]
            for n, size, stride in spatial
        ]
        return (input_shape[0], *lengths, input_shape[-1])

    def get_config(self) -> dict[str, Any]:
        """Return the JSON-plain constructor arguments."""
        return super().get_config() | {
            "pool_size": list(self.pool_size),
            "strides": list(self.strides),
            "padding": self.padding,
            "data_format": self.data_format,
        }


class _MaxPooling(_Pooling):
    def call(self, inputs: Any) -> Any:
        """Return the maximum of each window."""
        return ops.max_pool(
            self._checked(inputs), self.pool_size, self.strides, self.padding
        )


class _AveragePooling(_Pooling):
    def call(self, inputs: Any) -> Any:
        """Return the mean of each window."""
        return ops.average_pool(
            self._checked(inputs), self.pool_size, self.strides, self.padding
        )


class _GlobalPooling(Layer):
    """What layers that pool whole signals and images share."""

    _rank: int

    def __init__(
        self,
        data_format: str | None = None,
        keepdims: bool = False,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.data_format = checked_data_format(data_format)
        self.keepdims = bool(keepdims)

    def _pool(self, pool: Any, inputs: Any) -> Any:
        shape = inputs.shape
        if len(shape) != self._rank + 2 or 0 in shape[1:-1]:
            raise ValueError(
                f"Layer '{self.name}' expects inputs with {self._rank + 2} dimensions, "
                f"none but the batch of length 0. Received: shape {shape}"
            )
        kept = (1,) * self._rank if self.keepdims else ()
        pooled = pool(inputs, tuple(shape[1:-1]))
        return ops.reshape(pooled, (shape[0], *kept, shape[-1]))

    def compute_output_shape(self, input_shape: Shape) -> Shape:
        """Return (batch, channels), with ones between if dimensions are kept."""
        kept = (1,) * self._rank if self.keepdims else ()
        return (input_shape[0], *kept, input_shape[-1])

    def get_config(self) -> dict[str, Any]:
        """Return the JSON-plain constructor arguments."""
        return super().get_config() | {
            "data_format": self.data_format,
            "keepdims": self.keepdims,
        }


class _GlobalMaxPooling(_GlobalPooling):
    def call(self, inputs: Any) -> Any:
        """Return the maximum of each channel."""
        return self._pool(ops.max_pool, inputs)


class _GlobalAveragePooling(_GlobalPooling):
    def call(self, inputs: Any) -> Any:
        """Return the mean of each channel."""
        return self._pool(ops.average_pool, inputs)


@register("layers")
class MaxPooling1D(_MaxPooling):
    """Maximum of windows over signals (batch, steps, channels).

    Parameters
    ----------
    pool_size : int or (int,), default 2
    strides : int or (int,), optional
        Default: `pool_size`.
    padding : {'valid', 'same'}, default 'valid'
        'same' gives ceil(steps / strides) results; what is padded never counts.
    data_format : 'channels_last' or None
    **kwargs
        See `Layer`.
    """

    _rank = 1

    def __init__(
        self,
        pool_size: Any = 2,
        strides: Any = None,
        padding: str = "valid",
        data_format: str | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(pool_size, strides, padding, data_format, **kwargs)


@register("layers")
class MaxPooling2D(_MaxPooling):
    """Maximum of windows over images; see `MaxPooling1D`, with pairs of integers."""

    _rank = 2

    def __init__(
        self,
        pool_size: Any = (2, 2),
        strides: Any = None,
        padding: str = "valid",
        data_format: str | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(pool_size, strides, padding, data_format, **kwargs)


@register("layers")
class AveragePooling1D(_AveragePooling):
    """Mean of windows over signals, without what is padded; see `MaxPooling1D`.

    `pool_size` has no default, as in Keras.
    """

    _rank = 1


@register("layers")
class AveragePooling2D(_AveragePooling):
    """Mean of windows over images, without what is padded; see `MaxPooling1D`.

    `pool_size` has no default, as in Keras.
    """

    _rank = 2


@register("layers")
class GlobalMaxPooling1D(_GlobalMaxPooling):
    """Maximum of a signal: (batch, steps, channels) to (batch, channels).

    Parameters
    ----------
    data_format : 'channels_last' or None
    keepdims : bool, default False
        Keep the pooled axes with length 1.
    **kwargs
        See `Layer`.
    """

    _rank = 1


@register("layers")
class GlobalMaxPooling2D(_GlobalMaxPooling):
    """Maximum of an image: (batch, height, width, channels) to (batch, channels)."""

    _rank = 2


@register("layers")
class GlobalAveragePooling1D(_GlobalAveragePooling):
    """Mean of a signal; see `GlobalMaxPooling1D`."""

    _rank = 1


@register("layers")
class GlobalAveragePooling2D(_GlobalAveragePooling):
    """Mean of an image: (batch, height, width, channels) to (batch, channels)."""

    _rank = 2
