"""How fast is one device: its ceilings, a training step at the paper's shapes, and passes with tables elsewhere?

training: forward, loss and backward on 4 x 2,048 random tokens in bfloat16, then clipping and fused AdamW, apart, for
ours and Hugging Face's Llama, blocks and the loss compiled; MFU of the card's published peak and of the product
here, with every query against every key. serving: prefill of 4,096 tokens, and a token for each of 16 sequences after
1,024, with tables on the device, and in host memory by rows two tables ahead or in the model's own order. On a
processor all is cut down.
"""

import gc
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from copy import copy
from functools import partial

import numpy as np
import torch
from torch import Tensor, nn

from benchmarks.peers import transformers_llama
from stemrepro.common.provenance import provenance
from stemrepro.config.arm import shaped
from stemrepro.config.catalog import Catalog
from stemrepro.config.scale import Shape
from stemrepro.model.cache import Cache
from stemrepro.model.config import ModelConfig
from stemrepro.model.cost import flops_per_token
from stemrepro.model.loss import token_losses
from stemrepro.model.transformer import Decoder
from stemrepro.offload.offload import offload
from stemrepro.training.compiling import compiled, compiler_works

PEAK = 989e12  # FLOPs a second in bfloat16 of an H100 or H200 (SXM) by its datasheet, without sparsity


def timed(turn: Callable[[int], object], rounds: int, device: str) -> float:
    """Return the median seconds of a turn after three others; the number of the round chooses its tokens."""
    seconds = []
    for number in range(rounds + 3):
        start = time.perf_counter()
        turn(number)
        if device == "cuda":
            torch.cuda.synchronize()
        seconds.append(time.perf_counter() - start)
    return float(np.median(seconds[3:]))


def drawn(make: Callable[[], nn.Module], device: str) -> nn.Module:
    """Return a model whose weights are set where they lie: gains 1, all others normal with 0.02."""
    with torch.device(device):
        model = make()
    for parameter in model.parameters():
        nn.init.normal_(parameter, 0.0, 0.02) if parameter.dim() > 1 else nn.init.ones_(parameter)
    return model.to(device)  # buffers that a network computes


def batches(vocab: int, size: tuple[int, int], device: str) -> Tensor:
    """Return four batches of random tokens, [4, *size]."""
    return torch.randint(1, vocab, (4, *size), generator=torch.Generator().manual_seed(0)).to(device)


def ceilings(device: str) -> dict:
    """Return what the device sustains: bytes read and written a second of a copy, FLOPs a second of a product."""
    elements, side = (2**31, 8192) if device == "cuda" else (2**22, 256)
    source, target = torch.ones(2, elements, dtype=torch.bfloat16, device=device)
    left, right = torch.randn(2, side, side, dtype=torch.bfloat16, device=device)
    seconds, product = (timed(turn, 10, device) for turn in (lambda _: target.copy_(source), lambda _: left @ right))
    return {"what": "ceilings", "bytes_per_second": 4 * elements / seconds, "product_flops": 2 * side**3 / product}


def rows(part: str, catalog: Catalog, shape: Shape, device: str) -> Iterator[dict]:
    """Yield the rows of training or serving, model by model; one that raises says why."""
    measure, peers = (training, ("stem-full", "llama")) if part == "training" else (serving, ())
    for name in ("dense", "stem-third", *peers):
        try:
            yield from measure(name, shaped(shape, catalog.arms["dense" if name == "llama" else name]), device)
        except Exception as error:  # memory, or a compiler: the next model may do
            yield {"what": name, "error": repr(error)[:300]}
        memory(device)


def memory(device: str) -> dict:
    """Return the peak in GB since the last call, and free what is left."""
    gc.collect()
    if device == "cpu":
        return {}
    peak = torch.cuda.max_memory_allocated() / 1e9
    torch.cuda.empty_cache()
    torch.cuda.reset_peak_memory_stats()
    return {"peak_gb": peak}


