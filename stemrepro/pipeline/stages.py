"""The pipelines: dvc.yaml, plan/dvc.yaml and plan/sweeps/dvc.yaml.

dvc.yaml draws committed results from committed scores, so that a clone is up to date. plan/dvc.yaml, which git doesn't
hold, makes the text, runs and scores of a plan. It also draws the scales whose results aren't committed. Sweeps stand
apart, so that a plan's results ask for none.

There are few stages. Run folders and scores know what they were made of. So one stage can hold all runs of a scale, and
an edit of one arm trains one arm. The first stage of a plan, `check`, writes one stamp per stage, {"asked": ...,
"code": hash}: the settings that concern it, and the code that it reaches, without comments and docstrings. A stage with
an unchanged stamp has nothing to do. Drawing takes seconds: those stages depend on the files themselves.
"""

from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path

import yaml

from stemrepro.common import code_hash as imports
from stemrepro.common.files import write_json
from stemrepro.common.paths import ANALYSES, DATA, PARAMS, PLAN, RECIPES, RESULTS
from stemrepro.common.yaml_records import Dumper
from stemrepro.config.catalog import Catalog
from stemrepro.config.mixes import Mix, is_large
from stemrepro.config.recipe import Recipe
from stemrepro.config.scores import FILES, PARTS
from stemrepro.measures.base import scores_of
from stemrepro.model.ffn.naming import module_of
from stemrepro.model.memory.naming import memory_module
from stemrepro.pipeline.planned import Params
from stemrepro.report.metrics import METRICS, compared_arms
from stemrepro.report.page_parts import LEADERBOARD, VERDICTS

DRAWING, PIPELINE, TARGETS = Path("dvc.yaml"), PLAN / "dvc.yaml", PLAN / "targets"
"""The pipeline that draws committed results, that of a plan, and what DVC makes (`dvc repro $(cat plan/targets)`)."""
SWEEPS = PLAN / "sweeps" / "dvc.yaml"
"""The sweeps at the scale of a plan, each of which runs when it is asked for by name."""
HEADER = "# Written by 'stemrepro plan' from recipes/. Don't edit: stemrepro/pipeline/stages.py writes it.\n"
CURVES = [
    {"results/laptop/validation_loss/data.csv": {
        "x": "tokens", "y": "value", "template": "curves",
        "title": "Validation loss of the arms, means over seeds with 95% intervals",
        "x_label": "training tokens", "y_label": "prose loss (nats/token)",
    }},
    {"results/ladder/token_ladder/data.csv": {
        "x": "x", "y": "value", "template": "ladder",
        "title": "How far arms are below dense against tokens, means over seeds with 95% intervals",
        "x_label": "training tokens per parameter of dense", "y_label": "gap to dense (nats/token)",
    }},
    {"results/width/size_ladder/data.csv": {
        "x": "x", "y": "value", "template": "ladder",
        "title": "How far arms are below dense against size, by a fixed or a growing vocabulary",
        "x_label": "parameters of dense", "y_label": "lead over dense (% of its bits per byte)",
    }},
]  # fmt: skip
"""What `dvc plots show` draws next to the figures, by the templates in .dvc/plots/."""
FOR_ALL = tuple(f"recipes/{name}.yaml" for name in ("arms", "variants", "paper", "shapes"))
SCALE, MIX = "${item.scale}", "${item.mix}"
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
"""The modules that each stage runs."""
WITH_MODELS = ("train", *PARTS)


def _modules(names: tuple[str, ...]) -> list[str | Path]:
    return [f"{HOME}.{name}" for name in names]


def own_code(catalog: Catalog, arms: Iterable[str], analyses: Iterable[Path] = ()) -> list[str]:
    """Return the files outside the package that hold or serve the networks of arms, and analyses."""
    places = [module_of(catalog.arms[name].ffn) for name in arms]
    files = imports.files([*(place for place in places if isinstance(place, Path)), *analyses])
    return [path.as_posix() for path in files if not path.is_relative_to(imports.PACKAGE)]


