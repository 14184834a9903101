"""Sequential: layers one after the other."""

from collections.abc import Iterable
from typing import Any, Self

from mpcore import serialization
from mpcore.layers.layer import Layer, Shape
from mpcore.layers.super_init import set_in_init
from mpcore.models.model import Model
from mpcore.serialization import register


@register("layers")
@set_in_init("_layers")
class Sequential(Model):
    """A model that passes its input through layers one after the other.

    Parameters
    ----------
    layers : iterable of Layer, optional
    **kwargs
        See `Model`.

    Notes
    -----
    Variables are made on the first batch, or by `build((None, features))`.

    Examples
    --------
    >>> import mpcore
    >>> model = mpcore.Sequential(
    ...     [mpcore.layers.Dense(8, activation="relu"), mpcore.layers.Dense(2)]
    ... )
    >>> model.build((None, 4))
    >>> model.count_params()
    58
    """

    def __init__(self, layers: Iterable[Layer] | None = None, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self._layers: list[Layer] = []
        for layer in layers or ():
            self.add(layer)

    @property
    def layers(self) -> list[Layer]:
        """The layers, in order."""
        return list(self._layers)

    def add(self, layer: Layer) -> None:
        """Append a layer.

        Raises
        ------
        TypeError
            If it is no layer.
        ValueError
            If another layer has its name.
        """
        if not isinstance(layer, Layer):
            raise TypeError(f"`layer` must be a Layer. Received: {layer!r}")
        if any(layer.name == other.name for other in self._layers):
            raise ValueError(
                f"The layers of '{self.name}' must have names of their own. "
                f"Received a second one named '{layer.name}'."
            )
        self._layers.append(layer)
        self.built = False

    def pop(self) -> Layer:
        """Remove and return the last layer."""
        if not self._layers:
            raise ValueError(f"Model '{self.name}' has no layers.")
        return self._layers.pop()

    def build(self, input_shape: Shape) -> None:
        """Create the variables of all layers.

        Parameters
        ----------
        input_shape : tuple of int or None
            With the batch dimension, which may be None.
        """
        shape = tuple(input_shape)
        for layer in self._layers:
            if not layer.built:
                layer.build(shape)
            shape = tuple(layer.compute_output_shape(shape))

    def _build_for(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """Leave building to the layers' first calls, which know their inputs."""

    def call(self, inputs: Any) -> Any:
        """Return the output of the last layer."""
        for layer in self._layers:
            inputs = layer(inputs)
        return inputs

    def compute_output_shape(self, input_shape: Shape) -> Shape:
        """Return the last layer's output shape."""
        for layer in self._layers:
            input_shape = layer.compute_output_shape(input_shape)
        return input_shape

    def get_config(self) -> dict[str, Any]:
        """Return the JSON-plain constructor arguments, layers included."""
        layers = [serialization.serialize(layer) for layer in self._layers]
        return super().get_config() | {"layers": layers}

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> Self:
        """Make an unbuilt model from the result of `get_config`."""
        layers = [serialization.deserialize(c, kind="layers") for c in config["layers"]]
        return cls(**{**config, "layers": layers})
