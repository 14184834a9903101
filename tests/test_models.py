"""Laws of models: compile, fit, evaluate, predict."""

import numpy as np
import pytest
from small_models import POLICIES, classifier, data

import mpcore
from mpcore import losses, metrics, ops, optimizers, random
from mpcore.layers import Dense, Dropout
from mpcore.mixed_precision import LossScaleOptimizer, set_global_policy
from mpcore.models import Model, Sequential


class Sum(Model):
    """A linear model with one weight, whose steps can be worked out by hand."""

    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        self.w = self.add_weight((1, 1), initializer="zeros", name="w")

    def call(self, x):
        return ops.matmul(x, self.w)


# compile


@pytest.mark.parametrize(
    ("policy", "optimizer", "auto", "wrapped"),
    [
        ("mixed_float16", "sgd", True, True),
        ("mixed_float16", "sgd", False, False),
        ("mixed_bfloat16", "sgd", True, False),
        ("float16", "sgd", True, False),
        ("float32", "sgd", True, False),
    ],
)
def test_compile_wraps_the_optimizer_by_the_models_policy_name(
    policy, optimizer, auto, wrapped
):
    model = Sequential([Dense(1, dtype="mixed_float16")], dtype=policy)
    model.compile(optimizer, "mse", auto_scale_loss=auto)
    assert isinstance(model.optimizer, LossScaleOptimizer) == wrapped


def test_compile_uses_the_global_policy_at_construction_and_wraps_once():
    set_global_policy("mixed_float16")
    model = Sequential([Dense(1)])
    set_global_policy("float32")
    own = LossScaleOptimizer(optimizers.SGD(), initial_scale=8.0)
    model.compile(own, "mse")
    assert model.optimizer is own


def test_compile_bad_arguments_raise():
    model = Sequential([Dense(1)])
    with pytest.raises(ValueError):
        model.compile("nonsense", "mse")
    with pytest.raises(TypeError, match="optimizer"):
        model.compile(None, "mse")
    with pytest.raises(TypeError, match="loss"):
        model.compile("sgd", None)
    with pytest.raises(ValueError, match="accuracy, accuracy"):
        model.compile("sgd", "mse", metrics=["accuracy", metrics.Accuracy()])


@pytest.mark.parametrize("method", ["fit", "evaluate", "train_on_batch"])
def test_model_not_compiled_says_so(method):
    with pytest.raises(RuntimeError, match="compile"):
        getattr(Sequential([Dense(1)]), method)([[1.0]], [[1.0]])


# fit


def test_fit_takes_the_sgd_steps_of_the_formula():
    model = Sum()
    model.compile(optimizers.SGD(0.5), "mse")
    x = np.float32([[1], [2], [3]])
    y = np.float32([[2], [4], [6]])
    history = model.fit(x, y, batch_size=2, epochs=2, shuffle=False, verbose=0)
    w, expected = 0.0, []
    for _ in range(2):
        total = 0.0
        for rows in (slice(0, 2), slice(2, 3)):
            error = w * x[rows] - y[rows]
            total += float(np.square(error).sum())
            w -= 0.5 * float(np.mean(2 * error * x[rows]))
        expected.append(total / 3)
    assert model.w.numpy()[0, 0] == pytest.approx(w, rel=1e-5)
    assert history.history["loss"] == pytest.approx(expected, rel=1e-5)


@pytest.mark.parametrize("policy", POLICIES)
def test_fit_learns_and_evaluate_agrees_with_float64_from_predictions(policy):
    random.set_random_seed(1)
    x, y = data(200)
    model = classifier(policy)
    model.fit(x, y, epochs=30, batch_size=16, verbose=0)
    logits = model.predict(x)
    assert logits.dtype == POLICIES[policy]
    z = logits.astype(np.float64)
    log_p = z - np.log(np.exp(z).sum(axis=-1, keepdims=True))
    loss, accuracy = model.evaluate(x, y, batch_size=64)
    assert loss == pytest.approx(-log_p[np.arange(200), y].mean(), rel=1e-5)
    assert accuracy == (z.argmax(axis=-1) == y).mean()
    assert accuracy > 0.95


@pytest.mark.parametrize("policy", POLICIES)
def test_predict_has_the_bits_of_the_model_whatever_the_batch_size(policy):
    x, _ = data(33)
    model = classifier(policy)
    whole = model(x)
    for batch_size in (1, 7, 33, 100):
        assert model.predict(x, batch_size=batch_size).tobytes() == whole.tobytes()


def test_predict_after_a_change_of_weights_sees_it():
    x, y = data()
    model = classifier("mixed_bfloat16")
    before = model.predict(x)
    model.fit(x, y, verbose=0)
    after = model.predict(x)
    assert np.any(before != after)
    model.set_weights([w * 0 for w in model.get_weights()])
    assert not np.any(model.predict(x).astype(np.float32))


