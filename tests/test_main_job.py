"""The main job: a classifier trained in 16 bits is as good as in 32, and repeatable."""

from statistics import fmean

import numpy as np
import pytest

from mpcore import ops, train

pytest.importorskip("sklearn")

SEEDS = 5
SETTINGS = train.Settings()


@pytest.fixture(scope="module")
def trained():
    """(model, run) of each policy and seed, with the settings of `mpcore train`."""
    return {
        (policy, seed): train.train_digits(policy, seed, SETTINGS)
        for policy in train.POLICIES
        for seed in range(SEEDS)
    }


def mean_accuracy(trained, policy):
    return fmean(trained[policy, seed][1].test_accuracy for seed in range(SEEDS))


def bits(model):
    return b"".join(weight.tobytes() for weight in model.get_weights())


@pytest.mark.parametrize("policy", train.POLICIES)
def test_main_job_mean_test_accuracy_is_above_96_percent(trained, policy):
    assert mean_accuracy(trained, policy) > 0.96


@pytest.mark.parametrize("policy", ["mixed_bfloat16", "mixed_float16"])
def test_main_job_policies_differ_by_less_than_half_a_point(trained, policy):
    points = 100 * (mean_accuracy(trained, policy) - mean_accuracy(trained, "float32"))
    assert abs(points) < 0.5


def test_main_job_halves_are_used_and_masters_are_float32(trained):
    for policy, half in (("mixed_bfloat16", "bfloat16"), ("mixed_float16", "float16")):
        model, _ = trained[policy, 0]
        assert {v.dtype for v in model.variables} == {"float32"}
        assert model(np.zeros((1, 64), np.float32)).dtype.name == half
        # Masters hold what a half cannot.
        kernel = model.layers[0].kernel.numpy()
        assert np.any(kernel != kernel.astype(half).astype(np.float32))


def test_main_job_loss_scale_is_recorded_for_float16_alone(trained):
    for (policy, _), (_, run) in trained.items():
        scaled = policy == "mixed_float16"
        assert (run.loss_scale is not None) == scaled
        if scaled:
            assert np.log2(run.loss_scale) % 1 == 0
            assert len(run.history["skipped_steps"]) == SETTINGS.epochs
            assert run.skipped_steps == sum(run.history["skipped_steps"])


@pytest.mark.parametrize("policy", train.POLICIES)
def test_main_job_repeats_bit_for_bit_with_any_number_of_threads(trained, policy):
    first, run = trained[policy, 0]
    for threads in (1, 2):
        ops.set_num_threads(threads)
        again, repeated = train.train_digits(policy, 0, SETTINGS)
        assert bits(again) == bits(first)
        assert repeated.history == run.history
    assert bits(trained[policy, 1][0]) != bits(first)


def test_main_job_seed_fixes_the_data_and_first_weights_across_policies(trained):
    settings = train.Settings(epochs=1, learning_rate=1e-30)
    models = [train.train_digits(p, 3, settings)[0] for p in train.POLICIES]
    for other in models[1:]:
        for a, b in zip(models[0].get_weights(), other.get_weights(), strict=True):
            np.testing.assert_allclose(a, b, rtol=0, atol=1e-27)


def run_of(policy, seed, accuracy):
    return train.Run(policy, seed, accuracy, 0.0, 1.0, None, None, {})


def test_summary_differences_are_paired_by_seed():
    rows = train.summarize(
        [
            run_of("float32", 0, 0.90),
            run_of("float32", 1, 0.98),
            run_of("mixed_bfloat16", 0, 0.91),
            run_of("mixed_bfloat16", 1, 0.96),
            run_of("mixed_float16", 1, 0.97),
        ]
    )
    assert [row["policy"] for row in rows] == list(train.POLICIES)
    assert rows[0]["mean_test_accuracy"] == pytest.approx(0.94)
    assert "points_from_float32" not in rows[0]
    assert rows[1]["points_from_float32"] == pytest.approx(-0.5)
    assert rows[1]["standard_error"] == pytest.approx(1.5)
    assert rows[2]["points_from_float32"] == pytest.approx(-1.0)
    assert "standard_error" not in rows[2]
