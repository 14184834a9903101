"""Initial values of Variables, with the names and defaults of Keras.

An initializer is a callable (shape, dtype) -> array. Random ones draw float32 numbers
(float64 for float64) from a stream of their own and round once to the dtype.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Self

import numpy as np

from mpcore import dtypes, random, serialization
from mpcore.ops.cast import cast
from mpcore.serialization import register
from mpcore.tape import unwrap

__all__ = [
    "Constant",
    "GlorotNormal",
    "GlorotUniform",
    "HeNormal",
    "HeUniform",
    "Initializer",
    "LecunNormal",
    "LecunUniform",
    "Ones",
    "Orthogonal",
    "RandomNormal",
    "RandomUniform",
    "TruncatedNormal",
    "VarianceScaling",
    "Zeros",
    "deserialize",
    "get",
    "serialize",
]

_KIND = "initializers"

# The standard deviation of a unit normal distribution cut off at two of its own.
_TRUNCATED_STDDEV = 0.87962566103423978


class Initializer:
    """Base of initializers: subclasses define `__call__` and `get_config`."""

    def __call__(self, shape: Sequence[int], dtype: Any = None) -> np.ndarray:
        """Return an array.

        Parameters
        ----------
        shape : sequence of int
        dtype : str, numpy.dtype, or type, optional
            Default: `floatx()`.
        """
        raise NotImplementedError(
            "An Initializer must define `__call__(self, shape, dtype=None)`."
        )

    def get_config(self) -> dict[str, Any]:
        """Return the constructor's arguments."""
        return {}

    @classmethod
    def from_config(cls, config: Mapping[str, Any]) -> Self:
        """Make an initializer from what `get_config` returned."""
        return cls(**config)


def _target(dtype: Any) -> np.dtype:
    return dtypes.numpy_dtype(dtypes.floatx() if dtype is None else dtype)


@register(_KIND, "constant")
class Constant(Initializer):
    """Sets every element to a value.

    Parameters
    ----------
    value : float or array_like, default 0
        An array must broadcast to the shape asked for.
    """

    def __init__(self, value: Any = 0.0) -> None:
        self.value = value

    def __call__(self, shape: Sequence[int], dtype: Any = None) -> np.ndarray:
        """Return an array; see `Initializer`."""
        target = _target(dtype)
        array = unwrap(self.value)
        if dtypes.is_floating(target):
            array = np.asarray(cast(array, target))
        return np.broadcast_to(array, tuple(shape)).astype(target)

    def get_config(self) -> dict[str, Any]:
        """Return the constructor's arguments."""
        return {"value": self.value}


@register(_KIND)
class Zeros(Initializer):
    """Sets every element to 0."""

    def __call__(self, shape: Sequence[int], dtype: Any = None) -> np.ndarray:
        """Return an array; see `Initializer`."""
        return np.zeros(tuple(shape), _target(dtype))


@register(_KIND)
class Ones(Initializer):
    """Sets every element to 1."""

    def __call__(self, shape: Sequence[int], dtype: Any = None) -> np.ndarray:
        """Return an array; see `Initializer`."""
        return np.ones(tuple(shape), _target(dtype))


class _Random(Initializer):
    """An initializer with a seed; None: each call draws a stream of the global seed."""

    seed: int | None

    def __init__(self, seed: int | None = None) -> None:
        if seed is not None:
            random.generator(seed)  # raises where the seed is not valid
        self.seed = seed

    def get_config(self) -> dict[str, Any]:
        """Return the constructor's arguments."""
        return {"seed": self.seed}

    def _draw(
        self,
        shape: Sequence[int],
        dtype: Any,
        sample: Callable[[np.random.Generator, tuple[int, ...], np.dtype], np.ndarray],
    ) -> np.ndarray:
        target = _target(dtype)
        if not dtypes.is_floating(target):
            raise ValueError(
                f"{type(self).__name__} makes floating numbers. Received: "
                f"dtype={target.name}"
            )
        work = dtypes.numpy_dtype(dtypes.gradient_dtype(target))
        drawn = sample(random.generator(self.seed), tuple(shape), work)
        return drawn if work == target else np.asarray(cast(drawn, target))


