"""What is planned: plan/params.yaml, with one model for writing and reading, and the runs that it names."""

import re
from contextlib import closing
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Annotated, Literal

import yaml
from pydantic import Field

from stemrepro.common.errors import UserError
from stemrepro.common.files import atomic_write, digest
from stemrepro.common.paths import DATA, PARAMS, RUNS
from stemrepro.common.progress import Course
from stemrepro.common.workers import Job, run_jobs, show
from stemrepro.common.yaml_records import Dumper, Name, Positive, Strict, later, parse, read_yaml
from stemrepro.config.address import MAIN, Address
from stemrepro.config.mixes import (
    ArchiveMix,
    BlendMix,
    FactsMix,
    HubMix,
    InventedMix,
    NeedlesMix,
    RecallMix,
    SampleMix,
)
from stemrepro.config.parallel import Parallel
from stemrepro.config.retrofit import KINDS, Kind
from stemrepro.config.scale import Counting
from stemrepro.config.scores import LOSSES, Evaluation, Geometry, OfSomeScales, PartName, PlannedReasoning, PlannedTasks
from stemrepro.config.training import RunTraining
from stemrepro.data.vocabularies import Text, mid_text, own_text
from stemrepro.model.config import ModelConfig
from stemrepro.model.cost import flops_per_token
from stemrepro.training.run import InitFrom, Run

TOKENS_PER_ROW = 128
"""Tokens of text per row of a table that is made of a dense run; at most those of the run's training."""
HEADER = "# Written by 'stemrepro plan' from recipes/. Edit those and plan again.\n"


class PlannedInitFrom(Strict):
    """The run that another one resumes from, and what becomes of its tables."""

    model: ModelConfig
    training: RunTraining
    tables: Literal["kept", "anew", Kind]
    variant: Name = later(MAIN)
    arm: Name | None = later(None, description="the arm of that run, where it is another")
    text: Literal["own", "mid"] = later("own", description="what that run reads")
    init_from: "PlannedInitFrom | None" = later(None, description="the run that that one resumes from")

    def tokens_of(self, text: str) -> int:
        """Return the tokens of a text that this run and those before it are trained on."""
        before = self.init_from.tokens_of(text) if self.init_from else 0
        return before + (self.training.tokens if self.text == text else 0)


class Planned(Strict):
    """An arm at a variant: everything that decides its runs except seed, text and code, and what is scored of them."""

    model: ModelConfig
    training: RunTraining
    losses: tuple[Literal[*LOSSES], ...] = Field(
        description="steps: losses and gradient norms of training; losses: of validation; context: these by context too"
    )
    init_from: PlannedInitFrom | None = later(None)
    people: int = later(0, ge=0, description="number of people in the text; 0: the scale's own text")
    text: Literal["own", "mid"] = later("own", description="mid: the blend")
    seeds: dict[PartName, tuple[int, ...]] = Field(
        description="seeds that are scored, by part; all of them are trained"
    )

    @property
    def trained(self) -> tuple[int, ...]:
        """The seeds that are trained."""
        return max(self.seeds.values(), key=len)

    @property
    def flops(self) -> float:
        """The FLOPs of training all of them, forward and backward."""
        return len(self.trained) * 3.0 * self.training.tokens * flops_per_token(self.model, self.training.sequence)


class PlannedBlend(Strict):
    """The text of a later stage of training."""

    name: Name
    mix: BlendMix
    tokens: Positive = Field(description="of the training split: the most that a run of that stage reads")


class OfEveryScale(Strict):
    """What the data stages and the scoring of every scale read."""

    data: Name
    vocab: Positive
    vocabularies: tuple[Positive, ...] = Field(description="other sizes that variants need")
    people: tuple[Positive, ...] = later((), description="numbers of people that variants need")
    mid: PlannedBlend | None = later(None)
    workers: Positive
    parallel: Parallel | None = later(None)
    evaluation: Evaluation
    benchmarks: PlannedTasks
    reasoning: PlannedReasoning | None = later(None)
    counting: Counting
    geometry: Geometry


class ScaleParams(OfSomeScales, OfEveryScale):
    """Settings of every scale, then those that only some scales have, in this order."""


Runs = dict[Name, dict[Name, Planned]]
"""Planned runs by variant and arm."""


class _Line(dict):
    """Keys and values that are written on one line."""


class _Dumper(Dumper):
    """A dumper that writes each `_Line` on one line."""


