from dataclasses import dataclass

import numpy as np
import pytest
from scipy import stats

from stemrepro.claims import Unmeasured
from stemrepro.measures.comparison import ArmScores
from stemrepro.measures.stability import Stability, coincidence, divergence, end, rate, spikes
from stemrepro.scale import BestRate
from tests.made_up import made, write_arm


def falling(steps=400, seed=0):
    noise = np.random.default_rng(seed).normal(0, 0.05, steps)
    return 4 + 3 * np.exp(-np.arange(steps) / 100) + noise


def test_a_falling_noisy_loss_has_no_spikes():
    assert not len(spikes(falling()))


def test_spikes_are_found_and_neighbours_are_one():
    loss = falling()
    loss[[150, 151, 152, 300]] += 2.0
    assert spikes(loss).tolist() == [150, 300]
    loss[10] += 5
    assert spikes(loss).tolist() == [150, 300]  # the start doesn't count


def test_a_loss_that_is_no_number_is_a_spike():
    loss = falling()
    loss[200:] = np.nan
    assert spikes(loss).tolist() == [200]


@pytest.mark.parametrize(("times", "found"), [(5.5, []), (6.5, [150])])
def test_a_spike_is_six_standard_deviations_above(times, found):
    """Noise with the quantiles of a normal distribution, so that the deviation is known; the rule says six of them."""
    noise = np.tile(stats.norm.ppf((np.arange(50) + 0.5) / 50), 8)
    loss = 4 + 0.01 * noise
    loss[150] = np.median(loss[100:150]) + times * 0.01
    assert spikes(loss).tolist() == found


def test_rates_are_by_thousand_counted_steps():
    loss = np.stack([falling(), falling(seed=1)])
    loss[1, 200] += 2
    assert rate(loss) == pytest.approx([0, 1000 / 350])


def test_spikes_of_hard_batches_coincide_in_runs_of_the_same_seed():
    first = np.stack([falling(seed=0), falling(seed=1)])
    second = np.stack([falling(seed=2), falling(seed=3)])
    first[0, 150] += 3
    first[0, 300] += 3
    second[0, 151] += 3
    assert coincidence(first, second) == (0.5, 0.0)
    assert np.isnan(coincidence(np.stack([falling()]), second)).all()


@dataclass
class Ended:
    """Runs of two seeds that end at the given losses."""

    ends: tuple
    learning_rate: float

    @property
    def steps(self):
        return {"loss": np.tile(np.array(self.ends)[:, None], (1, 20))}

    @property
    def summary(self):
        return {"learning_rate": self.learning_rate, "training_entropy": 6.0}


def test_the_end_is_the_last_tenth():
    arm = Ended((5.0, 6.0, np.nan), 1.0)
    assert end(arm).tolist() == [5.0, 6.0, np.inf]  # no number is worse than any


def test_divergence_is_where_the_end_crosses_token_frequencies():
    arm = [Ended((6.5, 7.0), 16.0), Ended((5.5, 6.5), 4.0), Ended((5.5, 7.0), 8.0)]
    assert divergence(arm, 1.0) == pytest.approx([3.5, 2.0])  # half way between 8 and 16; at the first rate already
    arm = [Ended((5.5, 5.5), 4.0), Ended((5.5, np.nan), 8.0)]
    assert divergence(arm, 1.0) == pytest.approx([4.0, 3.0])  # never: one doubling on; no number: at that rate


@dataclass
class Whole:
    """A whole run's losses and gradient norms."""

    steps: dict
    summary: dict


@pytest.fixture
def arms():
    """Two arms: dense spikes once in the loss of its first seed, STEM in the gradient norm of both; STEM bears less at its own rate."""

    def arm(loss_spikes, norm_spikes, points):
        series = {key: np.stack([falling(seed=0), falling(seed=1)]) for key in ("loss", "norm")}
        for key, at in (("loss", loss_spikes), ("norm", norm_spikes)):
            for seed in at:
                series[key][seed, 200] += 3
        return ArmScores(Whole(series, {"seeds": 2}), points=points)

    clipped = {"rate-16": Ended((5.0, 5.0), 16.0), "rate-32": Ended((7.0, 7.0), 32.0)}
    own = {"rate-16-own": Ended((7.0, 7.0), 16.0), "rate-32-own": Ended((7.0, 7.0), 32.0)}
    loose = {"rate-16-unclipped": Ended((9.0, 9.0), 16.0)}
    whole = Whole({key: np.stack([falling(seed=0)]) for key in ("loss", "norm")}, {"seeds": 1})
    return {
        "dense": arm([0], [], clipped | loose),
        "stem-third": arm([], [0, 1], clipped | own | loose | {"own-rate": whole}),
    }


BEST = {"dense": BestRate(learning_rate=1), "stem-full": BestRate(learning_rate=1, table_rate_factor=8)}


@pytest.fixture
def stability(book, arms):
    return made(Stability, book, "training_stability", arms, learning_rate=1.0, best_rates=BEST)


def test_contrasts_at_the_common_rate(stability):
    def differences(metric):
        return stability.contrast("dense", "stem-third", metric).differences.tolist()

    assert differences("spikes") == pytest.approx([1000 / 350, 0])
    assert differences("norm-spikes") == pytest.approx([-1000 / 350] * 2)
    assert differences("divergence") == [0, 0]  # unclipped points and those at own rates are left out


def test_contrasts_at_own_rates(stability):
    found = stability.own_rate_contrast("dense", "stem-third", "divergence")
    assert found.differences == pytest.approx([0.5, 0.5])  # dense half way from 16 to 32, STEM at 16
    found = stability.own_rate_contrast("dense", "stem-third", "spikes")
    assert found.differences == pytest.approx([1000 / 350])  # over the seeds that both have
    assert stability.own_rate_contrast("dense", "dense", "spikes") is None


def test_where_neither_diverges_nothing_is_known(book, arms):
    bears = {name: ArmScores(own.losses, points={"rate-16": Ended((5.0, 7.0), 16.0)}) for name, own in arms.items()}
    stability = made(Stability, book, "training_stability", bears, learning_rate=1.0, best_rates=BEST)
    with pytest.raises(Unmeasured, match="in 1 of 2 seeds neither arm diverges"):
        stability.contrast("dense", "stem-third", "divergence")
    assert stability.untestable("divergence", "none") is None  # a condition never looks at the claim's own arms


def test_a_count_of_spikes_needs_steps_enough(stability, book):
    assert "fewer than 1" in stability.untestable("spikes", "spikes-expected")
    scale = stability.inputs.scale
    tokens = scale.training.batch * scale.model.sequence
    long = {"dense": Whole({"loss": np.zeros((1, round(2.09e11 / 3 / tokens) + 1))}, {})}
    assert made(Stability, book, "training_stability", long).untestable("spikes", "spikes-expected") is None


def test_early_is_the_first_mark_of_training(book, tmp_path):
    arms = {
        "stem-third": write_arm(tmp_path / "a", [3.0, 3.1, 3.2], marks=(0.5, 0.0)),
        "hash-moe": write_arm(tmp_path / "b", [3.3, 3.3, 3.3], marks=(0.9, 0.7)),
    }
    measure = made(Stability, book, "training_stability", arms)
    found = measure.contrast("hash-moe", "stem-third", "early").differences
    assert found == pytest.approx([4.2 - 3.5, 4.2 - 3.6, 4.2 - 3.7])