def write_stamps(params: Params, data: Path = DATA) -> None:
    """Write the stamp of every stage of a plan, except of those that draw.

    Stamps are `data`/<mix>/plan/<stage>.json and `data`/<scale>/plan/<stage>.json.
    """
    (scale,), (mix,) = params.scales, params.mixes
    settings, runs = params.scale[scale].model_dump(mode="json"), params.model_dump(mode="json")["run"][scale]
    models = [arm.model for arm in params.planned(scale).values()]
    networks = [module_of(model.ffn) for model in models]
    networks += [memory_module(model.memory) for model in models if model.memory]
    networks = list(dict.fromkeys([module_of("dense"), *networks]))
    stamps = {
        "tokenizer": settings["vocab"],
        "vocabularies": settings["vocabularies"],
        "counts": settings["counting"],
        "train": runs,
        **{
            part: [runs, *(settings.get(name) for name in kind.settings)] if kind.settings else runs
            for part, kind in PARTS.items()
        },
        "people": [settings.get("people"), params.mix[mix].model_dump(mode="json")],
        "mid": settings.get("mid"),
    }

    def stamp(owner: str, stage: str, about: object, places: list[str | Path]) -> None:
        write_json(data / owner / "plan" / f"{stage}.json", {"asked": about, "code": imports.code_hash(*places)})

    for stage, names in OF_MIX.items():
        stamp(mix, stage, params.mix[mix].model_dump(mode="json"), _modules(names))
    for stage, names in OF_SCALE.items():
        stamp(scale, stage, stamps.get(stage), _modules(names) + (networks if stage in WITH_MODELS else []))


def _kept(*paths: str, persist: bool = False) -> list[dict]:
    """Return outputs that git holds."""
    return [{path: {"cache": False} | ({"persist": True} if persist else {})} for path in paths]


def _stage(matrix: dict, cmd: str, desc: str, deps: list[str], outs: list, **more: object) -> dict:
    return {"desc": desc, "matrix": matrix, "cmd": cmd, "deps": deps, "outs": outs} | more


BY_MIX, BY_SCALE = {"mix": "${mixes}"}, {"scale": "${scales}"}
BY_BOTH = BY_SCALE | BY_MIX


def asks_for_people(catalog: Catalog) -> bool:
    """Tell whether a recipe needs a variant whose text is about another number of invented people."""
    return any(
        catalog.variants[variant].people != 1 for recipe in catalog.recipes.values() for variant in recipe.variants
    )


def asks_for_blend(catalog: Catalog) -> bool:
    """Tell whether a recipe needs a variant that reads a blend."""
    extensions = [
        catalog.variants[variant].extends for recipe in catalog.recipes.values() for variant in recipe.variants
    ]
    return any(extends is not None and extends.text == "mid" for extends in extensions)


def other_texts(catalog: Catalog) -> list[str]:
    """Return the texts other than a scale's own that its recipes' variants need.

    Each is a folder below the scale's data, and a stage.
    """
    needed = {"people": asks_for_people(catalog), "mid": asks_for_blend(catalog)}
    return ["vocabularies", *(name for name, is_needed in needed.items() if is_needed)]


def own_folders(*mixes: Mix) -> list[str]:
    """Return the folders outside the project whose text data mixes read; stages depend on them."""
    return sorted({mix.dataset for mix in mixes if mix.kind == "hub" and mix.local})


