"""The two pipelines. dvc.yaml draws what is committed from the committed scores, so that a clone is up to date. plan/dvc.yaml, which git doesn't
hold, makes the scores of what is planned: text, runs, scores; it also draws the scales whose results aren't committed.

Few stages: run folders and scores know what is theirs, so that one stage can hold all runs of a scale and an edit of one arm trains one
arm. The first stage of a plan, `check`, writes a stamp a stage, {"asked": ..., "code": hash}: the settings that concern it, and the
code that it reaches, without comments and docstrings. A stage whose stamp is the same has nothing to do. Drawing takes seconds:
those stages depend on the files themselves.
"""

from collections.abc import Iterable, Sequence
from pathlib import Path

import yaml

from stemrepro.common import code_hash as imports
from stemrepro.common.files import write_json
from stemrepro.common.paths import ANALYSES, DATA, PARAMS, PLAN, RESULTS
from stemrepro.config.catalog import Catalog
from stemrepro.config.mixes import Mix
from stemrepro.config.scores import FILES, PARTS
from stemrepro.measures.base import scores_of
from stemrepro.model.ffn.naming import module_of
from stemrepro.pipeline.params import Params
from stemrepro.report.metrics import METRICS, compared_arms
from stemrepro.verdicts.robustness import LONG_END

DRAWING, PIPELINE, TARGETS = Path("dvc.yaml"), PLAN / "dvc.yaml", PLAN / "targets"
"""What draws committed results; what makes a plan's; and what of both DVC is asked for (`dvc repro $(cat plan/targets)`)."""
HEADER = "# Written by 'stemrepro plan' from recipes/. Don't edit: stemrepro/pipeline/stages.py writes it.\n"
CURVES = [{
    "results/laptop/validation_loss/data.csv": {
        "x": "tokens", "y": "value", "template": "curves", "title": "Validation loss of the arms, means over seeds with 95% intervals",
        "x_label": "training tokens", "y_label": "prose loss (nats/token)",
    }
}]  # fmt: skip
"""What `dvc plots show` draws beside the figures, by .dvc/plots/curves.json."""
FOR_ALL = tuple(f"recipes/{name}.yaml" for name in ("arms", "variants", "paper", "shapes"))
SCALE, MIX = "${item.scale}", "${item.mix}"
KINDS = ("pdf", "svg", "png")
HOME = "stemrepro"
OF_MIX = {"fetch": ("data.archives", "data.hub"), "corpus": ("data.corpus",), "items": ("data.items",)}
OF_SCALE = {
    "tokenizer": ("data.tokenizer",),
    "blocks": ("data.encoding", "data.card"),
    "vocabularies": ("data.vocabularies", "data.encoding", "data.tokenizer"),
    "people": ("data.people",),
    "mid": ("data.blend",),
    "counts": ("data.counting",),
    "train": ("training.train",),
    **{part: (f"evaluation.{part}",) for part in PARTS},
}
"""The modules that stages run, by stage."""
WITH_MODELS = ("train", *PARTS)


def _modules(names: tuple[str, ...]) -> list[str | Path]:
    return [f"{HOME}.{name}" for name in names]


def own_code(catalog: Catalog, arms: Iterable[str], analyses: Iterable[Path] = ()) -> list[str]:
    """Files outside the package that the networks of arms, and analyses, are in or import."""
    places = [module_of(catalog.arms[name].ffn) for name in arms]
    found = imports.files([*(place for place in places if isinstance(place, Path)), *analyses])
    return [path.as_posix() for path in found if not path.is_relative_to(imports.PACKAGE)]


def write_stamps(params: Params, data: Path = DATA) -> None:
    """Write `data`/<mix>/plan/<stage>.json and `data`/<scale>/plan/<stage>.json for every stage of a plan but those that draw."""
    (scale,), (mix,) = params.scales, params.mixes
    settings, runs = params.scale[scale].model_dump(mode="json"), params.model_dump(mode="json")["run"][scale]
    networks = [module_of(own.model.ffn) for own in params.planned(scale).values()]
    networks = list(dict.fromkeys([module_of("dense"), *networks]))
    asked = {
        "tokenizer": settings["vocab"],
        "vocabularies": settings["vocabularies"],
        "counts": settings["counting"],
        "train": runs,
        **{
            part: [runs, *(settings.get(name) for name in own.settings)] if own.settings else runs
            for part, own in PARTS.items()
        },
        "people": [settings.get("people"), params.mix[mix].model_dump(mode="json")],
        "mid": settings.get("mid"),
    }

    def stamp(owner: str, stage: str, about: object, places: list[str | Path]) -> None:
        write_json(data / owner / "plan" / f"{stage}.json", {"asked": about, "code": imports.code_hash(*places)})

    for stage, names in OF_MIX.items():
        stamp(mix, stage, params.mix[mix].model_dump(mode="json"), _modules(names))
    for stage, names in OF_SCALE.items():
        stamp(scale, stage, asked.get(stage), _modules(names) + (networks if stage in WITH_MODELS else []))


