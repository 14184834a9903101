"""One optimizer step over many tensors."""

from collections.abc import Callable
from typing import Any

import numpy as np

from mpcore import ops
from mpcore.bench.data import beyond, memory_need, normal
from mpcore.bench.libraries import foreign, torch_tensor
from mpcore.bench.problem import Problem
from mpcore.bench.suite import Call, Data, Need, Suite, Unsupported, register

_RATE, _DECAY, _EPSILON, _MOMENTUM = 1e-3, 1e-2, 1e-8, 0.9
_BETAS = (0.9, 0.999)
# float32 words read and written per parameter: p, its gradient, and the moments.
_WORDS = {"adamw": 7, "sgd": 5}


def _footprint(problem: Problem) -> int:
    count, size = problem.sizes("shape")
    return count * size * 4


def _bytes(problem: Problem) -> int:
    moved = _footprint(problem) * _WORDS[problem["op"]]
    # The float16 or bfloat16 copy that mixed precision needs, written in the same pass.
    return moved + (0 if problem["copy"] == "none" else _footprint(problem) // 2)


def _needs(problem: Problem) -> tuple[Need, ...]:
    arrays = {"adamw": 4, "sgd": 3}[problem["op"]]
    return (memory_need(_bytes(problem), arrays * _footprint(problem), "update"),)


def _data(problem: Problem, generator: np.random.Generator) -> Data:
    count, size = problem.sizes("shape")
    kind = np.dtype(np.float32)
    names = ("p", "g", "m", "v") if problem["op"] == "adamw" else ("p", "g", "m")
    one = {name: normal(generator, (size,), kind) for name in names}
    if "v" in one:
        one["v"] = one["v"] ** 2
    return {name: [x.copy() for _ in range(count)] for name, x in one.items()}


def _expected(problem: Problem, data: Data) -> tuple[Any, Any]:
    """Return the first tensor after one step in float64, and a bound on its error."""
    p, g, m = (data[name][0].astype(np.float64) for name in ("p", "g", "m"))
    # Some ten roundings of what is added up, however the formula is arranged.
    roundings = 16 * 2.0**-24
    if problem["op"] == "sgd":
        terms = np.abs(p) + np.abs(_MOMENTUM * m) + np.abs(_RATE * g)
        return p + (_MOMENTUM * m - _RATE * g), roundings * terms
    v = data["v"][0].astype(np.float64)
    alpha = _RATE * np.sqrt(1 - _BETAS[1]) / (1 - _BETAS[0])
    sizes = np.abs(m) + np.abs(g - m) * (1 - _BETAS[0])
    m = m + (g - m) * (1 - _BETAS[0])
    v = v + (g * g - v) * (1 - _BETAS[1])
    slope = alpha / (np.sqrt(v) + _EPSILON)
    # Some add epsilon to the root after correcting it, which is 30 times larger then.
    other = alpha / (np.sqrt(v) + _EPSILON / np.sqrt(1 - _BETAS[1]))
    bound = roundings * (np.abs(p) + slope * sizes) + np.abs(slope - other) * np.abs(m)
    return p * (1 - _RATE * _DECAY) - slope * m, bound


def _check(problem: Problem, data: Data, outputs: Data) -> str | None:
    expected, bound = _expected(problem, data)
    return beyond(outputs["p"][0], expected, bound, "p")


def _call(data: Data, run: Callable[[], object]) -> Call:
    return Call(run, lambda: {"p": data["p"]})


def _mpcore(problem: Problem, data: Data, threads: int) -> Call:
    p, g, m = data["p"], data["g"], data["m"]
    copies: list[np.ndarray | None] = [None] * len(p)
    if problem["copy"] != "none":
        copies = [np.zeros(x.shape, problem.dtype("copy")) for x in p]
    if problem["op"] == "sgd":
        states = [(x,) for x in m]
        return _call(
            data,
            lambda: ops.sgd_step(
                p, g, copies, states, learning_rate=_RATE, momentum=_MOMENTUM
            ),
        )
    moments = list(zip(m, data["v"], strict=True))
    return _call(
        data,
        lambda: ops.adam_step(
            *(p, g, copies, moments, 1.0, _DECAY),
            learning_rate=_RATE,
            beta_1=_BETAS[0],
            beta_2=_BETAS[1],
            epsilon=_EPSILON,
            step=1,
        ),
    )


def _torch(problem: Problem, data: Data, threads: int) -> Call:
    torch = foreign("torch")

    if problem["copy"] != "none":
        raise Unsupported("torch's step writes no low-precision copy")
    p, g, m = ([torch_tensor(x) for x in data[name]] for name in "pgm")
    rate, beta_1, beta_2 = _RATE, *_BETAS
    if problem["op"] == "sgd":
        # Its velocity is mpcore's, divided by minus the rate.
        velocity = [-x / rate for x in m]
        step = torch._fused_sgd_

        def sgd() -> None:
            step(
                *(p, g, velocity),
                weight_decay=0.0,
                momentum=_MOMENTUM,
                lr=rate,
                dampening=0.0,
                nesterov=False,
                maximize=False,
                is_first_step=False,
            )

        return _call(data, sgd)
    v = [torch_tensor(x) for x in data["v"]]
    steps = [torch.ones(()) for _ in p]

    def adamw() -> None:
        torch._fused_adamw_(
            *(p, g, m, v, [], steps),
            lr=rate,
            beta1=beta_1,
            beta2=beta_2,
            weight_decay=_DECAY,
            eps=_EPSILON,
            amsgrad=False,
            maximize=False,
        )

    return _call(data, adamw)


def _deepspeed(problem: Problem, data: Data, threads: int) -> Call:
    torch, adam = foreign("torch"), foreign("deepspeed.ops.adam")

    if problem["op"] != "adamw" or problem["copy"] != "none":
        raise Unsupported("DeepSpeed has Adam, without a copy")
    parameters = []
    for p, g in zip(data["p"], data["g"], strict=True):
        parameter = torch.nn.Parameter(torch_tensor(p))
        parameter.grad = torch_tensor(g)
        parameters.append(parameter)
    optimizer = adam.DeepSpeedCPUAdam(
        parameters, lr=_RATE, betas=_BETAS, eps=_EPSILON, weight_decay=_DECAY
    )
    for parameter, m, v in zip(parameters, data["m"], data["v"], strict=True):
        optimizer.state[parameter] = {
            "step": 0,
            "exp_avg": torch_tensor(m),
            "exp_avg_sq": torch_tensor(v),
        }
    return _call(data, optimizer.step)


register(
    Suite(
        name="optim",
        fields=("op", "copy", "shape"),
        quick=(
            "optim:adamw:none:1x4M",
            "optim:adamw:bf16:1x4M",
            "optim:adamw:none:2Kx1K",
            "optim:sgd:none:1x4M",
        ),
        full=(
            "optim:adamw:none:1x64M",
            "optim:adamw:bf16:1x64M",
            "optim:adamw:none:200x128K",
            "optim:sgd:none:2Kx1K",
        ),
        unit="GB/s",
        amount=_bytes,
        needs=_needs,
        data=_data,
        check=_check,
        builders={"mpcore": _mpcore, "torch": _torch, "deepspeed": _deepspeed},
        choices={"op": tuple(_WORDS), "copy": ("none", "bf16", "f16")},
        smallest=lambda p: f"optim:{p['op']}:{p['copy']}:1x1",
    )
)
