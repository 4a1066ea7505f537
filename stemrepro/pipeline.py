"""dvc.yaml, and what its stages depend on beside their inputs: what is asked of each and its code, both computed.

Few stages: run folders and scores know what is theirs, so that one stage can hold all runs of a scale and an edit of one arm trains one
arm. The first stage, `check`, writes a stamp a stage, {"asked": ..., "code": {file: hash}}: the settings that concern it, and the import
closure of what it runs without comments and docstrings. A stage whose stamp is the same has nothing to do.
"""

from pathlib import Path

import yaml

from stemrepro import imports
from stemrepro.book import Book
from stemrepro.elsewhere import LONG_END
from stemrepro.files import sha256, write_json
from stemrepro.measures import MEASURES
from stemrepro.measures.base import measure_class
from stemrepro.metrics import METRICS, compared_arms
from stemrepro.model.ffn.naming import module_of
from stemrepro.params import Params
from stemrepro.recipe import Recipe
from stemrepro.work import DATA, RESULTS

PIPELINE = Path("dvc.yaml")
ANALYSES = Path("analysis")
HEADER = "# Written by 'stemrepro plan' from recipes/. Don't edit: stemrepro/pipeline.py writes it.\n"
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
    "losses": ("evaluation.losses",),
    "benchmarks": ("evaluation.benchmarks",),
    "geometry": ("evaluation.geometry",),
    "facts": ("evaluation.facts",),
    "edits": ("evaluation.edits",),
    "recall": ("evaluation.recall",),
    "capacity": ("evaluation.capacity",),
    "haystack": ("evaluation.haystack",),
    "distance": ("evaluation.distance",),
    "reasoning": ("evaluation.reasoning",),
    "metrics": ("metrics",),
    "report": ("report.scoreboard",),
}
"""The modules that stages run, by stage; those of analyses follow from their recipes."""
WITH_MODELS = (
    "train",
    "losses",
    "benchmarks",
    "geometry",
    "facts",
    "edits",
    "recall",
    "capacity",
    "haystack",
    "distance",
    "reasoning",
)


def _modules(names: tuple[str, ...]) -> list[str | Path]:
    return [f"{HOME}.{name}" for name in names]


def own_code(book: Book) -> list[Path]:
    """Files outside the package and analysis/ that arms take their networks from, that analyses import, or that these import."""
    places = [module_of(arm.ffn) for arm in book.arms.values()]
    found = imports.outside([*(place for place in places if isinstance(place, Path)), *sorted(ANALYSES.glob("*.py"))])
    return sorted(file for file in found if ANALYSES not in file.parents)


def _analysis_code(name: str, recipe: Recipe) -> list[str | Path]:
    own = ANALYSES / f"{name}.py"
    return [f"{HOME}.analyse", MEASURES[recipe.measure].partition(":")[0], *([own] if own.exists() else [])]


def _asked_of_analysis(book: Book, scale: str, recipe: Recipe, folder: Path) -> dict:
    """What an analysis takes from recipes/: itself, its arms with their looks, its points, the scale, the paper's numbers."""
    arms = {name: [repr(field) for field in book.arms[name]] for name in recipe.arms}
    return {
        "recipe": recipe.model_dump(mode="json"),
        "arms": arms,
        "points": {name: book.points[name].model_dump() for name in recipe.points},
        "scale": book.scale(scale).model_dump(mode="json"),
        "numbers": {file: sha256(folder / f"{file}.yaml") for file in ("paper", "shapes")},
    }


def write_stamps(book: Book, params: Params, folder: Path, data: Path = DATA) -> None:
    """Writes `data`/<mix>/plan/<stage>.json and `data`/<scale>/plan/<stage>.json for every stage of a plan.

    Args:
        folder: recipes/.
    """
    (scale,), (mix,) = params.scales, params.mixes
    settings, runs = params.scale[scale].model_dump(mode="json"), params.model_dump(mode="json")["run"][scale]
    networks = [module_of(own.model.ffn) for own in params.planned(scale).values()]
    networks = list(dict.fromkeys([module_of("dense"), *networks]))
    asked = {
        "tokenizer": settings["vocab"],
        "vocabularies": settings["vocabularies"],
        "counts": settings["counting"],
        "train": runs,
        "losses": [runs, settings["evaluation"]],
        "benchmarks": [runs, settings["benchmarks"]],
        "geometry": [runs, settings["geometry"], settings["evaluation"]],
        "facts": [runs, settings.get("knowledge")],
        "edits": [runs, settings.get("knowledge")],
        "recall": [runs, settings.get("recall")],
        "haystack": [runs, settings.get("haystack")],
        "distance": [runs, settings["evaluation"]],
        "reasoning": [runs, settings.get("reasoning")],
        "capacity": runs,
        "people": [settings.get("people"), params.mix[mix].model_dump(mode="json")],
        "mid": settings.get("mid"),
        "metrics": compared_arms(book.at(scale)),
        "report": {path.name: sha256(path) for path in sorted(folder.glob("*.yaml"))},
    }

    def stamp(owner: str, stage: str, about: object, places: list[str | Path]) -> None:
        write_json(data / owner / "plan" / f"{stage}.json", {"asked": about, "code": imports.code_hashes(*places)})

    for stage, names in OF_MIX.items():
        stamp(mix, stage, params.mix[mix].model_dump(mode="json"), _modules(names))
    for stage, names in OF_SCALE.items():
        stamp(scale, stage, asked.get(stage), _modules(names) + (networks if stage in WITH_MODELS else []))
    for name, recipe in book.at(scale).recipes.items():
        stamp(scale, name, _asked_of_analysis(book, scale, recipe, folder), _analysis_code(name, recipe))


