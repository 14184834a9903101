"""Windows that slide over signals and images: what convolution and pooling share."""

import operator
from typing import Any, NamedTuple

import numpy as np

Pair = tuple[int, int]

RANKS = (1, 2)


class Windows(NamedTuple):
    """Windows over images; a signal is an image of width 1."""

    size: Pair
    strides: Pair
    dilation: Pair
    before: Pair  # padding at the top and the left
    output: Pair  # their number along each axis


def windows(
    lengths: tuple[int, ...],
    size: tuple[int, ...],
    strides: tuple[int, ...],
    dilation: tuple[int, ...],
    padding: str,
) -> Windows:
    """Place windows along the axes of images of these lengths."""
    axes = [
        along(*numbers, padding)
        for numbers in zip(lengths, size, strides, dilation, strict=True)
    ]
    output, before = zip(*axes, strict=True)
    return Windows(
        as_pair(size, 1),
        as_pair(strides, 1),
        as_pair(dilation, 1),
        as_pair(before, 0),
        as_pair(output, 1),
    )


def along(
    length: int, size: int, stride: int, dilation: int, padding: str
) -> tuple[int, int]:
    """Return how many windows an axis has, and the padding before its first element.

    Raises
    ------
    ValueError
        If padding is 'valid' and no window fits.
    """
    reach = (size - 1) * dilation + 1
    if padding == "valid":
        if length < reach:
            raise ValueError(
                "With padding 'valid' a window must not be larger than the input. "
                f"Received: a window over {reach} of {length} elements"
            )
        return (length - reach) // stride + 1, 0
    count = -(-length // stride)
    if padding == "causal":
        return count, reach - 1
    return count, max((count - 1) * stride + reach - length, 0) // 2


def as_pair(numbers: tuple[int, ...], filler: int) -> Pair:
    """Return the numbers of both axes of an image."""
    return (numbers[0], numbers[1] if len(numbers) == 2 else filler)


def as_image(array: np.ndarray) -> np.ndarray:
    """Return (batch, steps, channels) as (batch, steps, 1, channels)."""
    return array if array.ndim == 4 else array[:, :, np.newaxis]


def numbers(value: Any, rank: int, name: str) -> tuple[int, ...]:
    """Return one positive integer for each axis; an integer stands for all.

    Raises
    ------
    TypeError
        If it is neither an integer nor a sequence of integers.
    ValueError
        If there are not `rank` of them, or one is below 1.
    """
    try:
        items = value if isinstance(value, tuple | list) else [value] * rank
        result = tuple(operator.index(item) for item in items)
    except TypeError:
        raise TypeError(
            f"`{name}` must be an int, or {rank} of them. Received: {name}={value!r}"
        ) from None
    if len(result) != rank or min(result) < 1:
        raise ValueError(
            f"`{name}` must be an int of at least 1, or {rank} of them. "
            f"Received: {name}={value!r}"
        )
    return result


def checked_padding(padding: Any, allowed: tuple[str, ...]) -> str:
    """Return the padding in lower case.

    Raises
    ------
    ValueError
        If it is none of those allowed.
    """
    name = padding.lower() if isinstance(padding, str) else padding
    if name not in allowed:
        raise ValueError(
            f"`padding` must be {' or '.join(map(repr, allowed))}. "
            f"Received: padding={padding!r}"
        )
    return str(name)


def rank_of(operation: str, array: np.ndarray) -> int:
    """Return the number of axes between the batch and the channels.

    Raises
    ------
    ValueError
        If there are not 1 or 2.
    """
    if array.ndim - 2 not in RANKS:
        raise ValueError(
            f"{operation} needs inputs of shape (batch, steps, channels) or (batch, "
            f"height, width, channels). Received: shape={array.shape}"
        )
    return array.ndim - 2
