"""Laws of the pictures: they are PNG files, and say what is missing to make them."""

import sys

import pytest
from bench_fakes import document, result

from mpcore.bench import command, plot


def peak(name, rate, unit):
    entry = {"name": name, "kind": "limit", "rate": rate, "unit": unit}
    return {
        **result(f"limits:{name}:0", [[1.0]]),
        "suite": "limits",
        "bounds": [{"name": name, "seconds": 1.0}],
        "entries": [{**entry, "seconds": {"median": 1.0}}],
    }


def test_png_of_bars_and_roofline_are_pictures(tmp_path):
    pytest.importorskip("matplotlib")
    made = document(0, problems=4)
    plot.bars(made, tmp_path / "bars.png")
    made["results"][0]["operations"] = 1e9
    limits = document(0, problems=1)
    limits["results"] = [
        peak("FMA", 100.0, "GFLOP/s"),
        peak("AMX", 2000.0, "GFLOP/s"),
        peak("memory read", 10.0, "GB/s"),
    ]
    plot.roofline(limits, made, tmp_path / "roof.png")
    for name in ("bars", "roof"):
        data = (tmp_path / f"{name}.png").read_bytes()
        assert data.startswith(b"\x89PNG")
        assert len(data) > 5000


def test_roofs_of_a_machine_look_different():
    peaks = {"FMA": 200.0, "VDPBF16PS": 100.0, "AMX": 3000.0}
    places = ("L1", "L2", "memory")
    kinds = ("read", "negate", "copy", "triad", "update")
    streams = {f"{p} {k}": 10.0 for p in places for k in kinds}
    looks = [(color, style) for *_, color, style in plot._lines(peaks, streams)]
    assert len(looks) == 18
    assert len(set(looks)) == 18


def test_png_of_nothing_is_refused(tmp_path):
    pytest.importorskip("matplotlib")
    with pytest.raises(ValueError, match="at least one problem"):
        plot.bars({**document(0), "results": []}, tmp_path / "x.png")


def test_png_without_matplotlib_says_what_to_install(monkeypatch, capsys, tmp_path):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    arguments = ["run", "cast:f32:f16:1", "--force", "--png", str(tmp_path / "x.png")]
    assert command.main(arguments) == 1
    assert "pip install 'mpcore[plot]'" in capsys.readouterr().err
