import json
import shutil

from stemrepro.data.card import data_card


def test_sources_items_and_licences(sample, tmp_path):
    data_card(sample, sample / "blocks", tmp_path / "card.md")
    card = (tmp_path / "card.md").read_text()
    assert "public domain" in card
    assert card.count("| speeches |") == 4
    assert "| OpenBookQA, test | 40 | 0 | 0, left out | 40 | Apache-2.0 | Mihaylov et al. 2018 |" in card
    assert "on purpose" in card


def test_what_was_left_out_because_of_what(sample, tmp_path):
    """A card of the sample's own numbers, with some that a larger mix would have."""
    for part in ("corpus", "items"):
        shutil.copytree(sample / part, tmp_path / part)
    path = tmp_path / "items" / "items.json"
    items = json.loads(path.read_text())
    items["openbookqa"] |= {"in_training_text": 7, "because_of": {"passages": 6, "plays": 3}, "kept": 33}
    path.write_text(json.dumps(items))
    path = tmp_path / "corpus" / "corpus.json"
    report = json.loads(path.read_text())
    report["removed"] |= {"near_duplicate_passages": {"speeches": 1200, "bible": 1}, "near_duplicates": 5}
    path.write_text(json.dumps(report))
    data_card(tmp_path, sample / "blocks", tmp_path / "card.md")
    card = (tmp_path / "card.md").read_text()
    assert "| OpenBookQA, test | 40 | 0 | 7, left out (passages: 6; plays: 3) | 33 |" in card
    assert "5 because every passage left was a near-duplicate. " in card
    assert "was a near-duplicate. Near-duplicate passages dropped: 1,201 (speeches 1,200, bible 1)" in card
    assert "80% or more of their distinct word 5-grams" in card
