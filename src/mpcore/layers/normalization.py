"""LayerNormalization and RMSNormalization: each sample by its own statistics."""

import operator
from collections.abc import Sequence
from typing import Any

from mpcore import constraints, initializers, ops, regularizers
from mpcore.layers.layer import Layer, Shape
from mpcore.serialization import register


def positive_epsilon(epsilon: float) -> float:
    """Return the epsilon of a normalisation, or raise ValueError."""
    if not epsilon > 0:
        raise ValueError(f"`epsilon` must be > 0. Received: epsilon={epsilon}")
    return float(epsilon)


def known_lengths(layer: Layer, input_shape: Shape, axes: Sequence[int]) -> list[int]:
    """Return the lengths of axes, none of which may be unknown."""
    try:
        lengths = [input_shape[axis] for axis in axes]
    except IndexError:
        lengths = [None]
    known = [length for length in lengths if length is not None]
    if len(known) < len(lengths):
        raise ValueError(
            f"Layer '{layer.name}' needs inputs with known lengths of the axes "
            f"{list(axes)}. Received: input_shape={tuple(input_shape)}"
        )
    return known


def _axes(axis: int | Sequence[int]) -> int | list[int]:
    if isinstance(axis, list | tuple):
        return sorted(operator.index(item) for item in axis)
    return operator.index(axis)  # type: ignore[arg-type]


@register("layers")
class LayerNormalization(Layer):
    """Normalizes each sample: y = (x - mean) / sqrt(variance + epsilon) * gamma + beta.

    Parameters
    ----------
    axis : int or sequence of int, default -1
        The axes that mean and variance are taken over; never that of the batch.
    epsilon : float, > 0, default 1e-3
    center, scale : bool, default True
        Whether there are a beta and a gamma.
    beta_initializer, gamma_initializer : default 'zeros', 'ones'
        See `mpcore.initializers`.
    beta_regularizer, gamma_regularizer : optional
        See `mpcore.regularizers`.
    beta_constraint, gamma_constraint : optional
        See `mpcore.constraints`.
    **kwargs
        See `Layer`.

    Attributes
    ----------
    gamma, beta : Variable of the lengths of the axes, or None

    Notes
    -----
    Statistics, epsilon, gamma, and beta are float32 whatever the compute dtype, and
    there is one rounding.
    """

    def __init__(
        self,
        axis: int | Sequence[int] = -1,
        epsilon: float = 1e-3,
        center: bool = True,
        scale: bool = True,
        beta_initializer: object = "zeros",
        gamma_initializer: object = "ones",
        beta_regularizer: object = None,
        gamma_regularizer: object = None,
        beta_constraint: object = None,
        gamma_constraint: object = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.axis = _axes(axis)
        self.epsilon = positive_epsilon(epsilon)
        self.center = bool(center)
        self.scale = bool(scale)
        self.beta_initializer = initializers.get(beta_initializer)
        self.gamma_initializer = initializers.get(gamma_initializer)
        self.beta_regularizer = regularizers.get(beta_regularizer)
        self.gamma_regularizer = regularizers.get(gamma_regularizer)
        self.beta_constraint = constraints.get(beta_constraint)
        self.gamma_constraint = constraints.get(gamma_constraint)
        self.gamma: Any = None
        self.beta: Any = None

    def build(self, input_shape: Shape) -> None:
        """Create gamma and beta."""
        axes = self.axis if isinstance(self.axis, list) else [self.axis]
        shape = known_lengths(self, input_shape, axes)
        if self.scale:
            self.gamma = self.add_weight(
                shape,
                initializer=self.gamma_initializer,
                regularizer=self.gamma_regularizer,
                constraint=self.gamma_constraint,
                autocast=False,
                name="gamma",
            )
        if self.center:
            self.beta = self.add_weight(
                shape,
                initializer=self.beta_initializer,
                regularizer=self.beta_regularizer,
                constraint=self.beta_constraint,
                autocast=False,
                name="beta",
            )

    def call(self, inputs: Any) -> Any:
        """Return the normalized inputs."""
        return ops.layer_normalization(
            inputs, self.gamma, self.beta, self.axis, self.epsilon
        )

    def compute_output_shape(self, input_shape: Shape) -> Shape:
        """Return the input's shape."""
        return tuple(input_shape)

    def get_config(self) -> dict[str, Any]:
        """Return the JSON-plain constructor arguments."""
        return super().get_config() | {
            "axis": self.axis,
            "epsilon": self.epsilon,
            "center": self.center,
            "scale": self.scale,
            "beta_initializer": initializers.serialize(self.beta_initializer),
            "gamma_initializer": initializers.serialize(self.gamma_initializer),
            "beta_regularizer": regularizers.serialize(self.beta_regularizer),
            "gamma_regularizer": regularizers.serialize(self.gamma_regularizer),
            "beta_constraint": constraints.serialize(self.beta_constraint),
            "gamma_constraint": constraints.serialize(self.gamma_constraint),
        }


@register("layers")
class RMSNormalization(Layer):
    """Normalizes each sample by its root mean square.

    y = x / sqrt(mean(x^2) + epsilon) * scale.

    Parameters
    ----------
    axis : int or sequence of int, default -1
        The axes that the mean is taken over; never that of the batch.
    epsilon : float, > 0, default 1e-6
    **kwargs
        See `Layer`.

    Attributes
    ----------
    scale : Variable of the lengths of the axes
        Begins as ones.

    Notes
    -----
    The mean, epsilon, and scale are float32 whatever the compute dtype, and there is
    one rounding.
    """

    def __init__(
        self, axis: int | Sequence[int] = -1, epsilon: float = 1e-6, **kwargs: Any
    ) -> None:
        super().__init__(**kwargs)
        self.axis = _axes(axis)
        self.epsilon = positive_epsilon(epsilon)
        self.scale: Any = None

    def build(self, input_shape: Shape) -> None:
        """Create scale."""
        axes = self.axis if isinstance(self.axis, list) else [self.axis]
        self.scale = self.add_weight(
            known_lengths(self, input_shape, axes), initializer="ones", name="scale"
        )

    def call(self, inputs: Any) -> Any:
        """Return the normalized inputs."""
        return ops.rms_normalization(inputs, self.scale, self.axis, self.epsilon)

    def compute_output_shape(self, input_shape: Shape) -> Shape:
        """Return the input's shape."""
        return tuple(input_shape)

    def get_config(self) -> dict[str, Any]:
        """Return the JSON-plain constructor arguments."""
        return super().get_config() | {"axis": self.axis, "epsilon": self.epsilon}
