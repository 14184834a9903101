"""The run: every implementation of every problem, in turns, with its limits."""

import random
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import partial

from mpcore.bench import peers
from mpcore.bench.problem import Problem
from mpcore.bench.process import Process, WorkerError
from mpcore.bench.suite import bytes_moved, get_suite, parse, probes_of
from mpcore.bench.timing import Quiet, Sample, calibrate, take

CALL = "call"

_SMALL = 1 << 25  # Bytes; problems that move no more stay ready between passes.


@dataclass(frozen=True)
class Settings:
    """How much is measured.

    Attributes
    ----------
    threads : tuple of int
    passes : int
        Times the whole list is gone through, mpcore in a new process each time: what
        the machine does meanwhile, and where memory lies, shows in the spread.
    rounds : int
        Samples of each implementation per pass; the order is random in each. mpcore,
        which is watched, has three.
    least : float
        Seconds that a sample takes at least.
    implementations : tuple of str
        Whom to measure; "mpcore@avx2" is mpcore at a level.
    seed : int
        Of the random order.
    """

    threads: tuple[int, ...]
    passes: int = 5
    rounds: int = 1
    least: float = 2e-3
    implementations: tuple[str, ...] = tuple(p for p in peers.PEERS if p != "limits")
    seed: int = 0


@dataclass
class Measurement:
    """All samples of one implementation, limit, or empty call for one problem."""

    problem: Problem
    threads: int
    name: str
    kind: str  # "implementation", "limit", or "call"
    amount: float
    passes: list[list[Sample]] = field(default_factory=list)
    calls: int = 0
    unsupported: str | None = None
    wrong: str | None = None

    @property
    def samples(self) -> list[Sample]:
        """Those of all passes."""
        return [sample for one in self.passes for sample in one]


@dataclass(eq=False)
class Contestant:
    """Something to measure for a problem, and the process that does it."""

    measurement: Measurement
    process: Process
    key: str
    bracket: bool


