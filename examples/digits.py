"""Train a classifier of handwritten digits in mixed precision.

pip install 'mpcore[data]'
python examples/digits.py [float32 | mixed_bfloat16 | mixed_float16]
"""

import sys

import mpcore
from mpcore.datasets import load_digits

policy = sys.argv[1] if len(sys.argv) > 1 else "mixed_bfloat16"
mpcore.mixed_precision.set_global_policy(policy)
mpcore.set_random_seed(0)

(x, y), (x_test, y_test) = load_digits()
model = mpcore.Sequential(
    [
        mpcore.layers.Dense(128, activation="relu"),
        mpcore.layers.Dropout(0.2),
        mpcore.layers.Dense(64, activation="relu"),
        mpcore.layers.Dense(10),
    ]
)
model.compile(
    optimizer=mpcore.optimizers.AdamW(2e-3),
    loss=mpcore.losses.SparseCategoricalCrossentropy(from_logits=True),
    metrics=["accuracy"],
)
model.fit(x, y, batch_size=64, epochs=20, validation_split=0.1)
model.summary()
loss, accuracy = model.evaluate(x_test, y_test)
print(f"{policy}: test loss {loss:.4f}, test accuracy {accuracy:.2%}")