def _kept(*paths: str, persist: bool = False) -> list[dict]:
    """Return outputs that git holds."""
    return [{path: {"cache": False} | ({"persist": True} if persist else {})} for path in paths]


def _stage(matrix: dict, cmd: str, desc: str, deps: list[str], outs: list, **more: object) -> dict:
    return {"desc": desc, "matrix": matrix, "cmd": cmd, "deps": deps, "outs": outs} | more


BY_MIX, BY_SCALE = {"mix": "${mixes}"}, {"scale": "${scales}"}
BY_BOTH = BY_SCALE | BY_MIX


def asks_for_people(catalog: Catalog) -> bool:
    """Does a recipe want a variant whose text is about another number of invented people?"""
    return any(
        catalog.variants[variant].people != 1 for recipe in catalog.recipes.values() for variant in recipe.variants
    )


def asks_for_blend(catalog: Catalog) -> bool:
    """Does a recipe want a variant that goes on with a blend?"""
    extensions = [
        catalog.variants[variant].extends for recipe in catalog.recipes.values() for variant in recipe.variants
    ]
    return any(extends is not None and extends.text == "mid" for extends in extensions)


def other_texts(catalog: Catalog) -> list[str]:
    """Return the texts beside a scale's own that its recipes' variants may ask for: folders below the scale's data, and stages."""
    asked = {"people": asks_for_people(catalog), "mid": asks_for_blend(catalog)}
    return ["vocabularies", *(name for name, wanted in asked.items() if wanted)]


def own_folders(*mixes: Mix) -> list[str]:
    """Return the folders of own text among data mixes, which stages depend on though they lie outside."""
    return sorted({mix.dataset for mix in mixes if mix.kind == "hub" and mix.local})


def data_stages(others: list[str], texts: Sequence[str] = (), parts: Sequence[str] = ()) -> dict[str, dict]:
    """From pinned archives to token blocks.

    Args:
        others: stages of other texts than the scale's own.
        texts: folders of own text that the mix reads.
        parts: those that the blend reads.
    """
    raw, corpus, items, own = f"data/{MIX}/raw", f"data/{MIX}/corpus", f"data/{MIX}/items", f"data/{SCALE}"
    tokenizer = f"{own}/tokenizer.json"

    def by_mix(name: str, desc: str, deps: list[str], outs: list) -> dict:
        return _stage(BY_MIX, f"stemrepro data {name} --mix {MIX}", desc, [f"data/{MIX}/plan/{name}.json", *deps], outs)

    def by_scale(name: str, desc: str, deps: list[str], outs: list) -> dict:
        return _stage(BY_BOTH, f"stemrepro data {name} --scale {SCALE}", desc, [f"{own}/plan/{name}.json", *deps], outs)

    more = {
        "vocabularies": by_scale(
            "vocabularies", "the same text in the other vocabularies that variants ask for", [corpus], [f"{own}/vocabularies"]
        ),
        "people": by_scale(
            "people", "texts about other numbers of invented people, that variants ask for", [tokenizer], [f"{own}/people"],
        ),
        "mid": by_scale(
            "mid", "the scale's own text with texts of other kinds, for the stage of training that variants ask for",
            [corpus, tokenizer, "stemrepro/data/archives.txt", "stemrepro/data/sample", *parts],
            [{f"{own}/mid": {"persist": True}}, *_kept(f"results/{SCALE}/data_card_mid.md")],
        ),
    }  # fmt: skip
    return {
        "fetch": by_mix(
            "fetch", "pinned archives by sha256, or the vendored sample",
            ["stemrepro/data/archives.txt", "stemrepro/data/sample", *texts], [{raw: {"persist": True}}],
        ),
        "corpus": by_mix("corpus", "clean documents, duplicates removed, split by whole documents", [raw], [corpus]),
        "items": by_mix(
            "items", "multiple-choice items of the benchmarks, less those that stand in the training text", [raw, corpus], [items]
        ),
        "tokenizer": by_scale("tokenizer", "byte-level BPE of the training split", [corpus], [tokenizer]),
        "blocks": by_scale(
            "blocks", "token blocks, and the data card", [corpus, items, tokenizer],
            [f"{own}/blocks", *_kept(f"results/{SCALE}/data_card.md")],
        ),
        **{name: more[name] for name in others},
        "counts": by_scale(
            "counts", "distinct tokens by length and hits of row caches, counted in the text alone", [corpus, tokenizer],
            _kept(f"scores/{SCALE}/text/distinct.csv", f"scores/{SCALE}/text/cache.csv"),
        ),
    }  # fmt: skip


