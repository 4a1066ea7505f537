"""How fast is one device: its ceilings, a training step at the paper's shapes, and passes with tables elsewhere?

    python -m benchmarks.gpu_speed ceilings [--device cpu] [--out rows.jsonl]
    python -m benchmarks.gpu_speed training
    python -m benchmarks.gpu_speed serving [--shape llama-3.2-1b]

training: forward, loss and backward on 4 x 2,048 random tokens in bfloat16, then clipping and fused AdamW, timed apart,
for dense, STEM 1/3, STEM full and Hugging Face's Llama of dense's shape. Blocks and the loss are compiled. Weights are
drawn on the device, and one model is there at a time. MFU is of the card's published peak and of the product measured
here, with every query against every key. Tokens are uniform, so that few rows of a table meet in an update.

serving: prefill of 4,096 tokens, and a token for each of 16 sequences after 1,024, in bfloat16; with tables on the
device, in pinned host memory with rows brought two tables ahead, and there with rows in the model's own order.

With --device cpu all of it is cut down, to show that it runs; its times mean nothing.
"""

import argparse
import gc
import os
import platform
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import nullcontext, suppress
from functools import partial
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn

from benchmarks.gpu_job import failed, record
from benchmarks.peers import transformers_llama
from stemrepro.common.files import write_json
from stemrepro.common.provenance import provenance
from stemrepro.config.arm import shaped
from stemrepro.config.catalog import Catalog
from stemrepro.config.scale import Shape
from stemrepro.measures.catalog import load
from stemrepro.model.cache import Cache
from stemrepro.model.config import ModelConfig
from stemrepro.model.cost import flops_per_token
from stemrepro.model.loss import token_losses
from stemrepro.model.transformer import Decoder
from stemrepro.offload.offload import offload
from stemrepro.training.compiling import compiled, compiler_works

PEAK = 989e12
"""FLOPs a second in bfloat16 that an H100 or H200 (SXM) has by its datasheet, without sparsity."""
MODELS = ("dense", "stem-third", "stem-full", "llama")
SERVED = "stem-third"
CLIP, RATE = 1.0, 1e-3
STEP_SIZES = (2**14, 2**16, 2**19)
"""Tokens of the steps whose time follows from the two parts: more tokens are more passes before one update."""


def timed(turn: Callable[[int], object], rounds: int, device: str) -> float:
    """Return the median seconds of a turn; three turns come before. The number of the round chooses its tokens."""
    wait, seconds = torch.cuda.synchronize if device == "cuda" else lambda: None, []
    for number in range(-3, rounds):
        wait()
        start = time.perf_counter()
        turn(number + 3)
        wait()
        seconds.append(time.perf_counter() - start)
    return float(np.median(seconds[3:]))


def draw(model: nn.Module) -> nn.Module:
    """Set weights where they lie: gains to 1, all others normal with 0.02."""
    for parameter in model.parameters():
        nn.init.normal_(parameter, 0.0, 0.02) if parameter.dim() > 1 else nn.init.ones_(parameter)
    return model


def batches(vocab: int, size: tuple[int, int], device: str) -> list[Tensor]:
    """Return a few batches of random tokens."""
    generator = torch.Generator().manual_seed(0)
    return [torch.randint(1, vocab, size, generator=generator).to(device) for _ in range(4)]


def ceilings(device: str) -> dict:
    """Return what the device sustains: bytes read and written a second of a copy, FLOPs a second of a product."""
    elements, side = (2**31, 8192) if device == "cuda" else (2**22, 256)
    source = torch.empty(elements, dtype=torch.bfloat16, device=device).normal_()
    target = torch.empty_like(source)
    seconds = timed(lambda _: target.copy_(source), 10, device)
    left, right = (torch.randn(side, side, dtype=torch.bfloat16, device=device) for _ in range(2))
    product = timed(lambda _: left @ right, 10, device)
    return {"bytes_per_second": 4 * elements / seconds, "product_flops": 2 * side**3 / product}


