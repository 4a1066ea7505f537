from dataclasses import dataclass

import numpy as np
import pytest

from stemrepro.report.stability import coincidence, divergence, end, rate, spikes


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


@dataclass
class Bearing:
    points: dict


def test_the_end_is_the_last_tenth():
    arm = Ended((5.0, 6.0), 1.0)
    assert end(arm).tolist() == [5.0, 6.0]


def test_divergence_is_where_the_end_crosses_token_frequencies():
    arm = Bearing(
        {"rate-16": Ended((6.5, 7.0), 16.0), "rate-4": Ended((5.5, 6.5), 4.0), "rate-8": Ended((5.5, 7.0), 8.0)}
    )
    assert divergence(arm, 1.0) == pytest.approx([3.5, 2.0])  # half way between 8 and 16; at the first rate already
    arm = Bearing({"rate-4": Ended((5.5, 5.5), 4.0), "rate-8": Ended((5.5, np.nan), 8.0)})
    assert divergence(arm, 1.0) == pytest.approx([4.0, 3.0])  # never: one doubling on; no number: at that rate


def test_unclipped_points_are_left_out():
    arm = Bearing({"rate-4": Ended((5.5,), 4.0), "rate-2-unclipped": Ended((9.0,), 2.0)})
    assert divergence(arm, 1.0) == pytest.approx([3.0])
