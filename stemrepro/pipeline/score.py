"""Scoring of runs, kind by kind: only what is missing, or was made of other runs, settings or code.

scores/<scale>/protocol.parquet holds the key of an arm's scores, a hash of all that they follow from. Scores with the
right key are up to date. Seeds can be added to losses whose weights are gone, as those that are committed: where text,
settings and scoring are as they were.
"""

import pkgutil
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

from pydantic_core import to_jsonable_python

from stemrepro.common.code_hash import code_hash
from stemrepro.common.errors import UserError
from stemrepro.common.files import digest, locked, read_json, sha256, write_json
from stemrepro.common.paths import DATA, RUNS, SCORES
from stemrepro.common.provenance import provenance
from stemrepro.common.workers import Job, run_jobs
from stemrepro.config.address import Address
from stemrepro.config.scores import FILES, SCORE_KINDS, KindName
from stemrepro.evaluation.run_tokenizer import tokenizer_from
from stemrepro.measures import store
from stemrepro.measures.protocol import MODEL, SCORING, START, STARTS, TRAINED, TRAINING
from stemrepro.model.config import ModelConfig
from stemrepro.model.cost import flops_per_token, parameter_counts
from stemrepro.model.names import module_of
from stemrepro.pipeline.plan import Plan, Planned
from stemrepro.pipeline.runs import runs_of
from stemrepro.training.run import DECIDING_NOTHING, Run
from stemrepro.training.run_folder import read_config

TASKS = Path(pkgutil.resolve_name("stemrepro.evaluation").__path__[0]) / "tasks"
"""Files that lm-eval reads."""
DECIDE_NOTHING = (flops_per_token.__module__, read_config.__module__, *DECIDING_NOTHING)
"""Modules whose code is not part of a score's key.

Costs are in the key themselves. The settings of a run are those of the plan. Rows of its training are only checked.
"""


def arguments(plan: Plan, kind: KindName, planned: Planned, data: Path = DATA) -> dict[str, Any]:
    """Return the arguments of the `score` of a kind, other than the run and the report.

    Raises:
        UserError: the scale lacks something that the kind needs.
    """
    about, given = SCORE_KINDS[kind], dict[str, Any]()
    if about.mix and plan.mix.kind != about.mix:
        raise UserError(f"scale '{plan.name}' needs a mix of kind '{about.mix}' for the scores '{kind}'")
    if about.setting:
        given["asked"] = plan.setting(about.setting)
        if given["asked"] is None:
            raise UserError(f"scale '{plan.name}' says nothing under '{about.setting}', which the scores '{kind}' need")
    files = {name: data / FILES[name].format(scale=plan.name, mix=plan.scale.data) for name in about.files}
    return given | files | about.more(plan.scale, plan.mix, planned)


def _hash(path: Path) -> str:
    return sha256(path) if path.exists() else ""


def weights_hash(run: Run) -> str:
    """Return the sha256 of a run's weights, or that which was written where they stayed; "" where it has neither."""
    there = run.folder / "weights.sha256"
    return _hash(run.weights) or (there.read_text(encoding="utf-8").strip() if there.exists() else "")


def scoring_code(kind: KindName, model: ModelConfig) -> str:
    """Return the hash of the code that scores a model."""
    networks = {module_of(model.ffn_of(layer)) for layer in range(model.layers)}
    return code_hash(f"stemrepro.evaluation.{kind}", *sorted(networks, key=str), without=DECIDE_NOTHING)


