"""The registry of what can be made by name, and objects as plain dictionaries.

Classes and functions register under a kind ("optimizers", "losses", ...) beside their
definition. Nothing is ever imported because a configuration says so: what is neither
registered nor in `custom_objects` is an error. This file knows no other module.
"""

import copy
import inspect
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, TypeVar

import numpy as np

__all__ = ["deserialize", "lookup", "names", "register", "serialize"]

T = TypeVar("T", bound=Callable[..., Any])

# kind -> folded name -> object; and for each object its (kind, name).
_REGISTRY: dict[str, dict[str, Any]] = {}
_NAMES: dict[str, list[str]] = {}
_REGISTERED: dict[Any, tuple[str, str]] = {}

_CUSTOM: ContextVar[Mapping[str, Any] | None] = ContextVar("custom", default=None)
_NUMPY = "__numpy__"
_FUNCTION = "function"


def _fold(name: str) -> str:
    """Map "AdamW", "adam_w", and "adamw" to one key."""
    return name.replace("_", "").lower()


def register(kind: str, *aliases: str) -> Callable[[T], T]:
    """Return a decorator that makes a class or function known by its name.

    Parameters
    ----------
    kind : str
        What it is: "optimizers", "losses", "layers", ...
    *aliases : str
        Further names, such as "mse".

    Raises
    ------
    ValueError
        If another object of this kind has one of the names.

    Examples
    --------
    >>> @register("losses", "zero")
    ... class Nothing: ...
    >>> lookup("losses", "nothing") is lookup("losses", "zero") is Nothing
    True
    """

    def decorate(thing: T) -> T:
        known = _REGISTRY.setdefault(kind, {})
        for name in (thing.__name__, *aliases):
            other = known.get(_fold(name), thing)
            # A class that is defined again, as in a notebook, replaces the first.
            if (other.__module__, other.__name__) != (
                thing.__module__,
                thing.__name__,
            ):
                raise ValueError(
                    f"The name {name!r} is taken in {kind!r}. Received: {thing!r}, "
                    f"known: {other!r}"
                )
        for name in (thing.__name__, *aliases):
            known[_fold(name)] = thing
        shown = _NAMES.setdefault(kind, [])
        if thing.__name__ not in shown:
            shown.append(thing.__name__)
        _REGISTERED[thing] = (kind, thing.__name__)
        return thing

    return decorate


def names(kind: str) -> list[str]:
    """Return the names registered under a kind, sorted."""
    return sorted(_NAMES.get(kind, []))


def lookup(kind: str, name: str) -> Any:
    """Return what is registered under a name.

    Parameters
    ----------
    kind : str
    name : str
        The class name or an alias; case and underscores do not count.

    Raises
    ------
    TypeError
        If `name` is no str.
    ValueError
        If it is unknown; the message lists the known ones.
    """
    if not isinstance(name, str):
        raise TypeError(f"A name must be a str. Received: {name!r}")
    custom = _CUSTOM.get()
    if custom is not None and name in custom:
        return custom[name]
    try:
        return _REGISTRY[kind][_fold(name)]
    except KeyError:
        raise ValueError(
            f"Unknown name {name!r} in {kind!r}. Known: {', '.join(names(kind))}."
        ) from None


def serialize(obj: Any) -> Any:
    """Turn an object into what JSON can hold.

    Parameters
    ----------
    obj : object
        One with `get_config`; a registered function; an array or NumPy scalar; None,
        bool, int, float, or str; or lists, tuples, and dicts of such.

    Returns
    -------
    dict
        ``{"class_name", "config", "module", "registered_name"}``; lists, dicts, and
        plain values become themselves.

    Raises
    ------
    TypeError
        If there is no way to write it down.
    """
    if obj is None or isinstance(obj, bool | int | str):
        return obj
    if isinstance(obj, float):
        return float(obj)
    if isinstance(obj, np.generic):
        return obj.item()
    if isinstance(obj, np.ndarray):
        # Halves pass through float32, which holds them exactly.
        wide = obj if obj.dtype.kind in "biuf" else obj.astype(np.float32)
        config = {"value": wide.tolist(), "dtype": obj.dtype.name}
        return _entry(_NUMPY, config, "numpy", None)
    if isinstance(obj, list | tuple):
        return [serialize(item) for item in obj]
    if isinstance(obj, Mapping):
        return {key: serialize(value) for key, value in obj.items()}
    if inspect.isfunction(obj):
        if obj not in _REGISTERED:
            raise TypeError(
                f"A function must be registered to be serialized. Received: {obj!r}"
            )
        kind, name = _REGISTERED[obj]
        return _entry(_FUNCTION, name, obj.__module__, f"{kind}>{name}")
    if hasattr(obj, "get_config") and not isinstance(obj, type):
        cls = type(obj)
        registered = _REGISTERED.get(cls)
        return _entry(
            cls.__name__,
            serialize(obj.get_config()),
            cls.__module__,
            ">".join(registered) if registered else None,
        )
    raise TypeError(
        "Only objects with `get_config`, registered functions, arrays, and plain "
        f"values can be serialized. Received: {obj!r}"
    )


