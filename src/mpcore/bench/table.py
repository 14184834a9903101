"""Results as text: an aligned table, Markdown, CSV."""

import csv
import io
from collections.abc import Iterator, Sequence
from typing import Any

_NEAR = 0.6  # Of a limit: from here on the limit is the bottleneck.
_NUMBERS_FROM = 1  # Columns from here on are right-aligned.
_LEGEND = (
    "mpcore: median rate; spread: from its 5 % to its 95 % quantile, and what runs "
    "differ by. ~: disturbed.",
    "limit: the rate that the machine allows, measured beside it; share: what of it "
    "mpcore reaches.",
    f"bottleneck: the limit, from {_NEAR:.0%} of it on (memory: all beyond L2); call: "
    "what an empty call costs;",
    "  kernel: its own instructions, and the limit that would be next.",
    "vs X: time of X / time of mpcore. wrong: not accurate enough, so not timed. -: X "
    "does not do it.",
)


def text(document: dict[str, Any]) -> str:
    """Return aligned tables, with what a reader should know below them."""
    parts = []
    for title, header, rows in _tables(document):
        parts.append(f"{title}\n{_aligned([header, *rows])}")
    return "\n\n".join([*parts, *_remarks(document)])


def markdown(document: dict[str, Any]) -> str:
    """Return Markdown tables."""
    parts = []
    for title, header, rows in _tables(document):
        rule = ["---"] + ["---:"] * (len(header) - 1)
        lines = [" | ".join(line) for line in (header, rule, *rows)]
        parts.append(f"### {title}\n\n" + "\n".join(f"| {line} |" for line in lines))
    return "\n\n".join([*parts, *_remarks(document)]) + "\n"


