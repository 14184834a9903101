"""GradientTape, and the tapes of this thread."""

import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from types import TracebackType
from typing import Any, Self

import numpy as np

from mpcore import dtypes
from mpcore.tape.replay import Backward, Entry, Input, Replay
from mpcore.tape.tensor import Tensor, unwrap


class _Tapes(threading.local):
    def __init__(self) -> None:
        self.stack: list[GradientTape] = []


_TAPES = _Tapes()


def is_recording() -> bool:
    """Return whether a tape on this thread is recording."""
    return any(tape._recording for tape in _TAPES.stack)


def needs_gradient(x: object) -> bool:
    """Return whether a tape that records on this thread follows `x`."""
    return isinstance(x, Tensor) and any(
        tape._recording and tape._follows(x) for tape in _TAPES.stack
    )


def record(
    value: np.ndarray, inputs: Sequence[object], backward: Backward
) -> np.ndarray | Tensor:
    """Record an op on every tape that follows one of its inputs.

    Parameters
    ----------
    value : ndarray
        What the op computed.
    inputs : sequence
        What it computed it from: Tensors, Variables, and whatever else.
    backward : callable
        See `Backward`. It should capture arrays rather than Tensors.

    Returns
    -------
    ndarray or Tensor
        A followed Tensor if it was recorded; else a Tensor if a Tensor that is no
        Variable went in; else `value` itself.
    """
    output: Tensor | None = None
    if _TAPES.stack and dtypes.is_floating(value.dtype):
        for tape in _TAPES.stack:
            if tape._recording:
                followed = [isinstance(x, Tensor) and tape._follows(x) for x in inputs]
                if any(followed):
                    if output is None:
                        output = Tensor(value)
                    tape._append(output, inputs, followed, backward)
    if output is not None:
        return output
    for x in inputs:
        if isinstance(x, Tensor) and not x.is_variable:
            return Tensor(value)
    return value


