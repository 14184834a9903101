"""The command line: `mpcore info | selftest | bench | train`, and directories."""

import argparse
import json
import os
import sys
from collections.abc import Callable, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

from tqdm import tqdm  # type: ignore[import-untyped]

from mpcore import _paths, info, ops, train
from mpcore.callbacks import Callback, Logs, format_logs


class _Print(argparse.Action):
    """An option that prints something and ends the program."""

    def __init__(
        self,
        option_strings: Sequence[str],
        dest: str,
        text: Callable[[], object],
        help: str,
    ) -> None:
        super().__init__(option_strings, dest, nargs=0, help=help)
        self._text = text

    def __call__(self, parser: argparse.ArgumentParser, *_: Any) -> None:
        print(self._text())
        parser.exit()


def _positive_int(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(
            f"must be a whole number of at least 1, not {text!r}"
        )
    return int(text)


def _positive_float(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not 0.0 < value < float("inf"):
        raise argparse.ArgumentTypeError(
            f"must be a positive, finite number, not {text!r}"
        )
    return value


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="mpcore", description="Mixed-precision training on CPUs."
    )
    for option, text, about in (
        ("--version", lambda: version("mpcore"), "the version"),
        ("--includedir", _paths.include_dir, "the directory of the C headers"),
        ("--libdir", _paths.lib_dir, "the directory of the C library"),
        ("--cmakedir", _paths.cmake_dir, "the directory of the CMake package"),
        ("--pkgconfigdir", _paths.pkgconfig_dir, "the directory of mpcore.pc"),
    ):
        parser.add_argument(option, action=_Print, text=text, help=f"print {about}")
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")

    shown = commands.add_parser(
        "info", help="show the CPU, what of it is used, and how"
    )
    shown.add_argument("--json", action="store_true", help="for programs")
    shown.set_defaults(run=_info)

    test = commands.add_parser(
        "selftest", help="test every level of this machine; takes some seconds"
    )
    test.set_defaults(run=_selftest)

    commands.add_parser(
        "bench",
        help="measure kernels, limits, and peers on this machine",
        add_help=False,  # It has its own: `mpcore bench --help`.
    )

    job = commands.add_parser(
        "train",
        help="train a digits classifier under each policy and compare",
        description="Trains a classifier of handwritten digits under each policy with "
        "the same seeds, and compares the accuracies on held-out digits.",
    )
    job.add_argument(
        "--policy",
        default="all",
        choices=(*train.POLICIES, "all"),
        help="default: all",
    )
    for option, kind, default, about in (
        ("--epochs", _positive_int, 30, "passes over the digits"),
        ("--batch-size", _positive_int, 64, "digits per step"),
        ("--learning-rate", _positive_float, 2e-3, "of AdamW"),
        ("--seeds", _positive_int, 5, "runs per policy"),
    ):
        described = f"{about} (default: {default})"
        job.add_argument(option, type=kind, default=default, help=described)
    job.add_argument(
        "--output", type=Path, metavar="FILE", help="write everything as JSON"
    )
    job.add_argument(
        "--threads", type=_positive_int, help="default: MPCORE_NUM_THREADS or all CPUs"
    )
    job.set_defaults(run=_train)
    return parser


def _bench(arguments: Sequence[str]) -> int:
    """Run `mpcore bench`, whose modules are loaded only for it."""
    from mpcore.bench import command

    return command.main(arguments)


def _info(arguments: argparse.Namespace) -> int:
    machine = info.machine()
    if arguments.json:
        print(json.dumps(machine, indent=2))
    else:
        print("\n".join(info.lines(machine)))
    return 0


def _selftest(arguments: argparse.Namespace) -> int:
    """Run `mpcore selftest`: 0 if every level is good, else 1."""
    from mpcore.bench import selftest

    failed = False
    for level, wrong in selftest.run(ops.get_num_threads()):
        print(f"{level:<12} {wrong or 'OK'}", flush=True)
        failed = failed or wrong is not None
    for level in ops.cpu_info()["levels"]:
        if not level["available"]:
            print(f"{level['name']:<12} not here: {level['reason']}")
    for notice in selftest.slow_halves():
        print(f"notice: {notice}")
    print("something is wrong" if failed else "all good")
    return 1 if failed else 0


class _RunBar(Callback):
    """A bar over the epochs of one run; on a terminal only."""

    def __init__(self, title: str, epochs: int) -> None:
        self._title = title
        self._epochs = epochs

    def on_train_begin(self, logs: Logs | None = None) -> None:
        self._bar = tqdm(
            total=self._epochs,
            desc=self._title,
            unit="epoch",
            leave=False,
            dynamic_ncols=True,
            disable=sys.stderr is None or not sys.stderr.isatty(),
        )

    def on_epoch_end(self, epoch: int, logs: Logs | None = None) -> None:
        self._bar.set_postfix_str(format_logs(logs or {}), refresh=False)
        self._bar.update()

    def on_train_end(self, logs: Logs | None = None) -> None:
        self._bar.close()


def _run_line(run: train.Run) -> str:
    scale = ""
    if run.loss_scale is not None:
        scale = f"  loss scale {run.loss_scale:g}, {run.skipped_steps} steps skipped"
    return (
        f"{run.policy:<14} seed {run.seed}  test accuracy {run.test_accuracy:.2%}  "
        f"{run.seconds:.1f} s{scale}"
    )


def _summary_line(row: dict[str, Any]) -> str:
    difference = ""
    if "points_from_float32" in row:
        difference = f"{row['points_from_float32']:+.2f}"
    if "standard_error" in row:
        difference += f" +- {row['standard_error']:.2f}"
    return (
        f"{row['policy']:<14} {row['mean_test_accuracy']:>13.2%} "
        f"{difference:>23} {row['seconds']:>8.1f}"
    )


def _train(arguments: argparse.Namespace) -> int:
    try:
        if arguments.threads is not None:
            ops.set_num_threads(arguments.threads)
        if arguments.output is not None:
            arguments.output.open("a").close()  # Rather now than after training.
    except (OSError, ValueError) as error:
        print(f"mpcore train: {error}", file=sys.stderr)
        return 2
    settings = train.Settings(
        arguments.epochs, arguments.batch_size, arguments.learning_rate
    )
    machine = info.machine()
    cpu = machine["cpu"]
    print(f"{cpu['name']}: level {cpu['isa']}, {cpu['num_threads']} threads")
    try:
        runs = train.train_all(
            train.POLICIES if arguments.policy == "all" else (arguments.policy,),
            arguments.seeds,
            settings,
            callbacks=lambda policy, seed: [
                _RunBar(f"{policy} seed {seed}", settings.epochs)
            ],
            finished=lambda run: print(_run_line(run), flush=True),
        )
    except ModuleNotFoundError as error:
        print(f"mpcore train: {error}", file=sys.stderr)
        return 1
    print(
        f"\n{'policy':<14} {'mean accuracy':>13} {'points from float32':>23} {'s':>8}"
    )
    for row in train.summarize(runs):
        print(_summary_line(row))
    if arguments.output is not None:
        result = train.report(runs, settings, machine)
        arguments.output.write_text(json.dumps(result, indent=2) + "\n")
    return 0


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit code.

    2 if the environment (``MPCORE_ISA``, ``MPCORE_NUM_THREADS``) makes no sense, 1 if
    whoever reads the output has left, 130 if it was interrupted.

    Parameters
    ----------
    arguments : sequence of str, optional
        Default: those of the process.

    Raises
    ------
    SystemExit
        From argparse: 0 after an option that prints, 2 for wrong arguments.
    """
    given = list(sys.argv[1:] if arguments is None else arguments)
    is_bench = given[:1] == ["bench"]
    parsed = None if is_bench else _parser().parse_args(given)
    try:
        ops.cpu_info()  # The core reads the environment when it is first used.
    except ValueError as error:
        print(f"mpcore: {error}", file=sys.stderr)
        return 2
    try:
        code = _bench(given[1:]) if parsed is None else int(parsed.run(parsed))
        print(end="", flush=True)
    except BrokenPipeError:
        # The interpreter flushes once more at its end.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except KeyboardInterrupt:
        print("\nmpcore: interrupted", file=sys.stderr)
        return 130
    return code
