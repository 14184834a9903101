"""Variables: values, the compute copy, assignment, names."""

from __future__ import annotations

import copy
import pickle
import threading
from typing import Any

import numpy as np
import pytest
from reference import BF16, F16, F32, F64, assert_same_bits

import mpcore
from mpcore import Tensor, Variable, autocast, initializers
from mpcore.variable import name_scope

HALVES = pytest.mark.parametrize("half", [F16, BF16], ids=lambda d: d.name)
FLOATS = pytest.mark.parametrize("dtype", [F32, F16, BF16, F64], ids=lambda d: d.name)


@pytest.mark.parametrize(
    ("value", "dtype", "expected"),
    [
        (1.0, None, F32),
        ([1.0, 2.0], None, F32),
        (np.ones(2, F64), None, F64),
        (np.ones(2, BF16), None, BF16),
        (np.ones(2, ">f4"), None, F32),
        (np.float16(1), None, F16),
        ([1, 2], None, np.dtype(np.int64)),
        (True, None, np.dtype(bool)),
        ([1, 2], "bfloat16", BF16),
        (Tensor(np.ones(2, F16)), None, F16),
        (Variable(np.ones(2, F64)), None, F64),
        ([1.0, 2.0], np.int8, np.dtype(np.int8)),
    ],
    ids=str,
)
def test_variable_keeps_or_takes_its_dtype(
    value: Any, dtype: Any, expected: np.dtype
) -> None:
    v = Variable(value, dtype)
    assert v.dtype == expected.name
    assert v.stored.dtype == expected
    assert v.stored.dtype.isnative


def test_variable_rounds_its_value_once() -> None:
    v = Variable([1 + 2.0**-11 + 2.0**-40], "float16")
    assert v.numpy().tolist() == [1 + 2.0**-10]


def test_variable_copies_what_it_is_made_of_and_what_it_gives() -> None:
    source = np.ones((2, 3), F32, order="F")
    v = Variable(source)
    source[:] = 5
    v.numpy()[:] = 7
    assert v.numpy().tolist() == [[1, 1, 1]] * 2
    assert v.stored.flags.c_contiguous


def test_value_is_read_only_and_cached() -> None:
    v = Variable([1.0])
    with pytest.raises(ValueError, match="read-only"):
        v.value[0] = 2
    with pytest.raises(ValueError, match="read-only"):
        np.asarray(v)[0] = 2
    assert v.value is v.value
    with autocast.scope("float16"):
        assert v.value is v.value
        with pytest.raises(ValueError, match="read-only"):
            v.value[0] = 2


def test_variable_describes_itself() -> None:
    v = Variable(np.zeros((2, 3), F16), name="w")
    assert (v.shape, v.ndim, v.size, len(v)) == ((2, 3), 2, 6, 2)
    assert (v.trainable, v.aggregation, v.overwrite_with_gradient) == (
        *(True, "none"),
        False,
    )
    assert repr(v).startswith("<Variable 'w' shape=(2, 3) dtype=float16 value=")


@FLOATS
@HALVES
def test_autocast_reads_the_compute_dtype_and_keeps_the_stored_one(
    dtype: np.dtype, half: np.dtype
) -> None:
    x = np.array([1 / 3, 65504.0, 1e-40]).astype(dtype)
    v = Variable(x)
    with autocast.scope(half.name):
        assert_same_bits(v.value, x.astype(half))
        assert v.dtype == dtype.name
        assert_same_bits(v.numpy(), x)
        assert np.asarray(v).dtype == half
    assert_same_bits(v.value, x)


@pytest.mark.parametrize("scope", [None, "float32", "int32", "bool"])
def test_autocast_to_the_same_or_no_float_reads_the_stored_value(
    scope: str | None,
) -> None:
    v = Variable([1.5])
    with autocast.scope(scope):
        assert v.value.dtype == F32
    assert v.compute_copy is None


def test_autocast_wider_than_the_stored_dtype_widens() -> None:
    v = Variable(np.array([1.5], F16))
    with autocast.scope("float32"):
        assert_same_bits(v.value, np.array([1.5], F32))
    assert v.compute_copy is None


def test_autocast_leaves_integers_and_those_that_opt_out() -> None:
    integers, fixed = Variable([1, 2]), Variable([1.0], autocast=False)
    with autocast.scope("float16"):
        assert integers.value.dtype == np.int64
        assert fixed.value.dtype == F32


