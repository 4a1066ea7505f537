"""A trained run as a folder that transformers loads."""

import os
import shutil
import tempfile
from pathlib import Path
from typing import Any

from safetensors.torch import save
from tokenizers import Tokenizer
from tokenizers.processors import TemplateProcessing

from stemrepro.api import load
from stemrepro.common.errors import UserError
from stemrepro.common.files import atomic_write, damaged, json_text
from stemrepro.common.provenance import Trained, read_provenance
from stemrepro.convert.card import card
from stemrepro.convert.weights import check, settings, weights
from stemrepro.data.tokenizer import END_TEXT
from stemrepro.model.config import END_OF_DOCUMENT
from stemrepro.training.run_folder import read_config

CODE = Path(__file__).with_name("huggingface")
"""The code that is copied as it is; it imports nothing of this project."""
MID = "mid"
"""The text that has another data card."""


def _tokenizer_files(tokenizer: Tokenizer, context: int, begins: bool) -> dict[str, str | dict[str, Any]]:
    """Return tokenizer.json and its settings; `begins`: a text begins after an end mark."""
    exported = Tokenizer.from_str(tokenizer.to_str())
    if begins:
        exported.post_processor = TemplateProcessing(
            single=f"{END_TEXT} $A", pair=f"{END_TEXT} $A $B", special_tokens=[(END_TEXT, END_OF_DOCUMENT)]
        )
    about = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "bos_token": END_TEXT,
        "eos_token": END_TEXT,
        "pad_token": END_TEXT,
        "model_max_length": context,
        "clean_up_tokenization_spaces": False,
        "split_special_tokens": True,  # a text that holds END_TEXT doesn't end there
    }
    return {"tokenizer.json": exported.to_str(pretty=True) + "\n", "tokenizer_config.json": about}


def _data_card(mix: str, scale: str, results: Path) -> str:
    path = results / scale / (f"data_card_{MID}.md" if mix == MID else "data_card.md")
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        step = MID if mix == MID else "blocks"
        raise UserError(
            f"{path} can't be read ({type(error).__name__}), and an exported model names the licences of its text; "
            f"'stemrepro data {step} --scale {scale}' writes it"
        ) from error


def export(run: Path, out: Path, data: Path, scores: Path, results: Path) -> None:
    """Write a run's model, tokenizer, card and, for all but dense models, the code that transformers loads them with.

    The folder appears whole or not at all.

    Args:
        data, scores, results: where the scales' tokenizers, scores and data cards lie.

    Raises:
        UserError: the run is missing, damaged or unfinished, its network has no counterpart, or `out` exists.
    """
    if out.exists():
        raise UserError(f"{out} exists already; name another folder, or remove it")
    if (run / "diverged.json").exists():
        raise UserError(f"{run} diverged (diverged.json) and has no weights to export; choose another run")
    made_with = read_config(run)
    check(made_with.model)  # before a network is imported that can't be exported
    loaded = load(run, data)
    scale = run.resolve().parts[-4]
    made = read_provenance(record := run / "provenance.json", Trained)
    if made["params_hash"] != made_with.params_hash:
        raise damaged(record, "it is of a run with other settings")
    losses = scores / scale
    ends = {"bos_token_id": END_OF_DOCUMENT, "eos_token_id": END_OF_DOCUMENT, "pad_token_id": END_OF_DOCUMENT}
    files: dict[str, str | bytes | dict[str, Any]] = {
        "README.md": card(scale, made_with, made, losses),
        "data_card.md": _data_card(made_with.data.mix, scale, results),
        "config.json": settings(loaded.model, loaded.context),
        "generation_config.json": ends,
        "model.safetensors": save(weights(loaded.model), {"format": "pt"}),
        **_tokenizer_files(loaded.tokenizer, loaded.context, not loaded.model.config.document_mask),
    }
    if loaded.model.config.replaced_layers:
        files |= {path.name: path.read_text(encoding="utf-8") for path in sorted(CODE.glob("*.py"))}
    out.parent.mkdir(parents=True, exist_ok=True)
    aside = Path(tempfile.mkdtemp(dir=out.parent, prefix=f".{out.name}."))
    try:
        for name, content in files.items():
            atomic_write(aside / name, json_text(content) if isinstance(content, dict) else content)
        aside.chmod(0o755)
        os.rename(aside, out)
    except BaseException:
        shutil.rmtree(aside, ignore_errors=True)
        raise
