"""`mpcore bench list | run | compare | roofline`."""

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tqdm import tqdm  # type: ignore[import-untyped]

from mpcore import ops
from mpcore.bench import compare, peers, plot, report, table
from mpcore.bench.problem import number
from mpcore.bench.process import WorkerError
from mpcore.bench.run import Run, Settings
from mpcore.bench.selection import RUN_AXES, parse_axis, select
from mpcore.bench.suite import SUITES, get_suite, parse

_LIMITS = "limits:"
_OUTPUTS = ("json", "csv", "markdown", "png")


def _positive(text: str) -> int:
    value = int(text)
    if value < 1:
        raise argparse.ArgumentTypeError(f"must be at least 1, not {text}")
    return value


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the commands of `mpcore bench` to a parser."""
    commands = parser.add_subparsers(dest="action", required=True, metavar="ACTION")

    listing = commands.add_parser("list", help="list the problems")
    _add_selection(listing)
    listing.set_defaults(act=_list)

    run = commands.add_parser("run", help="measure, compare with peers, print a table")
    run.add_argument(
        "problems",
        nargs="*",
        metavar="PROBLEM",
        help="such as gemm:512x512x512:f16:f16",
    )
    _add_selection(run)
    run.add_argument("--no-peers", action="store_true", help="mpcore and limits only")
    run.add_argument("--passes", type=_positive, default=5, help="default: 5")
    run.add_argument(
        "--rounds",
        type=_positive,
        default=1,
        help="samples per pass, three of mpcore in each; default: 1",
    )
    run.add_argument(
        "--min-ms",
        type=_milliseconds,
        default=2.0,
        help="least time of a sample; default: 2",
    )
    run.add_argument("--seed", type=int, default=0, help="of the random order")
    for option in _OUTPUTS:
        run.add_argument(f"--{option}", type=Path, metavar="FILE")
    run.add_argument("--force", action="store_true", help="run a debug build as well")
    run.set_defaults(act=_run)

    difference = commands.add_parser("compare", help="compare two results of --json")
    difference.add_argument("before", type=Path)
    difference.add_argument("after", type=Path)
    difference.add_argument(
        "--fail-above",
        type=compare.percent,
        metavar="10%",
        help="end with code 1 if something is slower by more than that",
    )
    difference.add_argument(
        "--force", action="store_true", help="compare different machines"
    )
    difference.set_defaults(act=_compare)

    roof = commands.add_parser("roofline", help="measure the limits; draw them")
    roof.add_argument(
        "results", nargs="?", type=Path, help="results of --json to draw under the roof"
    )
    roof.add_argument("--png", type=Path, metavar="FILE")
    roof.add_argument("--threads", type=_positive, help="default: all")
    roof.set_defaults(act=_roofline)


def _milliseconds(text: str) -> float:
    value = float(text)
    if not 0 < value <= 1e4:
        raise argparse.ArgumentTypeError(f"must be in (0, 10000], not {text}")
    return value


def _add_selection(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("-k", metavar="REGEX", help="problems that match")
    parser.add_argument(
        "--axis",
        action="append",
        default=[],
        metavar="NAME=VALUES",
        help="dtype=bf16,f16; n=2^10:2^24; shape=...; threads=1,2; isa=avx2,amx; "
        "impl=mpcore,torch",
    )
    parser.add_argument("--full", action="store_true", help="everything")


def run(arguments: argparse.Namespace) -> int:
    """Do what was asked; return the exit code.

    0: done. 1: wrong results, or slower than allowed. 2: the request makes no sense.
    """
    try:
        return int(arguments.act(arguments))
    except BrokenPipeError:
        raise  # whoever read the output has left: no word to standard error
    except (ValueError, OSError) as error:
        print(f"mpcore bench: {error}", file=sys.stderr)
        return 2
    except (ModuleNotFoundError, WorkerError) as error:
        print(f"mpcore bench: {error}", file=sys.stderr)
        return 1


def main(arguments: Sequence[str] | None = None) -> int:
    """Run `python -m mpcore.bench`."""
    parser = argparse.ArgumentParser(
        prog="mpcore bench", description="Microbenchmarks."
    )
    add_arguments(parser)
    return run(parser.parse_args(arguments))


def _axes(arguments: argparse.Namespace) -> dict[str, tuple[str, ...]]:
    return dict(parse_axis(text) for text in arguments.axis)


def _problems(arguments: argparse.Namespace) -> list[str]:
    """Return the problems named, or those selected."""
    named = getattr(arguments, "problems", [])
    if named:
        return [str(parse(text)) for text in named]
    axes = {k: v for k, v in _axes(arguments).items() if k not in RUN_AXES}
    return select(arguments.k, axes, arguments.full)


def _list(arguments: argparse.Namespace) -> int:
    for text in _problems(arguments):
        names = ", ".join(get_suite(text.partition(":")[0]).builders)
        print(f"{text:<36} {names}".rstrip())
    return 0


def _thread_counts(axes: dict[str, tuple[str, ...]]) -> tuple[int, ...]:
    if "threads" not in axes:
        return tuple(sorted({1, ops.get_num_threads()}))
    counts = tuple(number(text) for text in axes["threads"])
    if min(counts) < 1:
        raise ValueError(f"`threads` must be >= 1. Received: {min(counts)}")
    return counts


def _implementations(
    arguments: argparse.Namespace, axes: dict[str, tuple[str, ...]]
) -> tuple[str, ...]:
    known = [name for name in peers.PEERS if name != "limits"]
    chosen = list(axes.get("impl", ["mpcore"] if arguments.no_peers else known))
    levels = list(axes.get("isa", ()))
    levels += [n.partition("@")[2] for n in chosen if n.startswith("mpcore@")]
    unknown = {n for n in chosen if n not in known and not n.startswith("mpcore@")}
    if unknown:
        raise ValueError(
            f"`impl` must be among {', '.join(known)}. "
            f"Received: {', '.join(sorted(unknown))}"
        )
    absent = set(levels) - set(ops.available_isas())
    if absent:
        raise ValueError(
            f"`isa` must be among {', '.join(ops.available_isas())}. "
            f"Received: {', '.join(sorted(absent))}"
        )
    return (*chosen, *(f"mpcore@{level}" for level in axes.get("isa", ())))


def _settings(arguments: argparse.Namespace) -> Settings:
    axes = _axes(arguments)
    return Settings(
        threads=_thread_counts(axes),
        passes=arguments.passes,
        rounds=arguments.rounds,
        least=arguments.min_ms * 1e-3,
        implementations=_implementations(arguments, axes),
        seed=arguments.seed,
    )


def measure(settings: Settings, problems: Sequence[str]) -> dict[str, Any]:
    """Measure with a progress bar and return the document."""
    levels = ops.available_isas()
    runner = Run(settings, "amx" in levels, "avx512_bf16" in levels)
    before = report.start(runner)
    with tqdm(
        total=runner.steps(problems),
        unit="problem",
        leave=False,
        dynamic_ncols=True,
        disable=not sys.stderr.isatty(),
    ) as bar:

        def progress(problem: str, threads: int) -> None:
            bar.set_description_str(f"{problem} ({threads})", refresh=False)
            bar.update()

        try:
            runner.measure(problems, progress)
            return report.document(runner, before)
        finally:
            runner.close()


def _require_writable(arguments: argparse.Namespace) -> None:
    """Refuse outputs that cannot be written, before anything is measured."""
    for option in _OUTPUTS:
        path = getattr(arguments, option, None)
        if path is None:
            continue
        is_new = not path.exists()
        try:
            path.open("ab").close()
        except OSError as error:
            raise ValueError(
                f"`--{option}` must be a file that can be written. "
                f"Received: {path} ({error.strerror})"
            ) from None
        if is_new:
            path.unlink()
    if arguments.png is not None:
        plot.require_matplotlib()
        if arguments.png.suffix != ".png":
            raise ValueError(f"`--png` must end in .png. Received: {arguments.png}")


def _run(arguments: argparse.Namespace) -> int:
    build = ops.build_info()
    if build["type"] != "Release" and not arguments.force:
        raise ValueError(
            "Only a Release build is worth measuring (--force measures any). "
            f"Received: a {build['type'] or 'nameless'} build"
        )
    _require_writable(arguments)
    settings, problems = _settings(arguments), _problems(arguments)
    if arguments.png is not None and all(p.startswith(_LIMITS) for p in problems):
        raise ValueError("`--png` needs a problem besides the limits. See `roofline`.")
    document = measure(settings, problems)
    print(table.text(document))
    if arguments.json is not None:
        arguments.json.write_text(json.dumps(document, indent=1) + "\n")
    if arguments.csv is not None:
        arguments.csv.write_text(table.comma_separated(document))
    if arguments.markdown is not None:
        arguments.markdown.write_text(table.markdown(document))
    if arguments.png is not None:
        plot.bars(document, arguments.png)
    return 1 if _has_wrong(document) else 0


def _has_wrong(document: dict[str, Any]) -> bool:
    """Tell whether mpcore computed something wrong; peers' errors are only printed."""
    return any(
        "wrong" in entry and entry["name"].partition("@")[0] == "mpcore"
        for result in document["results"]
        for entry in result["entries"]
    )


def _compare(arguments: argparse.Namespace) -> int:
    before, after = map(compare.read, (arguments.before, arguments.after))
    compare.require_comparable(before, after, arguments.force)
    changes = compare.changes(before, after)
    print(compare.text(changes, arguments.fail_above))
    if arguments.fail_above is None:
        return 0
    return 1 if compare.slower(changes, arguments.fail_above) else 0


def _roofline(arguments: argparse.Namespace) -> int:
    _require_writable(arguments)
    results = compare.read(arguments.results) if arguments.results else {}
    threads = arguments.threads or ops.get_num_threads()
    limits = measure(
        Settings(threads=(threads,), implementations=()),
        select(f"^{_LIMITS}", {}, False, SUITES),
    )
    print(table.text(limits))
    if arguments.png is not None:
        plot.roofline(limits, results, arguments.png)
    return 0
