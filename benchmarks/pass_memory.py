"""Memory that a forward and backward pass adds on a CPU: logits whole or in parts, documents with a mask or one by one.

python -m benchmarks.pass_memory
"""

import multiprocessing
import re
from pathlib import Path

import torch

from stemrepro.model import transformer
from stemrepro.model.config import END_OF_DOCUMENT, ModelConfig
from stemrepro.model.transformer import build

SMALL = {"width": 64, "layers": 2, "heads": 4, "kv_heads": 2, "ffn_width": 176}
DOCUMENT = 1000
"""Tokens of a document."""
CASES = {
    "128,256 entries, 4,096 tokens, logits whole": (4096, {"vocab": 128_256}, None, 1),
    "128,256 entries, 4,096 tokens, logits of 1,024 tokens": (4096, {"vocab": 128_256}, 1024, 1),
    "16,384 tokens, a mask": (16_384, {"vocab": 1024, "document_mask": True}, None, 2**31),
    "16,384 tokens, document by document": (16_384, {"vocab": 1024, "document_mask": True}, None, 1),
    "32,768 tokens, document by document": (32_768, {"vocab": 1024, "document_mask": True}, None, 1),
}
"""Tokens, fields of the model, tokens whose logits are there at a time, and from how many tokens on no mask is made."""


def in_memory(field: str) -> int:
    """Return bytes of this process as Linux calls them: VmRSS now, VmHWM at most."""
    (kilobytes,) = re.findall(rf"{field}:\s+(\d+) kB", Path("/proc/self/status").read_text(encoding="utf-8"))
    return 1024 * int(kilobytes)


def added(case: str) -> float:
    """Return GB that the pass of a case adds in this process."""
    tokens, fields, at_once, transformer.LONG = CASES[case]
    model = build(ModelConfig(**SMALL | fields), 0)
    text = torch.randint(1, model.config.vocab, (1, tokens + 1), generator=torch.Generator().manual_seed(0))
    text[:, DOCUMENT::DOCUMENT] = END_OF_DOCUMENT
    before = in_memory("VmRSS")
    model.losses(text[:, :-1], text[:, 1:], at_once).mean().backward()
    return (in_memory("VmHWM") - before) / 1e9


def main() -> None:
    """Print a line per case, each measured in a process of its own."""
    context = multiprocessing.get_context("spawn")
    for case in CASES:
        with context.Pool(1) as pool:
            print(f"{case}: {pool.apply(added, (case,)):.2f} GB", flush=True)


if __name__ == "__main__":
    main()
