"""Recording and replay: structure, accumulation, dtypes, memory, threads."""

from __future__ import annotations

import gc
import sys
import threading
import weakref

import numpy as np
import pytest
from reference import BF16, F16, F32, F64, assert_same_bits

from mpcore import GradientTape, Tensor, Variable, ops, tape


def test_gradient_of_a_composition_follows_the_chain_rule() -> None:
    v = Variable([1.0, 2.0])
    with GradientTape() as t:
        y = v * v + v
    assert t.gradient(y, v).tolist() == [3.0, 5.0]


def test_gradient_through_scalars() -> None:
    v = Variable(2.0)
    with GradientTape() as t:
        y = ops.exp(ops.cast(-(v * v), "float16")) / v
    gradient = t.gradient(y, v)
    assert isinstance(gradient, np.ndarray)
    exact = -np.exp(-4) * (2 + 0.25)
    # exp(-4) was rounded to float16 once.
    assert abs(float(gradient) - exact) <= 2.0**-10 * abs(exact)


def test_gradient_has_the_structure_of_the_sources() -> None:
    a, b, c = Variable(1.0), Variable(2.0), Variable(3.0)
    with GradientTape() as t:
        y = a * b
    gradients = t.gradient(y, [a, (b, c), []])
    assert type(gradients) is list
    assert type(gradients[1]) is tuple
    assert float(gradients[0]) == 2
    assert float(gradients[1][0]) == 1
    assert gradients[1][1] is None
    assert gradients[2] == []


def test_gradient_of_several_targets_is_that_of_their_sum() -> None:
    v = Variable([1.0, 2.0])
    with GradientTape() as t:
        targets = [v * 2.0, (v * v,)]
    assert t.gradient(targets, v).tolist() == [4.0, 6.0]


def test_output_gradients_scale_each_target() -> None:
    v = Variable([1.0, 2.0])
    with GradientTape(persistent=True) as t:
        y = v * 2.0
        z = v * v
    assert t.gradient(y, v, output_gradients=[3.0, 5.0]).tolist() == [6.0, 10.0]
    both = t.gradient([y, z], v, output_gradients=[None, np.array([1.0, 0.0])])
    assert both.tolist() == [4.0, 2.0]


def test_output_gradients_that_do_not_fit_raise() -> None:
    v = Variable([1.0, 2.0])
    with GradientTape(persistent=True) as t:
        y = v * 2.0
    with pytest.raises(ValueError, match="shape of its target"):
        t.gradient(y, v, output_gradients=1.0)
    with pytest.raises(ValueError, match="structure of `target`"):
        t.gradient([y], v, output_gradients=[])


def test_gradient_of_an_intermediate_and_of_the_target_itself() -> None:
    v = Variable([1.0, 2.0])
    with GradientTape() as t:
        y = v * v
        z = y * y + y
    dz, dy, dv = t.gradient(z, [z, y, v])
    assert dz.tolist() == [1, 1]
    assert dy.tolist() == [3, 9]
    assert dv.tolist() == [6, 36]


def test_gradient_adds_up_all_uses() -> None:
    v = Variable([1.0, 2.0])
    with GradientTape() as t:
        y = v + v + v * 2.0 - v
    assert t.gradient(y, v).tolist() == [3.0, 3.0]


def test_gradients_of_two_sources_share_no_memory() -> None:
    a, b, c = Variable([1.0]), Variable([2.0]), Variable([[3.0], [3.0]])
    seed = np.ones((2, 1), F32)
    with GradientTape() as t:
        y = a + b + c
    gradients = t.gradient(y, [a, b, c, c], output_gradients=seed)
    for i, gradient in enumerate(gradients):
        assert gradient.flags.writeable
        assert gradient.flags.c_contiguous
        assert not np.shares_memory(gradient, seed)
        assert not any(np.shares_memory(gradient, x) for x in gradients[:i])


def test_gradient_of_a_mean_is_a_whole_array() -> None:
    v = Variable(np.ones((3, 4), F32))
    with GradientTape() as t:
        y = ops.mean(v)
    gradient = t.gradient(y, v)
    gradient[0, 0] = 7
    assert gradient[0, 1] == F32.type(1 / 12)


def test_unconnected_sources_give_none() -> None:
    a, b = Variable([1.0]), Variable([1.0])
    with GradientTape(persistent=True) as t:
        y = a * 2.0
    assert t.gradient(y, b) is None
    assert t.gradient(np.ones(1), a) is None
    assert t.gradient(Tensor([1.0]), [a, b]) == [None, None]


