"""The job behind `mpcore train`: one classifier, trained under several policies.

A seed fixes the split, the first weights and the order of the batches, so runs of one
seed under two policies differ in nothing but the policy.
"""

import time
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass
from statistics import fmean, stdev
from typing import Any

from mpcore import datasets, random
from mpcore.callbacks import Callback
from mpcore.layers import Dense
from mpcore.losses import SparseCategoricalCrossentropy
from mpcore.models import Sequential
from mpcore.optimizers import AdamW
from mpcore.optimizers.schedules import CosineDecay

POLICIES = ("float32", "mixed_bfloat16", "mixed_float16")


@dataclass(frozen=True)
class Settings:
    """How to train."""

    epochs: int = 30
    batch_size: int = 64
    learning_rate: float = 2e-3


@dataclass(frozen=True)
class Run:
    """What came out of one policy and one seed."""

    policy: str
    seed: int
    test_accuracy: float
    test_loss: float
    seconds: float
    loss_scale: float | None
    skipped_steps: int | None
    history: dict[str, list[Any]]


def digits_model(policy: str) -> Sequential:
    """Return an untrained classifier of 64 pixels: 128 and 64 hidden units, 10 logits.

    `policy` becomes the policy of the model and of its layers.
    """
    return Sequential(
        [
            Dense(128, activation="relu", dtype=policy),
            Dense(64, activation="relu", dtype=policy),
            Dense(10, dtype=policy),
        ],
        dtype=policy,
    )


def train_digits(
    policy: str,
    seed: int,
    settings: Settings,
    callbacks: Iterable[Callback] = (),
) -> tuple[Sequential, Run]:
    """Train the classifier with AdamW and a cosine schedule; test it at the end."""
    random.set_random_seed(seed)
    (x, y), (x_test, y_test) = datasets.load_digits(seed=seed)
    steps = -(-len(x) // settings.batch_size) * settings.epochs
    model = digits_model(policy)
    model.compile(
        AdamW(CosineDecay(settings.learning_rate, steps)),
        SparseCategoricalCrossentropy(from_logits=True),
        metrics=["accuracy"],
    )
    start = time.perf_counter()
    history = model.fit(
        x,
        y,
        batch_size=settings.batch_size,
        epochs=settings.epochs,
        verbose=0,
        callbacks=list(callbacks),
    ).history
    seconds = time.perf_counter() - start
    loss, accuracy = model.evaluate(x_test, y_test, batch_size=256)
    scales = history.get("loss_scale")
    skipped = history.get("skipped_steps")
    run = Run(
        policy=policy,
        seed=seed,
        test_accuracy=accuracy,
        test_loss=loss,
        seconds=seconds,
        loss_scale=scales[-1] if scales else None,
        skipped_steps=sum(skipped) if skipped is not None else None,
        history=history,
    )
    return model, run


def summarize(runs: list[Run]) -> list[dict[str, Any]]:
    """Return one row per policy: mean accuracy, and its distance from float32.

    Distances are means over the seeds both policies ran with, in percentage points,
    with the standard error of that mean.
    """
    accuracy = {(run.policy, run.seed): run.test_accuracy for run in runs}
    rows = []
    for policy in dict.fromkeys(run.policy for run in runs):
        mine = [run for run in runs if run.policy == policy]
        row: dict[str, Any] = {
            "policy": policy,
            "seeds": len(mine),
            "mean_test_accuracy": fmean(run.test_accuracy for run in mine),
            "seconds": sum(run.seconds for run in mine),
        }
        paired = [
            100 * (run.test_accuracy - accuracy["float32", run.seed])
            for run in mine
            if policy != "float32" and ("float32", run.seed) in accuracy
        ]
        if paired:
            row["points_from_float32"] = fmean(paired)
            if len(paired) > 1:
                row["standard_error"] = stdev(paired) / len(paired) ** 0.5
        rows.append(row)
    return rows


def report(runs: list[Run], settings: Settings, machine: dict[str, Any]) -> Any:
    """Return everything as JSON-plain data."""
    return {
        "settings": asdict(settings),
        "machine": machine,
        "runs": [asdict(run) for run in runs],
        "summary": summarize(runs),
    }


def train_all(
    policies: Iterable[str],
    seeds: int,
    settings: Settings,
    callbacks: Callable[[str, int], Iterable[Callback]],
    finished: Callable[[Run], None],
) -> list[Run]:
    """Train under each policy with seeds 0, 1, ...; tell `finished` of each run."""
    runs = []
    for policy in policies:
        for seed in range(seeds):
            _, run = train_digits(policy, seed, settings, callbacks(policy, seed))
            finished(run)
            runs.append(run)
    return runs
