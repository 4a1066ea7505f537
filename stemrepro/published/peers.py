"""Other programs that decode a published model's weights, timed as ours are; those that are installed take part."""

import importlib
from collections.abc import Callable
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Protocol

import torch
from torch import Tensor

from stemrepro.model.cache import Cache
from stemrepro.published.models import WEIGHTS

Work = Callable[[], object]
"""What is timed."""


class Turn(Protocol):
    """One that is timed. Both methods prepare the work and return it."""

    def prefill(self, prompts: Tensor) -> Work | None:
        """Read prompts [batch, T] and choose the next tokens; None where it can't."""

    def decode(self, past: Cache, tokens: Tensor) -> Work | None:
        """Choose a next token after each of the tokens [batch, n] but the first, one by one; None where it can't.

        They follow `past`, which is one sequence and the same for all. The first is no part of the work.
        """


class HuggingFace:
    """Greedy decoding by transformers' `generate`."""

    def __init__(self, folder: Path, dtype: torch.dtype) -> None:
        hub, file = importlib.import_module("transformers"), WEIGHTS if (folder / WEIGHTS).exists() else None
        hub.utils.logging.disable_progress_bar()
        self.model: Any = hub.AutoModelForCausalLM.from_pretrained(folder, gguf_file=file, dtype=torch.float32).to(
            dtype
        )
        self.cache: Any = hub.DynamicCache
        settings = self.model.generation_config
        settings.eos_token_id, settings.pad_token_id, settings.do_sample = None, 0, False  # all sequences are as long

    def _generate(self, prompts: Tensor, count: int, **options: object) -> object:
        return self.model.generate(
            prompts, attention_mask=torch.ones_like(prompts), max_new_tokens=count, max_length=None, **options
        )

    def prefill(self, prompts: Tensor) -> Work:
        """See Turn."""
        return partial(self._generate, prompts, 1)

    def decode(self, past: Cache, tokens: Tensor) -> Work:
        """See Turn."""
        cache, batch = self.cache(), len(tokens)
        for layer, its in enumerate(past.layers):
            assert its.keys is not None, "the past is empty"
            assert its.values is not None, "the past is empty"
            keys = its.keys.to(its.values.dtype)
            cache.update(keys.repeat(batch, 1, 1, 1), its.values.repeat(batch, 1, 1, 1), layer)
        assert past.tokens is not None, "the past is empty"
        prompts = torch.cat([past.tokens.repeat(batch, 1), tokens[:, :1]], dim=1)
        return partial(self._generate, prompts, tokens.shape[1] - 1, past_key_values=cache)


class LlamaCpp:
    """llama.cpp on the file itself, its weights in 4 bits, one sequence at a time."""

    def __init__(self, folder: Path, dtype: torch.dtype) -> None:
        self.llama: Any = importlib.import_module("llama_cpp").Llama(
            str(folder / WEIGHTS), n_ctx=4096, n_batch=2048, n_threads=torch.get_num_threads(), verbose=False
        )

    def _begin(self, tokens: Tensor) -> None:
        self.llama.reset()
        self.llama.eval(tokens[0].tolist())

    def prefill(self, prompts: Tensor) -> Work | None:
        """See Turn."""
        return None if len(prompts) > 1 else partial(self._begin, prompts)

    def decode(self, past: Cache, tokens: Tensor) -> Work | None:
        """See Turn."""
        if len(tokens) > 1 or past.tokens is None:
            return None
        self._begin(torch.cat([past.tokens, tokens[:, :1]], dim=1))
        return lambda: [self.llama.eval([token]) for token in tokens[0, 1:].tolist()]


def peers(folder: Path, dtype: torch.dtype) -> dict[str, Turn]:
    """Return the peers that are installed, by name."""
    found: dict[str, Turn] = {}
    if find_spec("transformers"):
        found["hugging-face"] = HuggingFace(folder, dtype)
    if find_spec("llama_cpp") and (folder / WEIGHTS).exists():
        found["llama-cpp"] = LlamaCpp(folder, dtype)
    return found
