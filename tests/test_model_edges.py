"""Models where it is easy to be quietly wrong: odd outputs, callbacks, averages."""

import gc
import threading
import weakref

import numpy as np
import pytest
from small_models import classifier, data

import mpcore
from mpcore import callbacks, losses, metrics, ops, optimizers
from mpcore.layers import Dense, Flatten, Layer
from mpcore.mixed_precision import LossScaleOptimizer
from mpcore.models import Sequential


class Returns(Layer):
    """Returns what a function makes of its input."""

    def __init__(self, function):
        super().__init__()
        self.function = function

    def call(self, x):
        return self.function(x)


@pytest.mark.parametrize(
    "function",
    [lambda x: ops.mean(x, axis=0, keepdims=True), lambda x: x[:1], ops.sum],
    ids=["mean", "first", "scalar"],
)
def test_predict_of_outputs_without_a_row_per_sample_is_an_error(function):
    model = Sequential([Returns(function)])
    with pytest.raises(ValueError, match="one row per sample"):
        model.predict(np.ones((10, 2), np.float32))


def test_predict_of_several_outputs_is_an_error():
    model = Sequential([Returns(lambda x: (x, x))])
    with pytest.raises(TypeError, match="must return one array"):
        model.predict(np.ones((10, 2), np.float32))


@pytest.mark.parametrize("wrap", [False, True], ids=["plain", "wrapped"])
def test_fit_ends_with_the_averaged_weights(wrap):
    x, y = data()
    inner = optimizers.SGD(0.5, use_ema=True, ema_momentum=0.5)
    model = classifier(optimizer=LossScaleOptimizer(inner) if wrap else inner)
    model.fit(x, y, epochs=2, verbose=0)
    for variable, average in zip(
        model.trainable_variables, inner._averages, strict=True
    ):
        np.testing.assert_array_equal(variable.numpy(), average.numpy())


class Evaluates(callbacks.Callback):
    """Asks the model about other data after each batch."""

    def on_train_batch_end(self, batch, logs=None):
        x, y = data(7, seed=9)
        self.model.evaluate(100 * x, y)
        self.model.predict(x)


def test_evaluate_in_a_callback_leaves_the_epochs_logs_alone():
    x, y = data()
    histories = []
    for extra in (None, Evaluates()):
        mpcore.set_random_seed(3)
        model = classifier()
        histories.append(model.fit(x, y, epochs=2, verbose=0, callbacks=extra).history)
    assert histories[0] == histories[1]


def test_fit_validation_of_another_width_is_an_error_before_training():
    x, y = data()
    model = classifier()
    model.build((None, 4))
    before = model.get_weights()
    with pytest.raises(ValueError, match="samples of shape"):
        model.fit(x, y, validation_data=(x[:, :2], y), verbose=0)
    for now, then in zip(model.get_weights(), before, strict=True):
        np.testing.assert_array_equal(now, then)


def test_fit_complex_targets_are_an_error():
    x, y = data()
    with pytest.raises(TypeError, match="real numbers"):
        classifier().fit(x, y.astype(complex), verbose=0)


@pytest.mark.parametrize(
    "call",
    [
        lambda model, x, y: model.fit(np.ma.masked_array(x), y, verbose=0),
        lambda model, x, y: model.fit(x, np.ma.masked_array(y), verbose=0),
        lambda model, x, y: model.fit(
            x, y, sample_weight=np.ma.ones(len(x)), verbose=0
        ),
        lambda model, x, y: model.evaluate(np.ma.masked_array(x), y),
        lambda model, x, y: model.predict(np.ma.masked_array(x)),
        lambda model, x, y: model.set_weights(
            [np.ma.masked_array(w) for w in model.get_weights()]
        ),
        lambda model, x, y: mpcore.initializers.Constant(np.ma.ones(3))((3,)),
    ],
    ids=["x", "y", "weights", "evaluate", "predict", "set_weights", "constant"],
)
def test_model_masked_arrays_are_refused_since_the_mask_would_be_lost(call):
    x, y = data(8)
    model = classifier()
    model.predict(x)
    before = model.get_weights()
    with pytest.raises(TypeError, match="Masked arrays are not supported"):
        call(model, x, y)
    for now, then in zip(model.get_weights(), before, strict=True):
        np.testing.assert_array_equal(now, then)


