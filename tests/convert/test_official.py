"""The official code's checkpoints against its equations (tests/model/test_official.py) and Hugging Face's Llama.

Hugging Face's rotary positions are written differently.
"""

import json
from dataclasses import replace

import pytest
import torch
from transformers import LlamaConfig, LlamaForCausalLM

from stemrepro.common.errors import UserError
from stemrepro.convert.official import joined, read
from tests.model.test_official import Official, drawn, logits_of

VOCAB, WIDTH, HEADS, KV, FFN, LAYERS, BASE, EPS = 29, 24, 4, 2, 20, 3, 500.0, 1e-4
HEAD = WIDTH // HEADS
SHAPE = Official(VOCAB, WIDTH, LAYERS, HEADS, KV, FFN, (), BASE, EPS)
TOKENS = torch.randint(0, VOCAB, (2, 13), generator=torch.Generator().manual_seed(1))
ABOUT = {"dim": WIDTH, "n_layers": LAYERS, "n_heads": HEADS, "n_kv_heads": KV, "head_dim": None, "rope_theta": BASE,
         "norm_eps": EPS, "weight_tying": False, "rope_scaling": None}  # fmt: skip


def official(replaced_layers=()):
    return {name: weight.float() for name, weight in drawn(replace(SHAPE, stem_layers=replaced_layers)).items()}


def step(folder, state, replaced_layers, shards=0, prefix="", nested=True, **about):
    """A folder as the official code leaves it after a step: consolidated, with tables in one file, or one per rank."""
    home = folder / "consolidated"
    home.mkdir(parents=True)
    tables = {name: value for name, value in state.items() if name.startswith("stem_embeddings")}
    backbone = {prefix + name: value for name, value in state.items() if name not in tables}
    torch.save({"model": backbone} if nested else backbone, home / "consolidated.pth")
    (folder / "params.json").write_text(json.dumps({"model": ABOUT | {"stem_layers": list(replaced_layers)} | about}))
    if shards:
        (folder / "stem_shards").mkdir()
        for rank in range(shards):
            part = {name: value.tensor_split(shards, dim=1)[rank].clone() for name, value in tables.items()}
            torch.save(part, folder / f"stem_shards/stem_mp{rank}.pt")
    elif tables:
        torch.save(tables, home / "consolidated_stem.pth")
    return folder


@pytest.mark.parametrize("replaced_layers", [(), (1,), (2,), (1, 2)])
@pytest.mark.parametrize(
    "form", [{}, {"shards": 3}, {"shards": 12}, {"prefix": "lm_transformer."}, {"prefix": "model.", "nested": False}]
)
def test_logits_are_those_of_the_equations(tmp_path, replaced_layers, form):
    """A table belongs to the layer at its place in `stem_layers`, and rank 10 comes after rank 9."""
    state = official(replaced_layers)
    folder = step(tmp_path / "0000000012", state, replaced_layers, **form)
    for named in (folder, folder / "consolidated"):
        model = read(named)
        assert model.config.replaced_layers == replaced_layers
        expected = logits_of(state, replace(SHAPE, stem_layers=replaced_layers), TOKENS)
        with torch.no_grad():
            torch.testing.assert_close(model(TOKENS), expected, atol=2e-5, rtol=1e-4)


