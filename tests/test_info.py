"""Laws of `mpcore info` and `mpcore selftest`."""

import json

import numpy as np
import pytest

from mpcore import cli, info, ops
from mpcore.bench import selftest
from mpcore.bench.suite import get_suite


def test_info_json_has_kernels_build_and_quota(capsys):
    assert cli.main(["info", "--json"]) == 0
    shown = json.loads(capsys.readouterr().out)
    assert shown["build"] == ops.build_info()
    assert set(shown["kernels"]) == {"cast", "gemm", "nn", "grad", "optim"}
    for notes in shown["kernels"].values():
        assert set(notes) == {"float32", "float16", "bfloat16"}
    assert shown["usable_cpus"] >= 1
    assert "cgroup_quota" in shown


def test_kernel_notes_follow_the_level(isa):
    notes = ops.kernel_notes()
    word = {"scalar": "plain C++", "avx2": "256-bit"}.get(isa, "512-bit")
    assert word in notes["cast"]["float32"]
    rounds = notes["cast"]["bfloat16"]
    assert ("vcvtne2ps2bf16" in rounds) == (isa not in ("scalar", "avx2", "avx512")), (
        rounds
    )


def test_info_text_joins_columns_with_the_same_kernels():
    machine = {**info.machine(), "kernels": {"a": {"x": "1"}, "b": {"x": "1"}}}
    lines = list(info.lines(machine))
    assert "kernels   a, b" in lines
    assert sum("kernels" in line for line in lines) == 1


@pytest.mark.parametrize(
    ("text", "quota"), [("max 100000\n", None), ("150000 100000\n", 1.5)]
)
def test_cgroup_quota_is_read(text, quota, monkeypatch):
    monkeypatch.setattr(info.Path, "read_text", lambda self: text)
    assert info.cgroup_quota() == quota


def test_selftest_finds_every_level_good(capsys):
    assert cli.main(["selftest"]) == 0
    lines = capsys.readouterr().out.splitlines()
    for level in ops.cpu_info()["levels"]:
        (line,) = (x for x in lines if x.split()[0] == level["name"])
        assert line.endswith("OK") or level["reason"] in line
    assert lines[-1] == "all good"
    assert ops.get_isa() == ops.cpu_info()["isa"]


def test_selftest_names_the_problem_that_is_wrong(monkeypatch, capsys):
    suite = get_suite("nn")

    def spoilt(problem, data, outputs):
        if ops.get_isa() == "avx2" and problem["op"] == "tanh":
            return "spoilt"
        return suite.check(problem, data, outputs)

    made = type(suite)(**{**vars(suite), "check": spoilt})
    monkeypatch.setattr(
        selftest, "get_suite", lambda name: made if name == "nn" else get_suite(name)
    )
    if "avx2" not in ops.available_isas():
        pytest.skip("this CPU has no avx2")
    assert cli.main(["selftest"]) == 1
    out = capsys.readouterr().out
    assert "avx2         nn:tanh:f32:33x77 with 1 thread(s): spoilt" in out
    assert "something is wrong" in out


def test_selftest_sees_other_bits(monkeypatch):
    first = {"y": np.float32([1, 2])}
    assert selftest._difference(first, {"y": np.float32([1, 2])}) is None
    assert "other bits" in selftest._difference(first, {"y": np.float32([1, 3])})
    assert "other bits" in selftest._difference({"y": [1.0]}, {"y": [2.0]})


def test_selftest_tells_how_much_slower_halves_are(monkeypatch):
    seconds = {"f32": 1.0, "bf16": 0.5, "f16": 3.0}
    monkeypatch.setattr(selftest, "_product_seconds", seconds.__getitem__)
    (notice,) = selftest.slow_halves()
    assert notice.startswith("Products in float16 are slower than in float32")
    assert "3.00 times" in notice
