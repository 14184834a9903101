"""Laws of the benchmark harness: problems, selection, workers, timing, tables."""

import time
from importlib.metadata import PackageNotFoundError

import numpy as np
import pytest
from bench_fakes import doubling_suite

from mpcore import ops
from mpcore.bench import peers, suite, timing
from mpcore.bench.problem import number
from mpcore.bench.process import Process, WorkerError
from mpcore.bench.selection import parse_axis, select
from mpcore.bench.suite import SUITES, get_suite, parse
from mpcore.bench.timing import Sample, at_full_rate, quantile, summary
from mpcore.bench.worker import Worker, answer
from mpcore.ops import limits


@pytest.fixture
def double(monkeypatch):
    """Make the made-up suite known while a test runs."""

    def add(**builders):
        made = doubling_suite(**builders)
        monkeypatch.setitem(suite._suites, "double", made)
        return made

    return add


def every_problem():
    return [
        p for name in SUITES for p in (*get_suite(name).quick, *get_suite(name).full)
    ]


@pytest.mark.parametrize("text", every_problem())
def test_problem_string_is_what_its_problem_prints(text):
    assert str(parse(text)) == text


@pytest.mark.parametrize("text", every_problem())
def test_problem_needs_are_positive_and_name_known_probes(text):
    problem = parse(text)
    needs = get_suite(problem.suite).needs(problem)
    assert needs
    for need in needs:
        for probe, amount in need.alternatives:
            assert amount > 0
            assert probe.name in {*limits.PEAKS, *limits.STREAMS}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("gemm:1x1x1:bf16", r"must be gemm:shape:dtype:out"),
        ("gemm:1x1x1:bf17:f32", r"`dtype` must be one of f32, f16, bf16"),
        ("cast:f32:bf17:64", r"`to` must be one of f64, f32"),
        ("gemm:axbxc:f32:f32", r"A size must be like 1000, 128K"),
        ("gem:1", r"A suite must be one of cast, grad, gemm"),
        ("gemm:0x4x4:f32:f32", r"`shape` must be 3 size\(s\) of at least 1"),
        ("gemm:64x64:f32:f32", r"`shape` must be 3 size\(s\).* such as 64x64x64"),
        ("gemm:8x8x8:f64:f64", r"`dtype` must be one of f32, f16, bf16"),
        ("cast:f32:bf16:0", r"`n` must be 1 size\(s\) of at least 1"),
        ("grad:sum:f32:1x1", r"`op` must be one of all_finite, norms, unscale"),
        ("optim:adamw:f64:1x64", r"`copy` must be one of none, bf16, f16"),
        ("nn:gelu:f32:3x3", r"`op` must be one of relu, tanh, sigmoid, softmax"),
        ("train:cnn:f32:8x8x8", r"`model` must be one of mlp"),
        ("limits:write:64", r"`probe` must be one of fma_f32, .*read"),
        ("limits:read:0", r"`n` must be 0 for a peak, and bytes for a stream"),
        ("limits:fma_f32:64", r"`n` must be 0 for a peak, and bytes for a stream"),
    ],
)
def test_problem_string_that_says_nothing_is_refused(text, message):
    with pytest.raises(ValueError, match=message):
        parse(text)


def test_number_reads_suffixes_and_powers():
    assert [number(t) for t in ("7", "3K", "2M", "1G", "2^5")] == [
        *(7, 3 * 2**10, 2 * 2**20, 2**30, 32)
    ]


@pytest.mark.parametrize("text", ["2^41", "2^99999", "1025G", "-1", "K", "1.5"])
def test_number_that_is_no_size_is_refused(text):
    with pytest.raises(ValueError, match="A size must be like"):
        number(text)


def test_axis_list_and_range_are_read():
    assert parse_axis("dtype=bf16,f16") == ("dtype", ("bf16", "f16"))
    assert parse_axis("n=2^4:2^9") == ("n", ("16", "64", "256"))
    with pytest.raises(ValueError, match="An axis must be like"):
        parse_axis("dtype")


def test_select_pattern_and_axes_give_each_problem_once():
    texts = select("gemm:64x", {"dtype": ("bf16", "f16"), "out": ("f32",)}, full=False)
    assert sorted(texts) == ["gemm:64x64x64:bf16:f32", "gemm:64x64x64:f16:f32"]
    assert set(select(None, {}, False)) < set(select(None, {}, True))


@pytest.mark.parametrize(
    ("pattern", "axes", "message"),
    [
        ("nothing", {}, "No problem matches"),
        ("(", {}, "must be a regular expression"),
        ("gemm", {"colour": ("red",)}, "An axis must be one of .*dtype.*threads"),
    ],
)
def test_select_of_nothing_is_refused(pattern, axes, message):
    with pytest.raises(ValueError, match=message):
        select(pattern, axes, full=False)