@HALVES
def test_compute_copy_is_made_once_and_follows_every_assignment(half: np.dtype) -> None:
    v = Variable(np.ones(3, F32))
    assert v.compute_copy is None
    with autocast.scope(half.name):
        _ = v.value
    kept = v.compute_copy
    assert kept is not None
    for change, expected in (
        (lambda: v.assign([0.1, 0.2, 0.3]), [0.1, 0.2, 0.3]),
        (lambda: v.assign_add([1.0, 1.0, 1.0]), [1.1, 1.2, 1.3]),
        (lambda: v.assign_sub([0.5, 0.5, 0.5]), [0.6, 0.7, 0.8]),
    ):
        assert change() is v
        assert v.compute_copy is kept
        assert np.allclose(v.value, expected, rtol=1e-6)
        assert_same_bits(kept, v.numpy().astype(half))
        with autocast.scope(half.name):
            assert_same_bits(v.value, kept)


def test_compute_copy_written_by_an_optimizer_is_what_is_read() -> None:
    v = Variable([1.0])
    with autocast.scope("bfloat16"):
        _ = v.value
    v.stored[:] = 2
    v.compute_copy[:] = 2
    with autocast.scope("bfloat16"):
        assert v.value.tolist() == [2]
    assert v.value.tolist() == [2]


def test_compute_copy_of_another_half_dtype_is_true_too() -> None:
    v = Variable([1 + 2.0**-9])
    for name, expected in (("float16", 1 + 2.0**-9), ("bfloat16", 1.0)) * 2:
        with autocast.scope(name):
            assert v.value.astype(F64).tolist() == [expected]
        v.assign(v.numpy())


def test_assign_add_in_a_scope_does_not_round_the_stored_value() -> None:
    v = Variable([1.0001])
    before = v.numpy()
    with autocast.scope("float16"):
        v.assign_add([0.0])
        assert_same_bits(v.numpy(), before)
        v.assign(v)
        v.assign_sub(Variable([0.0]))
    assert_same_bits(v.numpy(), before)


@HALVES
def test_assign_add_of_halves_is_float32_rounded_once(half: np.dtype) -> None:
    v = Variable(np.array([1.0], half))
    v.assign_add([2.0**-8 + 2.0**-12])
    exact = np.array([1 + 2.0**-8 + 2.0**-12], F32)
    assert_same_bits(v.numpy(), exact.astype(half))


@pytest.mark.parametrize("method", ["assign", "assign_add", "assign_sub"])
@pytest.mark.parametrize("value", [1.0, [1.0], [[1.0, 2.0]], np.ones((2, 1))], ids=str)
def test_assign_of_another_shape_raises_and_changes_nothing(
    method: str, value: object
) -> None:
    v = Variable([1.0, 2.0], name="w")
    with pytest.raises(ValueError, match=r"'w' must have shape \(2,\)"):
        getattr(v, method)(value)
    assert v.numpy().tolist() == [1, 2]


def test_assign_of_its_own_reversed_value() -> None:
    v = Variable([1.0, 2.0, 3.0])
    v.assign(v.value[::-1])
    assert v.numpy().tolist() == [3, 2, 1]


def test_assign_takes_any_array() -> None:
    v = Variable(np.zeros((2, 2), F32))
    for value in (
        [[1, 2], [3, 4]],
        np.asfortranarray([[1.0, 2], [3, 4]]),
        np.array([[1, 2], [3, 4]], ">f2"),
        Tensor(np.array([[1, 2], [3, 4]], BF16)),
    ):
        v.assign(np.zeros((2, 2)))
        v.assign(value)
        assert v.numpy().tolist() == [[1, 2], [3, 4]]


def test_assign_to_integers_takes_only_what_they_hold() -> None:
    v = Variable([1, 2], "int8")
    v.assign([3.0, 4.0])
    assert v.assign_add([1, 1]).numpy().tolist() == [4, 5]
    for value in ([1.5, 2.0], [300, 0], [np.nan, 0.0]):
        with pytest.raises(ValueError, match="only what it can represent"):
            v.assign(value)
        with pytest.raises(ValueError, match="only what it can represent"):
            v.assign_add(value)
    assert v.numpy().tolist() == [4, 5]


def test_assign_keeps_the_array_optimizers_hold() -> None:
    v = Variable([1.0])
    stored = v.stored
    v.assign([2.0])
    v.assign_add([1.0])
    assert v.stored is stored
    assert stored.tolist() == [3]


def test_overflow_in_assign_add_is_no_warning() -> None:
    v = Variable(np.array([3e38], F32))
    assert v.assign_add([3e38]).numpy().tolist() == [np.inf]