def _kept(*paths: str, persist: bool = False) -> list[dict]:
    """Outputs that git holds."""
    return [{path: {"cache": False} | ({"persist": True} if persist else {})} for path in paths]


def _stage(matrix: dict, cmd: str, desc: str, deps: list[str], outs: list, **more: object) -> dict:
    return {"desc": desc, "matrix": matrix, "cmd": cmd, "deps": deps, "outs": outs} | more


BY_MIX, BY_SCALE = {"mix": "${mixes}"}, {"scale": "${scales}"}
BY_BOTH = BY_SCALE | BY_MIX


def asks_for_people(book: Book) -> bool:
    """Does a recipe want a point whose text is about another number of invented people?"""
    return any(book.points[point].people != 1 for recipe in book.recipes.values() for point in recipe.points)


def asks_for_blend(book: Book) -> bool:
    """Does a recipe want a point that goes on with a blend?"""
    extensions = [book.points[point].extends for recipe in book.recipes.values() for point in recipe.points]
    return any(extends is not None and extends.text == "mid" for extends in extensions)


def other_texts(book: Book) -> list[str]:
    """The texts beside a scale's own that its recipes' points may ask for: folders below the scale's data, and stages."""
    asked = {"people": asks_for_people(book), "mid": asks_for_blend(book)}
    return ["vocabularies", *(name for name, wanted in asked.items() if wanted)]


