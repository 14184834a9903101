"""More than 2^31 elements: run with MPCORE_NIGHTLY=1, in 9 GB of memory."""

from __future__ import annotations

import os

import numpy as np
import pytest
from reference import F16, F32

from mpcore import ops

pytestmark = pytest.mark.skipif(
    os.environ.get("MPCORE_NIGHTLY") != "1", reason="nightly: set MPCORE_NIGHTLY=1"
)
SIZE = 2**31 + 16


def test_check_unscale_and_norms_reach_beyond_2_to_31() -> None:
    x = np.ones(SIZE, F16)
    arrays = [x]
    assert ops.all_finite(arrays)
    for at in (SIZE - 1, 2**31, 2**31 - 1):
        x[at] = np.inf
        assert not ops.all_finite(arrays)
        assert not ops.unscale(arrays, 1.0, out=arrays)[1]
        x[at] = 1
    # Every square and every partial sum is a whole number: exact.
    assert ops.global_norm(arrays) == np.sqrt(np.float64(SIZE))
    assert ops.unscale(arrays, 0.5, out=arrays)[1]
    assert x[0] == x[2**31 - 1] == x[2**31] == x[-1] == 0.5
    assert ops.global_norm(arrays) == np.sqrt(SIZE * 0.25)


def test_accumulate_and_lerp_reach_beyond_2_to_31() -> None:
    x = np.ones(SIZE, F32)
    ops.accumulate([x], [x], 2.0)
    assert x[0] == x[2**31] == x[-1] == 3
    ops.lerp([x], [x], 0.5)
    assert x.min() == x.max() == 3
