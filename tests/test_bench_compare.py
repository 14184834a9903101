"""Laws of comparing two results: slowdowns are found, noise is not."""

import json

import pytest
from bench_fakes import document, slowed

from mpcore.bench import command, compare


def files(folder, *documents):
    paths = []
    for number, made in enumerate(documents):
        path = folder / f"{number}.json"
        path.write_text(json.dumps(made))
        paths.append(str(path))
    return paths


@pytest.mark.parametrize("seed", range(5))
def test_compare_finds_a_planted_slowdown_of_20_percent(seed, tmp_path, capsys):
    before, after = document(seed), document(100 + seed)
    paths = files(tmp_path, before, slowed(after, 1.2, [7]))
    assert command.main(["compare", *paths, "--fail-above", "10%"]) == 1
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines if "SLOWER" in line] == [
        "cast:f32:bf16:8"
    ]


@pytest.mark.parametrize("seed", range(5))
def test_compare_of_equal_runs_is_quiet(seed, tmp_path, capsys):
    paths = files(tmp_path, document(seed), document(100 + seed))
    assert command.main(["compare", *paths, "--fail-above", "10%"]) == 0
    out = capsys.readouterr().out
    assert "SLOWER" not in out
    assert "0 of 40 slower by more than 10%" in out


def test_compare_without_a_threshold_only_reports(tmp_path, capsys):
    before = document(0)
    paths = files(tmp_path, before, slowed(before, 1.5, [0]))
    assert command.main(["compare", *paths]) == 0
    assert "SLOWER" in capsys.readouterr().out


def test_compare_a_machine_that_slowed_down_is_no_regression(tmp_path):
    before = document(0)
    after = slowed(before, 1.3, range(40))
    for made, factor in ((before, 1.0), (after, 1.3)):
        for result in made["results"]:
            times = [[factor * x for x in (1.0, 1.01, 0.99)]] * 5
            result["entries"].append(
                {"name": "read@64", "kind": "limit", "samples": times}
            )
    paths = files(tmp_path, before, after)
    assert command.main(["compare", *paths, "--fail-above", "10%"]) == 0
    assert all(c.ratio == pytest.approx(1.3) for c in compare.changes(before, after))


def test_compare_takes_the_fastest_sample_of_a_pass(tmp_path):
    before, after = document(0, problems=1), document(0, problems=1)
    for one in after["results"][0]["entries"][0]["samples"]:
        one[one.index(max(one))] *= 3
        one.append(max(one))
    (change,) = compare.changes(before, after)
    assert change.ratio == 1


def test_compare_of_too_few_or_disturbed_passes_cannot_tell(tmp_path, capsys):
    before = document(0, problems=4)
    after = slowed(before, 2.0, range(4))
    few, disturbed, emptied, _ = (r["entries"][0] for r in after["results"])
    few["samples"] = few["samples"][:2]
    disturbed["disturbed"] = 1
    emptied["samples"] = [[], *emptied["samples"][:2], []]
    paths = files(tmp_path, before, after)
    assert command.main(["compare", *paths, "--fail-above", "10%"]) == 1
    out = capsys.readouterr().out
    assert out.count("  cannot tell\n") == 3
    assert "1 of 4 slower" in out


@pytest.mark.parametrize(
    ("chances", "kept"),
    [
        ([0.15], [0]),
        ([0.05, 0.9, 0.001], [2, 0]),
        ([0.07, 0.08, 0.9], []),
        ([0.06, 0.09, 0.5], [0, 1]),
    ],
)
def test_compare_looks_at_many_problems_by_the_procedure_of_holm(chances, kept):
    found = list(range(len(chances)))  # What is judged does not matter.
    assert compare._certain(found, chances) == kept


def test_compare_a_faster_run_is_called_so(tmp_path, capsys):
    before = document(0)
    paths = files(tmp_path, before, slowed(before, 0.5, [3]))
    assert command.main(["compare", *paths, "--fail-above", "10%"]) == 0
    (line,) = (x for x in capsys.readouterr().out.splitlines() if "faster" in x)
    assert line.startswith("cast:f32:bf16:4 ")


@pytest.mark.parametrize(
    ("part", "key", "value"),
    [
        ("machine", "cpu", "Another CPU"),
        ("machine", "usable_cpus", 64),
        ("machine", "cgroup_quota", 1.5),
        ("software", "isa", "amx"),
    ],
)
def test_compare_of_different_machines_is_refused_unless_forced(
    part, key, value, tmp_path, capsys
):
    before, after = document(0), document(1)
    after[part][key] = value
    paths = files(tmp_path, before, after)
    assert command.main(["compare", *paths]) == 2
    assert f"must have the same {key}" in capsys.readouterr().err
    assert command.main(["compare", *paths, "--force"]) == 0


def test_compare_of_different_schemas_is_refused_even_if_forced(tmp_path, capsys):
    before, after = document(0), document(1)
    after["schema_version"] = 2
    paths = files(tmp_path, before, after)
    assert command.main(["compare", *paths, "--force"]) == 2
    assert "schema_version" in capsys.readouterr().err


def test_compare_with_nothing_in_common_is_refused(tmp_path, capsys):
    before, after = document(0), document(1)
    after["results"] = []
    assert command.main(["compare", *files(tmp_path, before, after)]) == 2
    assert "problem in common" in capsys.readouterr().err


@pytest.mark.parametrize("text", ["ten", "-1%", "inf", ""])
def test_compare_malformed_threshold_is_refused(text):
    with pytest.raises(SystemExit) as exit_:
        command.main(["compare", "a", "b", f"--fail-above={text}"])
    assert exit_.value.code == 2


@pytest.mark.parametrize(
    "text", ["[]", "null", "{}", '{"schema_version": 1}', "no JSON", ""]
)
@pytest.mark.parametrize("arguments", [["compare"], ["roofline"]], ids=lambda a: a[0])
def test_json_that_is_no_result_is_refused(text, arguments, tmp_path, capsys):
    paths = files(tmp_path, document(0), document(1))
    (tmp_path / "other.json").write_text(text)
    rest = [str(tmp_path / "other.json"), *paths][
        : 2 if arguments[0] == "compare" else 1
    ]
    assert command.main([*arguments, *rest]) == 2
    assert "must come from `mpcore bench run --json`" in capsys.readouterr().err
