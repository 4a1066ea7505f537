"""From a plan to runs: the folders and the text of each."""

from dataclasses import replace
from pathlib import Path

from stemrepro.common.files import digest
from stemrepro.common.paths import DATA, RUNS
from stemrepro.config.address import Address
from stemrepro.config.retrofit import KINDS
from stemrepro.config.scores import PartName
from stemrepro.data.vocabularies import mid_text, own_text
from stemrepro.pipeline.params import Planned
from stemrepro.training.run import InitFrom, Run

TOKENS_PER_ROW = 128
"""Tokens of text per row of a table that is made of a dense run; at most those of the run's training."""


def runs_of(
    scale: str,
    mix: str,
    planned: dict[Address, Planned],
    part: PartName | None = None,
    data: Path = DATA,
    runs: Path = RUNS,
) -> list[Run]:
    """Return the runs of planned addresses at a scale: all that are trained, or those of one part of the scores.

    Raises:
        UserError: token blocks are missing or garbled.
    """
    kinds = {(arm.model.vocab, arm.people) for arm in planned.values() if arm.text == "own" or arm.init_from}
    texts = {(vocab, people): own_text(vocab, data / scale, people) for vocab, people in kinds}
    blend = mid_text(data / scale) if any(arm.text == "mid" for arm in planned.values()) else None
    made = []
    for address, arm in planned.items():
        text = blend if arm.text == "mid" else texts[arm.model.vocab, arm.people]
        training = arm.training.same_text(text.ratio)
        for seed in arm.trained if part is None else arm.seeds.get(part, ()):
            folder = runs / scale / address.path / f"seed{seed}"
            name = mix if arm.text == "own" else arm.text
            run = Run(address, seed, arm.model, training, folder, name, text.blocks, text.data_hash, text.ratio)
            source = arm.init_from
            if source:
                place = Address(source.variant, source.arm or address.arm)
                before = texts[arm.model.vocab, arm.people]
                parent = replace(
                    run,
                    address=place,
                    model=source.model,
                    training=source.training,
                    folder=runs / scale / place.path / f"seed{seed}",
                    mix=mix,
                    blocks=before.blocks,
                    data_hash=before.data_hash,
                )
                run = replace(run, init_from=init_from(run, parent, source.tables, text is before))
            made.append(run)
    return with_prefixes(keep_parents(made))


def init_from(run: Run, parent: Run, tables: str, same_text: bool) -> InitFrom:
    """Describe the run that another resumes from.

    Args:
        run: that resumes.
        parent: from which it resumes.
        tables: what becomes of its tables, as in recipes/variants.yaml.
        same_text: whether both read the same text; `run` then begins where `parent` ended.
    """
    training = run.training
    passed = parent.training.tokens if same_text else 0
    same_batches = same_text and training.sequence == parent.training.sequence
    return InitFrom(
        parent.folder,
        digest(parent.config),
        tables,
        passed,
        batches=passed // (training.micro_batch * training.sequence) if same_batches else 0,
        row_tokens=min(passed, TOKENS_PER_ROW * run.model.vocab) if tables in KINDS else 0,
    )


def keep_parents(runs: list[Run]) -> list[Run]:
    """Return the same runs; those from which others resume keep their final checkpoints."""
    parents = {run.init_from.folder for run in runs if run.init_from}
    return [replace(run, keep_final_checkpoint=run.folder in parents) for run in runs]


def asked_runs(
    scale: str,
    mix: str,
    planned: dict[Address, Planned],
    requested: dict[Address, Planned],
    data: Path = DATA,
    runs: Path = RUNS,
) -> list[Run]:
    """Return the runs of some of the planned addresses.

    Other planned runs count too: runs under WSD know every shorter one, and runs from which others resume keep their
    final checkpoints.
    """
    related = {address: arm for address, arm in planned.items() if arm.training.schedule == "wsd" or arm.init_from}
    every = runs_of(scale, mix, related | requested, data=data, runs=runs)
    return [run for run in every if run.address in requested]


def with_prefixes(runs: list[Run]) -> list[Run]:
    """Tell runs under WSD the folders of the shorter runs that share their stable phase, the shortest first."""
    by_stable_phase: dict[str, list[Run]] = {}
    for run in sorted(runs, key=lambda run: run.training.tokens):
        if run.training.schedule == "wsd":
            by_stable_phase.setdefault(run.stable_phase, []).append(run)
    prefixes = {}
    for group in by_stable_phase.values():
        for run in group:
            shorter = [other.folder for other in group if other.training.tokens < run.training.tokens]
            prefixes[run.folder] = tuple(shorter)
    return [replace(run, prefixes=prefixes.get(run.folder, ())) for run in runs]