def test_sources_and_targets_that_are_no_tensors_raise() -> None:
    a = Variable([1.0])
    with GradientTape(persistent=True) as t:
        y = a * 2.0
    with pytest.raises(TypeError, match="that `watch` returns"):
        t.gradient(y, np.ones(1))
    with pytest.raises(TypeError, match="`target` must be a Tensor"):
        t.gradient(None, a)


def test_second_gradient_raises_unless_persistent() -> None:
    v = Variable([1.0])
    with GradientTape() as t:
        y = v * v
    t.gradient(y, v)
    with pytest.raises(RuntimeError, match="persistent=True"):
        t.gradient(y, v)
    with pytest.raises(RuntimeError, match="has been used"), t:
        pass
    with GradientTape(persistent=True) as t:
        y = v * v
    assert t.gradient(y, v).tolist() == t.gradient(y, v).tolist() == [2.0]


def test_gradient_with_a_wrong_argument_leaves_the_tape_usable() -> None:
    v = Variable([1.0])
    with GradientTape() as t:
        y = v * v
    with pytest.raises(TypeError):
        t.gradient(y, "v")
    assert t.gradient(y, v).tolist() == [2.0]


def test_trainable_variables_are_followed_others_only_when_watched() -> None:
    v, frozen = Variable([2.0]), Variable([3.0], trainable=False)
    with GradientTape(persistent=True) as t:
        y = v * frozen
    assert t.gradient(y, frozen) is None
    with GradientTape(watch_accessed_variables=False) as t:
        assert t.watch(frozen) is frozen
        y = v * frozen
    assert t.gradient(y, [v, frozen]) == [None, np.array([2.0], F32)]


def test_watch_wraps_an_array() -> None:
    with GradientTape() as t:
        x = t.watch(np.array([3.0], F16))
        y = x * x
    assert_same_bits(t.gradient(y, x), np.array([6.0], F16))


def test_watch_what_is_not_floating_raises() -> None:
    with GradientTape() as t, pytest.raises(ValueError, match="Only floating"):
        t.watch(np.arange(3))


def test_stop_recording_and_leaving_the_tape_record_nothing() -> None:
    v = Variable([1.0])
    with GradientTape(persistent=True) as t:
        with t.stop_recording():
            assert not tape.is_recording()
            hidden = v * 2.0
        assert tape.is_recording()
        y = v * 3.0 + hidden
    outside = v * 2.0
    assert isinstance(hidden, np.ndarray)
    assert isinstance(outside, np.ndarray)
    assert t.gradient(y, v).tolist() == [3.0]


def test_reset_forgets() -> None:
    v = Variable([1.0])
    with GradientTape() as t:
        y = v * 2.0
        t.reset()
        z = v * 3.0
    assert t.gradient([y, z], v).tolist() == [3.0]
    t.reset()
    with t:
        y = v * 5.0
    assert t.gradient(y, v).tolist() == [5.0]


def test_nested_tapes_both_record() -> None:
    v = Variable([2.0, 0.0])  # not one element, and a zero
    with GradientTape() as outer, GradientTape() as inner:
        y = v * v
        with outer.stop_recording():
            inner_gradient = inner.gradient(y, v)
        z = y * v
    assert isinstance(inner_gradient, np.ndarray)
    assert inner_gradient.tolist() == [4.0, 0.0]
    assert outer.gradient(z, v).tolist() == [12.0, 0.0]


def test_nested_tapes_both_follow_a_zero() -> None:
    v = Variable(0.0)
    with GradientTape() as outer, GradientTape() as inner:
        y = v * 2.0
    assert (inner.gradient(y, v), outer.gradient(y, v)) == (2.0, 2.0)


def test_gradient_of_a_gradient_is_an_error() -> None:
    v = Variable([2.0])
    with GradientTape(), GradientTape() as inner:
        y = v * v
        with pytest.raises(RuntimeError, match="Gradients of gradients"):
            inner.gradient(y, v)
    assert inner.gradient(y, v).tolist() == [4.0]


def test_entering_twice_raises() -> None:
    t = GradientTape()
    with t, pytest.raises(RuntimeError, match="recording already"), t:
        pass
    assert not tape.is_recording()


def test_tape_stops_after_an_exception() -> None:
    with pytest.raises(KeyError), GradientTape():
        raise KeyError
    assert not tape.is_recording()


def test_tape_belongs_to_its_thread() -> None:
    v = Variable([1.0])
    seen = []
    with GradientTape():
        thread = threading.Thread(
            target=lambda: seen.extend([tape.is_recording(), type(v * 2.0)])
        )
        thread.start()
        thread.join()
    assert seen == [False, np.ndarray]


