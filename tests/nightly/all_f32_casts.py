"""All 2^32 float32 to each half at every level, and more than 2^31 elements.

    python tests/nightly/all_f32_casts.py [--levels LEVEL ...] [--skip-large]

Exits with 1 at the first difference from NumPy and ml_dtypes. Not collected by pytest:
it takes minutes per level, and the large arrays need 9 GB.
"""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).parent.parent))

from reference import BF16, F16, F32, assert_same_bits, with_nan_rule

import mpcore

CHUNK = 1 << 24


def check_all_patterns(levels: list[str]) -> None:
    """Compare every float32 at every level, the reference computed once."""
    for half in (F16, BF16):
        start = time.perf_counter()
        for first in range(0, 1 << 32, CHUNK):
            u = np.arange(first, first + CHUNK, dtype=np.uint64).astype(np.uint32)
            x = u.view(F32)
            with np.errstate(all="ignore"):
                expected = with_nan_rule(x, x.astype(half))
            for level in levels:
                mpcore.set_isa(level)
                assert_same_bits(mpcore.cast(x, half), expected)
        seconds = time.perf_counter() - start
        print(f"float32 -> {half.name}: 4294967296 equal at {levels}, {seconds:.0f} s")


def check_large_arrays() -> None:
    """Cast more elements than 32 bits count, and look at the pieces."""
    size = (1 << 31) + 16
    x = np.empty(size, F16)
    for first in range(0, size, CHUNK):
        piece = x[first : first + CHUNK]
        piece[:] = (np.arange(first, first + piece.size) % 2039).astype(F16)
    for target in (BF16, np.dtype(np.int8)):
        y = mpcore.cast(x, target)
        for first in range(0, size, CHUNK):
            piece = x[first : first + CHUNK]
            assert_same_bits(y[first : first + CHUNK], mpcore.cast(piece, target))
        print(f"float16 -> {target.name}: {size} elements equal their pieces")
        del y


def main() -> int:
    """Run both checks."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--levels", nargs="+", default=mpcore.available_isas())
    parser.add_argument("--skip-large", action="store_true")
    options = parser.parse_args()
    try:
        check_all_patterns(list(options.levels))
        mpcore.set_isa(None)
        if not options.skip_large:
            check_large_arrays()
    except AssertionError as error:
        print(f"DIFFERENT: {error}")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