def data_stages(
    others: list[str], texts: Sequence[str] = (), parts: Sequence[str] = (), shards: bool = False
) -> dict[str, dict]:
    """Return the stages from pinned archives to token blocks.

    Args:
        others: stages of texts other than the scale's own.
        texts: folders of the user's text that the mix reads.
        parts: the same of the blend.
        shards: whether the scale's own text is in shards, of which the blend is made.
    """
    raw, corpus, items, home = f"data/{MIX}/raw", f"data/{MIX}/corpus", f"data/{MIX}/items", f"data/{SCALE}"
    tokenizer = f"{home}/tokenizer.json"

    def by_mix(name: str, desc: str, deps: list[str], outs: list) -> dict:
        return _stage(BY_MIX, f"stemrepro data {name} --mix {MIX}", desc, [f"data/{MIX}/plan/{name}.json", *deps], outs)

    def by_scale(name: str, desc: str, deps: list[str], outs: list) -> dict:
        deps = [f"{home}/plan/{name}.json", *deps]
        return _stage(BY_BOTH, f"stemrepro data {name} --scale {SCALE}", desc, deps, outs)

    more = {
        "vocabularies": by_scale(
            "vocabularies", "the same text in the other vocabularies that variants need",
            [corpus], [f"{home}/vocabularies"],
        ),
        "people": by_scale(
            "people", "texts about other numbers of invented people, that variants need",
            [tokenizer], [f"{home}/people"],
        ),
        "mid": by_scale(
            "mid", "the scale's own text with texts of other kinds, for a later stage of training",
            [corpus, tokenizer, *([f"{home}/blocks"] if shards else []), "stemrepro/data/archives.txt",
             "stemrepro/data/sample", *parts],
            [{f"{home}/mid": {"persist": True}}, *_kept(f"results/{SCALE}/data_card_mid.md")],
        ),
    }  # fmt: skip
    return {
        "fetch": by_mix(
            "fetch", "pinned archives by sha256, or the vendored sample",
            ["stemrepro/data/archives.txt", "stemrepro/data/sample", *texts], [{raw: {"persist": True}}],
        ),
        "corpus": by_mix("corpus", "clean documents, duplicates removed, split by whole documents", [raw], [corpus]),
        "items": by_mix(
            "items", "multiple-choice items of the benchmarks, without those that are in the training text",
            [raw, corpus], [items],
        ),
        "tokenizer": by_scale("tokenizer", "byte-level BPE of the training split", [corpus], [tokenizer]),
        "blocks": by_scale(
            "blocks", "token blocks, and the data card", [corpus, items, tokenizer],
            [f"{home}/blocks", *_kept(f"results/{SCALE}/data_card.md")],
        ),
        **{name: more[name] for name in others},
        "counts": by_scale(
            "counts", "distinct tokens by length and hits of row caches, counted in the text alone",
            [corpus, tokenizer],
            _kept(f"scores/{SCALE}/text/distinct.csv", f"scores/{SCALE}/text/cache.csv"),
        ),
    }  # fmt: skip


def run_stages(others: list[str], parts: set[str]) -> dict[str, dict]:
    """Return the stages that train all runs of a scale, and those that score what its recipes read."""
    plan, runs = f"data/{SCALE}/plan", f"runs/{SCALE}"
    text = [f"data/{SCALE}/{name}" for name in ("blocks", *others)]

    def scores(part: str) -> dict:
        kind, cmd = PARTS[part], f"stemrepro evaluate --scale {SCALE} --part {part}"
        files = ("/".join(["data", *FILES[name].split("/")[:2]]) for name in kind.files)  # what a stage makes, whole
        deps = [path.format(scale=SCALE, mix=MIX) for path in (*files, *kind.depends)] + (text if kind.texts else [])
        matrix = BY_BOTH if any(MIX in path for path in deps) else BY_SCALE
        kept = _kept(f"scores/{SCALE}/{part}", persist=True)
        return _stage(matrix, cmd, kind.title, [f"{plan}/{part}.json", *deps, runs], kept)

    return {
        "train": _stage(
            BY_SCALE, f"stemrepro train --scale {SCALE} --replace",
            "every run that recipes need; finished runs return at once, a killed run resumes",
            [f"{plan}/train.json", *text], [{runs: {"persist": True}}],
        ),
    } | {part: scores(part) for part in PARTS if part in parts}  # fmt: skip


def scale_files(catalog: Catalog, scales: Iterable[str]) -> list[str]:
    """Return the files that the settings of a stage's scales follow from.

    Where one of the scales is another's base, its file can't be named twice, and the whole folder is named instead.
    """
    folder, names = "recipes/scales", set(scales)
    bases = {catalog.scales[name].base for name in names} - {None}
    return [folder] if bases & names else [f"{folder}/{name}.yaml" for name in (SCALE, *sorted(bases))]


def drawn_from(recipe: str, catalog: Catalog, scales: Iterable[str]) -> list[str]:
    """Return the files that a recipe's figure and verdicts follow from, other than its scores."""
    analyses = [path for path in (ANALYSES / f"{recipe}.py",) if path.exists()]
    outside = own_code(catalog, catalog.recipes[recipe].arms, analyses)
    return [HOME, *outside, f"recipes/{recipe}.yaml", *FOR_ALL, *scale_files(catalog, scales)]