def score_key(runs: list[Run], kind: KindName, given: dict[str, Any]) -> str:
    """Return a hash of what an arm's scores follow from: runs, text, settings, items and code."""
    inputs = [given[name] for name in FILES if name in given and name != "items"]
    if "items" in given:  # a folder, of which an arm's scores read its tasks
        inputs += [given["items"] / f"{task}.jsonl" for task in given["asked"].tasks]
    if SCORE_KINDS[kind].tasks:
        inputs += sorted(TASKS.rglob("*.yaml"))
    model, training = runs[0].model, runs[0].training
    return digest(
        {
            "runs": [[run.seed, run.diverged, weights_hash(run), _hash(run.folder / "metrics.jsonl")] for run in runs],
            "text": _hash(runs[0].blocks / "index.json"),
            "asked": to_jsonable_python({name: value for name, value in given.items() if not isinstance(value, Path)}),
            "inputs": [_hash(path) for path in inputs],
            # Costs are here in place of the code that computes them.
            "costs": [flops_per_token(model, training.sequence), parameter_counts(model)],
            "code": scoring_code(kind, model),
        }
    )


def plan_of(run: Run, given: dict[str, Any]) -> dict[str, Any]:
    """Return what is known of the plan of an arm's scores, of any of its runs and the arguments of scoring."""
    model, training = run.model.settings, run.training.model_dump(mode="json")
    settings = {name: value for name, value in given.items() if not isinstance(value, Path)}
    scoring = {name: value for name, value in settings.items() if name not in ("wanted", "count")}
    return {
        "tokens of training": run.training.tokens,
        "tokens a step": run.training.batch * run.training.sequence,
        "tokens a sequence": run.training.sequence,
        TRAINED: digest([[model[key] for key in MODEL], [training[key] for key in TRAINING]]),
        START: digest([model.get("embedding_std"), model.get("head_std"), *(training[key] for key in STARTS)]),
        SCORING: digest(to_jsonable_python(scoring, exclude={"asked": {"tasks"}})),
    }


class Kept(NamedTuple):
    """Scores of the first seeds of an arm, whose weights are gone.

    Attributes:
        key: of these scores.
        seeds: theirs.
    """

    key: str
    seeds: list[int]


def settings_of(run: Run, given: dict[str, Any]) -> dict[str, Any]:
    """Return what decides an arm's losses, but for its seeds, as a protocol tells it; older scores lack a part."""
    config = {key: value for key, value in run.config.items() if key not in ("seed", "code")}
    return {
        "plan": plan_of(run, given),
        "data_hash": run.data_hash[:12],
        "learning_rate": run.training.learning_rate,
        "parameters": parameter_counts(run.model),
        "settings": digest(config),
        "scoring code": scoring_code("losses", run.model),
    }


def kept_scores(folder: Path, kind: KindName, members: list[Run], given: dict[str, Any]) -> Kept | None:
    """Return the scores of the runs whose weights are gone, to which the others can be added; None where all are here.

    UserError: such a run has no scores, or they are of another text, other settings, other code or other seeds.
    """
    gone = [run for run in members if not run.weights.exists() and run.diverged is None]
    if not gone:
        return None
    first, key = members[0], store.key_of(folder, kind, members[0].address)
    if kind == "losses" and key is not None and gone != members:
        about, seeds = store.about(folder, kind, first.address), [run.seed for run in gone]
        same = all(about.get(name, value) == value for name, value in settings_of(first, given).items())
        for kept in (Kept(key, about["seed_numbers"]), Kept(*about.get("kept", ("", [])))):
            if same and kept.seeds == seeds and "diverged" not in about:
                return kept
    how = "train that run first ('make reproduce' with its SCALE, or 'stemrepro train')"
    raise UserError(f"{gone[0].weights} is missing; {how}")


def kept_lines(folder: Path, kind: KindName, kept: Kept, address: Address) -> dict[str, Any]:
    """Return the lines of the seeds that are kept, by table."""
    written = [name for name, count in store.about(folder, kind, address)["lines"].items() if count]
    tables = {name: store.lines(folder, kind, address, name) for name in written}
    return {
        name: rows[rows["seed"].isin(kept.seeds) if "seed" in rows else rows["seeds"] <= len(kept.seeds)]
        for name, rows in tables.items()
    }


