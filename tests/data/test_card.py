import shutil

from stemrepro.common.files import read_json, write_json
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
    items, report = (read_json(tmp_path / name) for name in ("items/items.json", "corpus/corpus.json"))
    items["openbookqa"] |= {"in_training_text": 7, "because_of": {"passages": 6, "plays": 3}, "kept": 33}
    report["removed"] |= {"near_duplicate_passages": {"bible": 1, "speeches": 1200}, "near_duplicates": 5}
    write_json(tmp_path / "items/items.json", items)
    write_json(tmp_path / "corpus/corpus.json", report)
    data_card(tmp_path, sample / "blocks", tmp_path / "card.md")
    card = (tmp_path / "card.md").read_text()
    assert "| OpenBookQA, test | 40 | 0 | 7, left out (passages: 6; plays: 3) | 33 |" in card
    assert "5 because every passage left was a near-duplicate. " in card
    assert "was a near-duplicate. Near-duplicate passages dropped: 1,201 (bible 1, speeches 1,200)" in card
    assert "80% or more of their distinct word 5-grams" in card