def data_stages(others: list[str]) -> dict[str, dict]:
    """From pinned archives to token blocks."""
    raw, corpus, items, own = f"data/{MIX}/raw", f"data/{MIX}/corpus", f"data/{MIX}/items", f"data/{SCALE}"
    tokenizer = f"{own}/tokenizer.json"

    def by_mix(name: str, desc: str, deps: list[str], outs: list) -> dict:
        return _stage(BY_MIX, f"stemrepro data {name} --mix {MIX}", desc, [f"data/{MIX}/plan/{name}.json", *deps], outs)

    def by_scale(name: str, desc: str, deps: list[str], outs: list) -> dict:
        return _stage(BY_BOTH, f"stemrepro data {name} --scale {SCALE}", desc, [f"{own}/plan/{name}.json", *deps], outs)

    more = {
        "vocabularies": by_scale(
            "vocabularies", "the same text in the other vocabularies that points ask for", [corpus], [f"{own}/vocabularies"]
        ),
        "people": by_scale(
            "people", "texts about other numbers of invented people, that points ask for", [tokenizer], [f"{own}/people"],
        ),
        "mid": by_scale(
            "mid", "the scale's own text with texts of other kinds, for the stage of training that points ask for",
            [corpus, tokenizer, "stemrepro/data/archives.txt", "stemrepro/data/sample"],
            [{f"{own}/mid": {"persist": True}}, *_kept(f"results/{SCALE}/data_card_mid.md")],
        ),
    }  # fmt: skip
    return {
        "fetch": by_mix(
            "fetch", "pinned archives by sha256, or the vendored sample",
            ["stemrepro/data/archives.txt", "stemrepro/data/sample"], [{raw: {"persist": True}}],
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

    def scores(part: str, matrix: dict, desc: str, deps: list[str]) -> dict:
        cmd, out = f"stemrepro evaluate --scale {SCALE} --part {part}", f"scores/{SCALE}/{part}"
        return _stage(matrix, cmd, desc, [f"{plan}/{part}.json", *deps, runs], _kept(out, persist=True))

    items = [f"data/{MIX}/items", f"data/{SCALE}/tokenizer.json", text[0], "stemrepro/evaluation/tasks"]
    known = [f"data/{MIX}/corpus", f"data/{SCALE}/tokenizer.json"]
    scored = {
        "losses": scores(
            "losses", BY_SCALE, "losses of training and of validation, also by position and context", text
        ),
        "benchmarks": scores("benchmarks", BY_BOTH, "benchmark scores by lm-eval, item by item", items),
        "geometry": scores("geometry", BY_SCALE, "angles between FFN vectors", text),
        "facts": scores("facts", BY_BOTH, "what models know of a mix of facts", known),
        "edits": scores("edits", BY_BOTH, "what models say when they read another entity's rows", known),
        "recall": scores("recall", BY_SCALE, "what models recall of their context", [known[1]]),
        "capacity": scores("capacity", BY_SCALE, "bits of invented people that models hold", [known[1]]),
        "distance": scores("distance", BY_SCALE, "losses by how far back targets stood last", text),
        "reasoning": scores("reasoning", BY_SCALE, "tasks of reasoning, by lm-eval", [known[1]]),
        "haystack": scores("haystack", BY_BOTH, "needles that models find, by length and depth", known),
    }
    return {
        "train": _stage(
            BY_SCALE, f"stemrepro train --scale {SCALE} --replace",
            "every run that recipes want; finished ones return at once, a killed one resumes",
            [f"{plan}/train.json", *text], [{runs: {"persist": True}}],
        ),
    } | {part: stage for part, stage in scored.items() if part in parts}  # fmt: skip


def scores_of(recipe: Recipe) -> list[Path]:
    """The score folders that a recipe reads, below scores/<scale>."""
    folders = [Path(part) / address.path for address, parts in recipe.scored().items() for part in parts]
    return folders + ([Path("text")] if measure_class(recipe.measure).reads_text else [])


def analysis_stage(name: str, recipe: Recipe) -> dict:
    """One recipe's figure, data and verdicts, by its own file of analysis/ or by the forest plot that every recipe has."""
    out, drawn = f"results/{SCALE}/{name}", ("figure", "front") if recipe.front else ("figure",)
    return _stage(
        BY_SCALE, f"stemrepro analyse {name} --scale {SCALE}", recipe.paper_item,
        [f"data/{SCALE}/plan/{name}.json", *(f"scores/{SCALE}/{folder.as_posix()}" for folder in scores_of(recipe))],
        _kept(*(f"{out}/{name}.{kind}" for name in drawn for kind in KINDS[:2]), *(f"{out}/{file}" for file in ("panels", "data.csv", "verdicts.json", "explained.html"))),
        plots=_kept(*(f"{out}/{name}.{KINDS[2]}" for name in drawn)),
    )  # fmt: skip


def metrics_stage() -> dict:
    """What `dvc metrics show` lists. It needs scores of losses alone, so that an experiment ends here without judging and drawing."""
    return _stage(
        BY_SCALE, f"stemrepro metrics --scale {SCALE}", "of each arm its loss, what it gains on dense in the same seeds, and its cost",
        [f"data/{SCALE}/plan/metrics.json", f"scores/{SCALE}/losses"], [], metrics=_kept(f"{METRICS}/{SCALE}"),
    )  # fmt: skip


def pipeline(book: Book) -> dict:
    """All stages."""
    results = [
        f"results/{SCALE}/{name}/{file}" for name in book.recipes for file in ("verdicts.json", "figure.svg", "panels")
    ]
    stages = {
        "check": _stage(
            BY_BOTH, f"stemrepro plan --check --scale {SCALE}",
            "params.yaml and dvc.yaml must follow from recipes/; what is asked of each stage, and its code",
            ["recipes", "params.yaml", "stemrepro", *([ANALYSES.as_posix()] if ANALYSES.exists() else []),
             *(path.as_posix() for path in own_code(book))],
            [f"data/{SCALE}/plan", f"data/{MIX}/plan"],
        ),
        **data_stages(other_texts(book)),
        **run_stages(other_texts(book), {part for recipe in book.recipes.values() for own in recipe.scored().values() for part in own}),
        **{name: analysis_stage(name, recipe) for name, recipe in book.recipes.items()},
        **({"metrics": metrics_stage()} if compared_arms(book) else {}),
        "report": _stage(
            BY_SCALE, f"stemrepro report --scale {SCALE}", "the scoreboard, a page with every claim",
            [f"data/{SCALE}/plan/report.json", "stemrepro/report/scoreboard.html", *results,
             *(path.as_posix() for name in ("data.csv", "figure.svg", "panels", "verdicts.json") if (path := RESULTS / LONG_END.parent / name).exists())],
            _kept(*(f"${{scoreboard}}/{name}" for name in ("README.md", "index.html", "claims.csv"))),
        ),
    }  # fmt: skip
    return {"params": ["params.yaml"], "stages": stages}


class _Plain(yaml.SafeDumper):
    def ignore_aliases(self, data: object) -> bool:  # a reader should not have to look up &id001
        return True


def pipeline_text(book: Book) -> str:
    """The bytes of dvc.yaml."""
    return HEADER + yaml.dump(pipeline(book), Dumper=_Plain, sort_keys=False, width=120)
