"""Activations and losses around the matrix products."""

from collections.abc import Callable
from typing import Any

import numpy as np

from mpcore import ops
from mpcore.bench.data import beyond, memory_need, normal
from mpcore.bench.libraries import foreign, jax_array, torch_tensor
from mpcore.bench.problem import Problem
from mpcore.bench.suite import Call, Data, Need, Suite, Unsupported, register

_OPS = ("relu", "tanh", "sigmoid", "softmax")
_UNIT = {"f32": 2.0**-24, "f16": 2.0**-11, "bf16": 2.0**-8}
_CHECKED_ROWS = 64


def _bytes(problem: Problem) -> int:
    rows, cols = problem.sizes("shape")
    return 2 * rows * cols * problem.dtype("dtype").itemsize


def _needs(problem: Problem) -> tuple[Need, ...]:
    moved = _bytes(problem)
    return (memory_need(moved, moved, "copy", "copy_nontemporal"),)


def _data(problem: Problem, generator: np.random.Generator) -> Data:
    return {"x": normal(generator, problem.sizes("shape"), problem.dtype("dtype"))}


def _reference(op: str, x: np.ndarray) -> Any:
    if op == "relu":
        return np.maximum(x, 0)
    if op == "tanh":
        return np.tanh(x)
    if op == "sigmoid":
        return 1 / (1 + np.exp(-x))
    e = np.exp(x - x.max(axis=-1, keepdims=True))
    return e / e.sum(axis=-1, keepdims=True)


def _check(problem: Problem, data: Data, outputs: Data) -> str | None:
    x = data["x"][:_CHECKED_ROWS].astype(np.float64)
    expected = _reference(problem["op"], x)
    unit = _UNIT[problem["dtype"]]
    # Some dozens of roundings in float32, and a few to the dtype: some peers round in
    # between. f16 may be subnormal.
    bound = (64 * 2.0**-24 + 4 * unit) * np.abs(expected) + 2.0**-25
    return beyond(outputs["y"][:_CHECKED_ROWS], expected, bound, "y")


def _kept(
    function: Callable[[], Any], array: Callable[[Any], np.ndarray] = np.asarray
) -> Call:
    """Return a call that keeps the last result."""
    result: list[Any] = [None]

    def run() -> None:
        result[0] = function()

    return Call(run, lambda: {"y": array(result[0])})


def _mpcore(problem: Problem, data: Data, threads: int) -> Call:
    x, function = data["x"], getattr(ops, problem["op"])
    return _kept(lambda: function(x))


def _numpy(problem: Problem, data: Data, threads: int) -> Call:
    if problem["dtype"] != "f32":
        raise Unsupported("NumPy computes halves one by one")
    x, op = data["x"], problem["op"]
    return _kept(lambda: _reference(op, x))


def _torch(problem: Problem, data: Data, threads: int) -> Call:
    torch = foreign("torch")

    x, op = torch_tensor(data["x"]), problem["op"]
    if op == "softmax":
        return _kept(lambda: torch.softmax(x, -1), _array_of_torch)
    function = getattr(torch, op)
    return _kept(lambda: function(x), _array_of_torch)


def _array_of_torch(tensor: Any) -> np.ndarray:
    return np.asarray(tensor.float().numpy())


def _jax(problem: Problem, data: Data, threads: int) -> Call:
    jax = foreign("jax")

    x = jax_array(data["x"])
    function = jax.jit(getattr(jax.nn, problem["op"]))
    return _kept(lambda: function(x).block_until_ready())


register(
    Suite(
        name="nn",
        fields=("op", "dtype", "shape"),
        quick=(
            "nn:relu:bf16:4Kx1K",
            "nn:tanh:bf16:128x1K",
            "nn:softmax:f32:4Kx1K",
            "nn:softmax:bf16:128x1K",
        ),
        full=tuple(
            f"nn:{op}:{dtype}:{shape}"
            for op in _OPS
            for dtype in ("f32", "f16", "bf16")
            for shape in ("128x1K", "4Kx1K")
            if f"{op}:{dtype}:{shape}"
            not in (
                "relu:bf16:4Kx1K",
                "tanh:bf16:128x1K",
                "softmax:f32:4Kx1K",
                "softmax:bf16:128x1K",
            )
        ),
        unit="GB/s",
        amount=_bytes,
        needs=_needs,
        data=_data,
        check=_check,
        builders={"mpcore": _mpcore, "numpy": _numpy, "torch": _torch, "jax": _jax},
        choices={"op": _OPS, "dtype": tuple(_UNIT)},
        smallest=lambda p: f"nn:{p['op']}:{p['dtype']}:1x1",
    )
)