def training(name: str, config: ModelConfig, device: str) -> Iterator[dict]:
    """Yield milliseconds of a model's passes and update, and of steps of more passes, tokens a second and MFU."""
    size, rounds = ((4, 2048), 10) if device == "cuda" else ((2, 32), 3)
    product, works, start = ceilings(device)["product_flops"], compiler_works(device), time.perf_counter()
    compiling = compiled if works else lambda function: function
    model = drawn(lambda: transformers_llama(config, size[1]) if name == "llama" else Decoder(config), device).train()
    for block in model.model.layers if name == "llama" else model.blocks:
        block.forward = partial(compiling(type(block).forward), block)
    losses, data = compiling(token_losses), batches(config.vocab, (size[0], size[1] + 1), device)
    optimizer = torch.optim.AdamW(model.parameters(), fused=True)

    def passes(number: int) -> None:
        optimizer.zero_grad()
        with torch.autocast(device, torch.bfloat16):
            output = model(data[number % 4, :, :-1])
            loss = losses(getattr(output, "logits", output), data[number % 4, :, 1:]).mean()
        loss.backward()

    def update(_: int) -> None:
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)  # gradients stay for the next time
        optimizer.step()

    passes(0)
    ready = time.perf_counter() - start
    passing, updating, tokens = timed(passes, rounds, device), timed(update, rounds, device), size[0] * size[1]
    flops = 3 * flops_per_token(config, size[1]) * tokens / (passing + updating)
    yield {
        "what": name,
        "parameters": sum(parameter.numel() for parameter in model.parameters()),
        "tokens": tokens,
        "compiled": works,
        "ready_seconds": ready,
        "passes_ms": 1e3 * passing,
        "update_ms": 1e3 * updating,
        "tokens_per_second": tokens / (passing + updating),
        "mfu": flops / PEAK,
        "mfu_of_product": flops / product,
        **{f"step_ms_{more}": 1e3 * (passing * more / tokens + updating) for more in (2**14, 2**16, 2**19)},
    } | memory(device)


@torch.no_grad()
def serving(name: str, config: ModelConfig, device: str) -> Iterator[dict]:
    """Yield milliseconds of a prompt and of a token of each sequence, and whether logits keep their bits."""
    (prompt, sequences, before), rounds = ((4096, 16, 1024), 20) if device == "cuda" else ((64, 2, 16), 3)
    model = drawn(lambda: Decoder(config), device).to(torch.bfloat16).eval().requires_grad_(False)
    prompts, batch = (batches(config.vocab, size, device) for size in ((1, prompt), (sequences, before + 1)))
    read = Cache(config.layers)
    model(batch[0, :, :-1], read)
    memory(device)  # of the draw and of the prefix

    def prefill(number: int) -> Tensor:
        return model(prompts[number % 4])

    def decode(_: int) -> Tensor:
        cache = copy(read)
        cache.layers = [copy(layer) for layer in read.layers]
        return model(batch[0, :, -1:], cache)

    def row(what: str) -> dict:
        times = {"prefill_ms": 1e3 * timed(prefill, rounds, device), "decode_ms": 1e3 * timed(decode, rounds, device)}
        return {"what": f"{name}, {what}", "prompt": prompt, "sequences": sequences} | times | memory(device)

    yield row("on the device")
    if not config.replaced_layers:
        return
    wanted, tables = prefill(0), offload(model)
    memory(device)
    for ahead in (2, 0):
        tables.ahead = ahead
        if ahead == 0 and device == "cuda":  # on a stream of its own a copy would still overlap
            tables.link.stream = torch.cuda.current_stream()
        found, moved = row(f"rows {ahead} tables ahead"), tables.link.moved
        same = torch.equal(prefill(0), wanted)
        yield found | {"same_logits": same, "prompt_bytes": tables.link.moved - moved}


def about(device: str) -> dict:
    """Return the device's name and driver, and the versions of what runs on it."""
    made = provenance()
    found = {"torch": torch.__version__, "cuda": torch.version.cuda}
    if device == "cuda":
        asked = ["nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"]
        found["device"] = torch.cuda.get_device_name()
        with suppress(OSError, subprocess.TimeoutExpired):
            found["driver"] = subprocess.run(asked, capture_output=True, text=True, timeout=10).stdout.strip()
    return found | {name: made[name] for name in ("commit", "date", "machine")}
