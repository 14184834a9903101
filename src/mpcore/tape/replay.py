"""The way of gradients back through recorded ops."""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from mpcore import dtypes
from mpcore.tape.sparse import SparseGradient
from mpcore.tape.tensor import Tensor

Gradients = tuple[np.ndarray | SparseGradient | None, ...]
Backward = Callable[[np.ndarray, tuple[bool, ...]], Gradients]
"""(gradient of the output, which inputs want one) -> gradients of the inputs.

The gradient may come in another floating dtype than that of the output. Each result
has the shape of its input, and should have the dtype `gradient_dtype(input)` or a wider
one: the gradient of a source is rounded to its own dtype at the end. It may share
memory with the gradient that came in, and with nothing else.
"""

Accumulate = Callable[[np.ndarray, np.ndarray, bool], np.ndarray]
"""(total, gradient, owned) -> their sum, in the memory of total if `owned`.

The sum of float16 or bfloat16 gradients is float32; it is rounded once, at the end.
"""


class Input(NamedTuple):
    """What a tape keeps of an input it follows."""

    key: int
    shape: tuple[int, ...]


class Entry(NamedTuple):
    """One recorded op."""

    key: int  # of the output
    inputs: tuple[Input | None, ...]
    variables: tuple[tuple[Tensor, int], ...]  # Variables read, and their versions
    backward: Backward


def _add(total: np.ndarray, gradient: np.ndarray, owned: bool) -> np.ndarray:
    dtype = np.result_type(total, gradient, np.float32)
    sums: np.ndarray = np.add(total, gradient, dtype=dtype)
    return sums


_accumulate: Accumulate = _add


def install_accumulate(accumulate: Accumulate) -> None:
    """Set the addition of gradients; `mpcore.ops` does."""
    global _accumulate
    _accumulate = accumulate


def _root(array: np.ndarray) -> np.ndarray:
    """Return the array that a view looks into."""
    while isinstance(array.base, np.ndarray):
        array = array.base
    return array


def _dense(gradient: np.ndarray | SparseGradient) -> np.ndarray:
    return gradient.to_dense() if isinstance(gradient, SparseGradient) else gradient


class Replay:
    """The gradients on their way back."""

    def __init__(
        self,
        seeds: Sequence[tuple[int, np.ndarray]],
        needed: set[int],
        sources: frozenset[int],
    ) -> None:
        self._gradients: dict[int, np.ndarray | SparseGradient] = {}
        self._owned: set[int] = set()  # sums, which can be added to in place
        self._needed = needed
        self._sources = sources
        for key, gradient in seeds:
            if key in needed:
                self._add(key, gradient)

    def _add(self, key: int, gradient: np.ndarray | SparseGradient) -> None:
        total = self._gradients.get(key)
        if total is None:
            self._gradients[key] = gradient
        elif isinstance(total, SparseGradient) and isinstance(gradient, SparseGradient):
            self._gradients[key] = total.joined(gradient)
        else:
            owned = key in self._owned or isinstance(total, SparseGradient)
            self._gradients[key] = _accumulate(_dense(total), _dense(gradient), owned)
            self._owned.add(key)

    def step(self, entry: Entry) -> None:
        """Go back through one op."""
        if entry.key in self._sources:
            gradient = self._gradients.get(entry.key)
        else:
            gradient = self._gradients.pop(entry.key, None)
        if gradient is None:
            return
        wanted = tuple(x is not None and x.key in self._needed for x in entry.inputs)
        if not any(wanted):
            return
        for variable, version in entry.variables:
            if variable.version != version:
                raise RuntimeError(
                    "A Variable must not be written between the op that read it and "
                    f"`gradient`. Received: {variable!r}"
                )
        results = entry.backward(_dense(gradient), wanted)
        for x, want, result in zip(entry.inputs, wanted, results, strict=True):
            if x is None or not want or result is None:
                continue
            if not isinstance(result, SparseGradient):
                # NumPy turns 0-d results of arithmetic into scalars.
                result = np.asarray(result)
            if result.shape != x.shape:
                raise RuntimeError(
                    "A backward function must return gradients of the shapes of its "
                    f"inputs. Received: {result.shape} for an input of shape {x.shape}"
                )
            self._add(x.key, result)

    def results(
        self, sources: Sequence[Tensor]
    ) -> list[np.ndarray | SparseGradient | None]:
        """Return the gradients of the sources, each in memory of its own."""
        results: list[np.ndarray | SparseGradient | None] = []
        roots: set[int] = set()
        for source in sources:
            gradient = self._gradients.get(source._key)
            if isinstance(gradient, SparseGradient):
                # Dense where it is asked for twice, or in a dtype that is not its own.
                dtype = dtypes.numpy_dtype(source.gradient_dtype)
                if id(gradient) in roots or gradient.values.dtype != dtype:
                    gradient = gradient.to_dense()
                roots.add(id(gradient))
            if isinstance(gradient, np.ndarray):
                dtype = dtypes.numpy_dtype(source.gradient_dtype)
                flags = gradient.flags
                root = id(_root(gradient))
                if (
                    gradient.dtype != dtype
                    or not (flags.c_contiguous and flags.writeable)
                    or root in roots
                ):
                    gradient = np.array(gradient, dtype=dtype, order="C")
                    root = id(gradient)
                roots.add(root)
            results.append(gradient)
        return results
