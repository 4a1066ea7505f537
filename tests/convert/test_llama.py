"""Folders that transformers writes give transformers' logits."""

import json

import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import LlamaConfig, LlamaForCausalLM

from stemrepro.common.errors import UserError
from stemrepro.common.files import write_json
from stemrepro.convert.llama import load_llama
from stemrepro.convert.weights import settings, weights
from stemrepro.model.config import ModelConfig
from stemrepro.model.transformer import build

FIELDS = {
    "vocab_size": 61,
    "hidden_size": 32,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "intermediate_size": 40,
    "rms_norm_eps": 1e-3,
    "rope_theta": 77.0,
    "tie_word_embeddings": False,
}
TOKENS = torch.randint(0, 61, (2, 19), generator=torch.Generator().manual_seed(1))


def llama(**fields):
    torch.manual_seed(7)
    model = LlamaForCausalLM(LlamaConfig(**FIELDS | fields)).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.2 * torch.randn(parameter.shape))
    return model


@pytest.mark.parametrize(
    ("fields", "shard"),
    [({}, "50GB"), ({"num_key_value_heads": 4}, "50GB"), ({"tie_word_embeddings": True}, "50GB"), ({}, "20KB")],
)
def test_logits_are_transformers_own(tmp_path, fields, shard):
    model = llama(**fields)
    model.save_pretrained(tmp_path, max_shard_size=shard)
    assert (tmp_path / "model.safetensors.index.json").exists() == (shard == "20KB")
    with torch.no_grad():
        torch.testing.assert_close(load_llama(tmp_path)(TOKENS), model(TOKENS).logits, atol=2e-5, rtol=1e-5)


@pytest.mark.parametrize("stored", ["lm_head", "model.embed_tokens"])
def test_tied_weights_are_one_where_one_is_stored(tmp_path, stored):
    model = llama(tie_word_embeddings=True)
    model.save_pretrained(tmp_path)
    path = tmp_path / "model.safetensors"
    state = load_file(path)
    save_file(state | {f"{stored}.weight": state.pop("model.embed_tokens.weight")}, path)
    with torch.no_grad():
        torch.testing.assert_close(load_llama(tmp_path)(TOKENS), model(TOKENS).logits, atol=2e-5, rtol=1e-5)


def test_a_head_that_is_stored_is_the_head_whatever_the_settings_say(tmp_path):
    """As transformers itself loads such a folder."""
    llama().save_pretrained(tmp_path)
    about = json.loads((tmp_path / "config.json").read_text())
    write_json(tmp_path / "config.json", about | {"tie_word_embeddings": True})
    theirs = LlamaForCausalLM.from_pretrained(tmp_path).eval()
    with torch.no_grad():
        torch.testing.assert_close(load_llama(tmp_path)(TOKENS), theirs(TOKENS).logits, atol=2e-5, rtol=1e-5)


def test_what_is_exported_comes_back(tmp_path):
    model = build(ModelConfig(61, 32, 3, 4, 2, 40, rope_base=77.0, norm_eps=1e-3), seed=2)
    write_json(tmp_path / "config.json", settings(model, 64))
    save_file(weights(model), tmp_path / "model.safetensors")
    again = load_llama(tmp_path)
    assert again.config == model.config
    assert all(torch.equal(value, model.state_dict()[name]) for name, value in again.state_dict().items())


def test_the_rotary_base_of_older_folders_is_read(tmp_path):
    model = llama()
    model.save_pretrained(tmp_path)
    about = json.loads((tmp_path / "config.json").read_text())
    del about["rope_parameters"]
    write_json(tmp_path / "config.json", about | {"rope_theta": 77.0, "rope_scaling": None})
    with torch.no_grad():
        torch.testing.assert_close(load_llama(tmp_path)(TOKENS), model(TOKENS).logits, atol=2e-5, rtol=1e-5)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"model_type": "mistral"}, "model_type is 'mistral'; only 'llama' can be loaded"),
        ({"head_dim": 16}, "head_dim 16 is not hidden_size / num_attention_heads = 8"),
        ({"num_hidden_layers": 4}, r"lacks the weights of 'blocks\.3\..+' \(and 8 more\)"),
        ({"num_attention_heads": -4}, "config.json has no shape of a Llama"),
        ({"quantization_config": {"bits": 4}}, "quantised weights"),
    ],
)
def test_folders_that_can_not_be_loaded_are_named(tmp_path, change, words):
    llama().save_pretrained(tmp_path)
    about = json.loads((tmp_path / "config.json").read_text()) | change
    write_json(tmp_path / "config.json", {key: value for key, value in about.items() if value is not None})
    with pytest.raises(UserError, match=words):
        load_llama(tmp_path)


def test_weights_that_are_missing_or_strange_are_named(tmp_path):
    llama().save_pretrained(tmp_path)
    path = tmp_path / "model.safetensors"
    state = load_file(path)
    save_file(state | {"model.layers.0.mlp.extra.weight": torch.ones(1)}, path)
    with pytest.raises(UserError, match=r"'model\.layers\.0\.mlp\.extra\.weight' belongs to no Llama"):
        load_llama(tmp_path)
    save_file({name: value for name, value in state.items() if name != "model.norm.weight"}, path)
    with pytest.raises(UserError, match=r"lacks the weights of 'norm\.weight' \(and 0 more\)"):
        load_llama(tmp_path)
    save_file(state | {"model.norm.weight": torch.full((32,), torch.nan)}, path)
    with pytest.raises(UserError, match=r"'model\.norm\.weight' holds NaN"):
        load_llama(tmp_path)


@pytest.mark.parametrize("place", ["..", "absolute", "link", "file"])
def test_only_files_of_the_folder_are_read(tmp_path, place):
    folder, outside = tmp_path / "folder", tmp_path / "secret.safetensors"
    llama().save_pretrained(folder)
    (folder / "model.safetensors").rename(outside)
    name = {"..": "../secret.safetensors", "absolute": str(outside)}.get(place, "model.safetensors")
    if place in ("link", "file"):
        (folder / "model.safetensors").symlink_to(outside)
    if place != "file":
        (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": {"a": name}}))
    with pytest.raises(UserError, match=r"leads out of .*folder, to .*secret\.safetensors"):
        load_llama(folder)


def test_a_snapshot_of_the_hubs_cache_is_a_folder_of_links(tmp_path):
    snapshot, blobs = tmp_path / "models--a/snapshots/0123", tmp_path / "models--a/blobs"
    llama().save_pretrained(snapshot)
    blobs.mkdir()
    for number, path in enumerate(sorted(snapshot.iterdir())):
        path.rename(blobs / str(number))
        path.symlink_to(f"../../blobs/{number}")
    assert load_llama(snapshot).config.layers == 3
