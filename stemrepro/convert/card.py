"""The page that an exported model's folder begins with, made from the run's record."""

import inspect
from pathlib import Path
from typing import Any

from stemrepro.config.training import RunTraining
from stemrepro.measures import store
from stemrepro.measures.losses import ArmLosses
from stemrepro.model.config import ModelConfig
from stemrepro.model.cost import parameter_counts
from stemrepro.model.ffn.base import ffn_class
from stemrepro.training.run_folder import Settings

BOUND = 1e-4
"""How far a logit of the exported model may be from ours, in float32; measured are a few 1e-5 at logits up to 20."""

PAGE = """---
library_name: transformers
pipeline_tag: text-generation
tags: {tags}
---

# {title}

A run of stemrepro, which reproduces [STEM: Scaling Transformers with Embedding Modules](https://arxiv.org/abs/2601.10639).

{record}

## Load

{begins}. Made for transformers 5.

```python
from transformers import AutoModelForCausalLM, AutoTokenizer

tokenizer = AutoTokenizer.from_pretrained("FOLDER"{trust})
model = AutoModelForCausalLM.from_pretrained("FOLDER"{trust})
inputs = tokenizer("The capital of Germany is", return_tensors="pt")
print(tokenizer.decode(model.generate(**inputs, max_new_tokens=20, do_sample=False)[0]))
```

`lm_eval --model hf --model_args pretrained=FOLDER{arguments}` scores it.

## Scores

{scores}

## Limits

{limits}

## Data and licences

[data_card.md](data_card.md) names every source of the text with licence and attribution. {code}
"""


def _record(scale: str, settings: Settings, made: dict[str, Any]) -> list[str]:
    model, training, counts = settings.model, settings.training, parameter_counts(settings.model)
    network = inspect.getdoc(ffn_class(model.ffn if model.replaced_layers else "dense")) or ""
    placed = f"{', '.join(map(str, model.replaced_layers))} of 0 to {model.layers - 1}; the others are dense"
    rows = {
        "arm": f"`{settings.address}` of scale `{scale}`, seed {settings.seed}",
        "feed-forward network": " ".join(network.split("\n\n")[0].split()),
        "in layers": placed if model.replaced_layers else f"all {model.layers}",
        "shape": f"width {model.width}, {model.heads} heads over {model.kv_heads} of keys and values, feed-forward "
        f"width {model.ffn_width}, vocabulary {model.vocab:,}, rotary base {model.rope_base:g}",
        "parameters": f"{counts['total']:,}: {counts['tables']:,} in tables, {counts['active']:,} that a token "
        "goes through",
        "trained on": f"{training.tokens:,} tokens of mix `{settings.data.mix}` in sequences of {training.sequence} "
        f"({made['epochs']:g} epochs; sha256 of the training blocks {settings.data.train_sha256[:16]})",
        "settings": f"hash {settings.params_hash}; learning rate {training.learning_rate:g}, "
        f"precision {training.precision}",
        "commit": f"{made['commit']}, {made['date']}, torch {made['versions'].get('torch')}, {made['machine']}",
    }
    if parent := settings.init_from:
        rows["resumes from"] = f"the finished run with settings {parent.parent}, its tables {parent.tables}"
    return ["| | |", "|---|---|", *(f"| {name} | {text} |" for name, text in rows.items())]


def _scores(settings: Settings, folder: Path) -> list[str]:
    arm, seed = ArmLosses(folder, settings.address), settings.seed
    if settings.address not in store.with_losses(folder):
        return ["This run wasn't scored when it was exported (`stemrepro score`)."]
    if arm.summary["params_hash"] != settings.params_hash or seed not in arm.scored:
        return ["The scores at the time of the export are of other runs or settings than this one's; none are shown."]
    losses = {
        "prose, nats per token": arm.loss("prose"),
        "prose, bits per byte": arm.bits_per_byte,
        "all sources, nats per token": arm.loss("all"),
    }
    rows = [f"| {name} | {values[seed]:.4f} | {values.mean():.4f} |" for name, values in losses.items()]
    head = f"| | seed {seed} | mean of {len(arm.scored)} seeds |"
    return ["Validation losses; every source counts the same.", "", head, "|---|--:|--:|", *rows]


def _limits(model: ModelConfig, training: RunTraining) -> list[str]:
    lines = [
        f"A model of a study of architectures, after {training.tokens:,} tokens; nothing was done to make its text "
        "true or harmless.",
        f"Positions beyond {training.sequence} were never trained.",
        f"In float32 its logits are those of the run's model within {BOUND:g}; other precisions were not compared.",
    ]
    if model.document_mask:
        lines += [
            "It was trained with a mask that keeps documents from seeing each other, which is not carried over: "
            "give it one document at a time. The tokenizer therefore puts no end mark before a text, "
            "which the run's model would not see either."
        ]
    else:
        lines += ["A text begins after an end mark, as in training; the tokenizer puts it there."]
    if model.table_shared:
        lines += ["The layers share one table, which is written for each of them: the file is larger than the model."]
    if ffn_class(model.ffn).row_address == "order":
        lines += ["Its rows were shuffled at every training step; here each token has the row of the last shuffle."]
    if model.replaced_layers:
        lines += ["Rows are read by token: inputs as embeddings (`inputs_embeds`) are refused."]
    return [f"- {line}" for line in lines]


def card(scale: str, settings: Settings, provenance: dict[str, Any], losses: Path) -> str:
    """Return the folder's README.md; `losses` is where the scores of the run's arm would be."""
    trust, begins, tags = "", "Plain Llama", "[research]"
    if settings.model.replaced_layers:
        trust, tags = ", trust_remote_code=True", "[research, stem]"
        begins = "`trust_remote_code` runs modeling_stem.py of this folder; read it before"
    return PAGE.format(
        tags=tags,
        code="The code in this folder is Apache-2.0.",
        title=f"{settings.address}, seed {settings.seed}",
        record="\n".join(_record(scale, settings, provenance)),
        begins=begins,
        trust=trust,
        arguments=trust.replace(" ", ""),
        scores="\n".join(_scores(settings, losses)),
        limits="\n".join(_limits(settings.model, settings.training)),
    )
