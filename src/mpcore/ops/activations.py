"""Names of the activations the kernels apply."""

LINEAR, RELU, SIGMOID, TANH, GELU, GELU_TANH, SILU = range(7)

FROM_INPUT = frozenset((GELU, GELU_TANH, SILU))
"""Activations whose derivative their output does not determine."""

_CODES = {
    None: LINEAR,
    "linear": LINEAR,
    "relu": RELU,
    "sigmoid": SIGMOID,
    "tanh": TANH,
    "gelu": GELU,
    "gelu_tanh": GELU_TANH,
    "silu": SILU,
}


def activation_code(name: str | None) -> int:
    """Return the core's number of an activation; None stands for linear."""
    if name is not None and not isinstance(name, str):
        raise TypeError(f"`activation` must be a str or None. Received: {name!r}")
    try:
        return _CODES[name]
    except KeyError:
        raise ValueError(
            "`activation` must be linear, relu, sigmoid, tanh, gelu, gelu_tanh, silu, "
            f"or None. Received: activation={name!r}"
        ) from None
