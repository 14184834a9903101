"""Problems, and the strings that name them: `gemm:512x512x512:bf16:f32`."""

import re
from collections.abc import Mapping
from dataclasses import dataclass

import ml_dtypes
import numpy as np

DTYPES: Mapping[str, np.dtype] = {
    "f64": np.dtype(np.float64),
    "f32": np.dtype(np.float32),
    "f16": np.dtype(np.float16),
    "bf16": np.dtype(ml_dtypes.bfloat16),
    "i64": np.dtype(np.int64),
    "i32": np.dtype(np.int32),
    "u8": np.dtype(np.uint8),
}
"""Short names of dtypes."""

_SUFFIXES = {"": 1, "K": 2**10, "M": 2**20, "G": 2**30}
_LARGEST = 2**40


@dataclass(frozen=True)
class Problem:
    """One thing to compute: the name of a suite and a value for each of its fields."""

    suite: str
    fields: tuple[tuple[str, str], ...]

    def __str__(self) -> str:
        """Return the string that names it."""
        return ":".join([self.suite, *(value for _, value in self.fields)])

    def __getitem__(self, field: str) -> str:
        """Return the value of a field."""
        return dict(self.fields)[field]

    def dtype(self, field: str) -> np.dtype:
        """Return the dtype that a field names."""
        return DTYPES[self[field]]

    def sizes(self, field: str) -> tuple[int, ...]:
        """Return the numbers of a field such as ``512x4Kx1M``; K is 2**10, M 2**20."""
        return tuple(number(part) for part in self[field].split("x"))


def number(text: str) -> int:
    """Return what ``128K``, ``2^17``, or ``131072`` says.

    Raises
    ------
    ValueError
        If it is no such number.
    """
    power = re.fullmatch(r"2\^(\d{1,2})", text)
    plain = re.fullmatch(r"(\d{1,12})([KMG]?)", text)
    if power:
        size = 1 << int(power[1])
    elif plain:
        size = int(plain[1]) * _SUFFIXES[plain[2]]
    else:
        size = -1
    if not 0 <= size <= _LARGEST:
        raise ValueError(
            f"A size must be like 1000, 128K, or 2^17, up to 2^40. Received: {text!r}"
        )
    return size
