"""Reshape: another shape for each sample."""

import math
import operator
from collections.abc import Sequence
from typing import Any

from mpcore import ops
from mpcore.layers.layer import Layer, Shape
from mpcore.serialization import register


@register("layers")
class Reshape(Layer):
    """Reshapes (batch, ...) to (batch, *target_shape).

    Parameters
    ----------
    target_shape : sequence of int
        Without the batch; one length may be -1.
    **kwargs
        See `Layer`.

    Raises
    ------
    ValueError
        If more than one length is negative; in a call, if the sizes differ.
    """

    def __init__(self, target_shape: Sequence[int], **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.target_shape = tuple(operator.index(n) for n in target_shape)
        free = [n for n in self.target_shape if n < 0]
        if free not in ([], [-1]):
            raise ValueError(
                "`target_shape` must have lengths >= 0, and at most one -1. Received: "
                f"target_shape={self.target_shape}"
            )

    def _resolved(self, sample: tuple[int, ...]) -> tuple[int, ...]:
        """Return the target shape for samples of a shape, without -1."""
        size = math.prod(sample)
        fixed = math.prod(n for n in self.target_shape if n >= 0)
        free = size // fixed if fixed else 0
        shape = tuple(free if n < 0 else n for n in self.target_shape)
        if math.prod(shape) != size:
            raise ValueError(
                f"Layer '{self.name}' cannot reshape samples of shape {sample} to "
                f"{self.target_shape}."
            )
        return shape

    def call(self, inputs: Any) -> Any:
        """Return the reshaped inputs."""
        batch, *sample = inputs.shape
        return ops.reshape(inputs, (batch, *self._resolved(tuple(sample))))

    def compute_output_shape(self, input_shape: Shape) -> Shape:
        """Return (batch, *target_shape)."""
        batch, *sample = input_shape
        known = tuple(n for n in sample if n is not None)
        if len(known) == len(sample):
            return (batch, *self._resolved(known))
        return (batch, *(None if n < 0 else n for n in self.target_shape))

    def get_config(self) -> dict[str, Any]:
        """Return the JSON-plain constructor arguments."""
        return super().get_config() | {"target_shape": list(self.target_shape)}
