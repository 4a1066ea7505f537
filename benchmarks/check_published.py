"""Numbers of a published model by other code: transformers, numpy and torch alone, nothing of this package.

    python -m benchmarks.check_published [--out docs/checks.csv]

A line has a value as it comes out here, the committed one, and how far apart they are. It needs models/smollm2 and
data/text-8 ('stemrepro study premise' brings both), 2 GB of memory, and about five minutes of two cores. Edits by rows
are left out, as their rows take the whole text to make; those that patch need none. Exit code 1: a line is too
far off.
"""

import argparse
import csv
import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pandas as pd
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

SCORES, CORPUS, ITEMS = Path("scores/smollm2"), Path("data/text-8/corpus/corpus.parquet"), Path("data/text-8/items")
LENGTH, START, BATCH = 256, 0, 8
ROWS = dict.fromkeys(("speeches", "bible", "plays", "passages", "factbook"), 160)
ASKED, READ = (dict.fromkeys(("speeches", "bible", "plays", "passages"), count) for count in (12, 2))
PROMPT, PAIRS, QUESTIONS = "The capital of {} is", 10, 100
HERE, COMMITTED = "here", "committed"
TEXTS = [
    "",
    " ",
    "   three  and  two ",
    "\t\ttabs\tand\nlines\n\n\r\n",
    "naïve café, Ångström, Łódź, ñandú",
    "Ελληνικά и русский",
    "日本語の文、中文和한국어",
    "שלום עולם مرحبا",
    "🙂👩\u200d👩\u200d👧🇪🇸 emoji",
    "12345 and 1,234.5e-10",
    "1914\u201318; 3/4 at 5 o'clock",
    "don't I'LL we\u2019ve it's",
    "def f(x):\n    return x ** 2  # √x\n",
    "<b>&amp;</b> {'a': [1, 2]} $x_i^2$",
    "<|im_start|>user\nhi<|im_end|>",
    "<|endoftext|> in a text",
    "\x00\x07\x1b[0m control",
    "zero\u200bwidth\u00a0and\ufeffmarks",
    "e\u0301 against \u00e9",
    "CamelCaseAndSNAKE_case-with-dashes...!!!",
]
"""Of numerals they hold ASCII digits alone: transformers passes over the file's rule that others stand apart too."""


class Model:
    """The model and the tokenizer as transformers reads them from the GGUF."""

    def __init__(self, folder: Path) -> None:
        about = {"pretrained_model_name_or_path": folder, "gguf_file": "model.gguf"}
        self.tokenizer = AutoTokenizer.from_pretrained(**about)
        self.llama = AutoModelForCausalLM.from_pretrained(**about, dtype=torch.float32).eval()
        self.layers = self.llama.model.layers

    def tokens(self, text: str) -> list[int]:
        """Return the tokens of a text."""
        return self.tokenizer.encode(text, add_special_tokens=False)

    @contextmanager
    def hooked(self, hook: Callable[[int, torch.Tensor, torch.Tensor], object]) -> Iterator[None]:
        """Call a hook with each layer, what its W_u reads and what that gives; what it returns replaces that."""
        made = [
            layer.mlp.up_proj.register_forward_hook(lambda _, read, out, k=k: hook(k, read[0], out))
            for k, layer in enumerate(self.layers)
        ]
        yield
        for each in made:
            each.remove()

    def logs(self, tokens: list[int]) -> torch.Tensor:
        """Return the log-probabilities of the token after each of a text's [T, V]."""
        return self.llama(torch.tensor([tokens])).logits[0].double().log_softmax(dim=-1)


