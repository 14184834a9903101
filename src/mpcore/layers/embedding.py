"""Embedding: integers become vectors."""

import operator
from typing import Any

from mpcore import constraints, initializers, ops, regularizers
from mpcore.layers.layer import Layer, Shape
from mpcore.serialization import register


@register("layers")
class Embedding(Layer):
    """Looks up a trained vector for each integer.

    Parameters
    ----------
    input_dim : int, > 0
        Inputs are in [0, input_dim).
    output_dim : int, > 0
        Size of a vector.
    embeddings_initializer : default 'uniform'
        See `mpcore.initializers`.
    embeddings_regularizer, embeddings_constraint : optional
        See `mpcore.regularizers` and `mpcore.constraints`.
    **kwargs
        See `Layer`.

    Attributes
    ----------
    embeddings : Variable of shape (input_dim, output_dim)

    Raises
    ------
    TypeError, ValueError
        In a call: on inputs that are no integers, or out of range.

    Notes
    -----
    Integers of shape (...) become vectors of shape (..., output_dim), in the compute
    dtype. The gradient of `embeddings` is an `IndexedSlices`.
    """

    def __init__(
        self,
        input_dim: int,
        output_dim: int,
        embeddings_initializer: object = "uniform",
        embeddings_regularizer: object = None,
        embeddings_constraint: object = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.input_dim = operator.index(input_dim)
        self.output_dim = operator.index(output_dim)
        if self.input_dim < 1 or self.output_dim < 1:
            raise ValueError(
                "`input_dim` and `output_dim` must be at least 1. Received: "
                f"input_dim={input_dim}, output_dim={output_dim}"
            )
        self.embeddings_initializer = initializers.get(embeddings_initializer)
        self.embeddings_regularizer = regularizers.get(embeddings_regularizer)
        self.embeddings_constraint = constraints.get(embeddings_constraint)
        self.embeddings: Any = None

    def build(self, input_shape: Shape) -> None:
        """Create the table."""
        self.embeddings = self.add_weight(
            (self.input_dim, self.output_dim),
            initializer=self.embeddings_initializer,
            regularizer=self.embeddings_regularizer,
            constraint=self.embeddings_constraint,
            name="embeddings",
        )

    def call(self, inputs: Any) -> Any:
        """Return the vector of each integer."""
        return ops.embedding(inputs, self.embeddings)

    def compute_output_shape(self, input_shape: Shape) -> Shape:
        """Return the input's shape, followed by `output_dim`."""
        return (*input_shape, self.output_dim)

    def get_config(self) -> dict[str, Any]:
        """Return the JSON-plain constructor arguments."""
        return super().get_config() | {
            "input_dim": self.input_dim,
            "output_dim": self.output_dim,
            "embeddings_initializer": initializers.serialize(
                self.embeddings_initializer
            ),
            "embeddings_regularizer": regularizers.serialize(
                self.embeddings_regularizer
            ),
            "embeddings_constraint": constraints.serialize(self.embeddings_constraint),
        }