def test_compiled_model_is_freed_without_the_cycle_collector():
    x, y = data()
    model = classifier(metrics=[])
    model.fit(x, y, verbose=0)
    alive = weakref.ref(model)
    gc.disable()
    try:
        del model
        assert alive() is None
    finally:
        gc.enable()


def test_fit_takes_integer_images():
    rng = np.random.default_rng(0)
    x = rng.integers(0, 255, (40, 3, 3), dtype=np.uint8)
    y = rng.integers(0, 3, 40)
    results = []
    for images in (x, x.astype(np.float32)):
        mpcore.set_random_seed(1)
        model = Sequential([Flatten(), Dense(3)])
        model.compile(optimizers.SGD(1e-5), losses.SparseCategoricalCrossentropy(True))
        model.fit(images, y, verbose=0)
        results.append(model.predict(images))
    np.testing.assert_array_equal(*results)


def test_layer_built_by_many_threads_has_one_set_of_variables():
    for _ in range(20):
        model = Sequential([Dense(16), Dense(4)])
        x = np.ones((2, 8), np.float32)
        start = threading.Barrier(4)

        def call(model=model, x=x, start=start):
            start.wait()
            model(x)

        threads = [threading.Thread(target=call) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert len(model.variables) == 4


def test_layer_build_that_failed_can_be_repeated():
    fails = [True]

    def zeros(shape, dtype=None):
        if fails.pop():
            raise RuntimeError("not yet")
        return np.zeros(shape, dtype)

    layer = Dense(2, bias_initializer=zeros)
    with pytest.raises(RuntimeError, match="not yet"):
        layer(np.ones((1, 3), np.float32))
    fails[:] = [False]
    layer(np.ones((1, 3), np.float32))
    assert [v.path for v in layer.variables] == [layer.kernel.path, layer.bias.path]


def test_set_weights_that_do_not_fit_an_integer_variable_change_nothing():
    layer = Layer()
    layer.add_weight((2,), "zeros", name="a")
    layer.add_weight((2,), "zeros", dtype="int32", name="b")
    with pytest.raises(ValueError, match="takes only what it can represent"):
        layer.set_weights([np.ones(2), [0.5, 1.0]])
    assert [w.tolist() for w in layer.get_weights()] == [[0.0, 0.0], [0, 0]]


def test_squared_error_metric_of_integers_does_not_wrap():
    metric = metrics.MeanSquaredError()
    metric.update_state(np.uint8([0]), np.uint8([100]))
    assert metric.result() == 10000.0
    metric = metrics.get("mae")
    metric.update_state(np.int32([0]), np.int32([-(2**31)]))
    assert metric.result() == 2.0**31


def test_custom_loss_does_not_broadcast_a_missing_dimension():
    def error(y_true, y_pred):
        return ops.square(ops.subtract(y_pred, y_true))

    y_true = np.arange(4, dtype=np.float32)
    y_pred = np.ones((4, 1), np.float32)
    expected = np.mean((1 - y_true) ** 2)
    assert losses.get(error)(y_true, y_pred) == expected


def test_scale_state_that_makes_no_sense_is_an_error_that_changes_nothing():
    w = mpcore.Variable([1.0])
    optimizer = LossScaleOptimizer(optimizers.SGD(0.1))
    optimizer.build([w])
    for bad in (np.inf, np.nan, -1.0, 0.0):
        optimizer.dynamic_scale.assign(bad)
        with pytest.raises(ValueError, match="scale"):
            optimizer.apply([np.array([1.0], np.float32)], [w])
        assert float(w.numpy()[0]) == 1.0
        assert int(optimizer.iterations) == 0


@pytest.mark.parametrize(
    ("make", "name"),
    [
        (lambda: optimizers.SGD(1e39), "learning_rate"),
        (lambda: optimizers.Adam(epsilon=1e-60), "epsilon"),
        (lambda: optimizers.SGD(clipvalue=1e-50), "clipvalue"),
    ],
)
def test_constant_that_float32_cannot_hold_is_an_error(make, name):
    w = mpcore.Variable([1.0, 2.0])
    with pytest.raises(ValueError, match=name):
        make().apply([np.zeros(2, np.float32)], [w])
    assert w.numpy().tolist() == [1.0, 2.0]
    wide = mpcore.Variable(np.array([1.0, 2.0]))
    make().apply([np.zeros(2)], [wide])


def test_compute_copy_made_while_another_thread_assigns_is_true():
    for _ in range(200):
        v = mpcore.Variable(np.zeros(2000, np.float32))
        start = threading.Barrier(2)

        def read(v=v, start=start):
            start.wait()
            with mpcore.autocast.scope("float16"):
                v.value  # noqa: B018

        reader = threading.Thread(target=read)
        reader.start()
        start.wait()
        v.assign(np.ones(2000, np.float32))
        reader.join()
        with mpcore.autocast.scope("float16"):
            assert (v.value == 1).all()


def test_model_called_with_a_masked_array_is_an_error():
    x, _ = data()
    model = classifier()
    for mask in (True, False):
        with pytest.raises(TypeError, match="Masked arrays"):
            model(np.ma.masked_array(x, np.full(x.shape, mask)))


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"batch_size": 32.0}, TypeError, "`batch_size` .*batch_size=32.0"),
        ({"batch_size": True}, TypeError, "`batch_size` .*batch_size=True"),
        ({"epochs": None}, TypeError, "`epochs` .*epochs=None"),
        ({"initial_epoch": "1"}, TypeError, "`initial_epoch` .*initial_epoch='1'"),
        ({"initial_epoch": -2}, ValueError, "`initial_epoch` .*initial_epoch=-2"),
        ({"callbacks": 5}, TypeError, "`callbacks` .*callbacks=5"),
    ],
)
def test_fit_argument_of_a_wrong_kind_is_named_before_training(
    arguments, error, message
):
    x, y = data()
    model = classifier()
    with pytest.raises(error, match=message):
        model.fit(x, y, verbose=0, **arguments)
    assert int(model.optimizer.iterations) == 0