class Stepped:
    """A model in training; `passes` and `update` are the two parts of its step."""

    def __init__(self, name: str, config: ModelConfig, device: str, size: tuple[int, int]) -> None:
        with torch.device(device):
            model = transformers_llama(config, size[1]) if name == "llama" else Decoder(config)
        self.compiles = compiler_works(device)
        for block in model.model.layers if name == "llama" else model.blocks:
            block.forward = partial(self.compiled(type(block).forward), block)
        self.model, self.tokens = draw(model).train(), batches(config.vocab, (size[0], size[1] + 1), device)
        self.losses = self.compiled(token_losses)
        self.optimizer = torch.optim.AdamW(model.parameters(), lr=RATE, fused=True)

    def compiled(self, function: Callable) -> Callable:
        """Return a function compiled, where a compiler works."""
        return compiled(function) if self.compiles else function

    def passes(self, number: int) -> None:
        """Make the gradients of a batch anew."""
        self.optimizer.zero_grad()
        batch = self.tokens[number % len(self.tokens)]
        with torch.autocast(batch.device.type, torch.bfloat16):
            output = self.model(batch[:, :-1])
            loss = self.losses(getattr(output, "logits", output), batch[:, 1:]).mean()
        loss.backward()

    def update(self, _: int) -> None:
        """Clip and apply the gradients, which stay for the next time."""
        nn.utils.clip_grad_norm_(self.model.parameters(), CLIP)
        self.optimizer.step()


def stepped(name: str, config: ModelConfig, device: str, product: float) -> dict:
    """Return milliseconds of passes and update of a model, tokens a second and MFU; `product` is FLOPs a second."""
    size, rounds = ((4, 2048), 10) if device == "cuda" else ((2, 32), 3)
    tokens, start = size[0] * size[1], time.perf_counter()
    model = Stepped(name, config, device, size)
    model.passes(0)
    ready = time.perf_counter() - start
    passes, update = timed(model.passes, rounds, device), timed(model.update, rounds, device)
    done = 3 * flops_per_token(config, size[1]) * tokens / (passes + update)
    return {
        "parameters": sum(parameter.numel() for parameter in model.model.parameters()),
        "tokens": tokens,
        "compiled": model.compiles,
        "ready_seconds": ready,
        "passes_ms": 1e3 * passes,
        "update_ms": 1e3 * update,
        "tokens_per_second": tokens / (passes + update),
        "mfu": done / PEAK,
        "mfu_of_product": done / product,
    } | {f"step_ms_{more}": 1e3 * (passes * more / tokens + update) for more in STEP_SIZES}


def training(catalog: Catalog, shape: Shape, device: str) -> Iterator[dict]:
    """Yield a row for each model; one that raises says why."""
    product = ceilings(device)["product_flops"]
    for name in MODELS:
        config = shaped(shape, catalog.arms["dense" if name == "llama" else name])
        try:
            row = stepped(name, config, device, product)
        except Exception as error:  # memory, or a compiler: the next model may do
            row = failed(error)
        yield {"what": name} | row | memory(device)


def memory(device: str) -> dict:
    """Return the peak in GB since the last call, and free what is left."""
    gc.collect()
    if device == "cpu":
        return {}
    peak = torch.cuda.max_memory_allocated() / 1e9
    torch.cuda.empty_cache()
    torch.cuda.reset_peak_memory_stats()
    return {"peak_gb": peak}