class GradientTape:
    """Records ops for automatic differentiation.

    ::

        with GradientTape() as tape:
            loss = loss_function(labels, model(x))
        gradients = tape.gradient(loss, model.trainable_variables)

    Parameters
    ----------
    persistent : bool, default False
        Keep the record after `gradient`, so that it can be called again.
    watch_accessed_variables : bool, default True
        Follow every trainable Variable that is read.

    Notes
    -----
    Tapes nest, and each records. Gradients are arrays, not Tensors: gradients of
    gradients are not supported. A Variable must not be written between an op that read
    it and the `gradient` that goes through that op; this is a RuntimeError, since the
    value the derivative needs is gone. Arrays are not copied: one that an op read must
    not be written before `gradient` either, and nothing can notice if it is.
    """

    def __init__(
        self, persistent: bool = False, watch_accessed_variables: bool = True
    ) -> None:
        self._persistent = persistent
        self._watch_variables = watch_accessed_variables
        self._recording = False
        self._entries: list[Entry] = []
        self._followed: set[int] = set()
        self._used = False

    def __enter__(self) -> Self:
        """Start recording on this thread."""
        if self in _TAPES.stack:
            raise RuntimeError("This GradientTape is recording already.")
        if self._used:
            raise RuntimeError(
                "This GradientTape has been used. Make a new one, or call `reset()`."
            )
        self._recording = True
        _TAPES.stack.append(self)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Stop recording."""
        self._recording = False
        _TAPES.stack.remove(self)

    def _follows(self, x: Tensor) -> bool:
        if x._key in self._followed:
            return True
        if x.is_variable and self._watch_variables and x.trainable:
            if dtypes.is_floating(x.dtype):
                self._followed.add(x._key)
                return True
        return False

    def _append(
        self,
        output: Tensor,
        inputs: Sequence[object],
        followed: Sequence[bool],
        backward: Backward,
    ) -> None:
        kept = tuple(
            Input(x._key, x.shape) if wanted and isinstance(x, Tensor) else None
            for x, wanted in zip(inputs, followed, strict=True)
        )
        variables = tuple(
            (x, x.version) for x in inputs if isinstance(x, Tensor) and x.is_variable
        )
        self._entries.append(Entry(output._key, kept, variables, backward))
        self._followed.add(output._key)

    def watch(self, x: object) -> Tensor:
        """Follow a tensor.

        Parameters
        ----------
        x : Tensor, Variable, or array_like
            Floating. An array is wrapped in a new Tensor: go on with what is returned.

        Returns
        -------
        Tensor
            `x` itself if it was one.

        Raises
        ------
        ValueError
            If it is not floating.
        """
        tensor = x if isinstance(x, Tensor) else Tensor(x)
        if not dtypes.is_floating(tensor.dtype):
            raise ValueError(
                f"Only floating tensors can be watched. Received: dtype={tensor.dtype}"
            )
        self._followed.add(tensor._key)
        return tensor

    @contextmanager
    def stop_recording(self) -> Iterator[None]:
        """Record nothing inside of this context."""
        before, self._recording = self._recording, False
        try:
            yield
        finally:
            self._recording = before and not self._used

    def reset(self) -> None:
        """Forget what was recorded and watched; the tape is as new."""
        self._entries.clear()
        self._followed.clear()
        self._used = False

    def _refuse_second_order(self, sources: Sequence[Tensor]) -> None:
        for other in _TAPES.stack:
            if other is self or not other._recording:
                continue
            if any(other._follows(source) for source in sources):
                raise RuntimeError(
                    "Gradients of gradients are not supported: another GradientTape "
                    "that follows a source is recording. Call `gradient` after it, or "
                    "inside its `stop_recording()`."
                )

    def gradient(
        self, target: object, sources: object, output_gradients: object = None
    ) -> Any:
        """Differentiate targets with respect to sources.

        Parameters
        ----------
        target : Tensor, or nested lists and tuples of them
            Several are differentiated as their sum.
        sources : Tensor, Variable, or nested lists and tuples of them
        output_gradients : array_like, or the structure of `target`; optional
            What the derivative of each target is multiplied by, of its shape. None
            stands for ones.

        Returns
        -------
        ndarray, IndexedSlices, or None, or the structure of `sources`
            Writable arrays that share no memory, in the sources' `gradient_dtype`;
            `IndexedSlices` for a table that only `ops.embedding` read. None where
            nothing recorded leads from the source to a target.

        Raises
        ------
        RuntimeError
            On the second call, if the tape is not persistent; if a Variable was written
            after it had been read; if another tape that follows a source is recording.
        TypeError, ValueError
            If a target or a source is no Tensor; if an output gradient does not fit.
        """
        if self._used:
            raise RuntimeError(
                "`gradient` can be called once on a GradientTape that is not "
                "persistent. Use GradientTape(persistent=True)."
            )
        leaves = _tensors(sources)
        self._refuse_second_order(leaves)
        keys = frozenset(source._key for source in leaves)
        seeds = _seeds(target, output_gradients)
        replay = Replay(seeds, _needed(self._entries, keys), keys)
        before, self._recording = self._recording, False
        try:
            if self._persistent:
                for entry in reversed(self._entries):
                    replay.step(entry)
            else:
                self._used = True
                while self._entries:
                    replay.step(self._entries.pop())
        finally:
            self._recording = before and self._persistent
            if not self._persistent:
                self._entries.clear()
                self._followed.clear()
        return _pack(sources, iter(replay.results(leaves)))


def flatten(structure: Any) -> Iterator[Any]:
    """Yield the leaves of nested lists and tuples."""
    if isinstance(structure, list | tuple):
        for item in structure:
            yield from flatten(item)
    else:
        yield structure


def _pack(structure: object, leaves: Iterator[Any]) -> Any:
    """Return nested lists and tuples shaped like `structure` around `leaves`."""
    if isinstance(structure, list | tuple):
        items = [_pack(item, leaves) for item in structure]
        return items if isinstance(structure, list) else tuple(items)
    return next(leaves)


def _tensors(sources: object) -> list[Tensor]:
    """Return the leaves of `sources`."""
    leaves = []
    for source in flatten(sources):
        if not isinstance(source, Tensor):
            raise TypeError(
                "`sources` must be Tensors or Variables; of an array take the Tensor "
                f"that `watch` returns. Received: {type(source).__name__}"
            )
        leaves.append(source)
    return leaves


def _needed(entries: Sequence[Entry], keys: frozenset[int]) -> set[int]:
    """Return the tensors through which gradients reach the sources."""
    needed = set(keys)
    for entry in entries:
        if any(x is not None and x.key in needed for x in entry.inputs):
            needed.add(entry.key)
    return needed


def _seeds(target: object, output_gradients: object) -> list[tuple[int, np.ndarray]]:
    """Return (key, gradient) of every target a tape could know."""
    targets = list(flatten(target))
    if output_gradients is None:
        given: list[object] = [None] * len(targets)
    elif isinstance(target, list | tuple):
        given = list(flatten(output_gradients))
        if len(given) != len(targets):
            raise ValueError(
                "`output_gradients` must have the structure of `target`. Received: "
                f"{len(given)} gradients for {len(targets)} targets"
            )
    else:
        given = [output_gradients]
    seeds = []
    for x, gradient in zip(targets, given, strict=True):
        if not isinstance(x, Tensor):
            # An op that met nothing watched returned a bare array: unconnected.
            if isinstance(x, np.ndarray | np.generic | float | int):
                continue
            raise TypeError(f"`target` must be a Tensor. Received: {type(x).__name__}")
        dtype = dtypes.numpy_dtype(x.gradient_dtype)
        if gradient is None:
            seeds.append((x._key, np.ones(x.shape, dtype)))
            continue
        array = unwrap(gradient)
        dtypes.canonical(array.dtype)
        if array.shape != x.shape:
            raise ValueError(
                "An output gradient must have the shape of its target. Received: "
                f"{array.shape} for a target of shape {x.shape}"
            )
        if array.dtype != dtype:
            dtype = np.promote_types(dtype, np.float32)
        # A copy, for a gradient may be handed through to the caller.
        seeds.append((x._key, np.array(array, dtype=dtype)))
    return seeds