def pending(
    plan: Plan,
    kind: KindName,
    addresses: Iterable[Address] | None = None,
    data: Path = DATA,
    runs: Path = RUNS,
    scores: Path = SCORES,
) -> Iterator[tuple[list[Run], dict[str, Any], Path, str, Kept | None]]:
    """Yield each arm of which a kind is not up to date.

    That is: its runs, the arguments of scoring, the scale's folder of scores, the key, and what is kept of its scores.

    Raises:
        UserError: a run isn't finished, or differs from the plan, or the tokenizer isn't its own; or the protocol of
            the scores is damaged.
    """
    folder = scores / plan.name
    for address in plan.runs if addresses is None else addresses:
        if not plan.runs[address].seeds.get(kind):
            continue
        given, planned = arguments(plan, kind, plan.runs[address], data), runs_of(plan, [address], kind, data, runs)
        kept = kept_scores(folder, kind, planned, given)
        members = [run for run in planned if not kept or run.seed not in kept.seeds]
        for run in members:
            if changes := run.other_settings():
                raise UserError(f"{run.folder} holds a run with other settings ({changes}); train it again")
        key = score_key(members, kind, given)
        if kept:
            key = digest([kept.key, key])
        if store.key_of(folder, kind, address) != key:
            if "tokenizer_file" in given:
                tokenizer_from(given["tokenizer_file"], members[0].folder)
            yield members, given, folder, key, kept


def write_scores(
    kind: KindName,
    members: list[Run],
    results: list[Any],
    given: dict[str, Any],
    folder: Path,
    key: str,
    kept: Kept | None = None,
) -> None:
    """Write an arm's scores, and in provenance.json, which git doesn't hold, what made them.

    Those that are `kept` of its first seeds stay.

    The caller holds the lock of the scale's `folder`.
    """
    from stemrepro.evaluation.writing import Scored

    tables = pkgutil.resolve_name(f"stemrepro.evaluation.{kind}:tables")
    first = members[0]
    before = kept_lines(folder, kind, kept, first.address) if kept else {}
    scored = Scored(members, results, given, before, tuple(kept.seeds) if kept else ())
    about, made = tables(scored)
    about |= {"params_hash": first.params_hash, "seeds": len(scored.seeds)}
    if kept:
        about["kept"] = kept
    decided = settings_of(first, given)
    about |= decided if kind == "losses" else {name: decided[name] for name in ("plan", "data_hash")}
    if diverged := {str(run.seed): run.diverged for run in members if run.diverged is not None}:
        about["diverged"] = diverged
    store.write(folder, kind, first.address, key, about, made)
    told = folder / "provenance.json"
    known = read_json(told) if told.exists() else {}
    write_json(told, known | {f"{kind} of {first.address}": provenance() | {"key": key}})


def evaluate(plan: Plan, kind: KindName, addresses: Iterable[Address]) -> tuple[int, int]:
    """Score what is not up to date, and return how many arms that were, of how many that have this kind."""
    groups = list(pending(plan, kind, addresses))
    total = sum(bool(plan.runs[address].seeds.get(kind)) for address in addresses)
    jobs, owner = [], []
    for number, (members, given, *_) in enumerate(groups):
        for run in members:
            jobs.append(Job(f"stemrepro.evaluation.{kind}:score", run, str(run), run.training.steps, given))
            owner.append(number)
    threads = groups[0][0][0].training.threads if groups else 1
    results: dict[int, dict[int, Any]] = {}
    for number, result in run_jobs(jobs, plan.scale.workers, threads, [f"stemrepro.evaluation.{kind}"], kind):
        group, first = owner[number], owner.index(owner[number])
        results.setdefault(group, {})[number - first] = result
        members, given, folder, key, kept = groups[group]
        if len(results[group]) == len(members):
            scores = results.pop(group)
            with locked(folder):  # another command may score other arms, or the same ones
                write_scores(kind, members, [scores[place] for place in range(len(members))], given, folder, key, kept)
    return len(groups), total
