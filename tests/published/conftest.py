"""A tiny Llama with a byte-level BPE, as a GGUF file and as transformers has it."""

import gguf
import numpy as np
import pytest
import torch
from transformers import LlamaConfig, LlamaForCausalLM

from stemrepro.convert.gguf import load_gguf
from stemrepro.published.converted import Rows
from stemrepro.published.models import Model
from stemrepro.published.rows import means

WIDTH, FFN, HEADS, KV, LAYERS = 32, 64, 4, 2, 3
END, START = "<|endoftext|>", "<|im_start|>"
MERGES = ["Ġ t", "h e", "Ġt he", "i s", "Ġ is", "1 2"]
VOCAB = 264
TEXT = np.array([[0, 5, 6, 5, 6, 7], [0, 5, 6, 9, 5, 6], [0, 5, 6, 6, 5, 6]], np.int32)
"""What rows are means over."""


def entries() -> list[str]:
    """The vocabulary: two control tokens, bytes, and what MERGES make."""
    from tokenizers import pre_tokenizers

    return [END, START, *sorted(pre_tokenizers.ByteLevel.alphabet()), *(merge.replace(" ", "") for merge in MERGES)]


@pytest.fixture(scope="session")
def llama():
    torch.manual_seed(0)
    shape = {"vocab_size": len(entries()), "hidden_size": WIDTH, "intermediate_size": FFN, "num_hidden_layers": LAYERS}
    heads = {"num_attention_heads": HEADS, "num_key_value_heads": KV, "rms_norm_eps": 1e-5}
    config = LlamaConfig(**shape, **heads, rope_theta=1000.0, tie_word_embeddings=True, initializer_range=0.2)
    return LlamaForCausalLM(config).eval()


def pairs_together(weight: torch.Tensor, heads: int) -> torch.Tensor:
    """Rows of queries or keys as the format has them: the two of a rotary pair next to each other."""
    return weight.unflatten(0, (heads, 2, -1)).transpose(1, 2).flatten(0, 2)


def write(llama, path, kind=gguf.GGMLQuantizationType.F32, architecture="llama", cut="smollm"):
    """Write a model of transformers as GGUF."""
    writer, config = gguf.GGUFWriter(path, architecture), llama.config
    writer.add_block_count(LAYERS)
    writer.add_context_length(64)
    writer.add_embedding_length(WIDTH)
    writer.add_feed_forward_length(FFN)
    writer.add_head_count(HEADS)
    writer.add_head_count_kv(KV)
    writer.add_layer_norm_rms_eps(config.rms_norm_eps)
    writer.add_rope_freq_base(1000.0)
    writer.add_vocab_size(len(entries()))
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre(cut)
    writer.add_token_list(entries())
    writer.add_token_types([3, 3, *[1] * (len(entries()) - 2)])
    writer.add_token_merges(MERGES)
    names = {"input_layernorm": "attn_norm", "post_attention_layernorm": "ffn_norm", "self_attn.o_proj": "attn_output"}
    names |= {f"self_attn.{part}_proj": f"attn_{part}" for part in "qkv"}
    names |= {f"mlp.{part}_proj": f"ffn_{part}" for part in ("gate", "up", "down")}
    state = {name: value for name, value in llama.state_dict().items() if name != "lm_head.weight"}
    for name, value in state.items():
        if name.startswith("model.layers."):
            layer, part = name.removeprefix("model.layers.").removesuffix(".weight").split(".", 1)
            heads = {"self_attn.q_proj": HEADS, "self_attn.k_proj": KV}.get(part)
            value, name = pairs_together(value, heads) if heads else value, f"blk.{layer}.{names[part]}.weight"
        else:
            name = {"model.embed_tokens.weight": "token_embd.weight", "model.norm.weight": "output_norm.weight"}[name]
        array = value.numpy().astype(np.float32)
        stored = kind if array.ndim == 2 else gguf.GGMLQuantizationType.F32
        writer.add_tensor(name, gguf.quantize(array, stored), raw_dtype=stored)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


@pytest.fixture(scope="session")
def model(llama, tmp_path_factory):
    return Model(*load_gguf(write(llama, tmp_path_factory.mktemp("gguf") / "model.gguf")), "tiny")


@pytest.fixture(scope="session")
def averaged(model):
    return means(model.decoder, TEXT, np.full_like(TEXT, -1), VOCAB)


@pytest.fixture(scope="session")
def rows(model, averaged):
    return Rows(model, averaged)
