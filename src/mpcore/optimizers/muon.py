"""Muon."""

import math
import re
from collections.abc import Sequence
from typing import Any, Unpack

import numpy as np

from mpcore import ops
from mpcore.optimizers import rates
from mpcore.optimizers.arguments import Argument, Flag, Integer, OptionalReal, Real
from mpcore.optimizers.directed import DirectedOptimizer
from mpcore.optimizers.fused import FusedOptimizer
from mpcore.optimizers.gradients import Update, scaled
from mpcore.optimizers.settings import FusedSettings
from mpcore.serialization import register
from mpcore.variable import Variable


def _patterns(name: str, value: Sequence[str] | None) -> list[str]:
    """Return a list of regular expressions, after checking that they are."""
    if isinstance(value, str):
        raise TypeError(f"`{name}` must be a list of str. Received: {name}={value!r}")
    patterns = list(value or ())
    try:
        for pattern in patterns:
            re.compile(pattern)
    except (re.error, TypeError) as error:
        raise ValueError(
            f"`{name}` must hold regular expressions. Received: {pattern!r} ({error})"
        ) from error
    return patterns


@register("optimizers")
class Muon(DirectedOptimizer):
    """Muon: momentum whose matrix is made nearly orthogonal; Adam for the rest.

    For matrices, with g the gradient and lr the learning rate::

        m = momentum * m + g
        x = g + momentum * m                     nesterov; without it x = m
        x = x.T                                  more rows than columns; back at the end
        x /= |x| + 1e-7
        A = x @ x.T;  x = a * x + (b * A + c * A @ A) @ x      ns_steps times
        w -= lr * rms_rate * sqrt(max(rows, columns)) * x      rms_rate None: lr * x

    Variables of another rank are updated by Adam.

    Parameters
    ----------
    learning_rate : real number, LearningRateSchedule, or callable, default 0.001
    adam_beta_1 : float in [0, 1), default 0.9
    adam_beta_2 : float in [0, 1), default 0.999
    adam_weight_decay : float, >= 0, optional, default 0.004
        Of the variables that Adam updates.
    epsilon : float, >= 0, default 1e-7
        Adam's.
    weight_decay : float, >= 0, optional, default 0.004
        Of the matrices.
    exclude_layers : list of str, optional
        Regular expressions; Adam updates variables in whose path one is found.
    exclude_embeddings : bool, default True
        Adam updates variables with "embedding" in their path, in any case.
    muon_a, muon_b, muon_c : float, default 3.4445, -4.775, and 2.0315
    adam_lr_ratio : float, > 0, default 1
        Adam's rate is the learning rate times this; decay goes by the learning rate.
    momentum : float in [0, 1], default 0.95
    ns_steps : int, >= 0, default 5
    nesterov : bool, default True
    rms_rate : float, optional, default 0.2
    **settings
        Those of `Optimizer` and `FusedOptimizer`.

    Raises
    ------
    ValueError
        If a number is out of range or a pattern no regular expression, and as
        `Optimizer` does.

    Notes
    -----
    Slots, for each variable: `momentum`, and `velocity` where Adam updates it.

    The products are `ops.matmul` at the precision that `set_float32_matmul_precision`
    sets (NumPy's for float64 variables). The iteration raises small singular values,
    and what rounding adds to them, up to a**ns_steps = 485 times.

    References
    ----------
    Jordan et al., "Muon: An optimizer for hidden layers in neural networks", 2024. Liu
    et al., "Muon is Scalable for LLM Training", 2025 (rms_rate).

    Examples
    --------
    >>> from mpcore import Variable
    >>> w = Variable([[1.0, 0.0], [0.0, 1.0]])
    >>> optimizer = Muon(0.5, weight_decay=None, ns_steps=0)
    >>> optimizer.apply([[[3.0, 0.0], [0.0, 4.0]]], [w])
    >>> w.numpy().round(4).diagonal()
    array([0.9151, 0.8869], dtype=float32)
    """

    _rule = "adam"  # of what is no matrix
    adam_beta_1 = Real("[0, 1)")
    adam_beta_2 = Real("[0, 1)")
    epsilon = Real("[0, inf)")
    exclude_layers = Argument(_patterns)
    muon_a = Real()
    muon_b = Real()
    muon_c = Real()
    adam_lr_ratio = Real("(0, inf)")
    momentum = Real("[0, 1]")
    ns_steps = Integer(0)
    nesterov = Flag()
    exclude_embeddings = Flag()
    adam_weight_decay = OptionalReal("[0, inf)")
    rms_rate = OptionalReal()

    def __init__(
        self,
        learning_rate: rates.LearningRate = 0.001,
        adam_beta_1: float = 0.9,
        adam_beta_2: float = 0.999,
        adam_weight_decay: float | None = 0.004,
        epsilon: float = 1e-7,
        weight_decay: float | None = 0.004,
        *,
        exclude_layers: Sequence[str] | None = None,
        exclude_embeddings: bool = True,
        muon_a: float = 3.4445,
        muon_b: float = -4.7750,
        muon_c: float = 2.0315,
        adam_lr_ratio: float = 1.0,
        momentum: float = 0.95,
        ns_steps: int = 5,
        nesterov: bool = True,
        rms_rate: float | None = 0.2,
        **settings: Unpack[FusedSettings],
    ) -> None:
        super().__init__(
            learning_rate,
            adam_beta_1=adam_beta_1,
            adam_beta_2=adam_beta_2,
            adam_weight_decay=adam_weight_decay,
            epsilon=epsilon,
            weight_decay=weight_decay,
            exclude_layers=exclude_layers,
            exclude_embeddings=exclude_embeddings,
            muon_a=muon_a,
            muon_b=muon_b,
            muon_c=muon_c,
            adam_lr_ratio=adam_lr_ratio,
            momentum=momentum,
            ns_steps=ns_steps,
            nesterov=nesterov,
            rms_rate=rms_rate,
            **settings,
        )

    def _is_matrix(self, variable: Variable) -> bool:
        """Tell whether Muon updates a variable, not Adam."""
        path = variable.path
        return (
            len(variable.shape) == 2
            and not (self.exclude_embeddings and "embedding" in path.lower())
            and not any(re.search(pattern, path) for pattern in self.exclude_layers)
        )

    def _slot_groups(self) -> Sequence[tuple[str, ...]]:
        return [("momentum", "velocity")]

    def _own_slots(self, variable: Variable, group: Sequence[str]) -> Sequence[str]:
        return group[:1] if self._is_matrix(variable) else group

    def _scalars(self) -> dict[str, Any]:
        return {
            "beta_1": self.adam_beta_1,
            "beta_2": self.adam_beta_2,
            "epsilon": self.epsilon,
        }

    def _decay_rates(self, variables: list[Variable]) -> list[float]:
        matrices, others = self.weight_decay or 0.0, self.adam_weight_decay or 0.0
        return [
            (matrices if self._is_matrix(variable) else others) if decays else 0.0
            for decays, variable in zip(
                self._model.pick(self._decays, variables), variables, strict=True
            )
        ]

    def _fused(self, update: Update) -> None:
        matrices = [self._is_matrix(variable) for variable in update.variables]
        if not all(matrices):
            ratio = self.adam_lr_ratio
            rest = update.where([not matrix for matrix in matrices])
            rest = rest._replace(
                learning_rate=rest.learning_rate * ratio,
                decays=[decay / ratio for decay in rest.decays],
            )
            FusedOptimizer._fused(self, rest)
        if any(matrices):
            super()._fused(update.where(matrices))

    def _direction(
        self,
        gradient: np.ndarray,
        variable: Variable,
        learning_rate: float,
        decay: float,
    ) -> tuple[np.ndarray, float]:
        real = gradient.dtype.type
        before = self._slot(variable, 0).numpy().astype(real)
        momentum = real(self.momentum) * before + gradient
        self._keep(variable, 0, momentum)
        rate = 1.0
        if self.rms_rate is not None:
            rate = self.rms_rate * math.sqrt(max(variable.shape))
        if self.nesterov:
            momentum = gradient + real(self.momentum) * momentum
        return self._orthogonal(momentum, variable), learning_rate * rate

    def _orthogonal(self, x: np.ndarray, variable: Variable) -> np.ndarray:
        """Return x with its singular values near 1: Newton-Schulz iterations."""
        if x.shape[0] > x.shape[1]:
            return self._orthogonal(x.T, variable).T
        x = scaled(x, 1 / (float(ops.norms([x])[0]) + 1e-7), variable)
        a, b, c = (x.dtype.type(k) for k in (self.muon_a, self.muon_b, self.muon_c))
        multiply: Any = np.matmul if x.dtype == np.float64 else ops.matmul
        for _ in range(self.ns_steps):
            gram = multiply(x, x.T)
            x = a * x + multiply(b * gram + c * multiply(gram, gram), x)
        return x
