"""The optimizers and settings that every law of test_optimizers.py runs over."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import ml_dtypes
import numpy as np
import reference_optim as rules
from reference_optim import Reference

from mpcore import Variable, autocast, optimizers
from mpcore.optimizers import schedules

BF16 = ml_dtypes.bfloat16
SHAPES = [(), (0,), (7,), (2, 3, 11), (257,), (9, 5), (5, 9)]


Shape = tuple[int, ...]


@dataclass(frozen=True)
class Row:
    make: type[optimizers.Optimizer]
    rule: Any
    slots: tuple[str, ...]
    hyper: dict[str, Any] = field(default_factory=dict)
    # Slots that follow in groups of their own, not interleaved per variable.
    groups: tuple[tuple[str, ...], ...] = ()
    # What slots start with that do not start with zeros: a number, or None for w.
    starts: dict[str, float | None] = field(default_factory=dict)
    # State that no variable has of its own.
    extras: tuple[str, ...] = ()
    # Names and shapes of a variable's slots, where they are not all of its shape.
    layout: Callable[[str, Shape], list[tuple[str, Shape]]] | None = None

    def slot_layout(self, model: dict[str, Shape]) -> list[tuple[str, Shape]]:
        """Names and shapes of the slots in the order of `variables`."""
        if self.layout:
            return [slot for item in model.items() for slot in self.layout(*item)]
        return [
            (f"{name}_{slot}", shape)
            for group in self.groups or (self.slots,)
            for name, shape in model.items()
            for slot in group
        ]


def factored_layout(name: str, shape: Shape) -> list[tuple[str, Shape]]:
    rows, columns = (), ()
    if len(shape) >= 2:
        rows, columns = shape[:-1], (*shape[:-2], shape[-1])
    return [(name, rows), (name, columns), (f"{name}_velocity", shape)]


def muon_layout(name: str, shape: Shape) -> list[tuple[str, Shape]]:
    slots = ["momentum"] if len(shape) == 2 else ["momentum", "velocity"]
    return [(f"{name}_{slot}", shape) for slot in slots]


MOMENTS = ("momentum", "velocity")
OPTIMIZERS = {
    "sgd": Row(optimizers.SGD, rules.sgd, ()),
    "sgd-momentum": Row(optimizers.SGD, rules.sgd, ("momentum",), {"momentum": 0.9}),
    "sgd-nesterov": Row(
        optimizers.SGD, rules.sgd, ("momentum",), {"momentum": 0.9, "nesterov": True}
    ),
    "adam": Row(optimizers.Adam, rules.adam, MOMENTS),
    "adam-betas": Row(
        optimizers.Adam,
        rules.adam,
        MOMENTS,
        {"beta_1": 0.5, "beta_2": 0.9, "epsilon": 1e-3},
    ),
    "adam-amsgrad": Row(
        optimizers.Adam,
        rules.adam,
        (*MOMENTS, "velocity_hat"),
        {"amsgrad": True},
        (MOMENTS, ("velocity_hat",)),
    ),
    "adamw": Row(optimizers.AdamW, rules.adam, MOMENTS),
    "adamax": Row(optimizers.Adamax, rules.adamax, ("momentum", "norm")),
    "nadam": Row(optimizers.Nadam, rules.nadam, MOMENTS, extras=("variable",)),
    "rmsprop": Row(optimizers.RMSprop, rules.rmsprop, ("velocity",)),
    "rmsprop-momentum": Row(
        optimizers.RMSprop,
        rules.rmsprop,
        ("velocity", "momentum"),
        {"momentum": 0.5},
        (("velocity",), ("momentum",)),
    ),
    "rmsprop-centered": Row(
        optimizers.RMSprop,
        rules.rmsprop,
        ("velocity", "average_gradient"),
        {"centered": True, "epsilon": 1e-3},
        (("velocity",), ("average_gradient",)),
    ),
    "rmsprop-full": Row(
        optimizers.RMSprop,
        rules.rmsprop,
        ("velocity", "momentum", "average_gradient"),
        {"rho": 0.8, "momentum": 0.5, "centered": True, "epsilon": 1e-3},
        (("velocity",), ("momentum",), ("average_gradient",)),
    ),
    "adafactor": Row(
        optimizers.Adafactor,
        rules.adafactor,
        ("velocity",),
        layout=factored_layout,
    ),
    "adafactor-clipped": Row(
        optimizers.Adafactor,
        rules.adafactor,
        ("velocity",),
        {
            "beta_2_decay": -0.5,
            "epsilon_1": 1e-3,
            "epsilon_2": 2.0,
            "clip_threshold": 0.5,
            "relative_step": False,
        },
        layout=factored_layout,
    ),
    "adagrad": Row(
        optimizers.Adagrad,
        rules.adagrad,
        ("accumulator",),
        starts={"accumulator": 0.1},
    ),
    "adagrad-start": Row(
        optimizers.Adagrad,
        rules.adagrad,
        ("accumulator",),
        {"initial_accumulator_value": 0.5, "epsilon": 1e-3},
        starts={"accumulator": 0.5},
    ),
    "adadelta": Row(
        optimizers.Adadelta,
        rules.adadelta,
        ("accumulated_grad", "accumulated_delta_var"),
    ),
    "ftrl": Row(
        optimizers.Ftrl,
        rules.ftrl,
        ("accumulator", "linear"),
        starts={"accumulator": 0.1},
    ),
    "ftrl-regularized": Row(
        optimizers.Ftrl,
        rules.ftrl,
        ("accumulator", "linear"),
        {
            "learning_rate_power": -0.7,
            "initial_accumulator_value": 0.01,
            "l1_regularization_strength": 0.125,
            "l2_regularization_strength": 0.1,
            "l2_shrinkage_regularization_strength": 0.05,
            "beta": 0.3,
        },
        starts={"accumulator": 0.01},
    ),
    "lion": Row(optimizers.Lion, rules.lion, ("momentum",)),
    "lamb": Row(optimizers.Lamb, rules.lamb, MOMENTS),
    "muon": Row(optimizers.Muon, rules.muon, MOMENTS, layout=muon_layout),
    "muon-plain": Row(
        optimizers.Muon,
        rules.muon,
        MOMENTS,
        {
            "momentum": 0.5,
            "nesterov": False,
            "rms_rate": None,
            "ns_steps": 2,
            "muon_a": 2.0,
            "muon_b": -1.5,
            "muon_c": 0.5,
            "adam_beta_1": 0.8,
            "adam_beta_2": 0.9,
            "epsilon": 1e-3,
            "adam_lr_ratio": 0.5,
            "adam_weight_decay": None,
        },
        layout=muon_layout,
    ),
    "schedule-free": Row(
        optimizers.ScheduleFreeAdamW,
        rules.schedule_free_adamw,
        MOMENTS,
        starts={"momentum": None},
    ),
    "schedule-free-warmup": Row(
        optimizers.ScheduleFreeAdamW,
        rules.schedule_free_adamw,
        MOMENTS,
        {"warmup_steps": 5, "beta_1": 0.8},
        starts={"momentum": None},
    ),
}


SETTINGS: dict[str, dict[str, Any]] = {
    "plain": {},
    "weight_decay": {"weight_decay": 0.1},
    "clipnorm": {"clipnorm": 0.5},
    "clipvalue": {"clipvalue": 0.25},
    "global_clipnorm": {"global_clipnorm": 1.0, "loss_scale_factor": 4.0},
    "ema": {"use_ema": True, "ema_momentum": 0.75},
    "ema_overwrite": {
        "use_ema": True,
        "ema_momentum": 0.5,
        "ema_overwrite_frequency": 3,
    },
    "accumulation": {"gradient_accumulation_steps": 3},
    "loss_scale_factor": {"loss_scale_factor": 12.0},
    "schedule": {"learning_rate": schedules.ExponentialDecay(0.1, 4, 0.5)},
    "schedule-decay": {
        "learning_rate": schedules.PolynomialDecay(0.1, 6, 0.01, cycle=True),
        "weight_decay": 0.3,
        "clipvalue": 0.5,
    },
    "small": {"learning_rate": 1e-6, "weight_decay": 0.5, "loss_scale_factor": 2**20},
    "all": {
        "weight_decay": 0.05,
        "global_clipnorm": 0.7,
        "use_ema": True,
        "ema_momentum": 0.9,
        "ema_overwrite_frequency": 2,
        "gradient_accumulation_steps": 2,
        "loss_scale_factor": 8.0,
        "learning_rate": schedules.CosineDecay(0.1, 8, alpha=0.01),
    },
}

# Every kind of state at once.
EVERYTHING = {
    "weight_decay": 0.1,
    "use_ema": True,
    "gradient_accumulation_steps": 2,
    "clipnorm": 1.0,
}

# Variable dtype, gradient dtype, dtype of the low-precision copy.
DTYPES: dict[str, tuple[Any, Any, str | None]] = {
    "f32": (np.float32, np.float32, None),
    "f32-f16grad-f16copy": (np.float32, np.float16, "float16"),
    "f32-bf16grad-bf16copy": (np.float32, BF16, "bfloat16"),
    "f32-bf16copy": (np.float32, np.float32, "bfloat16"),
    "f16": (np.float16, np.float16, None),
    "bf16": (BF16, BF16, None),
    "bf16-f32grad": (BF16, np.float32, None),
    "f64": (np.float64, np.float64, None),
    "f64-f32grad": (np.float64, np.float32, None),
}


def weights(dtype: Any, shapes: list[tuple[int, ...]] | None = None) -> list[Any]:
    rng = np.random.default_rng(11)
    shapes = SHAPES if shapes is None else shapes
    return [rng.standard_normal(shape).astype(dtype) for shape in shapes]


def gradients(step: int, dtype: Any, shapes: list[tuple[int, ...]] | None = None):
    rng = np.random.default_rng([step, 12])
    shapes = SHAPES if shapes is None else shapes
    return [rng.standard_normal(shape).astype(dtype) for shape in shapes]


def variables(values: list[np.ndarray], copy: str | None = None) -> list[Variable]:
    made = [Variable(value, name=f"w{i}") for i, value in enumerate(values)]
    if copy:
        with autocast.scope(copy):
            for variable in made:
                assert variable.value.dtype.name == copy
    return made


def grad(*values: float, dtype: Any = np.float32) -> np.ndarray:
    return np.array(values, dtype)


def var(*values: float, dtype: Any = np.float32, **settings: Any) -> Variable:
    return Variable(np.array(values, dtype), **settings)


def reference(row: Row, values: list[np.ndarray], settings: dict[str, Any]):
    arguments = {"learning_rate": 0.05, "hyper": row.hyper, **settings}
    if row.make in (optimizers.AdamW, optimizers.Muon):
        arguments.setdefault("weight_decay", 0.004)
    if row.make is optimizers.Muon:
        arguments["other_decay"] = row.hyper.get("adam_weight_decay", 0.004) or 0.0
    return Reference(row.rule, row.slots, values, starts=row.starts, **arguments)


def optimizer(row: Row, settings: dict[str, Any]) -> optimizers.Optimizer:
    arguments = {"learning_rate": 0.05, **row.hyper, **settings}
    return row.make(**arguments)


def state(made: optimizers.Optimizer, model: list[Variable]) -> list[np.ndarray]:
    return [variable.numpy() for variable in [*model, *made.variables]]


def assert_same_bits(actual: list[np.ndarray], expected: list[np.ndarray]) -> None:
    for i, (a, b) in enumerate(zip(actual, expected, strict=True)):
        assert a.dtype == b.dtype and a.shape == b.shape, i
        assert a.tobytes() == b.tobytes(), f"array {i}: {a} is not {b}"
