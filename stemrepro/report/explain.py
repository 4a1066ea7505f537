"""How one claim came to its verdict, as plain text."""

from collections.abc import Mapping
from math import isnan, nan
from pathlib import Path
from textwrap import wrap
from typing import Any

from stemrepro.common.errors import UserError, unknown
from stemrepro.common.progress import duration
from stemrepro.common.provenance import read_provenance
from stemrepro.common.yaml_records import read_yaml
from stemrepro.config.catalog import Catalog
from stemrepro.config.paper import PaperNumber
from stemrepro.config.recipe import ORIGINS, Claim, metric_text
from stemrepro.measures.base import call, reads_text, requirement, scores_of
from stemrepro.measures.scores import Scores
from stemrepro.report.evidence import Judged, effect_of, judged, method, size_of
from stemrepro.verdicts.effect import Effect
from stemrepro.verdicts.rule import DECIDES, PRINTED

WIDTH = 80
OWN, COMMON = "own settings", "common"
SAYS = {"equivalent": "within what counts of 0", "not-better": "not above 0 by what counts"}
"""Where the claims of a kind have their difference; claims of other kinds have it above 0."""


def find(catalog: Catalog, name: str, scale: str | None = None) -> tuple[str, str, str]:
    """Return the names of a claim's recipe, of the claim and of the scale.

    Args:
        name: "recipe/claim", or a claim that one recipe alone has.
        scale: None is the recipe's own.

    Raises:
        UserError: no such recipe, claim or scale; several recipes have the claim; or the recipe isn't run at the scale.
    """
    recipe, _, claim = name.rpartition("/")
    owners = [recipe] if recipe else [owner for owner, it in catalog.recipes.items() if claim in it.claims]
    if not owners and claim in catalog.recipes:
        if choices := ", ".join(f"{claim}/{key}" for key in catalog.recipes[claim].claims):
            raise UserError(f"'{claim}' is a recipe; name one of its claims: {choices}")
        raise UserError(f"'{claim}' is a recipe without claims; its estimates are lines of its data.csv")
    if not owners:
        names = dict.fromkeys(key for it in catalog.recipes.values() for key in it.claims)
        raise unknown("claim", claim, names, "recipes/")
    if len(owners) > 1:
        choices = " or ".join(f"{owner}/{claim}" for owner in owners)
        raise UserError(f"several recipes have a claim '{claim}'; say {choices}")
    recipe = owners[0]
    settings = catalog.recipe(recipe)
    if claim not in settings.claims:
        if claim in settings.estimates:
            raise UserError(f"'{claim}' is an estimate of recipe '{recipe}', without a verdict; see its data.csv")
        raise unknown("claim", claim, settings.claims, f"recipes/{recipe}.yaml")
    scale = scale or ("laptop" if not settings.scales or "laptop" in settings.scales else settings.scales[0])
    if recipe not in catalog.at(scale).recipes:
        choices = ", ".join(at for at in catalog.scales if recipe in catalog.at(at).recipes)
        raise UserError(f"recipe '{recipe}' isn't run at scale '{scale}'; say --scale with one of {choices}")
    return recipe, claim, scale


def _cells(catalog: Catalog, recipe: str, key: str, claim: Claim) -> list[str]:
    if not isinstance(claim.paper, PaperNumber):
        return ["not in this measure (docs/report.md, section 2)" if claim.origin == "paper" else "not in the paper"]
    written = read_yaml(catalog.paper.file.with_name(f"{recipe}.yaml"))  # the catalog keeps the number of cells alone
    cells = [(name, catalog.paper.cell(name)) for name in written["claims"][key]["paper"].get("cells", ())]
    lines = [f"{claim.paper.value:g} {claim.paper.unit}: {claim.paper.source} ({claim.paper.confidence})"]
    return lines + [f"cell {name}: {c.value:g} {c.unit}; {c.source} ({c.confidence})" for name, c in cells]


def _measured(scores: Scores, claim: Claim) -> list[str]:
    read, arms = call(claim.metric, scores.catalog, scores.recipe), list(dict.fromkeys(claim.arms))
    lines = [f"{metric_text(claim.metric)}. {read.words}"]
    if claim.kind == "exact":
        return [*lines, "computed: without arms, seeds and chance"]
    variants = dict.fromkeys(at.variant for at in scores.recipe.wanted() if at.arm in arms)
    how = "; the first's less the second's, where the metric says nothing else" if len(arms) == 2 else ""
    says = f"the claim: {SAYS.get(claim.kind, 'above 0')}; what counts: {claim.smallest_effect:g} {claim.unit}"
    return [*lines, f"arms: {', '.join(arms)}{how}", says, f"variants where they are trained: {', '.join(variants)}"]


def _table(settings: Mapping[str, Effect], seeds: tuple[int, ...]) -> list[str]:
    """Return one line per seed and one column per setting."""
    effects = [*settings.values()]
    by_seed = [[*one.differences, *[nan] * len(seeds)] for one in effects]
    most = max(one.seeds for one in effects)
    names = [f"seed {seed}" for seed in seeds] if effects[0].over == "seeds" else map(str, range(1, most + 1))
    rows = {name: [values[n] for values in by_seed] for n, name in zip(range(most), names, strict=False)}
    rows["mean"] = [one.mean for one in effects]
    for alpha in (PRINTED, DECIDES):
        for place, end in enumerate(("from", "to")):
            rows[f"{1 - alpha:.0%} interval {end}"] = [one.interval(alpha)[place] for one in effects]
    shown = {name: ["-" if isnan(value) else f"{value:+.4f}" for value in values] for name, values in rows.items()}
    shown["error between items"] = [f"{one.item_se:.4f}" if one.item_se else "-" for one in effects]
    cells = {"": list(settings)} | shown
    return [f"{name:28}" + "".join(f"{value:>16}" for value in values) for name, values in cells.items()]


