"""What functions of NumPy do with Tensors."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from mpcore.tape.gradient_tape import flatten, is_recording, needs_gradient
from mpcore.tape.tensor import Tensor

# They return nothing that could have a gradient.
_ABOUT_SHAPES = (np.shape, np.ndim, np.size)


def numpy_function(
    self: Tensor,
    function: Callable[..., Any],
    types: Sequence[type],
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
) -> Any:
    """Run a function of NumPy on the arrays, unless that loses a gradient.

    NumPy calls this as `Tensor.__array_function__`.

    Raises
    ------
    TypeError
        If a tape that records follows one of the arguments.
    """
    if is_recording() and function not in _ABOUT_SHAPES:
        if any(map(needs_gradient, flatten((self, args, list(kwargs.values()))))):
            raise TypeError(
                f"A GradientTape cannot record NumPy's `{function.__name__}` on a "
                "tensor it follows. Use a function of mpcore.ops, or the tensor's "
                "`value` where no gradient is wanted"
            )
    # No types: NumPy goes on as with any object that can be made an array.
    return self.value.__array_function__(function, (), args, kwargs)
