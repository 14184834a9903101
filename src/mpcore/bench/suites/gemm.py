"""Matrix products: D (m x n) = A (m x k) B (k x n), accumulated in float32."""

from collections.abc import Callable

import numpy as np

from mpcore import ops
from mpcore.bench import blas, onednn
from mpcore.bench.data import beyond, memory_need, normal, touched
from mpcore.bench.libraries import foreign, jax_array, torch_tensor
from mpcore.bench.problem import Problem
from mpcore.bench.suite import (
    Call,
    Data,
    Need,
    Probe,
    Suite,
    Unsupported,
    register,
)

_QUICK = [
    f"gemm:{shape}:{d}:{d}"
    for d in ("bf16", "f16", "f32")
    for shape in ("64x64x64", "512x512x512", "128x1Kx1K")
]
_FULL = [
    f"gemm:{shape}:{d}:{out}"
    for d in ("bf16", "f16", "f32")
    for shape, out in (
        ("16x16x16", d),
        ("32x32x32", d),
        ("128x128x128", d),
        ("256x256x256", d),
        ("1Kx1Kx1K", d),
        ("2Kx2Kx2K", d),
        ("4Kx4Kx4K", d),
        ("512x512x512", "f32"),
        ("1Kx1Kx1K", "f32"),
        ("32x512x784", d),
        ("128x512x784", d),
        ("512x4Kx1K", d),
        ("1x1Kx1K", d),
    )
]
# The error of a sum of k products in float32 that every order of summation keeps, for
# the inputs used here; and the one rounding to the result's dtype.
_UNIT = {"f32": 2.0**-24, "f16": 2.0**-11, "bf16": 2.0**-8}
_CHECKED_ROWS = 64


def _operations(problem: Problem) -> float:
    m, n, k = problem.sizes("shape")
    return 2.0 * m * n * k


def _needs(problem: Problem) -> tuple[Need, ...]:
    m, n, k = problem.sizes("shape")
    operations = _operations(problem)
    ways = [(Probe("fma_f32"), operations)]
    if problem["dtype"] == "bf16":
        ways += [(Probe("amx_bf16"), operations), (Probe("dot_bf16"), operations)]
    if problem["dtype"] == "f16":  # Each number is two bf16 numbers, exactly.
        ways.append((Probe("amx_bf16"), 4 * operations))
    moved = (m * k + k * n) * problem.dtype("dtype").itemsize
    moved += m * n * problem.dtype("out").itemsize
    return (Need(tuple(ways)), memory_need(moved, moved, "read"))


def _data(problem: Problem, generator: np.random.Generator) -> Data:
    m, n, k = problem.sizes("shape")
    kind = problem.dtype("dtype")
    return {
        "a": normal(generator, (m, k), kind),
        "b": normal(generator, (k, n), kind),
        "d": touched((m, n), problem.dtype("out")),
    }


def _check(problem: Problem, data: Data, outputs: Data) -> str | None:
    _, _, k = problem.sizes("shape")
    a = data["a"][:_CHECKED_ROWS].astype(np.float64)
    b = data["b"].astype(np.float64)
    exact, size = a @ b, np.abs(a) @ np.abs(b)
    unit = _UNIT[problem["out"]]
    bound = (k + 2) * 2.0**-24 * size * (1 + unit) + unit * np.abs(exact) + 2.0**-24
    return beyond(outputs["d"][:_CHECKED_ROWS], exact, bound, "d")


def _mpcore(problem: Problem, data: Data, threads: int) -> Call:
    a, b, d = data["a"], data["b"], data["d"]
    kind = d.dtype
    return Call(lambda: ops.matmul(a, b, kind, d), lambda: {"d": d})


def _numpy(problem: Problem, data: Data, threads: int) -> Call:
    if problem["dtype"] != "f32" or problem["out"] != "f32":
        raise Unsupported("NumPy multiplies halves without BLAS, at 0.5 GFLOP/s")
    a, b, d = data["a"], data["b"], data["d"]
    return Call(lambda: np.matmul(a, b, out=d), lambda: {"d": d})


def _ml_dtypes(problem: Problem, data: Data, threads: int) -> Call:
    if problem["dtype"] != "bf16":
        raise Unsupported("without bfloat16 this is NumPy")
    # What NumPy users do: up to float32, multiply, and down again.
    a, b, kind = data["a"], data["b"], problem.dtype("out")
    result = [data["d"]]

    def run() -> None:
        product = a.astype(np.float32) @ b.astype(np.float32)
        result[0] = product.astype(kind)

    return Call(run, lambda: {"d": result[0]})


def _torch(problem: Problem, data: Data, threads: int) -> Call:
    torch = foreign("torch")

    if problem["dtype"] != problem["out"]:
        raise Unsupported("torch.mm has one dtype")
    a, b, d = (torch_tensor(data[name]) for name in "abd")
    return Call(lambda: torch.mm(a, b, out=d), lambda: {"d": data["d"]})


def _jax(problem: Problem, data: Data, threads: int) -> Call:
    jax, jnp = foreign("jax"), foreign("jax.numpy")

    a, b, kind = jax_array(data["a"]), jax_array(data["b"]), problem.dtype("out")
    product = jax.jit(lambda x, y: jnp.matmul(x, y, preferred_element_type=kind))
    return Call(
        lambda: product(a, b).block_until_ready(),
        lambda: {"d": np.asarray(product(a, b))},
    )


def _foreign(prepare: Callable[..., Callable[[], object]]) -> Callable[..., Call]:
    """Return a builder around a function that gets (problem, a, b, d)."""

    def build(problem: Problem, data: Data, threads: int) -> Call:
        a, b, d = data["a"], data["b"], data["d"]
        run = prepare(problem, a, b, d)
        # It knows addresses alone: the outputs keep the operands alive.
        return Call(run, lambda: {"a": a, "b": b, "d": d})

    return build


def _smallest(problem: Problem) -> str:
    return f"gemm:1x1x1:{problem['dtype']}:{problem['out']}"


register(
    Suite(
        name="gemm",
        fields=("shape", "dtype", "out"),
        quick=tuple(_QUICK),
        full=tuple(_FULL),
        unit="GFLOP/s",
        amount=_operations,
        needs=_needs,
        data=_data,
        check=_check,
        builders={
            "mpcore": _mpcore,
            "numpy": _numpy,
            "ml_dtypes": _ml_dtypes,
            "torch": _torch,
            "jax": _jax,
            "mkl": _foreign(blas.mkl_product),
            "openblas": _foreign(blas.openblas_product),
            "onednn": _foreign(onednn.product),
        },
        choices={"dtype": tuple(_UNIT), "out": tuple(_UNIT)},
        smallest=_smallest,
    )
)
