from stemrepro.data.card import data_card


def test_sources_items_and_licences(sample, tmp_path):
    data_card(sample, sample / "blocks", tmp_path / "card.md")
    card = (tmp_path / "card.md").read_text()
    assert "public domain" in card
    assert card.count("| speeches |") == 4
    assert "| OpenBookQA, test | 40 | 0 | 0, left out | 40 | Apache-2.0 | Mihaylov et al. 2018 |" in card
    assert "on purpose" in card