_Dumper.add_representer(
    _Line, lambda dumper, value: dumper.represent_mapping("tag:yaml.org,2002:map", value.items(), flow_style=True)
)


class Params(Strict):
    """One plan: a scale, its data, and the runs that recipes need.

    `scales` and `mixes` hold one name each, for DVC's matrices.
    """

    scales: Annotated[tuple[Name, ...], Field(min_length=1, max_length=1)]
    mixes: Annotated[tuple[Name, ...], Field(min_length=1, max_length=1)]
    recipe_names: tuple[str, ...] = Field((), description="whose runs are planned; all when empty")
    scoreboard: str
    mix: dict[
        Name,
        Annotated[
            ArchiveMix | SampleMix | HubMix | FactsMix | RecallMix | InventedMix | NeedlesMix,
            Field(discriminator="kind"),
        ],
    ]
    scale: dict[Name, ScaleParams]
    run: dict[Name, Runs]

    def planned(self, scale: str) -> dict[Address, Planned]:
        """Return the runs of a scale by address; UserError where another scale is planned."""
        if scale not in self.run:
            raise UserError(f"{PARAMS} is planned for scale '{self.scales[0]}'; run 'stemrepro plan --scale {scale}'")
        return {Address(variant, arm): run for variant, arms in self.run[scale].items() for arm, run in arms.items()}

    def text(self) -> str:
        """Return the text of params.yaml: one block per arm and variant, with each group of settings on one line."""
        values = self.model_dump(mode="json")
        for variants in values["run"].values():
            for arms in variants.values():
                for run in arms.values():
                    run |= {key: _Line(run[key]) for key in ("model", "training", "seeds")}
        return HEADER + yaml.dump(values, Dumper=_Dumper, sort_keys=False, default_flow_style=None, width=120)

    def write(self, path: Path = PARAMS) -> None:
        """Write the file, only when it changes, so that DVC sees no new one."""
        content = self.text()
        if not path.exists() or path.read_text(encoding="utf-8") != content:
            atomic_write(path, content)


def read_params(path: Path = PARAMS) -> Params:
    """Read params.yaml as DVC sees it; an experiment may have changed it.

    Raises:
        UserError: the file is missing or damaged.
    """
    if not path.exists():
        raise UserError(f"{path} is missing; write it with 'stemrepro plan --scale laptop'")
    try:
        return parse(Params, read_yaml(path), path)
    except UserError as error:
        raise UserError(f"{error}; write it anew with 'stemrepro plan'") from error


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
    stages = [stage for arm in planned.values() for stage in (arm, arm.init_from) if stage]
    blend = mid_text(data / scale) if any(stage.text == "mid" for stage in stages) else None

    def resuming(run: Run, source: PlannedInitFrom | None, own: Text) -> tuple[Run, list[Run]]:
        """Return a run that resumes from another where `source` says so, and all before it, the last one first."""
        if source is None:
            return run, []
        place = Address(source.variant, source.arm or run.address.arm)
        folder = runs / scale / place.path / f"seed{run.seed}"
        name, text = (mix, own) if source.text == "own" else (source.text, blend)
        parent = replace(run, address=place, model=source.model, training=source.training, folder=folder, mix=name,
                         blocks=text.blocks, data_hash=text.data_hash)  # fmt: skip
        parent, earlier = resuming(parent, source.init_from, own)
        return replace(run, init_from=init_from(run, [parent, *earlier], source.tables)), [parent, *earlier]

    made = []
    for address, arm in planned.items():
        text = blend if arm.text == "mid" else texts[arm.model.vocab, arm.people]
        training = arm.training.same_text(text.ratio)
        for seed in arm.trained if part is None else arm.seeds.get(part, ()):
            folder = runs / scale / address.path / f"seed{seed}"
            name = mix if arm.text == "own" else arm.text
            run = Run(address, seed, arm.model, training, folder, name, text.blocks, text.data_hash, text.ratio)
            made.append(resuming(run, arm.init_from, texts[arm.model.vocab, arm.people])[0])
    return with_prefixes(keep_parents(made))


