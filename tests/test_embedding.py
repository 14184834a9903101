"""Embedding: rows of a table, gradients that name them, the layer."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from reference import F32, F64, KERNEL_DTYPES, assert_same_bits

import mpcore
from mpcore import GradientTape, IndexedSlices, Variable, ops, optimizers
from mpcore.layers import Dense, Embedding
from mpcore.models import Sequential

DTYPES = pytest.mark.parametrize("dtype", KERNEL_DTYPES, ids=lambda d: d.name)
INDICES = [[0, 3, 3], [1, 0, 3]]


def numbers(shape: tuple[int, ...], dtype: Any, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape).astype(dtype)


@DTYPES
@pytest.mark.parametrize("kind", [np.int64, np.int8, np.uint32, ">i4"])
def test_embedding_picks_rows(dtype: np.dtype, kind: Any) -> None:
    table = numbers((5, 3), dtype)
    y = ops.embedding(np.array(INDICES, kind), table)
    assert_same_bits(y, table[np.array(INDICES)])


@pytest.mark.parametrize("shape", [(), (0,), (2, 0, 3), (4,), (2, 1, 2)], ids=str)
@pytest.mark.parametrize("row", [(), (3,), (2, 2), (0,)], ids=str)
def test_embedding_of_any_shape_of_indices_and_rows(
    shape: tuple[int, ...], row: tuple[int, ...]
) -> None:
    table = numbers((7, *row), F32)
    indices = np.random.default_rng(1).integers(0, 7, shape)
    with GradientTape() as tape:
        source = tape.watch(table)
        y = ops.embedding(indices, source)
    assert_same_bits(y.value, table[indices])
    gradient = tape.gradient(y, source, output_gradients=y.value)
    expected = np.zeros_like(table)
    np.add.at(expected, indices, y.value)
    assert_same_bits(gradient.to_dense(), expected)


def test_gradient_of_a_table_names_its_rows_in_float32() -> None:
    table = Variable(numbers((5, 2), F32))
    with GradientTape() as tape, mpcore.autocast.scope("bfloat16"):
        y = ops.embedding(INDICES, table)
    assert y.dtype == "bfloat16"
    gradient = tape.gradient(y, table, np.ones(y.shape, F32))
    assert isinstance(gradient, IndexedSlices)
    assert gradient.values.dtype == F32
    assert gradient.shape == (5, 2)
    assert gradient.indices.tolist() == [0, 3, 3, 1, 0, 3]
    assert gradient.to_dense()[:, 0].tolist() == [2, 1, 0, 3, 0]


def test_gradient_of_two_lookups_holds_the_rows_of_both() -> None:
    table = Variable(numbers((4, 2), F32))
    with GradientTape() as tape:
        y = ops.sum(ops.embedding([1], table)) + ops.sum(ops.embedding([2, 1], table))
    gradient = tape.gradient(y, table)
    assert isinstance(gradient, IndexedSlices)
    assert gradient.to_dense().tolist() == [[0, 0], [2, 2], [1, 1], [0, 0]]


@pytest.mark.parametrize("first", ["sparse", "dense"])
def test_gradient_is_dense_where_another_op_read_the_table(first: str) -> None:
    table = Variable(numbers((4, 2), F32))
    reads = [lambda: ops.sum(ops.embedding([1], table)), lambda: ops.sum(table * 3.0)]
    if first == "dense":
        reads.reverse()
    with GradientTape() as tape:
        y = reads[0]() + reads[1]()
    gradient = tape.gradient(y, table)
    assert type(gradient) is np.ndarray
    assert gradient.tolist() == [[3, 3], [4, 4], [3, 3], [3, 3]]


def test_gradient_goes_on_densely_through_the_op_that_made_the_table() -> None:
    table = Variable(numbers((3, 2), F32))
    with GradientTape() as tape:
        y = ops.embedding([2, 2], ops.multiply(table, 2.0))
    gradient = tape.gradient(y, table)
    assert gradient.tolist() == [[0, 0], [0, 0], [4, 4]]


def test_gradients_share_no_memory() -> None:
    table = Variable(numbers((3, 2), F32))
    seed = np.ones((2, 2), F32)
    with GradientTape(persistent=True) as tape:
        y = ops.embedding([2, 0], table)
    first, second = tape.gradient(y, [table, table], output_gradients=seed)
    indices = np.array([2, 0])
    first.values[:] = 7
    assert second.tolist() == [[1, 1], [0, 0], [1, 1]]
    assert seed.tolist() == [[1, 1], [1, 1]]
    assert indices.tolist() == [2, 0]


@pytest.mark.parametrize(
    ("indices", "table", "error", "match"),
    [
        ([0, 5], (5, 2), ValueError, r"`indices` must be in \[0, 5\).*from 0 to 5"),
        ([-1], (5, 2), ValueError, "from -1 to -1"),
        ([0], (0, 2), ValueError, r"\[0, 0\)"),
        ([0.0], (5, 2), TypeError, "must be integers.*float32"),
        ([True], (5, 2), TypeError, "must be integers.*bool"),
        ([0], (), ValueError, "must have rows"),
        (np.array([2**63], np.uint64), (5, 2), ValueError, "indices"),
    ],
    ids=str,
)
def test_embedding_arguments_that_do_not_fit_raise(
    indices: Any, table: tuple[int, ...], error: type[Exception], match: str
) -> None:
    with pytest.raises(error, match=match):
        ops.embedding(indices, np.ones(table, F32))


def test_embedding_and_gradient_equal_pytorch() -> None:
    torch = pytest.importorskip("torch")
    table, dy = numbers((50, 7), F32), numbers((30, 7), F32, 2)
    indices = np.random.default_rng(3).integers(0, 50, 30)
    theirs = torch.tensor(table, requires_grad=True)
    torch.nn.functional.embedding(torch.tensor(indices), theirs).backward(
        torch.tensor(dy)
    )
    with GradientTape() as tape:
        source = tape.watch(table)
        y = ops.embedding(indices, source)
    gradient = tape.gradient(y, source, output_gradients=dy).to_dense()
    # At most 30 terms, in whatever order.
    error = 30 * 2.0**-24 * np.abs(dy).sum(0)
    assert (np.abs(gradient.astype(F64) - theirs.grad.numpy()) <= error).all()


# --- The layer ------------------------------------------------------------------------


@pytest.mark.parametrize("policy", ["float32", "mixed_bfloat16", "mixed_float16"])
def test_layer_gives_vectors_in_the_compute_dtype(policy: str) -> None:
    layer = Embedding(5, 3, dtype=policy)
    y = layer(np.array(INDICES))
    table = ops.cast(layer.embeddings.numpy(), layer.compute_dtype)
    assert_same_bits(y, table[np.array(INDICES)])
    assert layer.embeddings.dtype == "float32"
    assert np.abs(layer.embeddings.numpy()).max() <= 0.05
    assert layer.compute_output_shape((None, 4)) == (None, 4, 3)


@pytest.mark.parametrize("policy", ["float32", "mixed_bfloat16"])
def test_layer_trains_its_rows_as_a_dense_gradient_would(policy: str) -> None:
    layer = Embedding(6, 2, dtype=policy, embeddings_initializer="ones")
    layer.build((None,))
    dense = Variable(layer.embeddings.numpy())
    for optimizer in (optimizers.Adam, optimizers.SGD):
        with GradientTape() as tape:
            loss = ops.sum(ops.square(layer(np.array([1, 4, 1]))))
        gradient = tape.gradient(loss, layer.embeddings)
        optimizer(0.1).apply([gradient], [layer.embeddings])
        optimizer(0.1).apply([gradient.to_dense()], [dense])
        assert_same_bits(layer.embeddings.numpy(), dense.numpy())


def test_layer_trains_in_a_model_with_loss_scaling() -> None:
    model = Sequential(
        [
            Embedding(4, 8, dtype="mixed_float16"),
            mpcore.layers.Flatten(dtype="mixed_float16"),
            Dense(2, dtype="mixed_float16"),
        ]
    )
    loss = mpcore.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(optimizer=optimizers.Adam(0.05), loss=loss)
    x = np.random.default_rng(4).integers(0, 4, (64, 3))
    y = x[:, 0] > 1
    history = model.fit(x, y.astype(np.int64), epochs=20, batch_size=16, verbose=0)
    assert history.history["loss"][-1] < 0.05


@pytest.mark.parametrize(("rows", "size"), [(0, 3), (3, 0), (-1, 2)])
def test_layer_without_rows_or_columns_raises(rows: int, size: int) -> None:
    with pytest.raises(ValueError, match=f"input_dim={rows}, output_dim={size}"):
        Embedding(rows, size)
    with pytest.raises(TypeError):
        Embedding(2.5, 3)


def test_layer_refuses_indices_that_are_no_integers_or_out_of_range() -> None:
    layer = Embedding(5, 3)
    with pytest.raises(TypeError, match="integers"):
        layer(np.ones((2, 2), F32))
    with pytest.raises(ValueError, match=r"\[0, 5\)"):
        layer(np.array([5]))