@pytest.mark.parametrize("policy", POLICIES)
def test_fit_of_a_seed_repeats_bit_for_bit_and_another_seed_does_not(policy):
    x, y = data()
    weights = []
    for seed in (4, 4, 5):
        random.set_random_seed(seed)
        model = Sequential(
            [Dense(8, "relu", dtype=policy), Dropout(0.3), Dense(3, dtype=policy)],
            dtype=policy,
        )
        model.compile("adam", losses.SparseCategoricalCrossentropy(from_logits=True))
        model.fit(x, y, batch_size=16, epochs=2, verbose=0)
        weights.append(b"".join(w.tobytes() for w in model.get_weights()))
    assert weights[0] == weights[1]
    assert weights[0] != weights[2]


def test_fit_shuffles_every_epoch_and_visits_each_sample_once():
    class Watcher(Sum):
        def call(self, x):
            self.seen.append(np.array(ops.cast(x, "float32")).ravel())
            return super().call(x)

    model = Watcher()
    model.seen = []
    model.compile(optimizers.SGD(0.0), "mse")
    x = np.arange(20, dtype=np.float32)[:, None]
    model.fit(x, x, batch_size=8, epochs=2, verbose=0)
    assert [len(batch) for batch in model.seen] == [8, 8, 4, 8, 8, 4]
    epochs = [np.concatenate(model.seen[i : i + 3]) for i in (0, 3)]
    for epoch in epochs:
        assert sorted(epoch) == list(range(20))
        assert list(epoch) != list(range(20))
    assert list(epochs[0]) != list(epochs[1])


def test_fit_loss_of_a_partial_batch_counts_by_its_samples():
    model = Sum()
    model.compile(optimizers.SGD(0.0), "mse", metrics=["mse"])
    x = np.zeros((5, 1), np.float32)
    y = np.float32([[0], [0], [0], [0], [5]])
    history = model.fit(x, y, batch_size=4, shuffle=False, verbose=0).history
    assert history["loss"] == history["mean_squared_error"] == [5.0]
    assert model.evaluate(x, y, batch_size=4) == [5.0, 5.0]
    assert model.evaluate(x, y, batch_size=2, return_dict=True)["loss"] == 5.0


def test_fit_validation_split_takes_the_last_samples_before_shuffling():
    model = Sum()
    model.compile(optimizers.SGD(0.0), "mse")
    x = np.zeros((10, 1), np.float32)
    y = np.arange(10, dtype=np.float32)[:, None]
    history = model.fit(x, y, validation_split=0.2, verbose=0).history
    assert history["loss"] == [np.square(np.arange(8)).mean()]
    assert history["val_loss"] == [(64 + 81) / 2]
    history = model.fit(
        x, y, validation_data=(x[:2], y[:2], [0, 4]), validation_split=0.5, verbose=0
    ).history
    assert history["loss"] == [np.square(np.arange(10)).mean()]
    assert history["val_loss"] == [4 / 2]


def test_fit_sample_weight_scales_loss_and_gradient_but_not_metrics():
    model = Sum()
    model.compile(optimizers.SGD(1.0), "mse", metrics=["mse"])
    x, y = np.ones((2, 1), np.float32), np.float32([[1], [3]])
    history = model.fit(
        x, y, sample_weight=[0.0, 0.5], shuffle=False, verbose=0
    ).history
    assert history["loss"] == [0.5 * 9 / 2]
    assert history["mean_squared_error"] == [5.0]
    assert model.w.numpy()[0, 0] == 1.0 * 0.5 * 2 * 3 / 2


def test_fit_regularization_is_in_the_loss_and_in_the_gradient():
    model = Sequential(
        [
            Dense(
                1,
                use_bias=False,
                kernel_initializer="ones",
                kernel_regularizer=mpcore.regularizers.L2(0.25),
            )
        ]
    )
    model.compile(optimizers.SGD(1.0), "mse")
    x = np.zeros((4, 1), np.float32)
    history = model.fit(x, x, verbose=0).history
    assert history["loss"] == [0.25]
    assert model.layers[0].kernel.numpy()[0, 0] == 1.0 - 2 * 0.25
    assert model.evaluate(x, x) == 0.25 * 0.5**2


def test_fit_leaves_layers_alone_from_the_epoch_on_in_which_they_are_frozen():
    class Freeze(mpcore.callbacks.Callback):
        def on_epoch_begin(self, epoch, logs=None):
            self.model.layers[0].trainable = epoch == 0
            self.before = self.model.get_weights()

    x, y = data()
    model = classifier()
    model.build((None, 4))
    first = model.get_weights()
    freeze = Freeze()
    model.fit(x, y, epochs=2, verbose=0, callbacks=[freeze])
    after = model.get_weights()
    assert first[0].tobytes() != freeze.before[0].tobytes()
    assert freeze.before[0].tobytes() == after[0].tobytes()
    assert freeze.before[2].tobytes() != after[2].tobytes()


