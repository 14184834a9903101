"""Laws of weights in files."""

import numpy as np
import pytest
from small_models import POLICIES, classifier, data

from mpcore import ops
from mpcore.layers import Activation, Dense
from mpcore.models import Model, Sequential


class Branches(Model):
    """Named attributes, lists and a variable of its own."""

    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        self.blocks = [Dense(4), Dense(4), Dense(4, name="mine")]
        self.head = Dense(2)
        self.scale = self.add_weight((2,), initializer="ones")

    def call(self, x):
        for block in self.blocks:
            x = block(x)
        return ops.multiply(self.head(x), self.scale)


def test_save_weights_names_follow_the_structure(tmp_path):
    from safetensors.numpy import load_file

    model = Branches()
    model(np.ones((1, 4), np.float32))
    model.save_weights(tmp_path / "w.safetensors")
    assert [path.name for path in tmp_path.iterdir()] == ["w.safetensors"]
    names = {"dense", "dense_1", "mine", "head"}
    expected = {f"{name}/{v}" for name in names for v in ("kernel", "bias")} | {"scale"}
    assert set(load_file(tmp_path / "w.safetensors")) == expected


@pytest.mark.parametrize("saved", POLICIES)
@pytest.mark.parametrize("loaded", POLICIES)
def test_weights_load_bit_for_bit_into_another_instance_and_policy(
    saved, loaded, tmp_path
):
    x, y = data()
    model = classifier(saved)
    model.fit(x, y, verbose=0)
    model.save_weights(tmp_path / "w")
    other = classifier(loaded)
    other.build((None, 4))
    other.predict(x)  # Copies in the compute dtype exist before loading.
    other.load_weights(tmp_path / "w")
    for a, b in zip(model.get_weights(), other.get_weights(), strict=True):
        assert a.tobytes() == b.tobytes()
    if saved == loaded:
        assert model.predict(x).tobytes() == other.predict(x).tobytes()


def test_weights_of_half_variables_keep_their_dtype(tmp_path):
    for policy in ("bfloat16", "float16"):
        model = classifier(policy)
        model.build((None, 4))
        model.save_weights(tmp_path / policy)
        other = classifier(policy)
        other.build((None, 4))
        other.load_weights(tmp_path / policy)
        for a, b in zip(model.get_weights(), other.get_weights(), strict=True):
            assert a.dtype == b.dtype == policy
            assert a.tobytes() == b.tobytes()


def test_load_weights_that_do_not_fit_name_everything_and_change_nothing(tmp_path):
    model = classifier()
    model.build((None, 4))
    model.save_weights(tmp_path / "w")
    other = Sequential([Dense(8), Activation("relu"), Dense(5), Dense(2)])
    other.build((None, 4))
    before = [w.tobytes() for w in other.get_weights()]
    with pytest.raises(ValueError) as error:
        other.load_weights(tmp_path / "w")
    message = str(error.value)
    assert "missing: dense_2/kernel" in message
    assert "dense_1/kernel: float32 (8, 3) in the file, float32 (8, 5)" in message
    assert [w.tobytes() for w in other.get_weights()] == before
    half = classifier("bfloat16")
    half.build((None, 4))
    with pytest.raises(ValueError, match=r"float32 \(4, 8\) in the file, bfloat16"):
        half.load_weights(tmp_path / "w")
    with pytest.raises(RuntimeError, match="has no variables"):
        Sequential().load_weights(tmp_path / "w")


def test_weights_of_a_model_that_is_not_built_are_an_error(tmp_path):
    with pytest.raises(RuntimeError, match="has no variables"):
        Sequential([Dense(2)]).save_weights(tmp_path / "w")
    assert not list(tmp_path.iterdir())


def test_load_weights_from_another_kind_of_file_is_an_error(tmp_path):
    (tmp_path / "w").write_bytes(b"no tensors")
    model = classifier()
    model.build((None, 4))
    with pytest.raises(ValueError, match="is no safetensors file"):
        model.load_weights(tmp_path / "w")


def test_save_weights_that_fails_leaves_the_old_file(tmp_path, monkeypatch):
    from mpcore.models import weights

    model = classifier()
    model.build((None, 4))
    path = tmp_path / "w"
    model.save_weights(path)
    before = path.read_bytes()

    def broken(arrays, target):
        target.write_bytes(b"half a file")
        raise OSError("disk full")

    monkeypatch.setattr(weights, "save_file", broken)
    with pytest.raises(OSError, match="disk full"):
        model.save_weights(path)
    assert path.read_bytes() == before
    assert list(tmp_path.iterdir()) == [path]


def test_weights_of_equal_names_are_refused(tmp_path):
    model = Sequential()
    model.dense_1 = Dense(1)
    model.parts = [Dense(1), Dense(1)]
    for layer in (model.dense_1, *model.parts):
        layer.build((None, 1))
    with pytest.raises(ValueError, match=r"dense_1/kernel.*`name=\.\.\.`"):
        model.save_weights(tmp_path / "w")


def test_save_weights_leaves_who_may_read_to_the_umask(tmp_path):
    model = classifier()
    model.build((None, 64))
    model.save_weights(tmp_path / "w.safetensors")
    (tmp_path / "plain").touch()
    mode = (tmp_path / "plain").stat().st_mode
    assert (tmp_path / "w.safetensors").stat().st_mode == mode


def test_weights_need_a_file_in_a_folder_that_exists(tmp_path):
    model = classifier()
    model.build((None, 64))
    with pytest.raises(FileNotFoundError, match=r"folder that exists.*gone"):
        model.save_weights(tmp_path / "gone" / "w.safetensors")
    for method in (model.save_weights, model.load_weights):
        with pytest.raises(IsADirectoryError, match="must be a file"):
            method(tmp_path)
    assert not list(tmp_path.iterdir())