def init_from(run: Run, before: list[Run], tables: str) -> InitFrom:
    """Describe the run that another resumes from.

    Args:
        run: that resumes. It begins where those before it that read the same text ended.
        before: the run from which it resumes, and that from which this one resumed, if any.
        tables: what becomes of its tables, as in recipes/variants.yaml.
    """
    training, same_text = run.training, [other.training for other in before if other.blocks == run.blocks]
    passed = sum(other.tokens for other in same_text)
    same_batches = all(other.sequence == training.sequence for other in same_text)
    return InitFrom(
        before[0].folder,
        digest(before[0].config),
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
    parallel: Parallel | None = None,
) -> list[Run]:
    """Return the runs of some of the planned addresses, to be trained on several devices where `parallel` says so.

    Other planned runs count too: runs under WSD know every shorter one, and runs from which others resume keep their
    final checkpoints.
    """
    related = {address: arm for address, arm in planned.items() if arm.training.schedule == "wsd" or arm.init_from}
    every = runs_of(scale, mix, related | requested, data=data, runs=runs)
    return [replace(run, parallel=parallel) for run in every if run.address in requested]


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


def cost(run: Run) -> float:
    """Return the forward FLOPs of a whole run."""
    return run.training.tokens * flops_per_token(run.model, run.training.sequence)


def share_of(runs: list[Run], shard: str) -> list[Run]:
    """Return share I of N, "I/N", of runs, in about equal FLOPs; a run is with those that it resumes from.

    Raises:
        UserError: the shard is no such pair of numbers.
    """
    given = re.fullmatch(r"([1-9]\d*)/([1-9]\d*)", shard)
    if not given or int(given[1]) > int(given[2]):
        raise UserError(f"--shard {shard}: give I/N with I from 1 to N, as in 1/8")
    groups: dict[Path, list[Run]] = {run.folder: [run] for run in runs}
    for run in runs:
        for folder in (*run.prefixes, *([run.init_from.folder] if run.init_from else [])):
            if folder in groups and groups[folder] is not groups[run.folder]:
                together = groups[folder] + groups[run.folder]
                groups |= {member.folder: together for member in together}
    shares: list[list[Run]] = [[] for _ in range(int(given[2]))]
    whole = {id(group): group for group in groups.values()}.values()
    for group in sorted(whole, key=lambda group: -sum(map(cost, group))):  # the dearest first, each to the least
        min(shares, key=lambda share: sum(map(cost, share))).extend(group)
    mine = {run.folder for run in shares[int(given[1]) - 1]}
    return [run for run in runs if run.folder in mine]


def train_runs(runs: list[Run], workers: int, replace: bool, done: int = 0) -> None:
    """Train each run in a process, or on its devices one after another; raise as stemrepro.training.train does.

    Args:
        replace: remove runs that were made with other settings.
        done: number of runs that had ended before.
    """
    if any(run.training.schedule == "wsd" for run in runs):
        runs = sorted(runs, key=lambda run: run.training.tokens)  # longer ones resume from shorter ones
    threads = runs[0].training.threads if runs else 1
    jobs = [
        Job("stemrepro.training.train:train", run, str(run), run.training.steps, {"replace": replace}, cost(run), True)
        for run in runs
    ]
    stages = by_stage(jobs)
    if runs and runs[0].parallel:
        _train_on_devices([job for stage in stages for job in stage], replace, done)
        return
    preload, shown = ["stemrepro.training.fork_server"], "training"
    if any(run.training.mkl_avx512 for run in runs):
        preload.insert(0, "stemrepro.common.fork_server_avx512")
    for number, stage in enumerate(stages):
        later = [job for others in stages[number + 1 :] for job in others]
        for _ in run_jobs(stage, workers, threads, preload, shown, done, later):
            pass
        done += len(stage)


def by_stage(jobs: list[Job]) -> list[list[Job]]:
    """Return jobs in stages: those that resume from no other, those that resume from one of them, and so on."""
    waiting, stages = jobs, []
    while waiting:
        folders = {job.run.folder for job in waiting}
        ready = [not job.run.init_from or job.run.init_from.folder not in folders for job in waiting]
        stages.append([job for job, is_ready in zip(waiting, ready, strict=True) if is_ready])
        waiting = [job for job, is_ready in zip(waiting, ready, strict=True) if not is_ready]
    return stages


def _train_on_devices(jobs: list[Job], replace: bool, done: int) -> None:
    """Train runs one after another in this process, which has joined the others (stemrepro.training.devices)."""
    from stemrepro.training.devices import first  # torch, which this process needs for no other run
    from stemrepro.training.train import train

    if not first():
        for job in jobs:
            train(job.run, lambda *_: None, replace)
        return
    with closing(Course("training", jobs, done)) as course:
        for number, job in enumerate(jobs):
            train(job.run, partial(show, course, number), replace)
            course.end(number)