def test_fit_counts_beyond_the_range_of_halves():
    model = Sum(dtype="mixed_float16")
    model.compile(optimizers.SGD(0.0), "mse")
    x, y = np.ones((70000, 1), np.float32), np.ones((70000, 1), np.float32)
    assert model.evaluate(x, y, batch_size=70000) == 1.0
    history = model.fit(x, y, batch_size=70000, verbose=0).history
    assert history["loss"] == [1.0]


# Loss scaling


def test_fit_history_tells_loss_scale_and_skipped_steps_of_each_epoch():
    model = Sum(dtype="mixed_float16")
    model.compile(
        LossScaleOptimizer(
            optimizers.SGD(2.0**-10), initial_scale=2.0**18, dynamic_growth_steps=4
        ),
        "mse",
    )
    x, y = np.ones((4, 1), np.float32), np.ones((4, 1), np.float32)
    # The gradient of a prediction, scale * 2 * error, overflows float16 while the scale
    # is 2^15 and more: four skipped steps, then growth after four good ones.
    history = model.fit(x, y, batch_size=1, epochs=2, shuffle=False, verbose=0).history
    assert history["skipped_steps"] == [4, 0]
    assert history["loss_scale"] == [2.0**14, 2.0**15]


def test_fit_without_loss_scaling_has_no_scale_in_its_history():
    x, y = data()
    history = classifier("mixed_bfloat16").fit(x, y, verbose=0).history
    assert sorted(history) == ["accuracy", "loss"]


def test_fit_skipped_step_changes_no_weight_and_no_counter():
    model = Sum(dtype="mixed_float16")
    model.compile(optimizers.Adam(0.1), "mse")
    with np.errstate(over="ignore", invalid="ignore"):
        model.train_on_batch(np.float32([[np.inf]]), np.float32([[1.0]]))
    assert model.w.numpy()[0, 0] == 0.0
    assert model.optimizer.skipped_steps == 1
    assert int(model.optimizer.iterations) == 0


# Single batches


def test_train_on_batch_takes_one_step_and_returns_this_batch():
    model = Sum()
    model.compile(optimizers.SGD(0.25), "mse", metrics=["mse"])
    x, y = np.ones((2, 1), np.float32), np.ones((2, 1), np.float32)
    assert model.train_on_batch(x, y) == [1.0, 1.0]
    assert model.w.numpy()[0, 0] == 0.5
    assert model.test_on_batch(x, y) == [0.25, 0.25]
    result = model.train_on_batch(x, y, return_dict=True)
    assert result == {"loss": 0.25, "mean_squared_error": 0.25}
    np.testing.assert_array_equal(model.predict_on_batch(x), [[0.75], [0.75]])


# Input


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"x": np.zeros((3, 4)), "y": [0, 1]}, ValueError, "len.x.=3, len.y.=2"),
        ({"x": np.zeros((0, 4)), "y": []}, ValueError, "at least one sample"),
        ({"x": 1.0, "y": [0]}, ValueError, "batch dimension"),
        ({"x": [["a"]], "y": [0]}, TypeError, "numbers"),
        ({"sample_weight": [1.0]}, ValueError, "sample_weight"),
        ({"batch_size": 0}, ValueError, "batch_size=0"),
        ({"batch_size": 1.5}, TypeError, "batch_size=1.5"),
        ({"validation_split": 1.0}, ValueError, "validation_split"),
        ({"validation_split": 0.99}, ValueError, "no sample"),
        ({"validation_data": np.zeros(3)}, ValueError, "validation_data"),
        ({"x": np.zeros((50, 5))}, ValueError, r"4\).*\(32, 5\)"),
    ],
)
def test_fit_bad_arguments_raise_and_train_nothing(arguments, error, message):
    x, y = data()
    model = classifier()
    model.build((None, 4))
    before = b"".join(w.tobytes() for w in model.get_weights())
    with pytest.raises(error, match=message):
        model.fit(**{"x": x, "y": y, "verbose": 0, **arguments})
    assert b"".join(w.tobytes() for w in model.get_weights()) == before


def test_fit_loss_that_is_no_scalar_raises():
    model = Sum()
    model.compile("sgd", losses.MeanSquaredError(reduction=None))
    with pytest.raises(ValueError, match="scalar"):
        model.fit([[1.0]], [[1.0]], verbose=0)


def test_fit_takes_lists_float64_and_strided_arrays():
    x, y = data()
    results = []
    for samples in (x, x.astype(np.float64), x.tolist(), np.asfortranarray(x)):
        random.set_random_seed(0)
        model = classifier()
        model.fit(samples, y.tolist(), verbose=0)
        results.append(b"".join(w.tobytes() for w in model.get_weights()))
    assert len(set(results)) == 1
