"""Flatten: all but the batch dimension become one."""

import math
from typing import Any

from mpcore import ops
from mpcore.layers.layer import Layer, Shape
from mpcore.serialization import register


@register("layers")
class Flatten(Layer):
    """Reshapes (batch, d1, d2, ...) to (batch, d1 * d2 * ...).

    Inputs of shape (batch,) become (batch, 1).
    """

    def call(self, inputs: Any) -> Any:
        """Return the reshaped inputs."""
        shape = inputs.shape
        return ops.reshape(inputs, (shape[0], math.prod(shape[1:])))

    def compute_output_shape(self, input_shape: Shape) -> Shape:
        """Return (batch, product of the other dimensions)."""
        batch, *others = input_shape
        sizes = [size for size in others if size is not None]
        return (batch, math.prod(sizes) if len(sizes) == len(others) else None)