def analysis_stage(name: str, catalog: Catalog, matrix: dict, scales: Iterable[str]) -> dict:
    """Return the stage of one recipe's figure, data and verdicts.

    Args:
        name: of the recipe.
        catalog: of all recipes and scales.
        matrix: of the stage.
        scales: those of the matrix.
    """
    recipe, out = catalog.recipes[name], f"results/{SCALE}/{name}"
    drawn = ("figure", "front") if recipe.front else ("figure",)
    scores = [f"scores/{SCALE}/{folder.as_posix()}" for folder in scores_of(recipe)]
    return _stage(
        matrix,
        f"stemrepro analyse {name} --scale {SCALE}",
        recipe.paper_item,
        [*drawn_from(name, catalog, scales), *scores],
        _kept(f"{out}/data.csv", f"{out}/{VERDICTS}"),
        plots=_kept(*(f"{out}/{figure}.svg" for figure in drawn)),
    )


def metrics_stage(matrix: dict) -> dict:
    """Return the stage of what `dvc metrics show` lists.

    It needs scores of losses alone, so that an experiment can end here without judging and drawing. Its files are no
    metrics of the stage, as DVC would list them by name; a dvc.yaml that the stage writes (`metrics_list`) names them.
    """
    return _stage(
        matrix,
        f"stemrepro metrics --scale {SCALE}",
        "the loss of each arm, its gain over dense in the same seeds, and its cost",
        [HOME, "recipes", f"scores/{SCALE}/losses"],
        _kept(f"{METRICS}/{SCALE}"),
    )


def metrics_list(catalog: Catalog, scale: str) -> tuple[list[str], Path]:
    """Return the scales that are listed together with a scale's metrics, and the dvc.yaml that lists them.

    Those that git holds have one list, which git holds too; a plan of another scale has its own.
    """
    scales = list(published(catalog))
    return (scales, METRICS / "dvc.yaml") if scale in scales else ([scale], PLAN / "metrics" / "dvc.yaml")


def report_stage(matrix: dict, scoreboard: str, recipes: dict[str, Mapping[str, Recipe]]) -> dict:
    """Return the stage that writes the page.

    Args:
        matrix: of the stage.
        scoreboard: the folder of the page.
        recipes: those on the page, by scale.
    """
    folders = [f"results/{scale}/{name}" for scale, names in recipes.items() for name in names]
    results = [f"{folder}/{file}" for folder in folders for file in (VERDICTS, "data.csv", "figure.svg")]
    ranked = {name for part in recipes.values() for name, recipe in part.items() if recipe.measure == LEADERBOARD}
    pages = ["README.md", "index.html", "claims.csv", "questions"]
    pages += [f"{name}.{kind}" for name in sorted(ranked) for kind in ("csv", "md")]
    return _stage(
        matrix, f"stemrepro report --scale {SCALE}", "the page of all claims",
        [HOME, *([ANALYSES.as_posix()] if ANALYSES.exists() else []), "recipes", *results],
        _kept(*(f"{scoreboard}/{name}" for name in pages)),
    )  # fmt: skip


def published(catalog: Catalog) -> dict[str, Catalog]:
    """Return the scales whose results are committed, with their recipes.

    These are the scales on the project's page; the page's own scale comes first.
    """
    names = [name for name, scale in catalog.scales.items() if scale.scoreboard == RESULTS.as_posix()]
    scales = {name: catalog.at(name) for name in names}
    return dict(sorted(scales.items(), key=lambda item: catalog.scales[item[0]].named_only))


def drawing(catalog: Catalog) -> dict:
    """Return the stages of dvc.yaml: every committed figure and verdict, by the committed scores."""
    scales = published(catalog)
    at = {name: [scale for scale, part in scales.items() if name in part.recipes] for name in catalog.recipes}
    compared = [scale for scale, part in scales.items() if compared_arms(part)]
    by_scale = {scale: part.recipes for scale, part in scales.items()}
    return {
        **{name: analysis_stage(name, catalog, {"scale": where}, where) for name, where in at.items() if where},
        **({"metrics": metrics_stage({"scale": compared})} if compared else {}),
        "report": report_stage({"scale": list(scales)[:1]}, RESULTS.as_posix(), by_scale),
    }