@pytest.mark.parametrize("units", [None, 2.0, "3", True])
def test_dense_units_that_are_no_integer_are_named(units):
    with pytest.raises(TypeError, match=f"`units` .*units={units!r}"):
        Dense(units)


@pytest.mark.parametrize(
    "function", [lambda x: None, lambda x: (x, x)], ids=["none", "tuple"]
)
@pytest.mark.parametrize("method", ["fit", "evaluate", "predict"])
def test_model_that_returns_no_array_is_named(function, method):
    x, y = data()
    model = Sequential([Dense(3), Returns(function)], name="forgetful")
    model.compile("sgd", losses.SparseCategoricalCrossentropy(from_logits=True))
    with pytest.raises(TypeError, match="'forgetful' must return one array"):
        getattr(model, method)(*((x,) if method == "predict" else (x, y)), verbose=0)


def test_regularizer_that_returns_no_scalar_is_named_before_anything_changes():
    x, y = data()
    layer = Dense(3, kernel_regularizer=lambda kernel: kernel)
    model = Sequential([layer])
    model.compile("sgd", losses.SparseCategoricalCrossentropy(from_logits=True))
    model.build((None, 4))
    before = layer.kernel.numpy()
    with pytest.raises(ValueError, match=r"regularizer of '.*kernel' .*\(4, 3\)"):
        model.fit(x, y, verbose=0)
    np.testing.assert_array_equal(layer.kernel.numpy(), before)