def _entry(
    class_name: str, config: Any, module: str, registered_name: str | None
) -> dict[str, Any]:
    return {
        "class_name": class_name,
        "config": config,
        "module": module,
        "registered_name": registered_name,
    }


@contextmanager
def _custom_objects(objects: Mapping[str, Any] | None) -> Iterator[None]:
    """Let nested calls of `deserialize` and `lookup` see the caller's objects."""
    if objects is None:
        yield
        return
    token = _CUSTOM.set({**(_CUSTOM.get() or {}), **objects})
    try:
        yield
    finally:
        _CUSTOM.reset(token)


def deserialize(
    config: Any,
    custom_objects: Mapping[str, Any] | None = None,
    kind: str | None = None,
) -> Any:
    """Make the object that `serialize` wrote down.

    Parameters
    ----------
    config : dict or plain value
        A dict needs at least ``class_name``, and is left as it is. Plain values, lists,
        and dicts without ``class_name`` become themselves.
    custom_objects : mapping from class names to classes, optional
        Looked at first, also by the constructors called from here.
    kind : str, optional
        Where to look up a class name without a ``registered_name``.

    Raises
    ------
    ValueError
        If the class is unknown, or a name fits several kinds.
    """
    if isinstance(config, list):
        return [deserialize(item, custom_objects, kind) for item in config]
    if not isinstance(config, Mapping):
        return config
    if "class_name" not in config:
        return {
            key: deserialize(value, custom_objects) for key, value in config.items()
        }
    with _custom_objects(custom_objects):
        inner = copy.deepcopy(config.get("config", {}))
        if config["class_name"] == _NUMPY:
            return np.array(inner["value"], dtype=np.dtype(inner["dtype"]))
        if config["class_name"] == _FUNCTION:
            return _find(inner, config.get("registered_name"), kind)
        cls = _find(config["class_name"], config.get("registered_name"), kind)
        if hasattr(cls, "from_config"):
            return cls.from_config(inner)
        return cls(**inner)


def _find(name: str, registered_name: str | None, kind: str | None) -> Any:
    """Return the object a serialized entry stands for."""
    custom = _CUSTOM.get() or {}
    for key in (registered_name, name):
        if key is not None and key in custom:
            return custom[key]
    if registered_name and ">" in registered_name:
        kind, name = registered_name.split(">", 1)
    if kind is not None:
        return lookup(kind, name)
    found = {
        key: known[_fold(name)]
        for key, known in _REGISTRY.items()
        if _fold(name) in known
    }
    if len(found) == 1:
        return next(iter(found.values()))
    if found:
        raise ValueError(
            f"{name!r} is a name in several kinds: {', '.join(sorted(found))}. Give "
            f"its `registered_name`, for example '{min(found)}>{name}'."
        )
    raise ValueError(
        f"Unknown class {name!r}. Register it, or pass it in `custom_objects`."
    )


def resolve(kind: str, identifier: Any, base: type) -> Any:
    """Return the object of a kind that an argument such as ``"l2"`` stands for.

    Parameters
    ----------
    kind : str
        Where names are looked up; its singular names the object in errors.
    identifier : str, dict, callable, instance or subclass of `base`, or None
        A name and a subclass are called without arguments; a dict is deserialized;
        instances, functions, and None are returned as they are.
    base : type
        What the objects of this kind are instances of.

    Raises
    ------
    ValueError
        If it is none of these, or unknown.
    """
    if identifier is None:
        return None
    if isinstance(identifier, str):
        return lookup(kind, identifier)()
    given = identifier
    if isinstance(identifier, Mapping):
        identifier = deserialize(identifier, kind=kind)
    if isinstance(identifier, type) and issubclass(identifier, base):
        return identifier()
    if callable(identifier) and not isinstance(identifier, type):
        return identifier
    raise ValueError(
        f"Could not interpret the {kind.removesuffix('s')}. Received: {given!r}"
    )
