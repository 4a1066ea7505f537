"""Exported models in a process that can't import stemrepro, against the run's own model: logits, greedy text, scores of lm-eval."""

import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
import yaml
from lm_eval import simple_evaluate
from safetensors.torch import save_file
from transformers import dynamic_module_utils
from typer.testing import CliRunner

from stemrepro.arm import run_settings
from stemrepro.book import load
from stemrepro.cli import app
from stemrepro.data.tokenizer import read_tokenizer
from stemrepro.errors import UserError
from stemrepro.evaluation.lm import StemLM, task_manager
from stemrepro.export.card import BOUND
from stemrepro.export.folder import export
from stemrepro.export.weights import REFUSED
from stemrepro.files import digest
from stemrepro.model.config import END_OF_DOCUMENT
from stemrepro.model.generate import continuations
from stemrepro.model.specs import FFNS
from stemrepro.model.transformer import build
from stemrepro.provenance import provenance
from stemrepro.runs import MAIN, Address, Run, params_hash
from stemrepro.scale import Point
from tests.conftest import ROOT, TASKS
from tests.made_up import write_arm

ARMS = load(ROOT / "recipes").arms
CANT = {"hash-moe", "topk-moe", "stem-slots", "token-ffn", "ngram-table", "value-embeddings", "bigram-input"}
CAN = [arm for arm in ARMS if arm not in CANT]
MASKED = "masked"
"""STEM with a document mask."""
TEXT = "In the beginning <|end|> the capital of France"
LENGTH = 12
FRESH = """
import json, sys
sys.modules["stemrepro"] = None  # an import of it fails
import numpy as np, torch
from transformers import AutoModelForCausalLM, AutoTokenizer

tokens, out, folders = torch.tensor(json.loads(sys.argv[1])), sys.argv[2], sys.argv[3:]
found = {}
for folder in folders:
    name = folder.rsplit("/", 1)[-1]
    trust = {"trust_remote_code": True} if name not in json.loads(sys.stdin.readline()) else {}
    tokenizer, model = (kind.from_pretrained(folder, **trust) for kind in (AutoTokenizer, AutoModelForCausalLM))
    with torch.no_grad():
        found[f"{name}/logits"] = model(tokens).logits.numpy()
    found[f"{name}/class"] = np.array(type(model).__name__)
    for cached in (True, False):
        made = model.generate(tokens[:1, :7], max_new_tokens=LENGTH, do_sample=False, use_cache=cached)
        found[f"{name}/greedy/{cached}"] = made[0, 7:].numpy()
    found[f"{name}/text"] = np.array(tokenizer(TEXT).input_ids)
    found[f"{name}/decoded"] = np.array(tokenizer.decode(tokenizer(TEXT).input_ids, skip_special_tokens=True))
np.savez(out, **found)
"""
