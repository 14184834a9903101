"""Laws of the command line."""

import json
import os
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

import pytest

from mpcore import _paths, cli, ops, train

POLICIES = ("float32", "mixed_bfloat16", "mixed_float16")


def run(*arguments, **environment):
    return subprocess.run(
        [sys.executable, "-m", "mpcore", *arguments],
        capture_output=True,
        text=True,
        env={**os.environ, **environment},
        timeout=300,
    )


@pytest.mark.parametrize(
    ("option", "path", "holds"),
    [
        ("--includedir", _paths.include_dir, "mpcore/mpcore.h"),
        ("--libdir", _paths.lib_dir, "libmpcore.so*"),
        ("--cmakedir", _paths.cmake_dir, "*.cmake"),
        ("--pkgconfigdir", _paths.pkgconfig_dir, "mpcore.pc"),
    ],
)
def test_cli_directory_options_print_where_the_files_are(option, path, holds, capsys):
    with pytest.raises(SystemExit) as exit_:
        cli.main([option])
    assert exit_.value.code == 0
    printed = capsys.readouterr().out
    assert printed == f"{path()}\n"
    assert list(Path(printed.strip()).glob(holds))


def test_cli_version_is_that_of_the_package(capsys):
    with pytest.raises(SystemExit):
        cli.main(["--version"])
    assert capsys.readouterr().out == f"{version('mpcore')}\n"


def test_cli_runs_as_a_module_and_knows_its_commands():
    result = run("--help")
    assert result.returncode == 0
    assert "info" in result.stdout
    assert "train" in result.stdout
    assert run().returncode == 2
    assert "COMMAND" in run().stderr


def test_info_json_is_what_the_library_says(capsys):
    assert cli.main(["info", "--json"]) == 0
    info = json.loads(capsys.readouterr().out)
    assert info["cpu"] == ops.cpu_info()
    assert info["packages"]["mpcore"] == version("mpcore")
    assert set(info["environment"]) == {k for k in os.environ if k[:7] == "MPCORE_"}


def test_info_text_lists_every_level_with_the_reason_if_it_is_absent(
    monkeypatch, capsys
):
    fake = {
        "name": "A CPU",
        "isa": "low",
        "num_threads": 3,
        "version": "1",
        "levels": [
            {"name": "low", "available": True, "reason": "available"},
            {"name": "high", "available": False, "reason": "too old"},
        ],
    }
    monkeypatch.setattr(ops, "cpu_info", lambda: fake)
    assert cli.main(["info"]) == 0
    lines = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert ["CPU", "A", "CPU"] in lines
    assert ["threads", "3"] in lines
    assert ["level", "low"] in lines
    assert ["low", "yes"] in lines
    assert ["high", "no:", "too", "old"] in lines


def test_info_shows_a_level_forced_by_the_environment():
    result = run("info", "--json", MPCORE_ISA="scalar", MPCORE_NUM_THREADS="1")
    info = json.loads(result.stdout)
    assert info["cpu"]["isa"] == "scalar"
    assert info["cpu"]["num_threads"] == 1
    assert info["environment"]["MPCORE_ISA"] == "scalar"


def test_train_trains_each_policy_and_writes_everything(tmp_path, capsys):
    pytest.importorskip("sklearn")
    output = tmp_path / "history.json"
    arguments = ["--epochs", "2", "--seeds", "2", "--batch-size", "256"]
    code = cli.main(["train", *arguments, "--threads", "1", "--output", str(output)])
    assert code == 0
    assert ops.get_num_threads() == 1
    captured = capsys.readouterr()
    assert captured.err == ""  # No bars off a terminal.
    result = json.loads(output.read_text())
    assert result["settings"] == {
        "epochs": 2,
        "batch_size": 256,
        "learning_rate": 2e-3,
    }
    assert result["machine"]["cpu"]["num_threads"] == 1
    runs = result["runs"]
    expected = [(policy, seed) for policy in POLICIES for seed in (0, 1)]
    assert [(r["policy"], r["seed"]) for r in runs] == expected
    for r in runs:
        scaled = r["policy"] == "mixed_float16"
        more = {"loss_scale", "skipped_steps"} if scaled else set()
        assert set(r["history"]) == {"loss", "accuracy"} | more
        assert {len(values) for values in r["history"].values()} == {2}
        assert (r["loss_scale"] is not None) == scaled
        assert f"{r['policy']:<14} seed {r['seed']}" in captured.out
        assert f"{r['test_accuracy']:.2%}" in captured.out
    table = captured.out.splitlines()[-3:]
    for line, row in zip(table, result["summary"], strict=True):
        assert line.startswith(row["policy"])
        assert f"{row['mean_test_accuracy']:.2%}" in line


