"""dvc.yaml, written from the recipes and from what the code of each stage imports.

Few stages: run folders and scores know what is theirs, so that one stage can hold all runs of a scale and an edit of one arm trains one
arm. A stage's code is the import closure of what it runs.
"""

from pathlib import Path

import yaml

from stemrepro import imports
from stemrepro.book import Book
from stemrepro.measures import MEASURES
from stemrepro.measures.base import measure_class
from stemrepro.model.specs import FFNS
from stemrepro.recipe import Recipe
from stemrepro.runs import MAIN, Address

PIPELINE = Path("dvc.yaml")
ANALYSES = Path("analysis")
HEADER = (
    "# Written by 'stemrepro plan' from recipes/ and the code's imports. Don't edit: stemrepro/pipeline.py writes it.\n"
)
SCALE, MIX = "${item.scale}", "${item.mix}"
FIGURES = ("figure.pdf", "figure.svg", "figure.png")


def _code(*places: str | Path) -> list[str]:
    """Files that modules, or files outside the package, rest on, from the repository's root."""
    root = imports.ROOT.parent
    return [
        path.relative_to(root).as_posix() if path.is_absolute() else path.as_posix() for path in imports.files(places)
    ]


def _networks(book: Book) -> list[str | Path]:
    """The modules of every feed-forward network."""
    from stemrepro.model.ffn.naming import module_of

    return [module_of(name) for name in dict.fromkeys([*FFNS, *(arm.ffn for arm in book.arms.values())])]


def _kept(*paths: str, persist: bool = False) -> list[dict]:
    """Outputs that git holds."""
    return [{path: {"cache": False} | ({"persist": True} if persist else {})} for path in paths]


def _stage(matrix: dict, cmd: str, desc: str, deps: list[str], outs: list, **more: object) -> dict:
    return {"desc": desc, "matrix": matrix, "cmd": cmd, "deps": deps, "outs": outs} | more


def data_stages() -> dict[str, dict]:
    """From pinned archives to token blocks."""
    by_mix, by_scale = {"mix": "${mixes}"}, {"scale": "${scales}", "mix": "${mixes}"}
    raw, corpus, items, data = f"data/{MIX}/raw", f"data/{MIX}/corpus", f"data/{MIX}/items", f"data/{SCALE}"
    planned, tokenizer = f"{data}/plan-checked", f"{data}/tokenizer.json"
    mix, home = {"params": [f"mix.{MIX}"]}, "stemrepro.data"
    return {
        "fetch": _stage(
            by_mix, f"stemrepro data fetch --mix {MIX}", "pinned archives by sha256, or the vendored sample",
            [*_code(f"{home}.archives", f"{home}.hub"), "stemrepro/data/archives.txt", "stemrepro/data/sample"],
            [{raw: {"persist": True}}], **mix,
        ),
        "corpus": _stage(
            by_mix, f"stemrepro data corpus --mix {MIX}", "clean documents, duplicates removed, split by whole documents",
            [raw, *_code(f"{home}.corpus")], [corpus], **mix,
        ),
        "items": _stage(
            by_mix, f"stemrepro data items --mix {MIX}",
            "multiple-choice items of the benchmarks, less those that stand in the training text",
            [raw, corpus, *_code(f"{home}.items")], [items], **mix,
        ),
        "tokenizer": _stage(
            by_scale, f"stemrepro data tokenizer --scale {SCALE}", "byte-level BPE of the training split",
            [planned, corpus, *_code(f"{home}.tokenizer")], [tokenizer],
            params=[f"scale.{SCALE}.data", f"scale.{SCALE}.vocab"],
        ),
        "blocks": _stage(
            by_scale, f"stemrepro data blocks --scale {SCALE}", "token blocks, and the data card",
            [corpus, items, tokenizer, *_code(f"{home}.encoding", f"{home}.card")],
            [f"{data}/blocks", *_kept(f"results/{SCALE}/data_card.md")],
        ),
        "vocabularies": _stage(
            by_scale, f"stemrepro data vocabularies --scale {SCALE}", "the same text in the other vocabularies that points ask for",
            [planned, corpus, *_code(f"{home}.vocabularies", f"{home}.encoding", f"{home}.tokenizer")], [f"{data}/vocabularies"],
            params=[f"scale.{SCALE}.vocabularies"],
        ),
        "counts": _stage(
            by_scale, f"stemrepro data counts --scale {SCALE}",
            "distinct tokens by length and hits of row caches, counted in the text alone",
            [corpus, tokenizer, *_code(f"{home}.counting")],
            _kept(f"scores/{SCALE}/text/distinct.csv", f"scores/{SCALE}/text/cache.csv"),
            params=[f"scale.{SCALE}.counting"],
        ),
    }  # fmt: skip


