"""Casts between element types."""

import numpy as np

from mpcore import ops
from mpcore.bench.data import differing, memory_need, normal, touched
from mpcore.bench.libraries import foreign, jax_array, torch_tensor
from mpcore.bench.problem import Problem
from mpcore.bench.suite import Call, Data, Need, Suite, Unsupported, register

_HALVES = ("f32:bf16", "bf16:f32", "f32:f16", "f16:f32")
_OTHERS = ("bf16:f16", "f16:bf16", "f64:f32", "f32:f64", "f64:bf16", "f32:i32")
_MORE = (*_OTHERS, "i64:f32", "i32:f32", "u8:f32", "u8:bf16", "f32:u8")


def _bytes(problem: Problem) -> int:
    (n,) = problem.sizes("n")
    return n * (problem.dtype("from").itemsize + problem.dtype("to").itemsize)


def _needs(problem: Problem) -> tuple[Need, ...]:
    moved = _bytes(problem)
    return (memory_need(moved, moved, "copy", "copy_nontemporal"),)


def _data(problem: Problem, generator: np.random.Generator) -> Data:
    x = normal(generator, problem.sizes("n"), problem.dtype("from"), scale=50)
    return {
        "x": np.abs(x) if problem["to"] == "u8" else x,
        "y": touched(problem.sizes("n"), problem.dtype("to")),
    }


def _check(problem: Problem, data: Data, outputs: Data) -> str | None:
    return differing(outputs["y"], data["x"].astype(problem.dtype("to")), "y")


def _mpcore(problem: Problem, data: Data, threads: int) -> Call:
    x, y = data["x"], data["y"]
    return Call(lambda: ops.cast(x, y.dtype, y), lambda: {"y": y})


def _numpy(problem: Problem, data: Data, threads: int) -> Call:
    if "bf16" in (problem["from"], problem["to"]):
        raise Unsupported("bfloat16 comes from ml_dtypes")
    return _copyto(data)


def _ml_dtypes(problem: Problem, data: Data, threads: int) -> Call:
    if "bf16" not in (problem["from"], problem["to"]):
        raise Unsupported("without bfloat16 this is NumPy")
    return _copyto(data)


def _copyto(data: Data) -> Call:
    x, y = data["x"], data["y"]
    return Call(lambda: np.copyto(y, x, casting="unsafe"), lambda: {"y": y})


def _torch(problem: Problem, data: Data, threads: int) -> Call:
    x, y = torch_tensor(data["x"]), torch_tensor(data["y"])
    return Call(lambda: y.copy_(x), lambda: {"y": data["y"]})


def _jax(problem: Problem, data: Data, threads: int) -> Call:
    jax = foreign("jax")

    if "f64" in (problem["from"], problem["to"]):
        raise Unsupported("float64 is off in JAX")
    x, kind = jax_array(data["x"]), problem.dtype("to")
    cast = jax.jit(lambda a: a.astype(kind))
    return Call(lambda: cast(x).block_until_ready(), lambda: {"y": np.asarray(cast(x))})


register(
    Suite(
        name="cast",
        fields=("from", "to", "n"),
        quick=tuple(f"cast:{pair}:{n}" for pair in _HALVES for n in ("128K", "16M")),
        full=tuple(f"cast:{pair}:{n}" for pair in _MORE for n in ("128K", "16M")),
        unit="GB/s",
        amount=_bytes,
        needs=_needs,
        data=_data,
        check=_check,
        builders={
            "mpcore": _mpcore,
            "numpy": _numpy,
            "ml_dtypes": _ml_dtypes,
            "torch": _torch,
            "jax": _jax,
        },
        smallest=lambda p: f"cast:{p['from']}:{p['to']}:1",
    )
)