def test_deep_graphs_do_not_recurse() -> None:
    v = Variable(1.0)
    depth = 20 * sys.getrecursionlimit()
    with GradientTape() as t:
        y = v * 1.0
        for _ in range(depth):
            y = y + 1.0
    assert float(t.gradient(y, v)) == 1
    del t, y
    gc.collect()


def test_replay_frees_what_it_has_passed() -> None:
    v = Variable([1.0])
    alive: list[int] = []
    refs: list[weakref.ref[np.ndarray]] = []
    with GradientTape() as t:
        y = v * 1.0
        for _ in range(5):
            held = np.ones(1, F32)
            refs.append(weakref.ref(held))

            def backward(
                gradient: np.ndarray,
                wanted: tuple[bool, ...],
                held: np.ndarray = held,
            ) -> tuple[np.ndarray]:
                alive.append(sum(ref() is not None for ref in refs))
                return (gradient * held,)

            y = tape.record(y.value + 1, (y,), backward)
    del held, backward
    t.gradient(y, v)
    assert alive == [5, 4, 3, 2, 1]


def test_replay_asks_only_for_what_leads_to_a_source() -> None:
    asked = []

    def op(a: object, b: object) -> Tensor:
        def backward(
            gradient: np.ndarray, wanted: tuple[bool, ...]
        ) -> tuple[np.ndarray, ...]:
            asked.append(wanted)
            return gradient, gradient

        return tape.record(tape.unwrap(a) + tape.unwrap(b), (a, b), backward)

    a, b, c = Variable([1.0]), Variable([1.0]), Variable([1.0])
    with GradientTape() as t:
        x = op(a, b)
        y = op(x, c)
        op(y, y)
    assert t.gradient(y, a).tolist() == [1.0]
    assert asked == [(True, False), (True, False)]


def test_half_gradients_accumulate_in_float32_and_round_once() -> None:
    # In float16 2048 + 1 + 1 stays 2048.
    with GradientTape() as t:
        x = t.watch(np.ones(1, F16))
        y = ops.sum(
            ops.cast(x, "float32") * 2048.0
            + ops.cast(x, "float32")
            + ops.cast(x, "float32")
        )
    assert_same_bits(t.gradient(y, x), np.array([2050.0], F16))


@pytest.mark.parametrize("dtype", [F32, F16, BF16, F64], ids=lambda d: d.name)
def test_gradient_of_a_variable_is_float32_or_float64(dtype: np.dtype) -> None:
    v = Variable(np.array([1.0], dtype))
    with GradientTape() as t:
        x = t.watch(np.array([1.0], dtype))
        y = v * x
    dv, dx = t.gradient(y, [v, x])
    assert dv.dtype == (F64 if dtype == F64 else F32)
    assert dx.dtype == dtype


def test_variable_written_between_read_and_gradient_raises() -> None:
    v = Variable([2.0])
    with GradientTape() as t:
        y = v * v
    v.assign([3.0])
    with pytest.raises(RuntimeError, match="must not be written"):
        t.gradient(y, v)
    with GradientTape() as t:
        y = v * v
    _ = v.stored
    with pytest.raises(RuntimeError, match="must not be written"):
        t.gradient(y, v)


def test_wrong_shape_from_a_backward_function_raises() -> None:
    v = Variable([1.0, 2.0])
    with GradientTape() as t:
        y = tape.record(v.value, (v,), lambda g, wanted: (g[:1],))
    with pytest.raises(RuntimeError, match="of the shapes of its inputs"):
        t.gradient(y, v)


def test_record_returns_a_tensor_only_where_one_went_in_or_a_tape_records() -> None:
    v = Variable([1.0])
    assert isinstance(v * 2.0, np.ndarray)
    assert isinstance(np.ones(1) * v, np.ndarray)
    assert isinstance(Tensor([1.0]) * v, Tensor)
    with GradientTape():
        assert isinstance(v * 2.0, Tensor)
        assert isinstance(ops.add([1.0], [2.0]), np.ndarray)
        assert isinstance(ops.sum(Variable([1, 2])), np.ndarray)


def test_needs_gradient_asks_the_recording_tapes() -> None:
    v, x = Variable([1.0]), Tensor([1.0])
    assert not tape.needs_gradient(v)
    with GradientTape() as t:
        assert tape.needs_gradient(v)
        assert not tape.needs_gradient(x)
        assert not tape.needs_gradient(np.ones(1))
        t.watch(x)
        assert tape.needs_gradient(x)
        assert tape.needs_gradient(x * 2.0)