def run_stages(others: list[str], parts: set[str]) -> dict[str, dict]:
    """Training of all runs of a scale, and the parts of their scores that its recipes read."""
    plan, runs = f"data/{SCALE}/plan", f"runs/{SCALE}"
    text = [f"data/{SCALE}/{name}" for name in ("blocks", *others)]

    def scores(part: str) -> dict:
        own, cmd = PARTS[part], f"stemrepro evaluate --scale {SCALE} --part {part}"
        files = ("/".join(["data", *FILES[name].split("/")[:2]]) for name in own.files)  # what a stage makes, whole
        deps = [path.format(scale=SCALE, mix=MIX) for path in (*files, *own.depends)] + (text if own.texts else [])
        matrix = BY_BOTH if any(MIX in path for path in deps) else BY_SCALE
        kept = _kept(f"scores/{SCALE}/{part}", persist=True)
        return _stage(matrix, cmd, own.title, [f"{plan}/{part}.json", *deps, runs], kept)

    return {
        "train": _stage(
            BY_SCALE, f"stemrepro train --scale {SCALE} --replace",
            "every run that recipes want; finished ones return at once, a killed one resumes",
            [f"{plan}/train.json", *text], [{runs: {"persist": True}}],
        ),
    } | {part: scores(part) for part in PARTS if part in parts}  # fmt: skip


def scale_files(catalog: Catalog, scales: Iterable[str]) -> list[str]:
    """Return the files that the settings of a stage's scales follow from.

    Where one of the scales is another's base, its file can't be named twice, and the whole folder stands for both.
    """
    folder, names = "recipes/scales", set(scales)
    bases = {catalog.scales[name].base for name in names} - {None}
    return [folder] if bases & names else [f"{folder}/{name}.yaml" for name in (SCALE, *sorted(bases))]


def drawn_from(recipe: str, catalog: Catalog, scales: Iterable[str]) -> list[str]:
    """Return the files that a recipe's figure and verdicts follow from, beside its scores."""
    own = [path for path in (ANALYSES / f"{recipe}.py",) if path.exists()]
    outside = own_code(catalog, catalog.recipes[recipe].arms, own)
    return [HOME, *outside, f"recipes/{recipe}.yaml", *FOR_ALL, *scale_files(catalog, scales)]


def analysis_stage(name: str, catalog: Catalog, matrix: dict, scales: Iterable[str]) -> dict:
    """One recipe's figure, data and verdicts, by its own file of analysis/ or by the forest plot that every recipe has.

    Args:
        scales: those that the matrix stands for.
    """
    recipe, out = catalog.recipes[name], f"results/{SCALE}/{name}"
    drawn = ("figure", "front") if recipe.front else ("figure",)
    return _stage(
        matrix, f"stemrepro analyse {name} --scale {SCALE}", recipe.paper_item,
        [*drawn_from(name, catalog, scales), *(f"scores/{SCALE}/{folder.as_posix()}" for folder in scores_of(recipe))],
        _kept(*(f"{out}/{name}.{kind}" for name in drawn for kind in KINDS[:2]), *(f"{out}/{file}" for file in ("panels", "data.csv", "verdicts.json", "explained.html"))),
        plots=_kept(*(f"{out}/{name}.{KINDS[2]}" for name in drawn)),
    )  # fmt: skip


def metrics_stage(matrix: dict) -> dict:
    """Return what `dvc metrics show` lists. It needs scores of losses alone, so that an experiment ends here without judging and drawing."""
    return _stage(
        matrix, f"stemrepro metrics --scale {SCALE}", "of each arm its loss, what it gains on dense in the same seeds, and its cost",
        [HOME, "recipes", f"scores/{SCALE}/losses"], [], metrics=_kept(f"{METRICS}/{SCALE}"),
    )  # fmt: skip


