"""Laws of what a run of the benchmarks gives: documents, tables, exit codes."""

import json
import re
import subprocess
import sys
from importlib import resources

import numpy as np
import pytest
from bench_fakes import document

from mpcore import cli, ops
from mpcore.bench import command, machine, report, table
from mpcore.bench.run import Measurement, Run, Settings
from mpcore.bench.suite import get_suite, parse
from mpcore.bench.timing import Sample


def small_run(problems, implementations=("mpcore", "numpy"), **settings):
    chosen = Settings((1,), 2, 2, 1e-4, implementations, **settings)
    run = Run(chosen, False, False)
    before = report.start(run)
    seen = []
    try:
        run.measure(problems, lambda problem, threads: seen.append(problem))
        assert len(seen) == run.steps(problems)
        return report.document(run, before)
    finally:
        run.close()


@pytest.fixture(scope="module")
def small():
    return small_run(
        ["cast:f32:f16:4K", "gemm:32x32x32:bf16:bf16", "limits:copy:64K"],
        ("mpcore", "mpcore@scalar", "numpy", "deepspeed"),
    )


def test_document_validates_against_its_schema(small):
    jsonschema = pytest.importorskip("jsonschema")
    text = resources.files("mpcore.bench").joinpath("schema.json").read_text()
    schema = json.loads(text)
    jsonschema.Draft202012Validator.check_schema(schema)
    jsonschema.validate(json.loads(json.dumps(small)), schema)
    jsonschema.validate(document(0), schema)
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate({**small, "surprise": 1}, schema)


def test_document_has_rate_share_and_ratio_of_each_implementation(small):
    first = small["results"][0]
    assert first["problem"] == "cast:f32:f16:4K"
    assert first["limit"]["seconds"] == max(b["seconds"] for b in first["bounds"])
    entries = {entry["name"]: entry for entry in first["entries"]}
    assert set(entries) >= {"mpcore", "mpcore@scalar", "numpy", "call"}
    mine = entries["mpcore"]
    median = mine["seconds"]["median"]
    assert mine["rate"] == pytest.approx(4096 * 6 / median / 1e9)
    assert mine["of_limit"] == pytest.approx(first["limit"]["seconds"] / median)
    assert entries["numpy"]["times_slower_than_mpcore"] == pytest.approx(
        entries["numpy"]["seconds"]["median"] / median
    )
    assert [len(one) for one in mine["samples"]] == [6, 6]
    assert [len(one) for one in entries["numpy"]["samples"]] == [2, 2]
    assert entries["mpcore@scalar"]["rate"] > 0


def test_run_measures_mpcore_in_a_new_process_in_each_pass():
    run = Run(Settings((1,), 3, 1, 1e-4, ("mpcore", "numpy")), False, False)
    pids = {"mpcore": set(), "limits": set(), "numpy": set()}

    def progress(problem, threads):
        for name, seen in pids.items():
            seen.add(run._processes[name, threads]._process.pid)

    try:
        run.measure(["cast:f32:f16:4K", "cast:f32:f16:8K"], progress)
    finally:
        run.close()
    assert {name: len(seen) for name, seen in pids.items()} == {
        **{"mpcore": 3, "limits": 3, "numpy": 1},
    }


def test_samples_of_slow_phases_and_disturbed_ones_are_in_no_pass():
    problem = parse("gemm:8x8x8:bf16:bf16")
    passes = [[Sample(1.0, 100.0), Sample(3.0, 50.0)], [Sample(2.0, 100.0, True)]]
    fast = [[Sample(t, 100.0)] for t in (1.1, 1.2)]
    measured = Measurement(problem, 1, "mpcore", "implementation", 1.0, passes + fast)
    entry = report._entry(measured, "GFLOP/s", 100.0)
    assert entry["samples"] == [[1.0], [], [1.1], [1.2]]
    assert (entry["dropped"], entry["disturbed"]) == (2, 0)
    measured.passes = passes
    entry = report._entry(measured, "GFLOP/s", 100.0)
    assert entry["samples"] == [[1.0, 3.0], [2.0]]
    assert (entry["dropped"], entry["disturbed"]) == (0, 1)


def test_document_lists_missing_peers(small):
    peers_ = small["peers"]
    assert peers_["numpy"] == {"version": np.__version__}
    if "absent" in peers_.get("deepspeed", {}):
        assert peers_["deepspeed"] == {"absent": "not installed (deepspeed)"}


def test_table_names_rate_share_and_bottleneck(small):
    text = table.text(small)
    lines = text.splitlines()
    header = next(line for line in lines if line.startswith("problem"))
    for column in ("mpcore", "spread", "limit", "share", "bottleneck", "vs numpy"):
        assert column in header
    (row,) = (line for line in lines if line.startswith("cast:f32:f16:4K"))
    assert re.search(r"\d+%", row)
    assert re.search(r"(call|L1 copy|L2 copy|memory copy)", row)
    assert re.search(r"\d\.\d\dx", row)
    assert "| cast:f32:f16:4K |" in table.markdown(small)
    records = table.comma_separated(small).splitlines()
    assert records[0].startswith("problem,threads,name,kind,rate")
    assert sum(line.startswith("cast:f32:f16:4K,1,mpcore,") for line in records) == 1


