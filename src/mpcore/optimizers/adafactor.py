"""Adafactor."""

import math
from collections.abc import Sequence
from typing import Unpack

import numpy as np

from mpcore import ops
from mpcore.optimizers import rates
from mpcore.optimizers.arguments import Flag, Real
from mpcore.optimizers.directed import DirectedOptimizer
from mpcore.optimizers.settings import FusedDecaySettings
from mpcore.optimizers.slots import Initializer
from mpcore.serialization import register
from mpcore.variable import Variable

_ROWS, _COLUMNS, _VELOCITY = range(3)  # the slots


def _mean(x: np.ndarray, axis: int) -> np.ndarray:
    """Return the mean along an axis, summed in double; 0 of nothing."""
    total = np.asarray(np.sum(x, axis=axis, dtype=np.float64))
    return np.asarray(total / max(x.shape[axis], 1), x.dtype)


def _rms(x: np.ndarray) -> float:
    """Return the root of the mean square; 0 of nothing."""
    return float(ops.norms([x])[0]) / math.sqrt(max(x.size, 1))


@register("optimizers")
class Adafactor(DirectedOptimizer):
    """Adafactor: Adam whose second moments are kept as means of rows and columns.

    With g the gradient, lr the learning rate, t = 1 at the first update, and rms(x) the
    root of the mean square of x::

        b = 1 - t**beta_2_decay;  s = g**2 + epsilon_1
        r = b * r + (1 - b) * mean(s, -1)        rank >= 2, as the next two lines
        c = b * c + (1 - b) * mean(s, -2)
        v = r / mean(r, -1) * c
        v = b * v + (1 - b) * s                  rank < 2
        u = g / sqrt(v)
        a = max(epsilon_2, rms(w)) * min(lr, 1 / sqrt(t))
        w -= a / max(1, rms(u) / clip_threshold) * u

    Parameters
    ----------
    learning_rate : real number, LearningRateSchedule, or callable, default 0.001
    beta_2_decay : float, <= 0, default -0.8
    epsilon_1 : float, >= 0, default 1e-30
        With 0, a gradient that is 0 in a whole row gives NaN.
    epsilon_2 : float, >= 0, default 1e-3
    clip_threshold : float, > 0, default 1
    relative_step : bool, default True
        Changes nothing: the rate is bounded by 1 / sqrt(t) in any case, as in Keras.
    **settings
        Those of `Optimizer` and `FusedOptimizer`.

    Raises
    ------
    ValueError
        If a number is out of range, and as `Optimizer` does.

    Notes
    -----
    Slots, for each variable: r and c, which have the variable's name and are unused
    scalars where its rank is below 2, and `velocity`, v. Means and norms are summed in
    double; the rule runs in NumPy, several passes over memory.

    References
    ----------
    Shazeer & Stern, "Adafactor: Adaptive Learning Rates with Sublinear Memory Cost",
    algorithms 4 and 5.

    Examples
    --------
    >>> from mpcore import Variable
    >>> w = Variable([1.0, 2.0])
    >>> optimizer = Adafactor(0.25)
    >>> optimizer.apply([[1.0, -1.0]], [w])
    >>> w.numpy().round(4)
    array([0.6047, 2.3953], dtype=float32)
    """

    beta_2_decay = Real("(-inf, 0]")
    epsilon_1 = Real("[0, inf)")
    epsilon_2 = Real("[0, inf)")
    clip_threshold = Real("(0, inf)")
    relative_step = Flag()

    def __init__(
        self,
        learning_rate: rates.LearningRate = 0.001,
        beta_2_decay: float = -0.8,
        epsilon_1: float = 1e-30,
        epsilon_2: float = 1e-3,
        clip_threshold: float = 1.0,
        relative_step: bool = True,
        **settings: Unpack[FusedDecaySettings],
    ) -> None:
        super().__init__(
            learning_rate,
            beta_2_decay=beta_2_decay,
            epsilon_1=epsilon_1,
            epsilon_2=epsilon_2,
            clip_threshold=clip_threshold,
            relative_step=relative_step,
            **settings,
        )

    def _slot_groups(self) -> Sequence[tuple[str, ...]]:
        return [("rows", "columns", "velocity")]

    def _add_slot(self, variable: Variable, name: str, start: Initializer) -> Variable:
        shape = variable.shape
        if name == "velocity":
            return super()._add_slot(variable, name, start)
        if len(shape) < 2:
            shape = ()
        elif name == "rows":
            shape = shape[:-1]
        else:
            shape = (*shape[:-2], shape[-1])
        return self.add_variable(
            shape, start, self._slot_dtype(variable), name=variable.name
        )

    def _direction(
        self,
        gradient: np.ndarray,
        variable: Variable,
        learning_rate: float,
        decay: float,
    ) -> tuple[np.ndarray, float]:
        step = int(self.iterations) + 1
        direction = gradient / np.sqrt(self._velocity(gradient, variable, step))
        # Of the weights as they will have decayed.
        size = _rms(variable.stored) * abs(1 - decay * learning_rate)
        size = max(self.epsilon_2, size) * min(learning_rate, 1 / math.sqrt(step))
        return direction, size / max(1.0, _rms(direction) / self.clip_threshold)

    def _velocity(
        self, gradient: np.ndarray, variable: Variable, step: int
    ) -> np.ndarray:
        """Move the second moments of a variable, and return them."""
        kept = 1 - step**self.beta_2_decay
        squares = gradient * gradient + gradient.dtype.type(self.epsilon_1)
        if squares.ndim < 2:
            velocity = self._moved(variable, _VELOCITY, squares, kept)
        else:
            rows = self._moved(variable, _ROWS, _mean(squares, -1), kept)
            columns = self._moved(variable, _COLUMNS, _mean(squares, -2), kept)
            shares = rows / _mean(rows, -1)[..., None]
            velocity = shares[..., :, None] * columns[..., None, :]
            self._keep(variable, _VELOCITY, velocity)
        return velocity

    def _moved(
        self, variable: Variable, place: int, value: np.ndarray, kept: float
    ) -> np.ndarray:
        """Return kept * slot + (1 - kept) * value, which the slot becomes."""
        slot = self._slot(variable, place)
        real = value.dtype.type
        moved: np.ndarray = (
            real(kept) * slot.numpy().astype(real) + real(1 - kept) * value
        )
        self._keep(variable, place, moved)
        return moved