def test_initializer_is_called_with_shape_and_dtype() -> None:
    v = Variable(initializers.Ones(), "bfloat16", shape=(2, 3))
    assert_same_bits(v.numpy(), np.ones((2, 3), BF16))
    assert Variable(lambda shape, dtype: np.zeros(shape, dtype), shape=()).dtype == (
        "float32"
    )
    with pytest.raises(ValueError, match="`shape` is needed"):
        Variable(initializers.Ones())
    with pytest.raises(ValueError, match="must return shape"):
        Variable(lambda shape, dtype: np.zeros(3), shape=(2,))
    with pytest.raises(ValueError, match="`shape` must be"):
        Variable([1.0, 2.0], shape=(3,))


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"value": 1j}, ValueError, "Unknown dtype 'complex128'"),
        ({"value": "zeros"}, ValueError, "Unknown dtype"),
        ({"value": 1.0, "dtype": "half"}, ValueError, "Unknown dtype 'half'"),
        ({"value": 1.5, "dtype": "int32"}, ValueError, "only what it can represent"),
        ({"value": 1.0, "name": "a/b"}, ValueError, "nor hold '/'"),
        ({"value": 1.0, "name": ""}, ValueError, "must not be empty"),
        ({"value": 1.0, "name": 3}, TypeError, "`name` must be a str"),
        ({"value": 1.0, "aggregation": "max"}, ValueError, "`aggregation` must be"),
        ({"value": 1.0, "regularizer": 3}, TypeError, "`regularizer` must be"),
        ({"value": 1.0, "constraint": "x"}, TypeError, "`constraint` must be"),
    ],
    ids=str,
)
def test_variable_arguments_that_are_not_valid_raise(
    arguments: dict[str, Any], error: type, message: str
) -> None:
    with pytest.raises(error, match=message):
        Variable(**arguments)


@pytest.mark.parametrize(
    "aggregation", ["none", "mean", "sum", "only_first_replica", None]
)
def test_aggregation_is_kept(aggregation: str | None) -> None:
    assert Variable(1.0, aggregation=aggregation).aggregation == aggregation


def test_default_names_are_unique_and_given_ones_are_kept() -> None:
    names = [Variable(1.0).name for _ in range(3)]
    assert len(set(names)) == 3
    assert all(name.startswith("variable") for name in names)
    assert [Variable(1.0, name="w").name for _ in range(2)] == ["w", "w"]


def test_path_is_the_name_within_its_scopes() -> None:
    with name_scope("outer"):
        with name_scope("inner"):
            v = Variable(1.0, name="w")
        u = Variable(1.0, name="w")
    assert (v.path, u.path, v.name) == ("outer/inner/w", "outer/w", "w")
    assert Variable(1.0, name="w").path == "w"
    with pytest.raises(KeyError), name_scope("outer"):
        raise KeyError
    assert Variable(1.0, name="w").path == "w"
    with pytest.raises(ValueError, match="nor hold '/'"), name_scope("a/b"):
        pass


def test_name_scope_belongs_to_its_thread() -> None:
    paths = []
    with name_scope("outer"):
        thread = threading.Thread(
            target=lambda: paths.append(Variable(1.0, name="w").path)
        )
        thread.start()
        thread.join()
    assert paths == ["w"]


@pytest.mark.parametrize(
    "duplicate",
    [copy.copy, copy.deepcopy, lambda v: pickle.loads(pickle.dumps(v))],
    ids=["copy", "deepcopy", "pickle"],
)
@FLOATS
def test_copies_are_variables_of_their_own(duplicate: Any, dtype: np.dtype) -> None:
    v = Variable(
        np.array([1.5, 2.5], dtype),
        name="w",
        trainable=False,
        autocast=False,
        aggregation="sum",
    )
    w = duplicate(v)
    assert_same_bits(w.numpy(), v.numpy())
    assert (w.name, w.path, w.trainable, w.autocast, w.aggregation) == (
        *("w", "w", False, False),
        "sum",
    )
    w.assign([0.0, 0.0])
    assert v.numpy().tolist() == [1.5, 2.5]
    with mpcore.GradientTape(watch_accessed_variables=False) as tape:
        tape.watch(v)
        y = v * w
    assert tape.gradient(y, [v, w])[1] is None


def test_variable_of_any_shape() -> None:
    assert Variable(np.ones((2, 0, 1), F32)).assign(np.ones((2, 0, 1))).size == 0
    scalar = Variable(2.0)
    assert float(scalar.assign_add(1.0)) == 3
    assert scalar.shape == ()
