"""A run to explore."""

from dataclasses import replace

import pytest
import torch
from rich.console import Console

from stemrepro.cli.edit_table import show
from stemrepro.common.errors import UserError
from stemrepro.data.atlas import read_atlas
from stemrepro.evaluation.edit_session import EditSession


@pytest.fixture(scope="module")
def data(atlas_sample, tmp_path_factory):
    """data/ with the tokenizer of scale tiny and the facts of its mix."""
    folder = tmp_path_factory.mktemp("data")
    (folder / "tiny").mkdir()
    for name in ("blocks", "tokenizer.json"):
        (folder / "tiny" / name).symlink_to(atlas_sample / name)
    (folder / "atlas-sample").symlink_to(atlas_sample)
    return folder


@pytest.fixture(scope="module")
def names(atlas_sample):
    """Two names of one token."""
    return [entity.name for entity in read_atlas(atlas_sample / "corpus/facts.json").entities if entity.whole][:2]


@pytest.fixture(scope="module")
def session(atlas_run, data):
    return EditSession(atlas_run("stem-full").folder, data)


def test_an_edit_shows_the_prompt_before_edited_and_the_targets_own(session, names):
    source, target = names
    result = session.edit(f"The capital of {source} is", source, target, top=3, count=5)
    assert len(result.by_layer) == 4
    reverse = session.edit(f"The capital of {target} is", target, source, top=3, count=5)
    assert (result.aim, result.before) == (reverse.before, reverse.aim)
    assert result.lengths == (1, 1)
    assert result.before.top[0][1] == pytest.approx(result.by_layer[0][0])
    assert result.edited != result.before
    assert [share for _, share in result.edited.top] == sorted((share for _, share in result.edited.top), reverse=True)


def test_generation_is_the_models_own_choice(session):
    text = session.generate("The capital of", 6)
    row = session.tokens("The capital of")
    with torch.no_grad():
        for _ in range(6):
            row.append(int(session.model(torch.tensor([row]))[0, -1].argmax()))
    assert text == session.tokenizer.decode([token for token in row[len(session.tokens("The capital of")) :] if token])


def test_what_the_run_does_not_know_is_said_with_the_nearest(session, names):
    near = names[0][:-1] + "x"
    with pytest.raises(UserError, match=rf"country '{near}' is unknown; did you mean '{names[0]}'"):
        session.edit("The capital of {} is", near, names[1])
    with pytest.raises(UserError, match="does not name"):
        session.edit("The capital is", names[0], names[1])
    with pytest.raises(UserError, match="a name is empty"):
        session.edit("The capital of {} is", "", names[1])
    with pytest.raises(UserError, match="scheme 'middle' is unknown"):
        session.edit(f"of {names[0]} is", names[0], names[1], scheme="middle")


def test_the_page_names_all_three(session, names):
    source, target = names
    console = Console(record=True, width=100, force_terminal=True)
    prompt = f"The capital of {source} is"
    show(session.edit(prompt, source, target), prompt, source, target, console)
    page = console.export_text()
    for words in (
        prompt,
        f"{source} (before)",
        f"reading {target}",
        "its own prompt",
        "lowest 3",
        "scheme: one-to-one",
    ):
        assert words in page


@pytest.mark.parametrize(("before", "aim", "said"), [(0.4, 0.3, True), (0.4, 0.9, False), (0.9, 0.4, False)])
def test_an_edit_of_what_the_model_hardly_knows_is_named_so(session, names, before, aim, said):
    source, target = names
    prompt = f"The capital of {source} is"
    result = session.edit(prompt, source, target)
    sides = {
        side: replace(getattr(result, side), top=(("word", share),))
        for side, share in {"before": before, "aim": aim}.items()
    }
    console = Console(record=True, width=100, force_terminal=True)
    show(replace(result, **sides), prompt, source, target, console)
    assert ("may know neither answer" in " ".join(console.export_text().split())) is said
