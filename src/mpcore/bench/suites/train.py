"""One training step of a perceptron with two hidden layers: forward, backward, Adam."""

from collections.abc import Callable

import numpy as np

from mpcore.bench.libraries import foreign
from mpcore.bench.problem import Problem
from mpcore.bench.suite import Call, Data, Need, Probe, Suite, Unsupported, register

_CLASSES = 16
_POLICIES = {"f32": "float32", "bf16": "mixed_bfloat16", "f16": "mixed_float16"}
_RATE = 1e-3


def _sizes(problem: Problem) -> list[tuple[int, int]]:
    """Return inputs and outputs of each layer."""
    _, inputs, hidden = problem.sizes("shape")
    return [(inputs, hidden), (hidden, hidden), (hidden, _CLASSES)]


def _operations(problem: Problem) -> float:
    batch, *_ = problem.sizes("shape")
    # Forward, and two products backward; the first layer has no input gradient.
    products = [batch * a * b for a, b in _sizes(problem)]
    return 2.0 * (3 * sum(products) - products[0])


def _needs(problem: Problem) -> tuple[Need, ...]:
    operations = _operations(problem)
    ways = [(Probe("fma_f32"), operations)]
    if problem["dtype"] != "f32":
        factor = 1 if problem["dtype"] == "bf16" else 4
        ways.append((Probe("amx_bf16"), factor * operations))
    weights = 4 * sum(a * b for a, b in _sizes(problem))
    update = Probe("update", 4 * weights)
    return (Need(tuple(ways)), Need(((update, 7.0 * weights),)))


def _data(problem: Problem, generator: np.random.Generator) -> Data:
    batch, inputs, _ = problem.sizes("shape")
    labels = generator.integers(0, _CLASSES, batch)
    centers = generator.standard_normal((_CLASSES, inputs), dtype=np.float32)
    noise = generator.standard_normal((batch, inputs), dtype=np.float32)
    return {"x": centers[labels] + noise, "labels": labels}


def _check(problem: Problem, data: Data, outputs: Data) -> str | None:
    first, last = outputs["loss"]
    if not 0 < last < 0.5 * first:
        return f"20 steps took the loss from {first:.4g} to {last:.4g}"
    return None


def _trained(step: Callable[[], float]) -> Call:
    """Return a call whose outputs are the losses before and after 20 steps."""

    def outputs() -> Data:
        losses = [step() for _ in range(20)]
        return {"loss": (losses[0], losses[-1])}

    return Call(step, outputs)


def _mpcore(problem: Problem, data: Data, threads: int) -> Call:
    from mpcore import layers, losses, models, optimizers, random
    from mpcore.mixed_precision.loss_scale_optimizer import LossScaleOptimizer

    random.set_random_seed(0)
    policy = _POLICIES[problem["dtype"]]
    (_, hidden), *_ = _sizes(problem)
    model = models.Sequential(
        [
            layers.Dense(hidden, activation="relu", dtype=policy),
            layers.Dense(hidden, activation="relu", dtype=policy),
            layers.Dense(_CLASSES, dtype=policy),
        ]
    )
    optimizer: optimizers.Optimizer = optimizers.Adam(_RATE)
    if problem["dtype"] == "f16":
        optimizer = LossScaleOptimizer(optimizer)
    model.compile(optimizer, losses.SparseCategoricalCrossentropy(from_logits=True))
    x, labels = data["x"], data["labels"]

    def step() -> float:
        result = model.train_on_batch(x, labels)
        return float(np.ravel(result)[0])

    return _trained(step)


def _torch(problem: Problem, data: Data, threads: int) -> Call:
    torch = foreign("torch")
    nn = torch.nn

    if problem["dtype"] == "f16":
        kind = torch.float16
    else:
        kind = torch.bfloat16 if problem["dtype"] == "bf16" else torch.float32
    torch.manual_seed(0)
    (inputs, hidden), *_ = _sizes(problem)
    model = nn.Sequential(
        *(nn.Linear(inputs, hidden), nn.ReLU(), nn.Linear(hidden, hidden), nn.ReLU()),
        nn.Linear(hidden, _CLASSES),
    )
    optimizer = torch.optim.Adam(model.parameters(), lr=_RATE, fused=True)
    scaler = torch.amp.GradScaler("cpu", enabled=kind == torch.float16)
    x, labels = torch.from_numpy(data["x"]), torch.from_numpy(data["labels"])

    def step() -> float:
        optimizer.zero_grad(set_to_none=True)
        with torch.autocast("cpu", dtype=kind, enabled=kind != torch.float32):
            loss = nn.functional.cross_entropy(model(x), labels)
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
        return float(loss.detach())

    return _trained(step)


def _keras(problem: Problem, data: Data, threads: int) -> Call:
    keras = foreign("keras")

    if problem["dtype"] == "f16" and keras.backend.backend() == "numpy":
        raise Unsupported("Keras' numpy backend does not train")
    keras.utils.set_random_seed(0)
    keras.config.set_dtype_policy(_POLICIES[problem["dtype"]])
    (_, hidden), *_ = _sizes(problem)
    model = keras.Sequential(
        [
            keras.layers.Dense(hidden, activation="relu"),
            keras.layers.Dense(hidden, activation="relu"),
            keras.layers.Dense(_CLASSES),
        ]
    )
    model.compile(
        keras.optimizers.Adam(_RATE),
        keras.losses.SparseCategoricalCrossentropy(from_logits=True),
    )
    x, labels = data["x"], data["labels"]
    return _trained(lambda: float(np.ravel(model.train_on_batch(x, labels))[0]))


register(
    Suite(
        name="train",
        fields=("model", "dtype", "shape"),
        quick=tuple(f"train:mlp:{dtype}:256x784x512" for dtype in _POLICIES),
        full=tuple(f"train:mlp:{dtype}:512x1Kx2K" for dtype in _POLICIES),
        unit="steps/s",
        amount=lambda problem: 1.0,
        needs=_needs,
        data=_data,
        check=_check,
        builders={"mpcore": _mpcore, "torch": _torch, "keras": _keras},
        choices={"model": ("mlp",), "dtype": tuple(_POLICIES)},
    )
)