def comma_separated(document: dict[str, Any]) -> str:
    """Return one line per implementation and problem."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(
        [
            *("problem", "threads", "name", "kind", "rate", "unit"),
            *("median_seconds", "p5_seconds", "p95_seconds"),
            *("of_limit", "limit", "note"),
        ]
    )
    for result in document["results"]:
        limit = (result["limit"] or {}).get("name", "")
        for entry in result["entries"]:
            seconds = entry.get("seconds", {})
            note = entry.get("wrong") or entry.get("unsupported") or ""
            writer.writerow(
                [
                    *(result["problem"], result["threads"]),
                    *(entry["name"], entry["kind"]),
                    *(entry.get("rate", ""), entry.get("unit", "")),
                    *(seconds.get(key, "") for key in ("median", "p5", "p95")),
                    *(entry.get("of_limit", ""), limit, note),
                ]
            )
    return out.getvalue()


def bottleneck(result: dict[str, Any], entry: dict[str, Any]) -> str:
    """Return what holds mpcore back, in a word or four.

    The name of the limit it has come near to; or ``call`` and its share of the time, if
    a call with next to no work costs that; or both; else the kernel itself, with the
    limit that would be next.
    """
    limit = result["limit"]
    if limit is None:
        return "?"
    of_limit, of_call = entry["of_limit"], _call_share(result, entry)
    if max(of_limit, of_call) >= _NEAR:
        near_limit = of_limit >= of_call
        return str(limit["name"]) if near_limit else f"call {_percent(of_call)}"
    if of_limit + of_call >= _NEAR:
        return f"call {_percent(of_call)} + {limit['name']}"
    return f"kernel, then {limit['name']}"


def _call_share(result: dict[str, Any], entry: dict[str, Any]) -> float:
    """Return the cost of an empty call as a share of the time of a call."""
    for other in result["entries"]:
        if other["kind"] == "call" and "seconds" in other:
            return float(other["seconds"]["median"] / entry["seconds"]["median"])
    return 0.0


def _tables(
    document: dict[str, Any],
) -> Iterator[tuple[str, list[str], list[list[str]]]]:
    """Title, header, and rows for each suite and number of threads."""
    groups: dict[tuple[str, int], list[dict[str, Any]]] = {}
    for result in document["results"]:
        groups.setdefault((result["suite"], result["threads"]), []).append(result)
    for (suite, threads), results in groups.items():
        plural = "" if threads == 1 else "s"
        clock = "CPU time" if threads == 1 else "wall time"
        title = f"{suite}, {threads} thread{plural} ({clock})"
        if suite == "limits":
            yield title, *_limit_rows(results)
        else:
            yield f"{title}, {results[0]['unit']}", *_suite_rows(results)


def _limit_rows(
    results: Sequence[dict[str, Any]],
) -> tuple[list[str], list[list[str]]]:
    rows = []
    for result in results:
        for entry in result["entries"]:
            if "seconds" in entry:
                rate, spread = _figure(entry["rate"]), _percent(_spread(entry))
                where = result["bounds"][0]["name"] if result["bounds"] else ""
                rows.append([result["problem"], rate, spread, entry["unit"], where])
    return ["problem", "rate", "spread", "unit", "limit"], rows


def _suite_rows(
    results: Sequence[dict[str, Any]],
) -> tuple[list[str], list[list[str]]]:
    others = _other_names(results)
    header = ["problem", "mpcore", "spread", "limit", "share", "bottleneck"]
    header += [f"vs {name}" for name in others]
    return header, [_suite_row(result, others) for result in results]


def _other_names(results: Sequence[dict[str, Any]]) -> list[str]:
    """Return the implementations besides mpcore that were timed in this table."""
    names = dict.fromkeys(
        entry["name"]
        for result in results
        for entry in result["entries"]
        if entry["kind"] == "implementation" and "seconds" in entry
    )
    return [name for name in names if name != "mpcore"]


def _suite_row(result: dict[str, Any], others: Sequence[str]) -> list[str]:
    entries = {entry["name"]: entry for entry in result["entries"]}
    mine = entries.get("mpcore", {})
    row = [result["problem"]]
    if "seconds" in mine:
        mark = "~" if mine["disturbed"] else ""
        row += [_figure(mine["rate"]) + mark, _percent(_spread(mine))]
    else:
        row += ["WRONG" if "wrong" in mine else "-", ""]
    limit = result["limit"]
    row.append(_figure(limit["rate"]) if limit else "-")
    if "seconds" in mine:
        row += [_percent(mine["of_limit"]), bottleneck(result, mine)]
    else:
        row += ["", ""]
    return row + [_ratio(entries.get(name, {}), mine) for name in others]


def _ratio(entry: dict[str, Any], mine: dict[str, Any]) -> str:
    """Return how many times as fast as the other mpcore is; or the other's rate."""
    if "wrong" in entry:
        return "wrong"
    if "seconds" not in entry:
        return "-"
    if "times_slower_than_mpcore" not in entry:
        return _figure(entry["rate"])
    return f"{entry['times_slower_than_mpcore']:.2f}x"


def _remarks(document: dict[str, Any]) -> list[str]:
    lines = [
        f"absent: {name}: {peer['absent']}"
        for name, peer in document["peers"].items()
        if "absent" in peer
    ]
    for result in document["results"]:
        for entry in result["entries"]:
            if "wrong" in entry:
                lines.append(
                    f"WRONG: {entry['name']}, {result['problem']}: {entry['wrong']}"
                )
    lines += [f"notice: {notice}" for notice in document["notices"]]
    return ["\n".join([*lines, *_LEGEND])]


def _spread(entry: dict[str, Any]) -> float:
    return float(entry["seconds"]["spread"])


def _figure(value: float) -> str:
    if value >= 1000:
        return f"{value:.0f}"
    return f"{value:.3g}"


def _percent(share: float) -> str:
    return f"{100 * share:.0f}%"


def _aligned(rows: Sequence[Sequence[str]]) -> str:
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    lines = []
    for row in rows:
        cells = [
            cell.ljust(width) if i < _NUMBERS_FROM else cell.rjust(width)
            for i, (cell, width) in enumerate(zip(row, widths, strict=True))
        ]
        lines.append("  ".join(cells).rstrip())
    return "\n".join(lines)
