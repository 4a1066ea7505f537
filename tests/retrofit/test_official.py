"""The official layout against Hugging Face's Llama, whose rotary positions are written otherwise, and against a plain decoder."""

import pytest
import torch
from transformers import LlamaConfig, LlamaForCausalLM

from stemrepro.errors import UserError
from stemrepro.model.config import ModelConfig
from stemrepro.model.transformer import build
from stemrepro.retrofit.official import from_official, joined, read, to_official, write

VOCAB, WIDTH, HEADS, KV, FFN, LAYERS, BASE, EPS = 29, 24, 4, 2, 20, 3, 500.0, 1e-4
HEAD = WIDTH // HEADS
PLACED = (1,)
TOKENS = torch.randint(0, VOCAB, (2, 13), generator=torch.Generator().manual_seed(1))
GIVEN = {"heads": HEADS, "kv_heads": KV, "rope_base": BASE, "norm_eps": EPS}
TABLE = "layers.1.feed_forward.rows.weight"


def official(placed=()):
    """A hand-written state: every name and shape spelled out."""
    draw = torch.Generator().manual_seed(2)
    shapes = {"tok_embeddings.weight": (VOCAB, WIDTH), "output.weight": (VOCAB, WIDTH), "norm.weight": (WIDTH,)}
    for n in range(LAYERS):
        shapes |= {
            f"layers.{n}.attention_norm.weight": (WIDTH,), f"layers.{n}.ffn_norm.weight": (WIDTH,),
            f"layers.{n}.attention.wq.weight": (HEADS * HEAD, WIDTH), f"layers.{n}.attention.wk.weight": (KV * HEAD, WIDTH),
            f"layers.{n}.attention.wv.weight": (KV * HEAD, WIDTH), f"layers.{n}.attention.wo.weight": (WIDTH, HEADS * HEAD),
            f"layers.{n}.feed_forward.w1.weight": (FFN, WIDTH), f"layers.{n}.feed_forward.w2.weight": (WIDTH, FFN),
        }  # fmt: skip
        up = ("w3", (FFN, WIDTH)) if n not in placed else ("rows", (VOCAB, FFN))
        shapes[f"layers.{n}.feed_forward.{up[0]}.weight"] = up[1]
    return {name: 0.4 * torch.randn(shape, generator=draw) for name, shape in shapes.items()}


def normed(x, weight):
    return x / (x.square().mean(-1, keepdim=True) + EPS).sqrt() * weight