def run_stages(book: Book) -> dict[str, dict]:
    """Training and scoring of all runs of a scale."""
    by_scale, text = {"scale": "${scales}"}, [f"data/{SCALE}/blocks", f"data/{SCALE}/vocabularies"]
    runs, networks = f"runs/{SCALE}", _networks(book)

    def scores(part: str, matrix: dict, desc: str, deps: list[str]) -> dict:
        module = f"stemrepro.evaluation.{part}"
        return _stage(
            matrix, f"stemrepro evaluate --scale {SCALE} --part {part}", desc,
            [*deps, runs, *_code(module, *networks)], _kept(f"scores/{SCALE}/{part}", persist=True),
            params=[f"run.{SCALE}", f"scale.{SCALE}"],
        )  # fmt: skip

    items = [f"data/{MIX}/items", f"data/{SCALE}/tokenizer.json", text[0], "stemrepro/evaluation/tasks"]
    return {
        "train": _stage(
            by_scale, f"stemrepro train --scale {SCALE} --replace",
            "every run that recipes want; finished ones return at once, a killed one resumes",
            [*text, *_code("stemrepro.training.train", *networks)], [{runs: {"persist": True}}], params=[f"run.{SCALE}"],
        ),
        "losses": scores("losses", by_scale, "losses of training and of validation, also by position and context", text),
        "benchmarks": scores(
            "benchmarks", by_scale | {"mix": "${mixes}"}, "benchmark scores by lm-eval, item by item", items
        ),
        "geometry": scores("geometry", by_scale, "angles between FFN vectors", text),
    }  # fmt: skip


def _scores_of(recipe: Recipe) -> list[str]:
    """The score folders that a recipe reads."""
    found = []
    for address, parts in recipe.wanted().items():
        kinds = dict.fromkeys(part if part in ("benchmarks", "geometry") else "losses" for part in parts)
        found += [f"scores/{SCALE}/{kind}/{address.path.as_posix()}" for kind in kinds]
    return found + ([f"scores/{SCALE}/text"] if measure_class(recipe.measure).reads_text else [])


def analysis_stage(name: str, recipe: Recipe) -> dict:
    """One recipe's figure, data and verdicts, by its own file of analysis/ or by the forest plot that every recipe has."""
    own = ANALYSES / f"{name}.py"
    places: list[str | Path] = ["stemrepro.analyse", MEASURES[recipe.measure].partition(":")[0]]
    recipes = [f"recipes/{file}.yaml" for file in (name, "arms", "points", "paper", "shapes", f"scales/{SCALE}")]
    out = f"results/{SCALE}/{name}"
    return _stage(
        {"scale": "${scales}"}, f"stemrepro analyse {name} --scale {SCALE}", recipe.paper_item,
        [*recipes, *_scores_of(recipe), *_code(*places, *([own] if own.exists() else []))],
        _kept(*(f"{out}/{file}" for file in (*FIGURES[:2], "data.csv", "verdicts.json"))),
        plots=_kept(f"{out}/{FIGURES[2]}"),
    )  # fmt: skip


def pipeline(book: Book) -> dict:
    """All stages, and the metrics that `dvc metrics show` lists."""
    by_scale = {"scale": "${scales}"}
    results = [f"results/{SCALE}/{name}/{file}" for name in book.recipes for file in ("verdicts.json", "figure.svg")]
    stages = {
        "check": _stage(
            by_scale, f"stemrepro plan --check --scale {SCALE}", "params.yaml and dvc.yaml must follow from recipes/ and the code",
            ["recipes", "params.yaml", "stemrepro", "analysis"], [f"data/{SCALE}/plan-checked"],
        ),
        **data_stages(),
        **run_stages(book),
        **{name: analysis_stage(name, recipe) for name, recipe in book.recipes.items()},
        "report": _stage(
            by_scale, f"stemrepro report --scale {SCALE}", "the scoreboard, a page with every claim",
            ["recipes", "stemrepro/report/scoreboard.html", *results, *_code("stemrepro.report.scoreboard")],
            _kept("${scoreboard}/README.md", "${scoreboard}/index.html"),
        ),
    }  # fmt: skip
    mains = sorted({a.arm for recipe in book.recipes.values() for a in recipe.wanted() if a.point == MAIN})
    metrics = [f"scores/${{scales[0]}}/losses/{Address(MAIN, arm).path.as_posix()}/summary.json" for arm in mains]
    return {"stages": stages, "metrics": metrics}


def pipeline_text(book: Book) -> str:
    """The bytes of dvc.yaml."""
    return HEADER + yaml.safe_dump(pipeline(book), sort_keys=False, width=120)
