"""From a plan to runs."""

from stemrepro.params import Planned
from stemrepro.runs import MAIN, Address
from stemrepro.work import asked_runs


def test_a_run_that_is_asked_for_alone_knows_the_shorter_ones_on_its_trunk(make_run, tiny, sample, tmp_path):
    """Else `stemrepro train dense@long` would train the whole trunk anew."""
    (tmp_path / "data/tiny").mkdir(parents=True)
    (tmp_path / "data/tiny/blocks").symlink_to(sample / "blocks")
    run, step = make_run("dense"), tiny.training.batch * tiny.model.sequence
    trunk = {"schedule": "trunk", "warmup": None, "warmup_tokens": 2 * step}

    def planned(steps, **fields):
        training = run.training.model_copy(update={"tokens": steps * step} | fields)
        return Planned(model=run.model, training=training, losses="none", seeds={"losses": (0, 1)})

    plan = {Address("short", "dense"): planned(5, **trunk), Address("long", "dense"): planned(20, **trunk)}
    plan |= {Address(MAIN, "dense"): planned(12)}
    folders = tmp_path / "data", tmp_path / "runs"
    long = asked_runs("tiny", "sample", plan, {Address("long", "dense"): plan[Address("long", "dense")]}, *folders)
    assert [(own.address.point, own.seed, own.shorter) for own in long] == [
        ("long", seed, (tmp_path / f"runs/tiny/short/dense/seed{seed}",)) for seed in (0, 1)
    ]
    (plain, _) = asked_runs("tiny", "sample", plan, {Address(MAIN, "dense"): plan[Address(MAIN, "dense")]}, *folders)
    assert plain.shorter == ()