def turned(x):
    """Rotary positions on neighbouring entries as complex numbers: x [T, H, E]."""
    length, _, width = x.shape
    angle = torch.arange(length)[:, None] / BASE ** (torch.arange(0, width, 2) / width)[None]
    pairs = torch.view_as_complex(x.reshape(length, -1, width // 2, 2).contiguous())
    return torch.view_as_real(pairs * torch.polar(torch.ones_like(angle), angle)[:, None]).flatten(2)


def plain(state, tokens):
    """The logits of one sequence by the equations, position after position and head after head."""
    x = state["tok_embeddings.weight"][tokens]
    for n in range(LAYERS):
        own = {k.removeprefix(f"layers.{n}.")[:-7]: w for k, w in state.items() if k.startswith(f"layers.{n}.")}
        h = normed(x, own["attention_norm"])
        q = turned((h @ own["attention.wq"].T).reshape(-1, HEADS, HEAD))
        k = turned((h @ own["attention.wk"].T).reshape(-1, KV, HEAD))
        v = (h @ own["attention.wv"].T).reshape(-1, KV, HEAD)
        mixed = torch.zeros(len(tokens), HEADS, HEAD)
        for place in range(len(tokens)):
            for head in range(HEADS):
                group = head // (HEADS // KV)
                weight = torch.softmax(k[: place + 1, group] @ q[place, head] / HEAD**0.5, dim=0)
                mixed[place, head] = weight @ v[: place + 1, group]
        x = x + mixed.flatten(1) @ own["attention.wo"].T
        h = normed(x, own["ffn_norm"])
        gate = h @ own["feed_forward.w1"].T
        up = h @ own["feed_forward.w3"].T if "feed_forward.w3" in own else own["feed_forward.rows"][tokens]
        x = x + (gate * torch.sigmoid(gate) * up) @ own["feed_forward.w2"].T
    return normed(x, state["norm.weight"]) @ state["output.weight"].T


@pytest.mark.parametrize("placed", [(), PLACED, (1, 2)])
def test_logits_are_those_of_the_equations(placed):
    state = official(placed)
    model = from_official(state, **GIVEN)
    assert model.config.placed == placed
    with torch.no_grad():
        found = model(TOKENS)
    for row, tokens in zip(found, TOKENS, strict=True):
        torch.testing.assert_close(row, plain(state, tokens), atol=2e-5, rtol=1e-4)


def test_what_is_written_of_a_llama_is_the_llama():
    """A dense model of ours, whose logits are Llama's, written in their layout: the equations of that layout give Llama's logits."""
    llama = LlamaForCausalLM(LlamaConfig(
        vocab_size=VOCAB, hidden_size=WIDTH, num_hidden_layers=LAYERS, num_attention_heads=HEADS, num_key_value_heads=KV,
        intermediate_size=FFN, rms_norm_eps=EPS, rope_theta=BASE, tie_word_embeddings=False,
    )).eval()  # fmt: skip
    state = {
        k: 0.4 * torch.randn(w.shape, generator=torch.Generator().manual_seed(len(k)))
        for k, w in llama.state_dict().items()
    }
    llama.load_state_dict(state)
    model = build(ModelConfig(VOCAB, WIDTH, LAYERS, HEADS, KV, FFN, rope_base=BASE, norm_eps=EPS), 0)
    parts = ["self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj", "self_attn.o_proj"]
    inner = dict(zip(["attention.query", "attention.key", "attention.value", "attention.out"], parts, strict=True))
    inner |= {"attention_norm": "input_layernorm", "ffn_norm": "post_attention_layernorm"}
    inner |= {f"ffn.{part}": f"mlp.{part}_proj" for part in ("gate", "up", "down")}
    outer = {"embedding": "model.embed_tokens", "norm": "model.norm", "head": "lm_head"}
    named = {f"{a}.weight": state[f"{b}.weight"] for a, b in outer.items()}
    named |= {
        f"blocks.{n}.{a}.weight": state[f"model.layers.{n}.{b}.weight"] for n in range(LAYERS) for a, b in inner.items()
    }
    model.load_state_dict(named)
    with torch.no_grad():
        expected = llama(TOKENS).logits
    for row, tokens in zip(expected, TOKENS, strict=True):
        torch.testing.assert_close(plain(to_official(model), tokens), row, atol=2e-5, rtol=1e-4)


@pytest.mark.parametrize("placed", [(), PLACED])
def test_a_file_comes_back_as_it_was(tmp_path, placed):
    state = official(placed)
    write(from_official(state, **GIVEN), tmp_path / "consolidated.pth", "rows")
    again = torch.load(tmp_path / "consolidated.pth", weights_only=True)["model"]
    assert again.keys() == state.keys()
    assert all(torch.equal(again[name], state[name]) for name in state)
    assert not torch.equal(
        state["layers.0.attention.wq.weight"], from_official(state, **GIVEN).blocks[0].attention.query.weight
    )
    model = read(tmp_path / "consolidated.pth", **GIVEN)
    assert all(torch.equal(value, again) for value, again in zip(
        model.state_dict().values(), from_official(state, **GIVEN).state_dict().values(), strict=True))  # fmt: skip


def test_shards_of_tables_are_joined_along_their_width():
    whole = official(PLACED)[TABLE]
    shards = [{TABLE: part} for part in whole.split([7, 7, 6], dim=1)]
    assert torch.equal(joined(shards)[TABLE], whole)
    with pytest.raises(UserError, match=r"shard 1 has the tables \[\], shard 0 has"):
        joined([shards[0], {}])
    with pytest.raises(UserError, match=r"have \[29, 28\] rows"):
        joined([shards[0], {TABLE: shards[1][TABLE][:-1]}])
    with pytest.raises(UserError, match="no shards"):
        joined([])


def without(name):
    return lambda state: state.pop(name)


def put(name, shape):
    return lambda state: state.update({name: torch.zeros(shape)})


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (without("layers.2.attention.wo.weight"), r"lacks layers\.2\.attention\.wo\.weight \(and 0 more\)"),
        (without(TABLE), r"lacks layers\.1\.feed_forward\.TABLE\.weight"),
        (without("tok_embeddings.weight"), "no matrix 'tok_embeddings.weight'"),
        (put("layers.1.feed_forward.more.weight", (VOCAB, FFN)), "both stand in the table's place"),
        (
            put("layers.0.feed_forward.more.weight", (VOCAB, FFN)),
            r"'layers\.0\.feed_forward\.more\.weight' is no weight",
        ),
        (put("rope.freqs.weight", (3,)), r"'rope\.freqs\.weight' is no weight of the official layout"),
        (put("norm.bias", (3,)), r"'norm\.bias' is no weight of the official layout"),
        (put(TABLE, (VOCAB, FFN - 1)), r"rows\.weight' has the shape \[29, 19\], expected is \[29, 20\]"),
        (put("layers.4.ffn_norm.weight", (WIDTH,)), r"layers \[0, 1, 2, 4\]; they must be 0, 1, 2"),
    ],
)
def test_a_checkpoint_that_is_another_is_named(change, words):
    state = official(PLACED)
    change(state)
    with pytest.raises(UserError, match=words):
        from_official(state, **GIVEN)


def test_models_and_files_without_that_layout_are_refused(tmp_path):
    stem = from_official(official(PLACED), **GIVEN)
    for name in ("", "w1"):
        with pytest.raises(UserError, match="is no name for a table"):
            to_official(stem, name)
    with pytest.raises(UserError, match="dense and STEM layers alone"):
        to_official(
            build(ModelConfig(VOCAB, WIDTH, LAYERS, HEADS, KV, FFN, ffn="token-only", placed=PLACED), 0), "rows"
        )
    (tmp_path / "broken.pth").write_bytes(b"no checkpoint")
    with pytest.raises(UserError, match=r"broken\.pth is no checkpoint of weights"):
        read(tmp_path / "broken.pth", **GIVEN)
    torch.save({"model": {"norm.weight": torch.ones(3), "step": 4}}, tmp_path / "odd.pth")
    with pytest.raises(UserError, match=r"odd\.pth: 'step' is no weight"):
        read(tmp_path / "odd.pth", **GIVEN)