def test_suite_registration_is_all_a_new_suite_needs(double):
    double()
    worker = Worker("mpcore", 1)
    ask = {"key": "a", "problem": "double:f32:4K", "implementation": "mpcore"}
    assert answer(worker, {"do": "prepare", **ask}) == {}
    assert answer(worker, {"do": "check", "key": "a"}) == {"wrong": None}
    reply = answer(worker, {"do": "sample", "key": "a", "calls": 3})
    assert 0 < reply["wall"] < 10
    assert reply["amx"] is None
    assert answer(worker, {"do": "release", "key": "a"}) == {}
    assert "KeyError" in answer(worker, {"do": "check", "key": "a"})["error"]


@pytest.mark.parametrize(
    ("seconds", "calls"), [(8e-3, 4), (30e-3, 2)], ids=["three", "slow"]
)
def test_worker_warms_up_with_three_calls_unless_they_are_slow(double, seconds, calls):
    times = []

    def build(problem, data, threads):
        def run():
            times.append(time.perf_counter())
            time.sleep(seconds)

        return suite.Call(run, lambda: {})

    double(mpcore=build)
    worker = Worker("mpcore", 1)
    ask = {"key": "a", "problem": "double:f32:4K", "implementation": "mpcore"}
    answer(worker, {"do": "prepare", **ask})
    answer(worker, {"do": "sample", "key": "a", "calls": 1})
    assert len(times) == calls


def test_worker_warms_up_until_threads_have_parted(double):
    times = []

    def build(problem, data, threads):
        return suite.Call(lambda: times.append(time.perf_counter()), lambda: {})

    double(mpcore=build)
    worker = Worker("mpcore", 1)
    ask = {"key": "a", "problem": "double:f32:4K", "implementation": "mpcore"}
    answer(worker, {"do": "prepare", **ask})
    answer(worker, {"do": "sample", "key": "a", "calls": 10})
    assert times[-11] - times[0] > 4e-3  # The last ten are timed.


def test_worker_reports_wrong_results_and_refusals(double):
    double()
    worker = Worker("mpcore", 1)
    ask = {"do": "prepare", "key": "a", "problem": "double:f32:4K"}
    assert answer(worker, {**ask, "implementation": "ml_dtypes"}) == {}
    assert answer(worker, {"do": "check", "key": "a"}) == {"wrong": "no double"}
    reply = answer(worker, {**ask, "implementation": "torch"})
    assert reply == {"unsupported": "it does not want to"}


@pytest.mark.parametrize("problem", [*get_suite("gemm").quick[:1], "cast:f32:bf16:4K"])
@pytest.mark.parametrize("spoilt", [False, True])
def test_check_sees_one_wrong_bit(problem, spoilt):
    parsed, family = parse(problem), get_suite(parse(problem).suite)
    data = family.data(parsed, np.random.default_rng(0))
    call = family.builders["mpcore"](parsed, data, 1)
    call.run()
    outputs = call.outputs()
    name = "d" if family.name == "gemm" else "y"
    if spoilt:
        outputs[name].reshape(-1).view(np.uint16)[7] ^= 1 << 14
    fresh = family.data(parsed, np.random.default_rng(0))
    assert (family.check(parsed, fresh, outputs) is not None) == spoilt


SMALL = [
    "cast:f32:f16:1K",
    "grad:all_finite:f32:3x100",
    "grad:unscale:f32:3x100",
    "grad:norms:f16:3x100",
    "gemm:17x9x33:bf16:f32",
    "gemm:17x9x33:f16:f16",
    "optim:adamw:bf16:3x100",
    "optim:adamw:none:3x100",
    "optim:sgd:none:3x100",
    "nn:relu:f16:9x33",
    "nn:tanh:bf16:9x33",
    "nn:sigmoid:f32:9x33",
    "nn:softmax:f32:9x33",
    "train:mlp:f32:64x32x64",
    "train:mlp:bf16:64x32x64",
    "train:mlp:f16:64x32x64",
]


@pytest.mark.parametrize("problem", SMALL)
@pytest.mark.parametrize("name", ["mpcore", "numpy", "ml_dtypes"])
def test_suite_implementation_computes_what_the_reference_says(problem, name):
    parsed, family = parse(problem), get_suite(parse(problem).suite)
    if name not in family.builders:
        pytest.skip(f"{family.name} has no {name}")
    data = family.data(parsed, np.random.default_rng(0))
    try:
        call = family.builders[name](parsed, data, 1)
    except suite.Unsupported as reason:
        pytest.skip(str(reason))
    call.run()
    fresh = family.data(parsed, np.random.default_rng(0))
    assert family.check(parsed, fresh, call.outputs()) is None


