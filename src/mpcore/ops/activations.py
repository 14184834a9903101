"""Names of the activations the kernels apply."""

LINEAR, RELU, SIGMOID, TANH = range(4)

_CODES = {
    None: LINEAR,
    "linear": LINEAR,
    "relu": RELU,
    "sigmoid": SIGMOID,
    "tanh": TANH,
}


def activation_code(name: str | None) -> int:
    """Return the core's number of an activation; None stands for linear."""
    if name is not None and not isinstance(name, str):
        raise TypeError(f"`activation` must be a str or None. Received: {name!r}")
    try:
        return _CODES[name]
    except KeyError:
        raise ValueError(
            "`activation` must be linear, relu, sigmoid, tanh, or None. "
            f"Received: activation={name!r}"
        ) from None