@pytest.mark.parametrize(
    ("of_limit", "call", "word"),
    [
        (0.95, 0.1, "memory read"),
        (0.1, 0.95, "call 95%"),
        (0.4, 0.4, "call 40% + memory read"),
        (0.3, 0.1, "kernel, then memory read"),
    ],
)
def test_bottleneck_is_what_the_time_is_near_to(of_limit, call, word):
    empty = {"name": "call", "kind": "call", "seconds": {"median": call}}
    one = {"limit": {"name": "memory read"}, "entries": [empty]}
    entry = {"of_limit": of_limit, "seconds": {"median": 1.0}}
    assert table.bottleneck(one, entry) == word


def test_notice_tells_once_that_halves_are_slower_than_float32():
    def product(dtype, median):
        return {
            "problem": f"gemm:8x8x8:{dtype}:{dtype}",
            "suite": "gemm",
            "fields": {"shape": "8x8x8", "dtype": dtype, "out": dtype},
            "threads": 1,
            "entries": [{"name": "mpcore", "seconds": {"median": median}}],
        }

    (notice,) = report.notices(
        [product("f32", 1.0), product("bf16", 2.5), product("f16", 0.5)]
    )
    assert "bfloat16 are slower than in float32" in notice
    assert "2.50 times" in notice


def test_notice_tells_that_the_machine_was_busy():
    before = {"load": {"before": [5.0, 1.0, 1.0]}, "machine": {"usable_cpus": 2}}
    (notice,) = report._busy(before)
    assert "load 5.0 on 2 CPU(s)" in notice
    assert report._busy({**before, "machine": {"usable_cpus": 8}}) == []


def test_machine_description_is_plain_data():
    described = json.loads(json.dumps(machine.describe()))
    assert described["cpu"] == ops.cpu_info()["name"]
    assert described["usable_cpus"] >= 1
    assert machine.cache_bytes(1) < machine.cache_bytes(2) or not machine.caches()


def test_bench_list_and_wrong_requests(capsys):
    assert cli.main(["bench", "list", "-k", "^cast"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == len(get_suite("cast").quick)
    assert all(line.startswith("cast:") for line in lines)
    assert command.main(["list", "-k", "no such thing"]) == 2
    assert "No problem matches" in capsys.readouterr().err
    assert command.main(["run", "gemm:1:2"]) == 2
    assert "must be gemm:shape" in capsys.readouterr().err
    assert command.main(["run", "-k", "cast", "--axis", "isa=avx9"]) == 2
    assert "`isa` must be among" in capsys.readouterr().err
    assert command.main(["run", "-k", "cast", "--axis", "impl=mpcore@avx9"]) == 2
    assert "`isa` must be among" in capsys.readouterr().err
    assert command.main(["run", "-k", "cast", "--axis", "impl=torch@avx2"]) == 2
    assert "`impl` must be among" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("problem", "file", "message"),
    [
        ("cast:f32:f16:1K", "x.pdf", "`--png` must end in .png"),
        ("limits:read:64K", "x.png", "`--png` needs a problem besides the limits"),
    ],
)
def test_bench_picture_that_cannot_be_drawn_is_refused_at_once(
    problem, file, message, tmp_path, monkeypatch, capsys
):
    pytest.importorskip("matplotlib")
    monkeypatch.setattr(command, "measure", lambda settings, problems: 1 / 0)
    arguments = ["run", problem, "--force", "--png", str(tmp_path / file)]
    assert command.main(arguments) == 2
    assert message in capsys.readouterr().err
    assert not (tmp_path / file).exists()


@pytest.mark.parametrize("option", ["json", "csv", "markdown", "png"])
@pytest.mark.parametrize("path", ["gone/x", ".", "/proc/x"])
def test_bench_output_that_cannot_be_written_is_refused_at_once(
    option, path, tmp_path, monkeypatch, capsys
):
    def measure(settings, problems):
        raise AssertionError("this took its time")

    monkeypatch.setattr(command, "measure", measure)
    arguments = [f"--{option}", str(tmp_path / path)]
    assert command.main(["run", "cast:f32:f16:1", "--force", *arguments]) == 2
    message = f"`--{option}` must be a file that can be written. Received:"
    assert message in capsys.readouterr().err
    if option == "png":
        assert command.main(["roofline", *arguments]) == 2


def test_bench_run_wrong_mpcore_ends_with_code_1(monkeypatch, capsys):
    made = document(0, problems=1)
    made["results"][0]["entries"][0] = {
        **{"name": "mpcore", "kind": "implementation", "wrong": "no double"},
    }
    monkeypatch.setattr(command, "measure", lambda settings, problems: made)
    assert command.main(["run", "cast:f32:f16:1", "--force"]) == 1
    assert "WRONG: mpcore" in capsys.readouterr().out
    made["results"][0]["entries"][0]["name"] = "torch"
    assert command.main(["run", "cast:f32:f16:1", "--force"]) == 0


def test_bench_is_not_loaded_by_importing_the_package():
    code = (
        "import mpcore, mpcore.cli, sys; "
        "print([name for name in sys.modules if 'bench' in name])"
    )
    result = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )
    assert result.stdout == "[]\n"
