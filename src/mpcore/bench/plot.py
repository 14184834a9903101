"""Pictures, by matplotlib: bars of rates, and kernels under the roof."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

_INTENSITIES = (2.0**-6, 2.0**12)


def require_matplotlib() -> None:
    """Say what to install if matplotlib is missing.

    Raises
    ------
    ModuleNotFoundError
        With the command that installs it.
    """
    try:
        import matplotlib  # noqa: F401
    except ModuleNotFoundError:
        raise ModuleNotFoundError(
            "--png needs matplotlib: pip install 'mpcore[plot]'"
        ) from None


def _figure(heights: Sequence[float], size: tuple[float, float]) -> tuple[Any, Any]:
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=size, layout="constrained")
    FigureCanvasAgg(figure)
    return figure, figure.subplots(
        len(heights), 1, squeeze=False, height_ratios=heights
    )


def bars(document: dict[str, Any], path: Path) -> None:
    """Draw the rate of each implementation as a share of the limit."""
    groups: dict[tuple[str, int], list[dict[str, Any]]] = {}
    for result in document["results"]:
        if result["limit"] and result["suite"] != "limits":
            groups.setdefault((result["suite"], result["threads"]), []).append(result)
    if not groups:
        raise ValueError("A picture needs at least one problem with a limit.")
    heights = [sum(len(_timed(r)) + 1 for r in group) for group in groups.values()]
    figure, axes = _figure(heights, (9, 1.2 * len(groups) + 0.16 * sum(heights)))
    for axis, ((suite, threads), results) in zip(
        axes[:, 0], groups.items(), strict=True
    ):
        _draw_bars(axis, results)
        axis.set_title(f"{suite}, {threads} thread(s)", loc="left", fontsize=9)
    figure.suptitle(document["machine"]["cpu"], fontsize=9)
    figure.savefig(path, dpi=120)


def _timed(result: dict[str, Any]) -> list[dict[str, Any]]:
    return [
        e for e in result["entries"] if e["kind"] == "implementation" and "seconds" in e
    ]


def _draw_bars(axis: Any, results: Sequence[dict[str, Any]]) -> None:
    labels: list[str] = []
    at = 0
    places = []
    for result in results:
        for entry in _timed(result):
            mine = entry["name"].partition("@")[0] == "mpcore"
            color = "tab:blue" if mine else "tab:gray"
            axis.barh(at, 100 * entry["of_limit"], color=color, height=0.8)
            text = f"{entry['rate']:.3g} {entry['unit']}"
            axis.text(100 * entry["of_limit"] + 0.5, at, text, va="center", fontsize=5)
            labels.append(f"{result['problem']}  {entry['name']}")
            places.append(at)
            at += 1
        at += 1
    axis.set_yticks(places, labels, fontsize=5)
    axis.invert_yaxis()
    axis.axvline(100, color="tab:red", linewidth=0.8)
    axis.set_xlabel("% of the limit measured on this machine", fontsize=7)


def roofline(limits: dict[str, Any], results: dict[str, Any], path: Path) -> None:
    """Draw the peaks and stream rates, and results under them.

    Parameters
    ----------
    limits : dict
        Document of a run of the suite `limits`.
    results : dict
        Document of another run, or empty.
    path : Path
        A PNG file.
    """
    figure, axes = _figure([1.0], (8, 5))
    axis = axes[0, 0]
    for name, xs, ys, color, style in _lines(*_roofs(limits)):
        axis.plot(xs, ys, style, color=color, linewidth=1.2, label=name)
    threads = limits["settings"]["threads"][0]
    for result in results.get("results", []):
        point = _point(result, threads)
        if point is not None:
            axis.plot(*point, "k.", markersize=4)
            axis.annotate(
                result["problem"],
                point,
                xytext=(3, 2),
                textcoords="offset points",
                fontsize=4.5,
            )
    axis.set(xscale="log", yscale="log", xlim=_INTENSITIES)
    axis.set_xlabel("floating-point operations per byte")
    axis.set_ylabel("GFLOP/s")
    axis.legend(fontsize=6)
    axis.set_title(f"{limits['machine']['cpu']}, {threads} thread(s)", fontsize=9)
    figure.savefig(path, dpi=150)


def _lines(
    peaks: dict[str, float], streams: dict[str, float]
) -> list[tuple[str, list[float], list[float], str, str]]:
    """Return name, ends, color, and style of each roof; no two look the same."""
    low, high = _INTENSITIES
    top, widest = max(peaks.values()), max(streams.values())
    lines = []
    for i, (name, rate) in enumerate(peaks.items()):
        start = max(low, rate / widest)
        lines.append((name, [start, high], [rate, rate], f"C{i % 10}", "-"))
    # Places share a style, kinds of streams a color.
    places = list(dict.fromkeys(name.partition(" ")[0] for name in streams))
    kinds = list(dict.fromkeys(name.partition(" ")[2] for name in streams))
    for name, rate in streams.items():
        place, _, kind = name.partition(" ")
        end = min(high, top / rate)
        color = f"C{(len(peaks) + kinds.index(kind)) % 10}"
        style = ("--", ":", "-.")[places.index(place) % 3]
        lines.append((name, [low, end], [low * rate, end * rate], color, style))
    return lines


def _roofs(limits: dict[str, Any]) -> tuple[dict[str, float], dict[str, float]]:
    """Return GFLOP/s of the peaks and GB/s of the streams, by name."""
    peaks: dict[str, float] = {}
    streams: dict[str, float] = {}
    for result in limits["results"]:
        for entry in result["entries"]:
            if "rate" not in entry:
                continue
            into = peaks if entry["unit"] == "GFLOP/s" else streams
            name = result["bounds"][0]["name"]
            into[name] = max(entry["rate"], into.get(name, 0.0))
    return peaks, streams


def _point(result: dict[str, Any], threads: int) -> tuple[float, float] | None:
    """Return operations per byte and GFLOP/s, for what does floating-point work."""
    if result["threads"] != threads or not result["operations"] * result["bytes"]:
        return None
    for entry in _timed(result):
        if entry["name"] == "mpcore":
            rate = result["operations"] / entry["seconds"]["median"] * 1e-9
            return result["operations"] / result["bytes"], rate
    return None