class Served:
    """A model that reads: `prefill` a prompt, `decode` a token of each sequence after those before."""

    def __init__(self, config: ModelConfig, device: str) -> None:
        self.prompt, self.sequences, before = (4096, 16, 1024) if device == "cuda" else (64, 2, 16)
        with torch.device(device):
            model = Decoder(config)
        self.model, self.device = draw(model).to(torch.bfloat16).eval().requires_grad_(False), device
        self.prompts = batches(config.vocab, (1, self.prompt), device)
        *_, batch = batches(config.vocab, (self.sequences, before + 1), device)
        self.last, self.read = batch[:, -1:], Cache(config.layers)
        self.model(batch[:, :-1], self.read)
        memory(device)  # of the draw and of the prefix

    def prefill(self, number: int) -> Tensor:
        """Return logits [1, prompt, vocab]."""
        return self.model(self.prompts[number % len(self.prompts)])

    def decode(self, _: int) -> Tensor:
        """Return logits [sequences, 1, vocab]."""
        cache = Cache(len(self.read.layers))
        cache.tokens = self.read.tokens
        for layer, past in zip(cache.layers, self.read.layers, strict=True):
            layer.keys, layer.values = past.keys, past.values
        return self.model(self.last, cache)

    def row(self, what: str) -> dict:
        """Return milliseconds of both."""
        rounds = 20 if self.device == "cuda" else 3
        prefill, decode = (1e3 * timed(turn, rounds, self.device) for turn in (self.prefill, self.decode))
        about = {"what": what, "prompt": self.prompt, "sequences": self.sequences}
        return about | {"prefill_ms": prefill, "decode_ms": decode} | memory(self.device)


def serving(catalog: Catalog, shape: Shape, device: str) -> Iterator[dict]:
    """Yield a row for dense, and one for each home of the tables, with whether logits keep their bits there.

    A row that fails says why; those of the same model after it are left out.
    """
    for name in ("dense", SERVED):
        try:
            served = Served(shaped(shape, catalog.arms[name]), device)
            yield served.row(f"{name}, on the device")
            if name == SERVED:
                yield from homes(served)
        except Exception as error:
            yield {"what": name} | failed(error) | memory(device)


def homes(served: Served) -> Iterator[dict]:
    """Yield a row for tables in host memory, rows brought two tables ahead, and for rows in the model's own order."""
    wanted = served.prefill(0)
    tables = offload(served.model)
    memory(served.device)
    for ahead in (2, 0):
        tables.ahead = ahead
        if ahead == 0 and served.device == "cuda":  # on a stream of its own a copy would still overlap
            tables.link.stream = torch.cuda.current_stream()
        row = served.row(f"{SERVED}, rows {ahead} tables ahead")
        moved = tables.link.moved
        row["same_logits"] = torch.equal(served.prefill(0), wanted)
        yield row | {"prompt_bytes": tables.link.moved - moved}


def about(device: str) -> dict:
    """Return the device's name and driver, and the versions of what runs on it."""
    found = {"torch": torch.__version__, "cuda": torch.version.cuda, "python": platform.python_version()}
    if device == "cuda":
        found["device"] = torch.cuda.get_device_name()
        found["attention"] = "no cuDNN" if os.environ.get("TORCH_CUDNN_SDPA_DEPRIORITIZED") else "torch's choice"
        asked = ["nvidia-smi", "--query-gpu=driver_version,compute_mode", "--format=csv,noheader"]
        with suppress(OSError, subprocess.TimeoutExpired):
            found["driver"] = subprocess.run(asked, capture_output=True, text=True, timeout=10).stdout.strip()
    made = provenance()
    return found | {name: made[name] for name in ("commit", "date", "machine")}


def main() -> None:
    """Measure, print and record."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("part", choices=("ceilings", "training", "serving"))
    parser.add_argument("--shape", default="mobilellm-350m")
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda")
    parser.add_argument("--out")
    parser.add_argument("--about", type=Path, help="file for the device and the versions")
    given = parser.parse_args()
    if given.about:
        write_json(given.about, about(given.device))
    catalog = load()
    shape = catalog.shapes[given.shape] if given.device == "cuda" else catalog.scale("gpu-smoke").model
    rows = {
        "ceilings": lambda: iter([{"what": "ceilings", **ceilings(given.device)}]),
        "training": lambda: training(catalog, shape, given.device),
        "serving": lambda: serving(catalog, shape, given.device),
    }[given.part]()
    with nullcontext() if given.part == "training" else torch.no_grad():
        for row in rows:
            record({"section": given.part, "shape": given.shape, **row}, given.out)


if __name__ == "__main__":
    main()