def pipeline(catalog: Catalog, scale: str) -> dict:
    """Return the stages of plan/dvc.yaml, from text to scores; also those that draw, where dvc.yaml doesn't."""
    here, settings = catalog.at(scale), catalog.scale(scale)
    text = catalog.mixes[settings.data]
    others = [part.mix for part in catalog.mixes[settings.mid].parts.values()] if settings.mid else []
    parts = {part for recipe in here.recipes.values() for scored in recipe.scored().values() for part in scored}
    stages = {
        "check": _stage(
            BY_BOTH, f"stemrepro plan --check --scale {SCALE}",
            "a check that the plan follows from recipes/; the settings and code of each stage",
            ["recipes", PARAMS.as_posix(), HOME, *own_code(catalog, catalog.arms)],
            [f"data/{SCALE}/plan", f"data/{MIX}/plan"],
        ),
        **data_stages(other_texts(here), own_folders(text), own_folders(*others), is_large(text)),
        **run_stages(other_texts(here), parts),
    }  # fmt: skip
    if scale in published(catalog):
        return stages
    return stages | {
        **{name: analysis_stage(name, here, BY_SCALE, [scale]) for name in here.recipes},
        **({"metrics": metrics_stage(BY_SCALE)} if compared_arms(here) else {}),
        "report": report_stage(BY_SCALE, "${scoreboard}", {SCALE: here.recipes}),
    }


def sweep_stages(catalog: Catalog, scale: str) -> dict[str, dict]:
    """Return the stage of plan/sweeps/dvc.yaml: every sweep of recipes/sweeps/, at a scale.

    It depends on the whole package. That costs little, as a sweep knows by itself which of its trials still count.
    """
    file, settings = "recipes/sweeps/${item.sweep}.yaml", catalog.scale(scale)
    names = sorted(path.stem for path in (RECIPES / "sweeps").glob("*.yaml"))
    if not names:
        return {}
    base = [f"recipes/scales/{settings.base}.yaml"] if settings.base else []
    settings_of = ["recipes/arms.yaml", "recipes/variants.yaml", f"recipes/scales/{scale}.yaml", *base]
    deps = [HOME, *own_code(catalog, catalog.arms), file, *settings_of, f"data/{scale}/blocks"]
    return {
        "sweep": _stage(
            {"sweep": names}, f"stemrepro sweep {file} --scale {scale} --workers {settings.workers}",
            "a search for an arm's settings: trials that still count are kept, the others are run", deps,
            _kept(f"results/{scale}/sweeps/${{item.sweep}}", persist=True),
        )
    }  # fmt: skip


def targets(catalog: Catalog, scale: str, recipes: tuple[str, ...]) -> list[str]:
    """Return DVC's targets for a plan's results: some recipes, or all with the page."""
    where = "" if scale in published(catalog) else f"{PIPELINE.as_posix()}:"
    if recipes:
        return [f"{where}{name}@{scale}" for name in recipes]
    if where:
        return [PIPELINE.as_posix()]
    stages = drawing(catalog)
    names = [
        f"{name}@{scale}" for name, stage in stages.items() if scale in stage["matrix"]["scale"] and name != "report"
    ]
    return [PIPELINE.as_posix(), *names, f"report@{next(iter(published(catalog)))}"]


class _Plain(Dumper):
    def ignore_aliases(self, data: object) -> bool:  # a reader should not have to look up &id001
        return True


def pipeline_texts(catalog: Catalog, scale: str) -> dict[Path, str]:
    """Return the texts of dvc.yaml and of the files of plan/, but for params.yaml and targets."""
    files = {
        DRAWING: {"plots": CURVES, "stages": drawing(catalog)},
        PIPELINE: {"params": [PARAMS.name], "stages": pipeline(catalog, scale)},
        SWEEPS: {"stages": sweep_stages(catalog, scale)},
    }
    texts = {}
    dump = partial(yaml.dump, Dumper=_Plain, sort_keys=False, width=120)
    for path, content in files.items():
        home = {"wdir": "/".join([".."] * len(path.parent.parts))} if path.parent.parts else {}
        stages = {name: home | stage for name, stage in content["stages"].items()}
        texts[path] = HEADER + dump(content | {"stages": stages})
    return texts