def test_train_of_one_policy_has_no_differences(tmp_path, capsys):
    pytest.importorskip("sklearn")
    output = tmp_path / "h.json"
    arguments = ["--policy", "mixed_bfloat16", "--epochs", "1", "--seeds", "1"]
    assert cli.main(["train", *arguments, "--output", str(output)]) == 0
    (row,) = json.loads(output.read_text())["summary"]
    assert set(row) == {"policy", "seeds", "mean_test_accuracy", "seconds"}
    assert row["policy"] == "mixed_bfloat16"


def test_train_without_scikit_learn_says_what_to_install(monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "sklearn", None)
    assert cli.main(["train", "--seeds", "1", "--epochs", "1"]) == 1
    assert "pip install scikit-learn" in capsys.readouterr().err


@pytest.mark.parametrize(
    "arguments",
    [
        ["--epochs", "0"],
        ["--seeds", "-1"],
        ["--learning-rate", "nan"],
        ["--learning-rate", "0"],
        ["--policy", "float8"],
        ["--threads", "x"],
    ],
)
def test_train_bad_arguments_end_with_code_2_and_name_the_option(arguments, capsys):
    with pytest.raises(SystemExit) as exit_:
        cli.main(["train", *arguments])
    assert exit_.value.code == 2
    assert arguments[0] in capsys.readouterr().err


@pytest.mark.parametrize("command", ["info", "train"])
@pytest.mark.parametrize(
    ("name", "value"), [("MPCORE_ISA", "avx9"), ("MPCORE_NUM_THREADS", "many")]
)
def test_cli_malformed_environment_ends_with_code_2_and_one_line(command, name, value):
    result = run(command, **{name: value})
    assert result.returncode == 2
    assert result.stdout == ""
    (line,) = result.stderr.splitlines()
    assert line.startswith(f"mpcore: {name} must be ")
    assert f"{name}={value}" in line


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--threads", "5000"], "num_threads=5000"),
        (["--output", "missing/history.json"], "missing/history.json"),
        (["--output", "."], "directory"),
    ],
)
def test_train_arguments_that_cannot_work_end_before_training(
    arguments, message, tmp_path, monkeypatch, capsys
):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(train, "train_all", None)
    assert cli.main(["train", *arguments]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    (line,) = captured.err.splitlines()
    assert line.startswith("mpcore train: ")
    assert message in line


@pytest.mark.parametrize("arguments", [["info"], ["bench", "list"]])
def test_cli_whose_reader_has_left_ends_without_a_traceback(arguments):
    reader, writer = os.pipe()
    os.close(reader)
    command = [sys.executable, "-m", "mpcore", *arguments]
    result = subprocess.run(
        command, stdout=writer, stderr=subprocess.PIPE, timeout=300, check=False
    )
    os.close(writer)
    assert result.returncode == 1
    assert result.stderr == b""


@pytest.mark.parametrize(
    ("option", "value"),
    [("--epochs", "x"), ("--seeds", "0"), ("--batch-size", "1.5")],
)
def test_train_number_that_is_none_is_named(option, value, capsys):
    with pytest.raises(SystemExit):
        cli.main(["train", option, value])
    assert f"{option}: must be a whole number of at least 1, not '{value}'" in (
        capsys.readouterr().err
    )


@pytest.mark.parametrize("value", ["x", "-1", "nan", "inf"])
def test_train_rate_that_is_none_is_named(value, capsys):
    with pytest.raises(SystemExit):
        cli.main(["train", f"--learning-rate={value}"])
    expected = f"--learning-rate: must be a positive, finite number, not '{value}'"
    assert expected in capsys.readouterr().err


def test_cli_interrupted_ends_with_code_130_and_no_traceback(monkeypatch, capsys):
    def interrupted(*arguments, **named):
        raise KeyboardInterrupt

    monkeypatch.setattr(train, "train_all", interrupted)
    assert cli.main(["train"]) == 130
    assert capsys.readouterr().err == "\nmpcore: interrupted\n"