def sequences(model: Model, corpus: pd.DataFrame, split: str, sources: dict[str, int]) -> torch.Tensor:
    """Cut documents into sequences of LENGTH tokens: short ones are joined by line ends, of long ones a beginning."""
    found = []
    for source, wanted in sources.items():
        texts = corpus[(corpus["split"] == split) & (corpus["source"] == source)]["text"].tolist()
        each, cut, text = -(-wanted // len(texts)), [], None
        for document in texts:
            text = document if text is None else f"{text}\n{document}"
            tokens = model.tokens(text[: 8 * LENGTH * each])
            whole = [tokens[k : k + LENGTH - 1] for k in range(0, len(tokens) - LENGTH + 2, LENGTH - 1)][:each]
            if whole:
                cut, text = cut + whole, None
            if len(cut) >= wanted:
                break
        found += [[START, *part] for part in cut[:wanted]]
    return torch.tensor(found)


def read_by(model: Model, tokens: torch.Tensor, keep: Callable[[int, torch.Tensor, torch.Tensor], None]) -> None:
    """Call `keep` with each layer, tokens [n, T] and what the layer's FFN reads there [n, T, D]."""
    for first in range(0, len(tokens), BATCH):
        batch = tokens[first : first + BATCH]

        def pass_on(layer: int, read: torch.Tensor, _: torch.Tensor, batch=batch) -> None:
            keep(layer, batch, read)

        with model.hooked(pass_on):
            model.llama.model(batch)
        print(f"\r{first + len(batch)} of {len(tokens)} sequences", end="", file=sys.stderr)
    print(file=sys.stderr)


def explained(model: Model, corpus: pd.DataFrame) -> Iterator[tuple]:
    """Compare the shares of variance that means over an eighth of the rows' text explain, by layer."""
    text = sequences(model, corpus, "train", ROWS)[::8]
    seen, number = text.unique(return_inverse=True)
    index = torch.full((len(model.tokenizer),), len(seen))  # the last row: of tokens that the text lacks, its mean
    index[seen] = torch.arange(len(seen))
    counts = torch.bincount(number.flatten()).float()
    rows = torch.zeros(len(model.layers), len(seen) + 1, model.llama.config.hidden_size)
    read_by(model, text, lambda k, at, x: rows[k].index_add_(0, index[at.flatten()], x.flatten(0, 1)))
    means = rows.sum(dim=1) / counts.sum()
    rows[:, :-1] /= counts[:, None]
    rows[:, -1] = means
    sums = {what: torch.zeros(len(model.layers), 2, dtype=torch.double) for what in ("up", "gate")}

    def add_squares(layer: int, at: torch.Tensor, x: torch.Tensor) -> None:
        for what, total in sums.items():
            weight = getattr(model.layers[layer].mlp, f"{what}_proj").weight.T
            for place, row in enumerate((means[layer], rows[layer][index[at]])):
                total[layer, place] += ((x - row) @ weight)[:, 1:].square().sum()

    read_by(model, sequences(model, corpus, "validation", ASKED), add_squares)
    budget = text.numel()
    table = pd.read_parquet(SCORES / "premise/shares.parquet")
    table = table[table["budget"] == budget]
    for what, name in (("up", "W_u x"), ("gate", "W_g x")):
        tokens = table[(table["what"] == name) & (table["address"] == "token")]
        squares = tokens.groupby("layer")[["total", "left"]].sum()
        here, committed = (
            (100 * (1 - sums[what][:, 1] / sums[what][:, 0])).numpy(),
            100 * (1 - squares["left"] / squares["total"]),
        )
        for layer in (0, 1, 5, 10, 15, 20, 25, 29):
            yield f"{name} explained in layer {layer}, {budget:,} tokens (%)", here[layer], committed[layer], 0.1
        yield f"{name} explained, furthest layer apart (%)", *furthest(here, committed.to_numpy()), 0.1


def furthest(here: np.ndarray, committed: np.ndarray) -> tuple[float, float]:
    """Return the two values that are furthest apart."""
    place = int(np.abs(here - committed).argmax())
    return float(here[place]), float(committed[place])


def edited(model: Model) -> Iterator[tuple]:
    """Compare edits that put W_u x of the target's prompt at the source's name, of pairs whose answers are known."""
    table = pd.read_parquet(SCORES / "edits/edits.parquet")
    table = table[(table["relation"] == "capital") & (table["model"] == "published")]
    sets = {"layer 0": (0,), "full": range(1, len(model.layers))}
    pairs = table[table["method"] == "none"].iloc[:: max(1, (table["method"] == "none").sum() // PAIRS)][:PAIRS]
    found = {(name, side): [] for name in sets for side in (HERE, COMMITTED)}
    for source, target in zip(pairs["source"], pairs["target"], strict=True):
        prompts = [[START, *model.tokens(PROMPT.format(name))] for name in (source, target)]
        (place,) = [k for k, both in enumerate(zip(*prompts, strict=True)) if both[0] != both[1]]
        kept: dict[int, torch.Tensor] = {}

        def keep(layer: int, _: object, out: torch.Tensor, kept=kept, place=place) -> None:
            kept[layer] = out[:, place].clone()

        with model.hooked(keep):
            answer = model.logs(prompts[1])[-1].argmax()  # the right one, else the pair would not be there
        for name, layers in sets.items():

            def patch(layer: int, _: object, out: torch.Tensor, layers=layers, kept=kept, place=place) -> torch.Tensor:
                return out.index_copy(1, torch.tensor([place]), kept[layer][:, None]) if layer in layers else out

            with model.hooked(patch):
                found[name, HERE].append(model.logs(prompts[0])[-1].exp()[answer].item())
            row = (table["source"] == source) & (table["target"] == target) & (table["layers"] == name)
            found[name, COMMITTED].append(table[row & (table["method"] == "patched")]["new"].item())
    for name in sets:
        here, committed = (np.array(found[name, side]) for side in (HERE, COMMITTED))
        yield (
            f"target's answer, W_u x patched in {name}, mean of {len(here)} edits",
            here.mean(),
            committed.mean(),
            1e-4,
        )
        yield f"the same, furthest edit apart ({name})", *furthest(here, committed), 1e-3


def lost(model: Model, corpus: pd.DataFrame) -> Iterator[tuple]:
    """Compare the loss on held-out prose."""
    text = sequences(model, corpus, "validation", READ)
    here = [-model.logs(row[:-1].tolist()).gather(1, row[1:, None]).mean().item() for row in text]
    table = pd.read_parquet(SCORES / "premise/costs.parquet").drop_duplicates("sequence").sort_values("sequence")
    committed = (table["dense"] / table["tokens"]).to_numpy()
    yield f"loss of {len(here)} sequences of prose (nats/token)", np.mean(here), committed.mean(), 1e-4
    yield "the same, furthest sequence apart", *furthest(np.array(here), committed), 1e-4


def answered(model: Model) -> Iterator[tuple]:
    """Compare the choices among PIQA's answers, by log-likelihood and by that per character."""
    table = pd.read_parquet(SCORES / "scoreboard/choices.parquet")
    table = table[(table["model"] == "dense") & (table["task"] == "piqa")][:QUESTIONS]
    lines = (ITEMS / "piqa.jsonl").read_text(encoding="utf-8").splitlines()
    items = {item["id"]: item for item in map(json.loads, lines)}
    chosen = {"acc": [], "acc_norm": []}
    for name in table["item"]:
        query, choices, scores = items[name]["query"], items[name]["choices"], []
        begun = [START, *model.tokens(query)]
        for choice in choices:
            whole = [START, *model.tokens(f"{query} {choice}")]
            logs = model.logs(whole[:-1])[len(begun) - 1 :]
            scores.append(logs.gather(1, torch.tensor(whole[len(begun) :])[:, None]).sum().item())
        chosen["acc"].append(int(np.argmax(scores)))
        chosen["acc_norm"].append(int(np.argmax(np.array(scores) / [len(choice) for choice in choices])))
    for metric, places in chosen.items():
        asked = f"of {len(table)} items of PIQA, {metric}"
        yield f"right {asked}", (table["right"] == places).sum(), (table["right"] == table[metric]).sum(), 0
        yield f"same choices {asked}", (table[metric] == places).sum(), len(table), 0


def split(model: Model, folder: Path) -> Iterator[tuple]:
    """Compare tokens of odd texts with those of the package, which a process of its own reads from the same file."""
    code = (
        "import json, sys; from pathlib import Path; from stemrepro.convert.gguf import load_gguf; "
        "tokenizer = load_gguf(Path(sys.argv[1]))[1]; "
        "print(json.dumps([tokenizer.encode(text).ids for text in json.load(sys.stdin)]))"
    )
    command = [sys.executable, "-c", code, str(folder / "model.gguf")]
    done = subprocess.run(command, input=json.dumps(TEXTS), capture_output=True, text=True, check=True)
    same = sum(model.tokens(text) == tokens for text, tokens in zip(TEXTS, json.loads(done.stdout), strict=True))
    yield f"odd texts with the package's tokens, of {len(TEXTS)}", same, len(TEXTS), 0


@torch.no_grad()
def main() -> int:
    """Print and write all lines; return 1 where one is too far off."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", type=Path, default=Path("models/smollm2"), help="the folder of model.gguf")
    parser.add_argument("--out", type=Path, help="a CSV file")
    given = parser.parse_args()
    model, corpus = Model(given.models), pd.read_parquet(CORPUS)
    found = [*split(model, given.models), *lost(model, corpus), *edited(model), *answered(model)]
    found += explained(model, corpus)
    rows = []
    print(f"{'':75s} {HERE:>11s} {COMMITTED:>11s} {'apart':>9s}")
    for what, here, committed, allowed in found:
        apart = abs(float(here) - float(committed))
        off = apart > allowed
        print(f"{what:75s} {here:11.6g} {committed:11.6g} {apart:9.2g}{'  too far' if off else ''}")
        rows.append([what, f"{here:.6g}", f"{committed:.6g}", f"{apart:.2g}", allowed, "no" if off else "yes"])
    if given.out:
        with open(given.out, "w", encoding="utf-8", newline="") as file:
            writer = csv.writer(file, lineterminator="\n")
            writer.writerows([["what", HERE, COMMITTED, "apart", "allowed", "met"], *rows])
    return int(any(row[-1] == "no" for row in rows))


if __name__ == "__main__":
    sys.exit(main())
