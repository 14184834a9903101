"""Small data sets that come with other packages; nothing is downloaded."""

from typing import Any

import numpy as np

from mpcore import random

Array = np.ndarray[Any, Any]


def load_digits(
    test_fraction: float = 0.2, seed: int | None = 0
) -> tuple[tuple[Array, Array], tuple[Array, Array]]:
    """Return the 1797 handwritten digits of 8x8 pixels that scikit-learn ships.

    Parameters
    ----------
    test_fraction : float in (0, 1), default 0.2
        Share of the samples to test with, rounded to a whole number of them.
    seed : int or None, default 0
        The split: a fixed one, or for None the next stream of the global seed.

    Returns
    -------
    (x_train, y_train), (x_test, y_test)
        x: float32 of shape (n, 64), in [0, 1]. y: int64 of shape (n,), in [0, 10).

    Raises
    ------
    ModuleNotFoundError
        If scikit-learn is not installed.
    ValueError
        If a side would be empty.

    References
    ----------
    E. Alpaydin and C. Kaynak, "Optical Recognition of Handwritten Digits", UCI Machine
    Learning Repository, 1998, CC BY 4.0.
    """
    try:
        from sklearn import datasets  # type: ignore[import-untyped]
    except ModuleNotFoundError as error:
        raise ModuleNotFoundError(
            "`load_digits` needs scikit-learn: pip install scikit-learn",
            name=error.name,
        ) from error
    images, labels = datasets.load_digits(return_X_y=True)
    count = round(len(labels) * test_fraction)
    if not 0 < count < len(labels):
        raise ValueError(
            "`test_fraction` must leave samples on both sides. "
            f"Received: test_fraction={test_fraction}"
        )
    order = random.generator(seed).permutation(len(labels))
    x = (images[order] / 16.0).astype(np.float32)
    y = labels[order].astype(np.int64)
    return (x[count:], y[count:]), (x[:count], y[:count])
