"""Seeds and streams."""

from __future__ import annotations

import threading

import numpy as np
import pytest

import mpcore
from mpcore import random


def draw(generator: np.random.Generator) -> list[int]:
    return generator.integers(0, 1 << 62, 4).tolist()


def test_same_seed_gives_the_same_streams() -> None:
    mpcore.set_random_seed(7)
    first = [draw(random.generator()) for _ in range(3)]
    mpcore.set_random_seed(7)
    assert [draw(random.generator()) for _ in range(3)] == first
    mpcore.set_random_seed(8)
    assert draw(random.generator()) not in first


def test_streams_differ_and_do_not_depend_on_what_others_draw() -> None:
    mpcore.set_random_seed(7)
    one, two = random.generator(), random.generator()
    expected = draw(two)
    mpcore.set_random_seed(7)
    one, two = random.generator(), random.generator()
    one.random(1000)
    assert draw(two) == expected
    mpcore.set_random_seed(7)
    assert draw(random.generator()) != expected


def test_generator_of_a_seed_is_fixed_and_takes_no_stream() -> None:
    mpcore.set_random_seed(7)
    before = random.get_state()
    assert draw(random.generator(3)) == draw(random.generator(3))
    assert draw(random.generator(3)) != draw(random.generator(4))
    assert random.get_state() == before


def test_generator_of_the_global_seed_is_none_of_its_streams() -> None:
    mpcore.set_random_seed(7)
    assert draw(random.generator(7)) != draw(random.generator())


def test_generator_is_philox_of_seed_and_stream() -> None:
    mpcore.set_random_seed(7)
    random.generator()
    key = np.array([7, 1], np.uint64)
    expected = np.random.Generator(np.random.Philox(key=key))
    assert draw(random.generator()) == draw(expected)


def test_state_restores_the_position() -> None:
    mpcore.set_random_seed(2**64 - 1)
    random.generator()
    state = random.get_state()
    expected = draw(random.generator())
    random.set_state(state)
    assert state == (2**64 - 1, 1)
    assert draw(random.generator()) == expected


def test_threads_get_different_streams() -> None:
    mpcore.set_random_seed(7)
    found: list[list[int]] = []
    threads = [
        threading.Thread(
            target=lambda: found.extend(draw(random.generator()) for _ in range(50))
        )
        for _ in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len({tuple(numbers) for numbers in found}) == 200


@pytest.mark.parametrize(
    ("seed", "error"),
    [(-1, ValueError), (2**64, ValueError), (1.0, TypeError), (True, TypeError)],
)
def test_seed_that_is_not_valid_raises_and_changes_nothing(
    seed: object, error: type
) -> None:
    before = random.get_state()
    with pytest.raises(error, match="`seed` must be"):
        mpcore.set_random_seed(seed)
    with pytest.raises(error, match="`seed` must be"):
        random.generator(seed)
    assert random.get_state() == before


def test_numpy_integers_are_seeds() -> None:
    mpcore.set_random_seed(np.uint8(9))
    assert random.get_state() == (9, 0)
