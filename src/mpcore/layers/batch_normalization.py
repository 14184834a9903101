"""BatchNormalization: each channel by the statistics of the batch, or moving ones."""

import operator
from typing import Any

import numpy as np

from mpcore import constraints, initializers, ops, regularizers
from mpcore.layers.layer import Layer, Shape
from mpcore.layers.normalization import known_lengths, positive_epsilon
from mpcore.serialization import register
from mpcore.variable import Variable


@register("layers")
class BatchNormalization(Layer):
    """Normalizes each channel by the batch, or by moving statistics.

    y = (x - mean) / sqrt(variance + epsilon) * gamma + beta.

    With ``training=True`` (from the call or an enclosing one, as in `Model.fit`) mean
    and variance are those of the batch, and the moving ones follow them:
    moving = moving * momentum + batch * (1 - momentum). Otherwise, and where
    `trainable` is False, they are the moving ones.

    Parameters
    ----------
    axis : int, default -1
        The axis of the channels.
    momentum : float in [0, 1], default 0.99
    epsilon : float, > 0, default 1e-3
    center, scale : bool, default True
        Whether there are a beta and a gamma.
    beta_initializer, gamma_initializer : default 'zeros', 'ones'
        See `mpcore.initializers`.
    moving_mean_initializer, moving_variance_initializer : default 'zeros', 'ones'
    beta_regularizer, gamma_regularizer : optional
        See `mpcore.regularizers`.
    beta_constraint, gamma_constraint : optional
        See `mpcore.constraints`.
    **kwargs
        See `Layer`.

    Attributes
    ----------
    gamma, beta : Variable of shape (channels,), or None
    moving_mean, moving_variance : Variable of shape (channels,), not trainable

    Notes
    -----
    Statistics, epsilon, and variables are float32 whatever the compute dtype, and there
    is one rounding. The variance is divided by the number of elements, also for the
    moving one.
    """

    def __init__(
        self,
        axis: int = -1,
        momentum: float = 0.99,
        epsilon: float = 1e-3,
        center: bool = True,
        scale: bool = True,
        beta_initializer: object = "zeros",
        gamma_initializer: object = "ones",
        moving_mean_initializer: object = "zeros",
        moving_variance_initializer: object = "ones",
        beta_regularizer: object = None,
        gamma_regularizer: object = None,
        beta_constraint: object = None,
        gamma_constraint: object = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        if not 0 <= momentum <= 1:
            raise ValueError(
                f"`momentum` must be in [0, 1]. Received: momentum={momentum}"
            )
        self.axis = operator.index(axis)
        self.momentum = float(momentum)
        self.epsilon = positive_epsilon(epsilon)
        self.center = bool(center)
        self.scale = bool(scale)
        self.beta_initializer = initializers.get(beta_initializer)
        self.gamma_initializer = initializers.get(gamma_initializer)
        self.moving_mean_initializer = initializers.get(moving_mean_initializer)
        self.moving_variance_initializer = initializers.get(moving_variance_initializer)
        self.beta_regularizer = regularizers.get(beta_regularizer)
        self.gamma_regularizer = regularizers.get(gamma_regularizer)
        self.beta_constraint = constraints.get(beta_constraint)
        self.gamma_constraint = constraints.get(gamma_constraint)
        self.gamma: Any = None
        self.beta: Any = None
        self.moving_mean: Any = None
        self.moving_variance: Any = None

    def build(self, input_shape: Shape) -> None:
        """Create gamma, beta, and the moving statistics."""
        shape = known_lengths(self, input_shape, [self.axis])
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
        self.moving_mean = self._add_moving("moving_mean", shape)
        self.moving_variance = self._add_moving("moving_variance", shape)

    def _add_moving(self, name: str, shape: list[int]) -> Variable:
        return self.add_weight(
            shape,
            initializer=getattr(self, f"{name}_initializer"),
            trainable=False,
            autocast=False,
            name=name,
        )

    def call(self, inputs: Any, training: bool = False) -> Any:
        """Return the normalized inputs; in training the moving statistics follow."""
        rest = (self.axis, self.beta, self.gamma, self.epsilon)
        if not (training and self.trainable):
            moments = (self.moving_mean, self.moving_variance)
            return ops.batch_normalization(inputs, *moments, *rest)
        outputs, mean, variance = ops.train_batch_normalization(inputs, *rest)
        self._follow(self.moving_mean, mean)
        self._follow(self.moving_variance, variance)
        return outputs

    def _follow(self, moving: Variable, batch: np.ndarray) -> None:
        kept = moving.numpy().astype(np.float64) * self.momentum
        moving.assign(kept + batch.astype(np.float64) * (1 - self.momentum))

    def compute_output_shape(self, input_shape: Shape) -> Shape:
        """Return the input's shape."""
        return tuple(input_shape)

    def get_config(self) -> dict[str, Any]:
        """Return the JSON-plain constructor arguments."""
        return super().get_config() | {
            "axis": self.axis,
            "momentum": self.momentum,
            "epsilon": self.epsilon,
            "center": self.center,
            "scale": self.scale,
            "beta_initializer": initializers.serialize(self.beta_initializer),
            "gamma_initializer": initializers.serialize(self.gamma_initializer),
            "moving_mean_initializer": initializers.serialize(
                self.moving_mean_initializer
            ),
            "moving_variance_initializer": initializers.serialize(
                self.moving_variance_initializer
            ),
            "beta_regularizer": regularizers.serialize(self.beta_regularizer),
            "gamma_regularizer": regularizers.serialize(self.gamma_regularizer),
            "beta_constraint": constraints.serialize(self.beta_constraint),
            "gamma_constraint": constraints.serialize(self.gamma_constraint),
        }