def report_stage(matrix: dict, scoreboard: str, recipes: dict[str, Iterable[str]]) -> dict:
    """Return a page with every claim.

    Args:
        recipes: those on it, by scale.
    """
    results = [
        f"results/{scale}/{name}/{file}"
        for scale, names in recipes.items()
        for name in names
        for file in ("verdicts.json", "figure.svg", "panels")
    ]
    scale, recipe = LONG_END.parts[:2]
    if recipe in recipes.get(scale, ()):
        results.append((RESULTS / LONG_END).as_posix())
    return _stage(
        matrix, f"stemrepro report --scale {SCALE}", "the scoreboard, a page with every claim",
        [HOME, *([ANALYSES.as_posix()] if ANALYSES.exists() else []), "recipes", *results],
        _kept(*(f"{scoreboard}/{name}" for name in ("README.md", "index.html", "claims.csv"))),
    )  # fmt: skip


def published(catalog: Catalog) -> dict[str, Catalog]:
    """Return the scales whose results are committed, those on the project's own page, with their recipes; that page's own scale first."""
    there = {name: catalog.at(name) for name, scale in catalog.scales.items() if scale.scoreboard == RESULTS.as_posix()}
    return dict(sorted(there.items(), key=lambda item: catalog.scales[item[0]].named_only))


def drawing(catalog: Catalog) -> dict:
    """Return the stages of dvc.yaml: every committed figure and verdict, by the committed scores."""
    scales = published(catalog)
    at = {name: [scale for scale, own in scales.items() if name in own.recipes] for name in catalog.recipes}
    compared = [scale for scale, own in scales.items() if compared_arms(own)]
    return {
        **{name: analysis_stage(name, catalog, {"scale": where}, where) for name, where in at.items() if where},
        **({"metrics": metrics_stage({"scale": compared})} if compared else {}),
        "report": report_stage({"scale": list(scales)[:1]}, RESULTS.as_posix(), {s: own.recipes for s, own in scales.items()}),
    }  # fmt: skip


def pipeline(catalog: Catalog, scale: str) -> dict:
    """Return the stages of plan/dvc.yaml, from text to scores; also those that draw, where dvc.yaml doesn't."""
    own, size = catalog.at(scale), catalog.scale(scale)
    others = [part.mix for part in catalog.mixes[size.mid].parts.values()] if size.mid else []
    parts = {part for recipe in own.recipes.values() for asked in recipe.scored().values() for part in asked}
    stages = {
        "check": _stage(
            BY_BOTH, f"stemrepro plan --check --scale {SCALE}",
            "the plan must follow from recipes/; what is asked of each stage, and its code",
            ["recipes", PARAMS.as_posix(), HOME, *own_code(catalog, catalog.arms)],
            [f"data/{SCALE}/plan", f"data/{MIX}/plan"],
        ),
        **data_stages(other_texts(own), own_folders(catalog.mixes[size.data]), own_folders(*others)),
        **run_stages(other_texts(own), parts),
    }  # fmt: skip
    if scale in published(catalog):
        return stages
    return stages | {
        **{name: analysis_stage(name, own, BY_SCALE, [scale]) for name in own.recipes},
        **({"metrics": metrics_stage(BY_SCALE)} if compared_arms(own) else {}),
        "report": report_stage(BY_SCALE, "${scoreboard}", {SCALE: own.recipes}),
    }


def targets(catalog: Catalog, scale: str, recipes: tuple[str, ...]) -> list[str]:
    """Return what DVC is asked for to make a plan's results: some recipes, or all with the page."""
    where = "" if scale in published(catalog) else f"{PIPELINE.as_posix()}:"
    if recipes:
        return [f"{where}{name}@{scale}" for name in recipes]
    if where:
        return [PIPELINE.as_posix()]
    there = drawing(catalog)
    names = [
        f"{name}@{scale}" for name, stage in there.items() if scale in stage["matrix"]["scale"] and name != "report"
    ]
    return [PIPELINE.as_posix(), *names, f"report@{next(iter(published(catalog)))}"]


class _Plain(yaml.SafeDumper):
    def ignore_aliases(self, data: object) -> bool:  # a reader should not have to look up &id001
        return True


def pipeline_texts(catalog: Catalog, scale: str) -> dict[Path, str]:
    """Return the bytes of dvc.yaml and plan/dvc.yaml."""
    planned = {name: {"wdir": ".."} | stage for name, stage in pipeline(catalog, scale).items()}
    files = {
        DRAWING: {"plots": CURVES, "stages": drawing(catalog)},
        PIPELINE: {"params": [PARAMS.name], "stages": planned},
    }
    return {path: HEADER + yaml.dump(own, Dumper=_Plain, sort_keys=False, width=120) for path, own in files.items()}
