"""Finite check, unscaling, and norms of gradients."""

import math
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from mpcore import ops
from mpcore.bench.data import memory_need, normal
from mpcore.bench.libraries import foreign, jax_array, torch_tensor
from mpcore.bench.problem import Problem
from mpcore.bench.suite import Call, Data, Need, Suite, Unsupported, register

_PASSES = {"all_finite": 1, "norms": 1, "unscale": 2}


def _footprint(problem: Problem) -> int:
    count, size = problem.sizes("shape")
    return count * size * problem.dtype("dtype").itemsize


def _needs(problem: Problem) -> tuple[Need, ...]:
    moved = _footprint(problem) * _PASSES[problem["op"]]
    stream = "negate" if problem["op"] == "unscale" else "read"
    return (memory_need(moved, _footprint(problem), stream),)


def _data(problem: Problem, generator: np.random.Generator) -> Data:
    count, size = problem.sizes("shape")
    one = normal(generator, (size,), problem.dtype("dtype"))
    return {"x": [one.copy() for _ in range(count)]}


def _check(problem: Problem, data: Data, outputs: Data) -> str | None:
    if problem["op"] == "all_finite":
        return None if outputs["finite"] is True else "finite numbers are not seen so"
    if problem["op"] == "unscale":
        # Run once: halved, which is exact but for f16's subnormals.
        worst = max(
            float(np.max(np.abs(y.astype(np.float64) - x.astype(np.float64) / 2)))
            for x, y in zip(data["x"][:2], outputs["y"][:2], strict=True)
        )
        return None if worst <= 2.0**-25 else f"a half is wrong by {worst}"
    exact = [np.linalg.norm(x.astype(np.float64)) for x in data["x"][:2]]
    # Peers sum in float32, some of them in a few long chains.
    bound = 2.0**-9
    for norm, wanted in zip(outputs["norms"][:2], exact, strict=True):
        if not abs(norm - wanted) <= bound * wanted:
            return f"a norm is {norm} in place of {wanted}"
    return None


def _turns() -> Callable[[], float]:
    """Return a function that gives 0.5 and 2 in turn: values stay what they are."""
    state = [2.0]

    def factor() -> float:
        state[0] = 1 / state[0]
        return state[0]

    return factor


def _outputs(problem: Problem, arrays: list[np.ndarray], result: Any) -> Data:
    if problem["op"] == "unscale":
        return {"y": arrays}
    if problem["op"] == "norms":
        return {"norms": [float(x) for x in result]}
    return {"finite": bool(result)}


def _call(
    problem: Problem,
    arrays: list[np.ndarray],
    functions: Mapping[str, Callable[[], Any]],
) -> Call:
    function = functions[problem["op"]]
    result: list[Any] = [None]

    def run() -> None:
        result[0] = function()

    return Call(run, lambda: _outputs(problem, arrays, result[0]))


def _mpcore(problem: Problem, data: Data, threads: int) -> Call:
    x, factor = data["x"], _turns()
    functions = {
        "all_finite": lambda: ops.all_finite(x),
        "unscale": lambda: ops.unscale(x, factor(), x),
        "norms": lambda: ops.norms(x),
    }
    return _call(problem, x, functions)


def _numpy(problem: Problem, data: Data, threads: int) -> Call:
    x, factor = data["x"], _turns()
    if problem["dtype"] != "f32":
        raise Unsupported("NumPy has no fast arithmetic for halves")

    def unscale() -> bool:
        f = np.float32(factor())
        for a in x:
            np.multiply(a, f, out=a)
        return all(math.isfinite(np.dot(a, a)) for a in x)

    functions = {
        "all_finite": lambda: all(np.isfinite(a).all() for a in x),
        "unscale": unscale,
        "norms": lambda: [math.sqrt(np.dot(a, a)) for a in x],
    }
    return _call(problem, x, functions)


def _torch(problem: Problem, data: Data, threads: int) -> Call:
    torch = foreign("torch")

    factor = _turns()
    x = [torch_tensor(a) for a in data["x"]]
    found = torch.zeros(1)
    functions = {
        "all_finite": lambda: all(bool(torch.isfinite(t).all()) for t in x),
        "unscale": lambda: torch._amp_foreach_non_finite_check_and_unscale_(
            x, found, torch.tensor([factor()])
        ),
        "norms": lambda: torch._foreach_norm(x),
    }
    return _call(problem, data["x"], functions)


def _jax(problem: Problem, data: Data, threads: int) -> Call:
    jax, jnp = foreign("jax"), foreign("jax.numpy")

    if problem["op"] == "unscale":
        raise Unsupported("JAX does not update in place")
    x = [jax_array(a) for a in data["x"]]
    function = {
        "all_finite": lambda arrays: jnp.stack(
            [jnp.isfinite(a).all() for a in arrays]
        ).all(),
        "norms": lambda arrays: [jnp.linalg.norm(a) for a in arrays],
    }[problem["op"]]
    if len(x) > 100:
        raise Unsupported("JAX compiles a graph of thousands of nodes for minutes")
    compiled = jax.jit(function)
    run = {problem["op"]: lambda: jax.block_until_ready(compiled(x))}
    return _call(problem, data["x"], run)


register(
    Suite(
        name="grad",
        fields=("op", "dtype", "shape"),
        quick=tuple(f"grad:{op}:f32:{n}" for op in _PASSES for n in ("1x16M", "2Kx1K")),
        full=tuple(
            f"grad:{op}:{rest}"
            for op in _PASSES
            for rest in ("f32:1x128K", "bf16:1x16M", "f16:1x16M", "f32:200x128K")
        ),
        unit="GB/s",
        amount=lambda p: _footprint(p) * _PASSES[p["op"]],
        needs=_needs,
        data=_data,
        check=_check,
        builders={"mpcore": _mpcore, "numpy": _numpy, "torch": _torch, "jax": _jax},
        choices={"op": tuple(_PASSES), "dtype": ("f32", "f16", "bf16")},
        smallest=lambda p: f"grad:{p['op']}:{p['dtype']}:1x1",
    )
)
