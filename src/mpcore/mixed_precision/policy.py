"""Dtype policies: in which dtype a layer computes, and in which it keeps variables."""

from collections.abc import Mapping
from typing import Any, Self

import numpy as np

from mpcore import dtypes, serialization

_MIXED = {"mixed_float16": "float16", "mixed_bfloat16": "bfloat16"}
# Besides the names of dtypes.py; a policy may name what no kernel computes in.
_FURTHER = ("complex64", "complex128", "float8_e4m3fn", "float8_e5m2", "string")
_SYNONYMS = {"int": "int32"}
_FLOATING = ("float32", "float16", "bfloat16", "float64")
_QUANTIZED = ("int8", "int4", "float8", "gptq", "awq")


def _dtypes_of(name: str) -> tuple[str, str]:
    """Return (compute dtype, variable dtype) of the policy `name`."""
    if name in _MIXED:
        return _MIXED[name], "float32"
    name = _SYNONYMS.get(name, name)
    if name in _FURTHER:
        return name, name
    if "_from_" in name and name.startswith(_QUANTIZED):
        raise ValueError(
            f"Cannot convert '{name}' to a DTypePolicy: quantized policies are not "
            "supported"
        )
    try:
        known = dtypes.canonical(name) == name
    except ValueError:
        known = False
    if not known:
        raise ValueError(
            f"Cannot convert '{name}' to a mixed precision DTypePolicy. Valid policies "
            "include 'mixed_float16', 'mixed_bfloat16', and the name of any dtype such "
            "as 'float32'"
        )
    return name, name


@serialization.register("policies", "Policy")
class DTypePolicy:
    """A pair of dtypes for a layer, by name.

    Under "mixed_float16" and "mixed_bfloat16" layers compute in 16 bits and keep their
    variables in float32; under the name of a dtype they do both in that dtype.
    Policies are values: equal if their classes and names are, hashable, immutable.

    Parameters
    ----------
    name : str, optional
        "mixed_float16", "mixed_bfloat16", or a dtype. Default: that of the global
        policy.

    Raises
    ------
    TypeError
        If `name` is no str.
    ValueError
        If it is no policy. The aliases "half", "float" and "double" are none.

    Examples
    --------
    >>> policy = DTypePolicy("mixed_bfloat16")
    >>> policy.compute_dtype, policy.variable_dtype
    ('bfloat16', 'float32')
    """

    def __init__(self, name: str | None = None) -> None:
        if name is None:
            name = global_policy().name
        if not isinstance(name, str):
            raise TypeError(
                "'name' must be a string, such as 'mixed_float16'. "
                f"Received: name={name!r} (of type {type(name).__name__})"
            )
        self._compute_dtype, self._variable_dtype = _dtypes_of(name)
        self._name = name

    @property
    def name(self) -> str:
        """The name the policy was made from."""
        return self._name

    @property
    def compute_dtype(self) -> str:
        """Name of the dtype of a layer's arithmetic, inputs and outputs."""
        return self._compute_dtype

    @property
    def variable_dtype(self) -> str:
        """Name of the dtype of a layer's variables."""
        return self._variable_dtype

    def __eq__(self, other: object) -> bool:
        """Compare classes and names."""
        if not isinstance(other, DTypePolicy):
            return NotImplemented
        return type(self) is type(other) and self.name == other.name

    def __hash__(self) -> int:
        """Hash class and name."""
        return hash((type(self), self.name))

    def __repr__(self) -> str:
        """Show class and name."""
        return f'<{type(self).__name__} "{self.name}">'

    def get_config(self) -> dict[str, Any]:
        """Return the constructor's arguments."""
        return {"name": self.name}

    @classmethod
    def from_config(cls, config: Mapping[str, Any]) -> Self:
        """Make a policy from what `get_config` returned."""
        return cls(**config)


Policy = DTypePolicy

# One for the process, all threads. None: whatever floatx() is.
_global_policy: DTypePolicy | None = None


def global_policy() -> DTypePolicy:
    """Return the policy of layers made without one.

    Unless one has been set it is that of `mpcore.floatx()`, and follows it.
    """
    return DTypePolicy(dtypes.floatx()) if _global_policy is None else _global_policy


def set_global_policy(policy: str | DTypePolicy | None) -> None:
    """Set the policy of layers made from now on without one.

    Parameters
    ----------
    policy : str, DTypePolicy, or None
        None goes back to following `mpcore.floatx()`.

    Raises
    ------
    ValueError
        If it is none of these, or does not compute in a floating dtype.
    """
    global _global_policy
    if isinstance(policy, str):
        policy = DTypePolicy(policy)
    if policy is not None and not isinstance(policy, DTypePolicy):
        raise ValueError(
            "`policy` must be a str, a DTypePolicy, or None. "
            f"Received: policy={policy!r} (of type {type(policy).__name__})"
        )
    if policy is not None and policy.compute_dtype not in _FLOATING:
        raise ValueError(
            "The global policy must be floating, such as 'float32' and "
            f"'mixed_float16'. Received: {policy.name}"
        )
    _global_policy = policy


dtype_policy = global_policy
set_dtype_policy = set_global_policy


def get(identifier: Any) -> DTypePolicy:
    """Return a policy given as such, by name or dtype, or by configuration.

    Parameters
    ----------
    identifier : DTypePolicy, str, dtype, mapping, or None
        None: the global policy.

    Raises
    ------
    ValueError
        If it is none of these, or unknown.
    """
    if identifier is None:
        return global_policy()
    if isinstance(identifier, DTypePolicy):
        return identifier
    if isinstance(identifier, str):
        return DTypePolicy(identifier)
    if isinstance(identifier, Mapping):
        return deserialize(identifier)
    if isinstance(identifier, np.dtype | type):
        return DTypePolicy(dtypes.canonical(identifier))
    raise ValueError(f"Cannot interpret `dtype` argument. Received: {identifier!r}")


def serialize(policy: DTypePolicy) -> dict[str, Any]:
    """Return class name and configuration of a policy."""
    config: dict[str, Any] = serialization.serialize(policy)
    return config


def deserialize(
    config: Mapping[str, Any], custom_objects: Mapping[str, Any] | None = None
) -> DTypePolicy:
    """Make a policy from what `serialize` returned.

    Raises
    ------
    ValueError
        If it is not the configuration of a policy.
    """
    made = serialization.deserialize(config, custom_objects, kind="policies")
    if not isinstance(made, DTypePolicy):
        raise ValueError(f"Not the configuration of a policy. Received: {config!r}")
    return made
