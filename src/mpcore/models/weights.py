"""Weights of a model in a safetensors file, by name.

Names follow the structure of the model ('dense_1/kernel'), not the process-wide names
of its layers: a second instance of the same model has the same ones.
"""

import os
import tempfile
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from safetensors import SafetensorError
from safetensors.numpy import load_file, save_file

from mpcore.layers.layer import Layer, owned
from mpcore.naming import numbered, snake_case
from mpcore.variable import Variable


def _members(layer: Layer) -> Iterator[tuple[str, Layer | Variable]]:
    """Yield what a layer holds, once, with names that are unique in the layer.

    A direct attribute has its own name. Inside containers, a layer has the name the
    user gave it, or its class's, and a variable its own; equal ones are numbered.
    """
    attributes = {
        id(value): key
        for key, value in vars(layer).items()
        if isinstance(value, Layer | Variable)
    }
    seen: set[int] = set()
    counts: Counter[str] = Counter()
    for value in vars(layer).values():
        for item in owned(value):
            if id(item) in seen:
                continue
            seen.add(id(item))
            if id(item) in attributes:
                name = attributes[id(item)]
            elif isinstance(item, Variable) or item.named_by_user:
                name = item.name
            else:
                name = snake_case(type(item).__name__)
            yield numbered(name, counts), item


def _named(layer: Layer, prefix: str, seen: set[int]) -> Iterator[tuple[str, Variable]]:
    """Yield the variables of a tree of layers with their paths, each once."""
    seen.add(id(layer))
    for name, item in _members(layer):
        if id(item) in seen:
            continue
        if isinstance(item, Layer):
            yield from _named(item, f"{prefix}{name}/", seen)
        else:
            seen.add(id(item))
            yield f"{prefix}{name}", item


def names(layer: Layer) -> dict[str, Variable]:
    """Return the variables of a layer and its sublayers by structural name.

    Raises
    ------
    ValueError
        If two have the same name.
    """
    pairs = list(_named(layer, "", set()))
    named = dict(pairs)
    if len(named) < len(pairs):
        counts = Counter(name for name, _ in pairs)
        twice = sorted(name for name, count in counts.items() if count > 1)
        raise ValueError(
            f"Several variables have the name {', '.join(twice)}. Give their layers "
            "(or them, if they are in a list) names of their own: `name=...`"
        )
    return named


def _built(layer: Layer) -> dict[str, Variable]:
    """Return what `names` does, if there is anything."""
    variables = names(layer)
    if not variables:
        raise RuntimeError(
            f"'{layer.name}' has no variables: call it on a batch or `build` it first"
        )
    return variables


def save(layer: Layer, path: str | os.PathLike[str]) -> None:
    """Write all variables, each in the dtype it is stored in.

    The file appears complete or not at all.

    Raises
    ------
    OSError
        If there is no such folder, or it cannot be written to.
    """
    target = Path(path)
    if target.is_dir():
        raise IsADirectoryError(f"`path` must be a file. Received: a folder, {target}")
    if not target.parent.is_dir():
        raise FileNotFoundError(
            f"`path` must lie in a folder that exists. Received: {target}"
        )
    arrays = {name: variable.numpy() for name, variable in _built(layer).items()}
    # A directory of its own: several threads may save to one path.
    with tempfile.TemporaryDirectory(dir=target.parent, prefix=target.name) as folder:
        part = Path(folder, target.name)
        part.touch()
        mode = part.stat().st_mode  # of a new file; safetensors lets nobody else read
        save_file(arrays, part)
        part.chmod(mode)
        os.replace(part, target)


def load(layer: Layer, path: str | os.PathLike[str]) -> None:
    """Assign all variables from a file; nothing is changed if one does not fit.

    Raises
    ------
    ValueError
        If a name is missing or unknown, or a shape or dtype differs; names them all.
    OSError
        If it cannot be read.
    """
    if Path(path).is_dir():
        raise IsADirectoryError(f"`path` must be a file. Received: a folder, {path}")
    variables = _built(layer)
    try:
        arrays = load_file(path)
    except SafetensorError as error:
        raise ValueError(f"{os.fspath(path)} is no safetensors file: {error}") from None
    faults = [f"missing: {name}" for name in variables if name not in arrays]
    faults += [f"unknown: {name}" for name in arrays if name not in variables]
    for name, variable in variables.items():
        array = arrays.get(name)
        if array is None:
            continue
        if array.shape != variable.shape or array.dtype.name != variable.dtype:
            faults.append(
                f"{name}: {array.dtype.name} {array.shape} in the file, "
                f"{variable.dtype} {variable.shape} in the model"
            )
    if faults:
        raise ValueError(
            f"The weights in {os.fspath(path)} do not fit '{layer.name}'. "
            + "; ".join(faults)
        )
    for name, variable in variables.items():
        variable.assign(arrays[name])
