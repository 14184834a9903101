"""A small classification task, shared by the tests of models."""

import numpy as np
from ml_dtypes import bfloat16

from mpcore import losses, optimizers
from mpcore.layers import Dense
from mpcore.models import Sequential

POLICIES = {
    "float32": np.float32,
    "mixed_bfloat16": bfloat16,
    "mixed_float16": np.float16,
}


def data(n=50, features=4, classes=3, seed=0):
    rng = np.random.default_rng(seed)
    x = rng.standard_normal((n, features)).astype(np.float32)
    y = (x @ rng.standard_normal((features, classes))).argmax(axis=-1)
    return x, y


def classifier(policy=None, **compile_arguments):
    model = Sequential(
        [Dense(8, activation="relu", dtype=policy), Dense(3, dtype=policy)],
        dtype=policy,
    )
    arguments = {
        "optimizer": optimizers.SGD(0.1),
        "loss": losses.SparseCategoricalCrossentropy(from_logits=True),
        "metrics": ["accuracy"],
    }
    model.compile(**{**arguments, **compile_arguments})
    return model