class Run:
    """Goes through the problems; owns the processes.

    Parameters
    ----------
    settings : Settings
    has_amx : bool
        Whether this machine can run the AMX probe.
    has_dot : bool
        The same for VDPBF16PS.
    """

    def __init__(self, settings: Settings, has_amx: bool, has_dot: bool) -> None:
        self.settings = settings
        self._lacking = {
            name
            for name, has in (("amx_bf16", has_amx), ("dot_bf16", has_dot))
            if not has
        }
        self._processes: dict[tuple[str, int], Process] = {}
        self._random = random.Random(settings.seed)
        self._quiet = Quiet()
        self.absent: dict[str, str] = {}
        self.versions: dict[str, str] = {}
        self.measurements: dict[tuple[str, int, str], Measurement] = {}

    def steps(self, problems: Sequence[str]) -> int:
        """Return how often `measure` will call `progress`."""
        return len(problems) * len(self.settings.threads) * self.settings.passes

    def measure(
        self, problems: Sequence[str], progress: Callable[[str, int], object]
    ) -> None:
        """Measure problems; each pass takes all of them."""
        parsed = [parse(text) for text in problems]
        for threads in self.settings.threads:
            self._start({p.suite for p in parsed}, threads)
        for number in range(self.settings.passes):
            for threads in self.settings.threads:
                if number > 0:
                    self._renew(threads)
                for problem in parsed:
                    progress(str(problem), threads)
                    self._measure_problem(problem, threads, number)

    def close(self) -> None:
        """End all processes."""
        for process in self._processes.values():
            process.end()
        for process in self._processes.values():
            process.close()
        self._processes.clear()

    def _measure_problem(self, problem: Problem, threads: int, number: int) -> None:
        contestants = self._contestants(problem, threads)
        stays = bytes_moved(get_suite(problem.suite).needs(problem)) <= _SMALL
        stale = [c for c in contestants if c.process.name in peers.OWN]
        if number == 0 or not stays:
            stale = contestants
        self._ready(stale, first=number == 0)
        running = [c for c in contestants if _takes_part(c)]
        for c in running:
            c.measurement.passes.append([])
            self._guarded(c, partial(self._settle, is_fresh=c in stale))
        turns = [c for c in running for _ in range(3 if _is_watched(c) else 1)]
        for _ in range(self.settings.rounds):
            self._random.shuffle(turns)
            for c in turns:
                self._guarded(c, self._sample)
        if stays:
            return
        for c in contestants:
            self._guarded(c, lambda c: c.process.send("release", key=c.key))
        for c in contestants:
            self._guarded(c, _receive)

    def _settle(self, c: Contestant, is_fresh: bool) -> None:
        """Find the number of calls; later let memory unused for a while get warm."""
        if not c.measurement.calls:
            c.measurement.calls = calibrate(c.process, c.key, self.settings.least)
        elif _is_watched(c) or not is_fresh:
            c.process.ask("warm", key=c.key)

    def _sample(self, c: Contestant) -> None:
        m = c.measurement
        sample = take(c.process, c.key, m.calls, c.bracket, self._quiet)
        m.passes[-1].append(sample)

    def _guarded(self, c: Contestant, action: Callable[[Contestant], None]) -> None:
        """Do something with a contestant, unless it has failed or fails now.

        A peer that fails is out of this problem, and of all others if it died.

        Raises
        ------
        WorkerError
            If mpcore itself failed.
        """
        if c.measurement.unsupported is not None or not c.process.alive:
            return
        try:
            action(c)
        except WorkerError as error:
            if c.process.name in peers.OWN:
                raise
            c.measurement.unsupported = f"failed: {error}"
            if not c.process.alive:
                self.absent[c.process.name] = f"failed: {error}"

    def _contestants(self, problem: Problem, threads: int) -> list[Contestant]:
        """Everything to measure for a problem whose process is up."""
        suite = get_suite(problem.suite)
        probes = [
            p for p in probes_of(suite.needs(problem)) if p.name not in self._lacking
        ]
        bracket = any(probe.name == "amx_bf16" for probe in probes)
        wanted = [
            (name, "implementation", suite.amount(problem))
            for name in self._expanded(suite.builders)
        ]
        wanted += [(probe.key, "limit", 0.0) for probe in probes]
        if suite.smallest is not None and "mpcore" in self.settings.implementations:
            wanted.append((CALL, CALL, 1.0))
        contestants = []
        for name, kind, amount in wanted:
            measurement = self._measurement(problem, threads, name, kind, amount)
            if measurement.unsupported is not None:
                continue
            owner = {"limit": "limits", CALL: "mpcore"}.get(kind, _owner(name))
            process = self._processes.get((owner, threads))
            if process is not None and owner not in self.absent:
                key = f"{problem}|{name}"
                contestants.append(
                    Contestant(measurement, process, key, bracket and kind != CALL)
                )
        return contestants

    def _expanded(self, builders: Iterable[str]) -> list[str]:
        """Return the implementations of a suite that are wanted, levels included."""
        known = set(builders)
        return [
            name
            for name in self.settings.implementations
            if name.partition("@")[0] in known
        ]

    def _measurement(
        self, problem: Problem, threads: int, name: str, kind: str, amount: float
    ) -> Measurement:
        key = (str(problem), threads, name)
        if key not in self.measurements:
            made = Measurement(problem, threads, name, kind, amount)
            self.measurements[key] = made
        return self.measurements[key]

    def _ready(self, contestants: list[Contestant], first: bool) -> None:
        """Prepare all at once; the first time, compare their results."""
        for c in contestants:
            self._guarded(c, self._send_prepare)
        for c in contestants:
            self._guarded(c, _receive_prepared)
        if not first:
            return
        checked = [c for c in contestants if c.measurement.kind == "implementation"]
        for c in checked:
            self._guarded(c, lambda c: c.process.send("check", key=c.key))
        for c in checked:
            self._guarded(c, _receive_checked)

    def _send_prepare(self, c: Contestant) -> None:
        m = c.measurement
        if m.kind == "limit":
            name, _, size = m.name.partition("@")
            c.process.send("probe", key=c.key, name=name, size=int(size or 0))
            return
        suite = get_suite(m.problem.suite)
        text, name = str(m.problem), m.name
        if m.kind == CALL and suite.smallest is not None:
            text, name = suite.smallest(m.problem), "mpcore"
        implementation, _, isa = name.partition("@")
        c.process.send(
            "prepare",
            key=c.key,
            problem=text,
            implementation=implementation,
            isa=isa or None,
        )

    def _start(self, suites: set[str], threads: int) -> None:
        """Start the processes of all that some suite can use, side by side."""
        wanted = {"limits"}
        for name in suites:
            wanted |= {_owner(n) for n in self._expanded(get_suite(name).builders)}
        started = {}
        for name in sorted(wanted - set(self.absent)):
            reason = peers.absence(name)
            if reason is not None:
                self.absent[name] = reason
            else:
                started[name] = Process(name, threads)
                started[name].send("hello")
        for name, process in started.items():
            self._greet(name, threads, process)

    def _renew(self, threads: int) -> None:
        """Start the own processes anew, so that passes differ in where memory lies."""
        for name in peers.OWN:
            old = self._processes.pop((name, threads), None)
            if old is not None:
                old.close()
                process = Process(name, threads)
                process.send("hello")
                self._greet(name, threads, process)

    def _greet(self, name: str, threads: int, process: Process) -> None:
        """Keep a process that is of use."""
        try:
            reply = process.receive()
        except WorkerError as error:
            reply = {"unsupported": str(error)}
        if "unsupported" not in reply:
            self.versions[name] = reply["version"]
            self._processes[name, threads] = process
            return
        process.close()
        if name in peers.OWN:
            raise WorkerError(f"{name}: {reply['unsupported']}")
        self.absent[name] = f"refused: {reply['unsupported']}"


def _owner(name: str) -> str:
    """Return the peer that runs an implementation: mpcore for mpcore@avx2."""
    return name.partition("@")[0].partition("/")[0]


def _takes_part(c: Contestant) -> bool:
    return c.measurement.unsupported is None and c.measurement.wrong is None


def _is_watched(c: Contestant) -> bool:
    """Tell whether this is mpcore itself: it takes three turns in each round."""
    m = c.measurement
    return m.kind == "implementation" and _owner(m.name) == "mpcore"


def _receive(c: Contestant) -> None:
    c.process.receive()


def _receive_prepared(c: Contestant) -> None:
    reply = c.process.receive()
    c.measurement.unsupported = reply.get("unsupported")
    c.measurement.amount = reply.get("amount", c.measurement.amount)


def _receive_checked(c: Contestant) -> None:
    reply = c.process.receive()
    c.measurement.unsupported = reply.get("unsupported")
    c.measurement.wrong = reply.get("wrong")