def _differences(one: Judged, scores: Scores) -> list[str]:
    claim, facts = one.claim, one.evidence
    if claim.kind == "exact":
        half = f"what counts {claim.smallest_effect:g} {claim.unit}"
        printed = f"the paper's {facts.paper_effect:g}" if facts.expected is None else f"the claim's {facts.expected:g}"
        return [f"computed {facts.effect.mean:.6g}, {printed}, {half}"]
    if isnan(facts.effect.mean):
        return [f"none could be formed: {facts.failed_precondition or facts.unmeasured}"]
    settings = {OWN: facts.effect} if facts.own_settings else {}
    tuned = scores.catalog.variant(scores.recipe.compare_at).tuned  # compared at own settings alone
    settings[OWN if tuned else COMMON] = effect_of(claim, scores) if settings else facts.effect
    return [*_table(settings, scores.scale.seeds), f"the interval: {method(facts)}"]


def _verdict(one: Judged) -> list[str]:
    lines = [f"{n}. {s.question} {'Yes' if s.answer else 'No'}: {s.numbers}" for n, s in enumerate(one.steps, 1)]
    size = size_of(one)
    return [*lines, f"Verdict: {one.steps[-1].verdict}", *([f"Size: {size}"] if size else [])]


def _origin(scores: Scores, claim: Claim, results: Path, made: list[str]) -> list[str]:
    recipe, folder = scores.recipe, results / scores.scale_name / scores.name
    functions: list[Any] = [requirement(name, claim, scores.catalog, recipe).function for name in claim.requires]
    looked = {arm for one in functions for arm in one.condition.arms + one.condition.any_of}
    arms: dict[tuple[str, str], list[str]] = {}
    for address, kinds in recipe.scored().items():
        for kind in kinds if address.arm in looked | set(claim.arms) else ():
            arms.setdefault((kind, address.variant), []).append(address.arm)
    variants: dict[tuple[str, str], list[str]] = {}
    for (kind, variant), names in arms.items():
        variants.setdefault((kind, ", ".join(names)), []).append(variant)
    files = ("verdicts.json", "data.csv")
    lines = [f"recipes/{scores.name}.yaml", *(f"{folder}/{file}" for file in files)]
    lines += [f"{scores.folder}, {kind}: {names} at {', '.join(at)}" for (kind, names), at in variants.items()]
    lines += [f"{scores.folder}/text"] if reads_text(recipe) else []
    lines += ["and of the recipe's other arms where the metric compares with them"] if claim.arms else []
    lines += [] if recipe.arms else ["recipes/paper.yaml and recipes/shapes.yaml; nothing is trained"]
    is_default = scores.scale_name == (recipe.scales or ("laptop",))[0]  # the Makefile needs no SCALE then
    return [*lines, f"make reproduce RECIPE={scores.name}{'' if is_default else f' SCALE={scores.scale_name}'}", *made]


def _made(folder: Path, cost: dict[str, Any] | None) -> list[str]:
    lines = []
    if (path := folder / "provenance.json").exists():
        lines.append("made by commit {commit} on {date}".format(**read_provenance(path)))
    if cost and cost["runs"]:
        time = duration(cost["seconds"])
        lines.append(f"that is {cost['runs']} runs, about {time} of training on this machine's CPU")
    return lines


def _wrapped(line: str) -> list[str]:
    return wrap(line, WIDTH, initial_indent="  ", subsequent_indent="    ", break_on_hyphens=False)


def _text(scores: Scores, one: Judged, results: Path, made: list[str]) -> str:
    claim = one.claim
    numbers = "The number" if claim.kind == "exact" else f"Differences, by {one.evidence.effect.over}"
    sections = {
        f"{scores.name}/{one.name} at scale {scores.scale_name}": [
            claim.sentence,
            f"{ORIGINS[claim.origin]}, {scores.recipe.paper_item}",
        ],
        "The paper": _cells(scores.catalog, scores.name, one.name, claim),
        "What is measured": _measured(scores, claim),
        numbers: _differences(one, scores),
        "The rule": _verdict(one),
        "Where it comes from": _origin(scores, claim, results, made),
    }
    pieces = {title: [piece for line in lines for piece in _wrapped(line)] for title, lines in sections.items()}
    return "\n\n".join("\n".join([title, *lines]) for title, lines in pieces.items())


def explain(
    catalog: Catalog, name: str, scale: str | None, results: Path, scores: Path, cost: dict[str, Any] | None = None
) -> str:
    """Return everything about a claim (see `find`), in lines of at most 80 columns, judged from the scores.

    Args:
        results, scores: the folders.
        cost: what stemrepro.cli.estimate gives for the recipe's plan; None leaves it out.

    Raises:
        UserError: see `find`; or scores are missing or damaged.
    """
    recipe, key, scale = find(catalog, name, scale)
    read = scores_of(recipe, catalog, scale, scores / scale)
    (one,) = judged(read, key)
    return _text(read, one, results, _made(results / scale / recipe, cost))
