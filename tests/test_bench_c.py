"""Laws of mpcore_bench, the benchmark program for those without Python."""

import json
import subprocess
from importlib import resources

import pytest

from mpcore import _paths, ops
from mpcore.bench import compare
from mpcore.bench.suite import parse

PROGRAM = _paths.lib_dir().parent / "bin" / "mpcore_bench"


def run(*arguments):
    return subprocess.run(
        [PROGRAM, *arguments], capture_output=True, text=True, timeout=300
    )


@pytest.fixture(scope="module")
def results(tmp_path_factory):
    path = tmp_path_factory.mktemp("bench") / "c.json"
    options = ["--passes", "2", "--rounds", "1", "--min-ms", "1"]
    result = run("--filter", "64x64x64", *options, "--json", str(path))
    assert result.returncode == 0, result.stderr
    return json.loads(path.read_text())


def test_mpcore_bench_json_validates_against_the_schema(results):
    jsonschema = pytest.importorskip("jsonschema")
    text = resources.files("mpcore.bench").joinpath("schema.json").read_text()
    jsonschema.validate(results, json.loads(text))
    assert results["program"] == "mpcore_bench"
    assert results["software"]["version"] == ops.version()
    assert results["software"]["build"] == ops.build_info()


def test_mpcore_bench_results_can_be_compared(results):
    changes = compare.changes(results, results)
    assert len(changes) == 3
    assert all(change.ratio == 1 for change in changes)
    for result in results["results"]:
        (mine, *limits) = result["entries"]
        assert [len(one) for one in mine["samples"]] == [1, 1]
        assert "fma_f32" in {limit["name"] for limit in limits}
        assert 0 < mine["of_limit"] < 2


def test_mpcore_bench_problems_are_named_as_those_of_mpcore_bench():
    listed = run("--list").stdout.splitlines()
    assert len(listed) > 10
    for text in listed:
        assert str(parse(text)) == text


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--threads", "0"], "cannot read --threads 0"),
        (["--nonsense"], "cannot read --nonsense"),
        (["--isa", "avx9"], "avx9"),
        (["--filter", "nothing"], "--filter must match a problem"),
        (["--json"], "cannot read --json"),
    ],
)
def test_mpcore_bench_wrong_requests_end_with_code_2(arguments, message):
    result = run(*arguments)
    assert result.returncode == 2
    assert message in result.stderr
