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

TOKENS_A_ROW = 128
"""Of a text, as many tokens are read for each row of a table that is made of a dense run, or as many as that run was trained on."""


def runs_of(
    scale: str,
    mix: str,
    planned: dict[Address, Planned],
    part: PartName | None = None,
    data: Path = DATA,
    runs: Path = RUNS,
) -> list[Run]:
    """Return the runs of planned addresses at a scale: all that are trained, or those that a part of the scores is taken of.

    Raises:
        UserError: token blocks are missing or garbled.
    """
    asked = {(own.model.vocab, own.people) for own in planned.values() if own.text == "own" or own.init_from}
    texts = {(vocab, people): own_text(vocab, data / scale, people) for vocab, people in asked}
    blend = mid_text(data / scale) if any(own.text == "mid" for own in planned.values()) else None
    made = []
    for address, own in planned.items():
        text = blend if own.text == "mid" else texts[own.model.vocab, own.people]
        training = own.training.same_text(text.ratio)
        for seed in own.trained if part is None else own.seeds.get(part, ()):
            folder = runs / scale / address.path / f"seed{seed}"
            name = mix if own.text == "own" else own.text
            run = Run(address, seed, own.model, training, folder, name, text.blocks, text.data_hash, text.ratio)
            if own.init_from:
                asked_of_it = own.init_from
                place = Address(asked_of_it.variant, asked_of_it.arm or address.arm)
                before = texts[own.model.vocab, own.people]
                parent = replace(
                    run,
                    address=place,
                    model=asked_of_it.model,
                    training=asked_of_it.training,
                    folder=runs / scale / place.path / f"seed{seed}",
                    mix=mix,
                    blocks=before.blocks,
                    data_hash=before.data_hash,
                )
                run = replace(run, init_from=init_from(run, parent, asked_of_it.tables, text is before))
            made.append(run)
    return with_prefixes(gone_on_from(made))


def init_from(run: Run, parent: Run, tables: str, same_text: bool) -> InitFrom:
    """Describe the run that another resumes from."""
    training, passed = run.training, parent.training.tokens if same_text else 0
    onwards = same_text and training.sequence == parent.training.sequence
    return InitFrom(
        parent.folder,
        digest(parent.config),
        tables,
        passed,
        batches=passed // (training.micro_batch * training.sequence) if onwards else 0,
        row_tokens=min(passed, TOKENS_A_ROW * run.model.vocab) if tables in KINDS else 0,
    )


def gone_on_from(runs: list[Run]) -> list[Run]:
    """Return the same runs; those that others among them go on from know it."""
    parents = {run.init_from.folder for run in runs if run.init_from}
    return [replace(run, keep_final_checkpoint=run.folder in parents) for run in runs]


def asked_runs(
    scale: str,
    mix: str,
    planned: dict[Address, Planned],
    asked: dict[Address, Planned],
    data: Path = DATA,
    runs: Path = RUNS,
) -> list[Run]:
    """Return the runs of some of the planned addresses. Those under WSD know every planned shorter one, and those that others
    resume from know it, also where these aren't requested.
    """
    beside = {address: own for address, own in planned.items() if own.training.schedule == "wsd" or own.init_from}
    every = runs_of(scale, mix, beside | asked, data=data, runs=runs)
    return [run for run in every if run.address in asked]


def with_prefixes(runs: list[Run]) -> list[Run]:
    """Tell runs under WSD the folders of the shorter runs that share their stable phase, the shortest first."""
    by_stable_phase: dict[str, list[Run]] = {}
    for run in sorted(runs, key=lambda run: run.training.tokens):
        if run.training.schedule == "wsd":
            by_stable_phase.setdefault(run.stable_phase, []).append(run)
    prefixes = {
        run.folder: tuple(other.folder for other in beside if other.training.tokens < run.training.tokens)
        for beside in by_stable_phase.values()
        for run in beside
    }
    return [replace(run, prefixes=prefixes.get(run.folder, ())) for run in runs]
