"""Learning-rate schedules against their formulas, written out here once more."""

from __future__ import annotations

import json
import math

import numpy as np
import pytest

import mpcore
from mpcore import Variable
from mpcore.optimizers import SGD, schedules
from mpcore.optimizers.schedules import (
    CosineDecay,
    CosineDecayRestarts,
    ExponentialDecay,
    InverseTimeDecay,
    LearningRateSchedule,
    PiecewiseConstantDecay,
    PolynomialDecay,
)


def cosine(x):
    return (1 + math.cos(math.pi * x)) / 2


def restarts(step, first, t_mul, m_mul):
    """Walk through the periods one by one."""
    start, length, top = 0.0, float(first), 1.0
    while step >= start + length:
        start, length, top = start + length, length * t_mul, top * m_mul
    return top * cosine((step - start) / length)


# Schedule, and the same as a function of the step.
SCHEDULES = {
    "exponential": (ExponentialDecay(0.5, 4, 0.3), lambda s: 0.5 * 0.3 ** (s / 4)),
    "exponential-stairs": (
        ExponentialDecay(0.5, 4, 0.3, staircase=True),
        lambda s: 0.5 * 0.3 ** (s // 4),
    ),
    "inverse": (InverseTimeDecay(0.5, 4, 0.3), lambda s: 0.5 / (1 + 0.3 * s / 4)),
    "inverse-stairs": (
        InverseTimeDecay(0.5, 4, 0.3, staircase=True),
        lambda s: 0.5 / (1 + 0.3 * (s // 4)),
    ),
    "polynomial": (
        PolynomialDecay(0.5, 10, 0.1, power=2.0),
        lambda s: 0.4 * (1 - min(s, 10) / 10) ** 2 + 0.1,
    ),
    "polynomial-cycle": (
        PolynomialDecay(0.5, 10, 0.1, cycle=True),
        lambda s: 0.4 * (1 - s / (10 * max(1, -(-s // 10)))) + 0.1,
    ),
    "cosine": (
        CosineDecay(0.5, 10, alpha=0.2),
        lambda s: 0.5 * (0.8 * cosine(min(s, 10) / 10) + 0.2),
    ),
    "cosine-warmup": (
        CosineDecay(0.1, 10, alpha=0.2, warmup_target=0.5, warmup_steps=4),
        lambda s: (
            0.1 + 0.4 * s / 4
            if s < 4
            else 0.5 * (0.8 * cosine(min(s - 4, 10) / 10) + 0.2)
        ),
    ),
    "restarts": (
        CosineDecayRestarts(0.5, 3, t_mul=2.0, m_mul=0.9, alpha=0.1),
        lambda s: 0.5 * (0.9 * restarts(s, 3, 2, 0.9) + 0.1),
    ),
    "restarts-odd": (
        CosineDecayRestarts(0.5, 2, t_mul=3.0),
        lambda s: 0.5 * restarts(s, 2, 3, 1),
    ),
    "restarts-equal": (
        CosineDecayRestarts(0.5, 3, t_mul=1.0, m_mul=0.5),
        lambda s: 0.5 * restarts(s, 3, 1, 0.5),
    ),
    "piecewise": (
        PiecewiseConstantDecay([2, 5], [1.0, 0.5, 0.1]),
        lambda s: 1.0 if s <= 2 else 0.5 if s <= 5 else 0.1,
    ),
    "piecewise-none": (PiecewiseConstantDecay([], [0.25]), lambda s: 0.25),
}


@pytest.fixture(params=SCHEDULES)
def schedule(request):
    return SCHEDULES[request.param][0]


@pytest.mark.parametrize(("made", "formula"), SCHEDULES.values(), ids=SCHEDULES)
def test_schedule_follows_its_formula(made, formula):
    for step in range(60):
        got = made(step)
        assert type(got) is float
        # A dozen double operations.
        assert got == pytest.approx(formula(step), rel=16 * 2.0**-52, abs=1e-15), step


def test_schedule_round_trips_through_json(schedule):
    config = json.loads(json.dumps(mpcore.serialization.serialize(schedule)))
    again = mpcore.serialization.deserialize(config)
    assert type(again) is type(schedule)
    assert again.get_config() == schedule.get_config()
    assert type(schedule).from_config(config["config"])(7) == schedule(7)


def test_schedule_in_an_optimizer_round_trips(schedule):
    made = SGD.from_config(SGD(schedule).get_config())
    assert made.learning_rate == schedule(0)
    assert (
        made.get_config()["learning_rate"]
        == SGD(schedule).get_config()["learning_rate"]
    )


def test_schedule_takes_counters_of_any_kind(schedule):
    for step in (3, 3.0, np.int64(3), np.float32(3), Variable(3)):
        assert schedule(step) == schedule(3)


@pytest.mark.parametrize(
    "make",
    [
        lambda rate: ExponentialDecay(rate, 4, 0.5),
        lambda rate: PiecewiseConstantDecay([10], [rate, 0]),
        lambda rate: CosineDecay(rate, 10),
    ],
)
def test_schedule_of_integers_is_not_integral(make):
    assert make(1)(2) == make(1.0)(2) != 0


def test_schedule_default_names_are_those_of_keras():
    names = {type(made).__name__: made.name for made, _ in SCHEDULES.values()}
    assert names == {
        "ExponentialDecay": "ExponentialDecay",
        "InverseTimeDecay": "InverseTimeDecay",
        "PolynomialDecay": "PolynomialDecay",
        "CosineDecay": "CosineDecay",
        "CosineDecayRestarts": "SGDRDecay",
        "PiecewiseConstantDecay": "PiecewiseConstant",
    }


@pytest.mark.parametrize(
    "make",
    [
        lambda n: ExponentialDecay(0.1, n, 0.5),
        lambda n: InverseTimeDecay(0.1, n, 0.5),
        lambda n: PolynomialDecay(0.1, n),
        lambda n: CosineDecay(0.1, n),
        lambda n: CosineDecayRestarts(0.1, n),
    ],
)
@pytest.mark.parametrize("steps", [0, -1, float("nan")])
def test_schedule_over_no_steps_is_an_error(make, steps):
    with pytest.raises(ValueError, match=r"decay_steps` must be in \(0, inf\)"):
        make(steps)


@pytest.mark.parametrize(
    ("make", "error", "message"),
    [
        (lambda: PiecewiseConstantDecay([1], [1.0]), ValueError, "1 less than"),
        (
            lambda: PiecewiseConstantDecay([2, 2], [1, 2, 3]),
            ValueError,
            "must increase",
        ),
        (lambda: PiecewiseConstantDecay([1], ["a", 1]), TypeError, "real number"),
        (lambda: ExponentialDecay("a", 1, 1), TypeError, "`initial_learning_rate`"),
        (lambda: CosineDecayRestarts(0.1, 1, t_mul=0.5), ValueError, r"in \[1, inf\)"),
        (lambda: CosineDecay(0.1, 1, warmup_steps=-1), ValueError, r"in \[0, inf\)"),
        (
            lambda: ExponentialDecay(1, 1, 1, "no"),
            TypeError,
            "`staircase` must be True",
        ),
        (lambda: PolynomialDecay(1, 1, cycle="no"), TypeError, "`cycle` must be True"),
    ],
)
def test_schedule_argument_out_of_range_is_an_error(make, error, message):
    with pytest.raises(error, match=message):
        make()


def test_schedule_base_says_what_is_missing():
    with pytest.raises(NotImplementedError, match="must override `__call__"):
        LearningRateSchedule()(0)
    with pytest.raises(NotImplementedError, match="must override `get_config"):
        SGD(LearningRateSchedule()).get_config()


def test_schedule_of_a_user_works_and_round_trips():
    class Halving(LearningRateSchedule):
        def __call__(self, step):
            return 1 / 2**step

    class Described(Halving):
        def get_config(self):
            return {}

    v = Variable(0.0)
    made = SGD(Described())
    for _ in range(3):
        made.apply([np.float32(1)], [v])
    assert float(v) == -1.75
    again = SGD.from_config(made.get_config(), {"Described": Described})
    assert again.learning_rate == 1


def test_schedules_module_exports_all():
    assert set(schedules.__all__) == {
        cls.__name__
        for cls in vars(schedules).values()
        if isinstance(cls, type)
        and issubclass(cls, LearningRateSchedule)
        and not cls.__name__.startswith("_")
    }