def in_pairs(weight, heads):
    """A projection of Hugging Face's, entry i of a head next to entry i + half."""
    rows = []
    for head in range(heads):
        part = weight[head * HEAD : (head + 1) * HEAD]
        for i in range(HEAD // 2):
            rows += [part[i], part[i + HEAD // 2]]
    return torch.stack(rows)


@pytest.mark.parametrize("tied", [False, True])
def test_a_llama_in_that_layout_is_the_llama(tmp_path, tied):
    llama = LlamaForCausalLM(LlamaConfig(
        vocab_size=VOCAB, hidden_size=WIDTH, num_hidden_layers=LAYERS, num_attention_heads=HEADS,
        num_key_value_heads=KV, intermediate_size=FFN, rms_norm_eps=EPS, rope_theta=BASE, tie_word_embeddings=tied,
    )).eval()  # fmt: skip
    drawn = {
        k: 0.4 * torch.randn(w.shape, generator=torch.Generator().manual_seed(len(k)))
        for k, w in llama.state_dict().items()
    }
    if tied:
        drawn["lm_head.weight"] = drawn["model.embed_tokens.weight"]
    llama.load_state_dict(drawn)
    names = {"self_attn.q_proj": "attention.wq", "self_attn.k_proj": "attention.wk", "self_attn.v_proj": "attention.wv",
             "self_attn.o_proj": "attention.wo", "mlp.gate_proj": "feed_forward.w1", "mlp.down_proj": "feed_forward.w2",
             "mlp.up_proj": "feed_forward.w3", "input_layernorm": "attention_norm",
             "post_attention_layernorm": "ffn_norm"}  # fmt: skip
    state = {"tok_embeddings.weight": drawn["model.embed_tokens.weight"], "norm.weight": drawn["model.norm.weight"]}
    state["output.tied_module.weight" if tied else "output.weight"] = drawn["lm_head.weight"]
    for n in range(LAYERS):
        for theirs, name in names.items():
            weight, heads = drawn[f"model.layers.{n}.{theirs}.weight"], {"q": HEADS, "k": KV}.get(theirs[10:11])
            state[f"layers.{n}.{name}.weight"] = in_pairs(weight, heads) if heads else weight
    model = read(step(tmp_path / "step", state, (), weight_tying=tied))
    with torch.no_grad():
        torch.testing.assert_close(model(TOKENS), llama(TOKENS).logits, atol=2e-5, rtol=1e-4)


def test_shards_that_do_not_fit_are_named():
    with pytest.raises(UserError, match=r"shard 1 has the tables \[\], shard 0 has"):
        joined([{"a": torch.ones(3, 2)}, {}])
    with pytest.raises(UserError, match=r"have \[3, 2\] rows"):
        joined([{"a": torch.ones(3, 2)}, {"a": torch.ones(2, 2)}])


def without(name):
    return lambda state: state.pop(name)


def put(name, value):
    return lambda state: state.update({name: value})


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (without("layers.2.attention.wo.weight"),
         r"lacks what is 'blocks\.2\.attention\.out\.weight' here \(and 0 more\)"),
        (without("stem_embeddings.0.weight"), r"no tables for the layers \[1\]"),
        (without("tok_embeddings.weight"), "no matrix 'tok_embeddings.weight'"),
        (put("stem_embeddings.1.weight", torch.ones(VOCAB, FFN)), r"'stem_embeddings\.1\.weight' is no weight"),
        (put("rope.freqs.weight", torch.ones(3)), r"'rope\.freqs\.weight' is no weight of the official layout"),
        (put("norm.bias", torch.ones(3)), r"'norm\.bias' is no weight of the official layout"),
        (put("norm.weight", torch.ones(WIDTH, dtype=torch.int8)), r"'norm\.weight' is no weight in floating point"),
        (put("stem_embeddings.0.weight", torch.ones(VOCAB, FFN - 1)),
         r"0\.weight' has the shape \[29, 19\], expected is \[29, 20\]"),
        (put("layers.4.ffn_norm.weight", torch.ones(WIDTH)), r"layers \[0, 1, 2, 4\]; they must be 0, 1, 2"),
    ],
)  # fmt: skip
def test_a_checkpoint_that_is_another_is_named(tmp_path, change, words):
    state = official((1,))
    change(state)
    with pytest.raises(UserError, match=words):
        read(step(tmp_path / "step", state, (1,)))


@pytest.mark.parametrize(
    ("about", "words"),
    [
        ({"stem_layers": [2]}, r"stem_layers is \[2\], but the layers without w3 are \[1\]"),
        ({"stem_layers": 1}, "stem_layers is 1, but the layers"),
        ({"rope_scaling": {"factor": 8}}, "rope_scaling is"),
        ({"n_heads": 0, "head_dim": 0}, "no shape of a model"),
        ({"n_heads": "x"}, "no shape of a model"),
        ({"n_heads": 5}, "heads 5 does not divide"),
        ({"head_dim": 8}, "head_dim 8 is not dim / n_heads = 6"),
    ],
)
def test_settings_that_do_not_fit_are_named(tmp_path, about, words):
    with pytest.raises(UserError, match=words):
        read(step(tmp_path / "step", official((1,)), (1,), **about))


def test_files_that_are_not_there_or_damaged_are_named(tmp_path):
    folder = step(tmp_path / "step", official((1,)), (1,), shards=3)
    (folder / "stem_shards/stem_mp1.pt").unlink()
    with pytest.raises(UserError, match=r"the ranks \[0, 2\]; they must be 0, 1, 2"):
        read(folder)
    torch.save({}, folder / "stem_shards/stem_model_mp2.pt")
    with pytest.raises(UserError, match="are both of rank 2; keep one"):
        read(folder)
    for text in ("{}", "[]"):
        (folder / "params.json").write_text(text)
        with pytest.raises(UserError, match=r"params\.json has no 'model'"):
            read(folder)
    (folder / "consolidated/consolidated.pth").write_bytes(b"no checkpoint")
    with pytest.raises(UserError, match=r"consolidated\.pth is no checkpoint of weights"):
        read(folder)


@pytest.mark.parametrize("name", ["consolidated/consolidated.pth", "stem_shards/stem_mp1.pt", "params.json"])
def test_files_that_lead_out_of_the_folder_are_not_read(tmp_path, name):
    folder = step(tmp_path / "step", official((1,)), (1,), shards=2)
    (folder / name).rename(tmp_path / "secret")
    (folder / name).symlink_to(tmp_path / "secret")
    with pytest.raises(UserError, match=r"leads out of .*step, to .*secret; only files of that folder are read"):
        read(folder)


def test_weights_that_are_no_numbers_are_named(tmp_path):
    state = official(())
    state["norm.weight"][0] = torch.nan
    with pytest.raises(UserError, match=r"consolidated\.pth: 'norm\.weight' holds NaN"):
        read(step(tmp_path, state, ()))