def _uniform(
    low: float, high: float
) -> Callable[[np.random.Generator, tuple[int, ...], np.dtype], np.ndarray]:
    def sample(
        generator: np.random.Generator, shape: tuple[int, ...], dtype: np.dtype
    ) -> np.ndarray:
        unit = generator.random(shape, dtype=dtype.type)
        drawn: np.ndarray = unit * dtype.type(high - low) + dtype.type(low)
        return drawn

    return sample


def _normal(
    mean: float, stddev: float, truncated: bool = False
) -> Callable[[np.random.Generator, tuple[int, ...], np.dtype], np.ndarray]:
    def sample(
        generator: np.random.Generator, shape: tuple[int, ...], dtype: np.dtype
    ) -> np.ndarray:
        unit = generator.standard_normal(shape, dtype=dtype.type)
        # What lies beyond two standard deviations is drawn again.
        while truncated and (outside := np.abs(unit) > 2).any():
            count = int(np.count_nonzero(outside))
            unit[outside] = generator.standard_normal(count, dtype=dtype.type)
        drawn: np.ndarray = unit * dtype.type(stddev) + dtype.type(mean)
        return drawn

    return sample


@register(_KIND, "uniform")
class RandomUniform(_Random):
    """Draws from the uniform distribution over [minval, maxval)."""

    def __init__(
        self, minval: float = -0.05, maxval: float = 0.05, seed: int | None = None
    ) -> None:
        super().__init__(seed)
        self.minval, self.maxval = minval, maxval

    def __call__(self, shape: Sequence[int], dtype: Any = None) -> np.ndarray:
        """Return an array; see `Initializer`."""
        return self._draw(shape, dtype, _uniform(self.minval, self.maxval))

    def get_config(self) -> dict[str, Any]:
        """Return the constructor's arguments."""
        return {"minval": self.minval, "maxval": self.maxval, "seed": self.seed}


@register(_KIND, "normal")
class RandomNormal(_Random):
    """Draws from a normal distribution."""

    _truncated = False

    def __init__(
        self, mean: float = 0.0, stddev: float = 0.05, seed: int | None = None
    ) -> None:
        super().__init__(seed)
        self.mean, self.stddev = mean, stddev

    def __call__(self, shape: Sequence[int], dtype: Any = None) -> np.ndarray:
        """Return an array; see `Initializer`."""
        sample = _normal(self.mean, self.stddev, self._truncated)
        return self._draw(shape, dtype, sample)

    def get_config(self) -> dict[str, Any]:
        """Return the constructor's arguments."""
        return {"mean": self.mean, "stddev": self.stddev, "seed": self.seed}


@register(_KIND)
class TruncatedNormal(RandomNormal):
    """Draws from a normal distribution cut off at two standard deviations."""

    _truncated = True


@register(_KIND)
class VarianceScaling(_Random):
    """Draws with a variance of scale / n, where n is a number of connections.

    Parameters
    ----------
    scale : float, > 0, default 1
    mode : {"fan_in", "fan_out", "fan_avg"}
        n: inputs or outputs of a unit, or their mean.
    distribution : {"truncated_normal", "untruncated_normal", "uniform"}
        Both normal ones have that variance, the truncated one after the cut.
    seed : int, optional

    References
    ----------
    X. Glorot and Y. Bengio, "Understanding the difficulty of training deep feedforward
    neural networks", AISTATS 2010. K. He et al., "Delving deep into rectifiers", ICCV
    2015.
    """

    def __init__(
        self,
        scale: float = 1.0,
        mode: str = "fan_in",
        distribution: str = "truncated_normal",
        seed: int | None = None,
    ) -> None:
        super().__init__(seed)
        if not (scale > 0 and math.isfinite(scale)):
            raise ValueError(
                f"`scale` must be positive and finite. Received: scale={scale}"
            )
        modes = ("fan_in", "fan_out", "fan_avg")
        if mode not in modes:
            raise ValueError(f"`mode` must be one of {modes}. Received: mode={mode!r}")
        if distribution == "normal":
            distribution = "truncated_normal"
        known = ("truncated_normal", "untruncated_normal", "uniform")
        if distribution not in known:
            raise ValueError(
                f"`distribution` must be one of {known}. Received: "
                f"distribution={distribution!r}"
            )
        self.scale, self.mode, self.distribution = scale, mode, distribution

    def __call__(self, shape: Sequence[int], dtype: Any = None) -> np.ndarray:
        """Return an array; see `Initializer`."""
        fan_in, fan_out = fans(shape)
        fan = {"fan_in": fan_in, "fan_out": fan_out, "fan_avg": (fan_in + fan_out) / 2}
        stddev = math.sqrt(self.scale / max(1.0, fan[self.mode]))
        if self.distribution == "uniform":
            limit = math.sqrt(3) * stddev
            return self._draw(shape, dtype, _uniform(-limit, limit))
        truncated = self.distribution == "truncated_normal"
        if truncated:
            stddev /= _TRUNCATED_STDDEV
        return self._draw(shape, dtype, _normal(0.0, stddev, truncated))

    def get_config(self) -> dict[str, Any]:
        """Return the constructor's arguments."""
        names = ("scale", "mode", "distribution", "seed")
        return {name: getattr(self, name) for name in names}


