"""Dropout: zeros at random while training."""

from typing import Any

from mpcore import ops, random
from mpcore.layers.layer import Layer, Shape
from mpcore.serialization import register


@register("layers")
class Dropout(Layer):
    """Zeroes each element with probability `rate` in training, scales the others.

    Parameters
    ----------
    rate : float in [0, 1)
        Kept elements are multiplied by 1 / (1 - rate).
    seed : int, optional
        Default: the next stream of the global seed (`mpcore.random.set_random_seed`).
    **kwargs
        See `Layer`.

    Raises
    ------
    TypeError, ValueError
        If `rate` or `seed` is out of range, or `seed` is no integer.

    Notes
    -----
    Without `training=True` (from the call or an enclosing one, as in `Model.fit`) the
    input is returned as it is.
    """

    def __init__(self, rate: float, seed: int | None = None, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        if not 0.0 <= rate < 1.0:
            raise ValueError(f"`rate` must be in [0, 1). Received: rate={rate}")
        self.rate = float(rate)
        self.seed = seed
        self._generator = random.generator(seed)

    def call(self, inputs: Any, training: bool = False) -> Any:
        """Return the inputs, thinned out in training."""
        if not training or self.rate == 0.0:
            return inputs
        return ops.dropout(inputs, self.rate, self._generator)

    def compute_output_shape(self, input_shape: Shape) -> Shape:
        """Return the input's shape."""
        return tuple(input_shape)

    def get_config(self) -> dict[str, Any]:
        """Return the JSON-plain constructor arguments."""
        return super().get_config() | {"rate": self.rate, "seed": self.seed}