def test_process_answers_and_ends():
    process = Process("mpcore", 1)
    try:
        reply = process.ask("hello")
        assert reply == {"version": ops.version(), "threads": 1}
        probe = process.ask("probe", key="p", name="read", size=1 << 16)
        assert probe["amount"] == 1 << 16
        with pytest.raises(WorkerError, match="mpcore: AttributeError"):
            process.ask("nonsense")
        assert process.alive
    finally:
        process.close()
    assert not process.alive


def test_process_that_died_is_named_with_its_last_words():
    process = Process("mpcore", 1)
    try:
        process._process.kill()
        with pytest.raises(WorkerError, match="mpcore: the process ended with code -9"):
            process.ask("hello")
        assert not process.alive
    finally:
        process.close()


def test_absence_names_what_is_missing_or_cripples(monkeypatch):
    assert peers.absence("numpy") is None
    monkeypatch.setenv("OPENBLAS_CORETYPE", "Haswell")
    reason = peers.absence("openblas")
    assert reason == "refused: OPENBLAS_CORETYPE=Haswell holds it back"
    monkeypatch.setitem(
        peers.PEERS, "gone", peers.Peer("no-such-thing", lambda threads: threads)
    )
    assert peers.absence("gone") == "not installed (no-such-thing)"


def test_mpcore_takes_part_although_no_distribution_is_installed(monkeypatch):
    def version(name):
        raise PackageNotFoundError(name)

    monkeypatch.setattr(peers, "version", version)
    monkeypatch.setattr(peers, "_pool_sizes", dict)
    assert peers.absence("numpy") == "not installed (numpy)"
    threads = ops.get_num_threads()
    for name in peers.OWN:
        assert peers.absence(name) is None
        reply = peers.start(name, threads)
        assert reply == {"version": ops.version(), "threads": threads}


def test_start_of_a_peer_with_other_threads_is_refused(monkeypatch):
    monkeypatch.setitem(peers.PEERS, "wide", peers.Peer("numpy", lambda threads: 64))
    with pytest.raises(peers.Refused, match=r"must run 1 thread.*numpy 64"):
        peers.start("wide", 1)


def test_summary_is_of_the_samples():
    found = summary([5.0, 1.0, 3.0, 2.0, 4.0])
    assert found["median"] == 3.0
    assert found["min"] == 1.0
    assert found["mad"] == 1.0
    assert found["spread"] == pytest.approx(np.hypot((4.8 - 1.2) / 3, 3.29 * 0.03))
    assert quantile([1.0, 2.0], 0.5) == 1.5


def test_samples_of_slow_amx_phases_are_dropped():
    samples = [Sample(1.0, 100.0), Sample(2.0, 59.0), Sample(3.0, 61.0), Sample(4.0)]
    kept = at_full_rate(samples, 100.0)
    assert [s.seconds for s in kept] == [1.0, 3.0, 4.0]


def test_disturbed_sample_is_taken_again_and_then_marked(monkeypatch):
    class Fake:
        threads = 2
        asked = 0

        def ask(self, do, **arguments):
            self.asked += 1
            waited = 0.0 if self.asked > self.clean_after else 0.005
            return {"wall": 0.01, "cpu": 0.02, "waited": waited, "amx": None}

    monkeypatch.setattr(timing, "running_processes", lambda: 1)
    fake, quiet = Fake(), timing.Quiet()
    fake.clean_after = 2
    assert timing.take(fake, "k", 2, False, quiet) == Sample(0.005)
    assert fake.asked == 3
    fake.asked, fake.clean_after = 0, 99
    assert timing.take(fake, "k", 2, False, quiet) == Sample(0.005, None, True)
    assert fake.asked == 4
    fake.threads = 1  # CPU time, once.
    fake.asked = 0
    assert timing.take(fake, "k", 2, False, quiet) == Sample(0.01)
    assert fake.asked == 1


def test_waiting_for_a_quiet_machine_ends_when_the_patience_of_a_run_is_over(
    monkeypatch,
):
    class Clock:
        now = 0.0

        def sleep(self, seconds):
            self.now += seconds

        def perf_counter(self):
            return self.now

    clock = Clock()
    monkeypatch.setattr(timing, "time", clock)
    monkeypatch.setattr(timing, "running_processes", lambda: 2)
    quiet = timing.Quiet()
    quiet.wait()
    assert clock.now == pytest.approx(0.2, abs=2e-3)
    for _ in range(200):
        quiet.wait()
    assert clock.now == pytest.approx(15, abs=0.2)
    assert quiet.is_hopeless