def fans(shape: Sequence[int]) -> tuple[float, float]:
    """Return the numbers of inputs and outputs of a unit of a kernel of this shape.

    (inputs, outputs) of a matrix; further leading axes are a receptive field.
    """
    if len(shape) < 2:
        size = float(shape[0]) if shape else 1.0
        return size, size
    field = math.prod(shape[:-2])
    return float(shape[-2] * field), float(shape[-1] * field)


class _Named(VarianceScaling):
    """A VarianceScaling of which only the seed is free."""

    _scaling: tuple[float, str, str]
    get_config = _Random.get_config

    def __init__(self, seed: int | None = None) -> None:
        super().__init__(*self._scaling, seed=seed)


@register(_KIND)
class GlorotUniform(_Named):
    """Uniform, variance 2 / (fan_in + fan_out)."""

    _scaling = (1.0, "fan_avg", "uniform")


@register(_KIND)
class GlorotNormal(_Named):
    """Truncated normal, variance 2 / (fan_in + fan_out)."""

    _scaling = (1.0, "fan_avg", "truncated_normal")


@register(_KIND)
class HeUniform(_Named):
    """Uniform, variance 2 / fan_in."""

    _scaling = (2.0, "fan_in", "uniform")


@register(_KIND)
class HeNormal(_Named):
    """Truncated normal, variance 2 / fan_in."""

    _scaling = (2.0, "fan_in", "truncated_normal")


@register(_KIND)
class LecunUniform(_Named):
    """Uniform, variance 1 / fan_in."""

    _scaling = (1.0, "fan_in", "uniform")


@register(_KIND)
class LecunNormal(_Named):
    """Truncated normal, variance 1 / fan_in."""

    _scaling = (1.0, "fan_in", "truncated_normal")


@register(_KIND)
class Orthogonal(_Random):
    """Sets orthonormal columns, or rows if there are fewer; leading axes are one."""

    def __call__(self, shape: Sequence[int], dtype: Any = None) -> np.ndarray:
        """Return an array; see `Initializer`."""
        return self._draw(shape, dtype, _orthogonal)


def _orthogonal(
    generator: np.random.Generator, shape: tuple[int, ...], dtype: np.dtype
) -> np.ndarray:
    rows, columns = math.prod(shape[:-1]), shape[-1]
    normal = generator.standard_normal((max(rows, columns), min(rows, columns)))
    q, r = np.linalg.qr(normal)
    q *= np.where(np.diag(r) < 0, -1.0, 1.0)
    return (q if rows >= columns else q.T).reshape(shape).astype(dtype)


def get(identifier: Any) -> Any:
    """Return an initializer.

    Parameters
    ----------
    identifier : str, dict, callable, class, or None
        A name such as "glorot_uniform", a serialized initializer, an Initializer, a
        function (shape, dtype) -> array, or a subclass of Initializer. None gives None.

    Raises
    ------
    ValueError
        If it is none of these, or unknown.
    """
    return serialization.resolve(_KIND, identifier, Initializer)


def serialize(initializer: Any) -> Any:
    """Return an initializer as a dict."""
    return serialization.serialize(initializer)


def deserialize(config: Any, custom_objects: Mapping[str, Any] | None = None) -> Any:
    """Make an initializer from what `serialize` returned."""
    return serialization.deserialize(config, custom_objects, _KIND)
