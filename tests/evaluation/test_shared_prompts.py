"""Rows of a prompt and its answers, by hand."""

import torch

from stemrepro.evaluation.shared_prompts import Row, shared_rows, sharing_mask


def test_an_answer_is_read_but_for_its_last_token_and_predicted_one_place_earlier():
    row = Row([5, 6], {3: [7, 8, 9], 1: [4], 0: [2, 3]})
    assert row.tokens == [5, 6, 7, 8, 2]
    assert row.owners == [0, 0, 1, 1, 3]
    assert row.places == [1, 2, 3, 1, 1, 4]


def test_answers_share_a_row_while_it_has_room():
    requests = [([1, 2], [9, 9]), ([3], [9]), ([1, 2], [8, 8]), ([1, 2], [7, 7, 7]), ([1, 2], [6])]
    rows = shared_rows(requests, 4)
    assert [(row.prompt, list(row.answers)) for row in rows] == [([1, 2], [0, 2]), ([1, 2], [3, 4]), ([3], [1])]
    assert all(row.answers[number] == requests[number][1] for row in rows for number in row.answers)
    assert [list(row.answers) for row in shared_rows(requests, 0)] == [[3], [0], [2], [4], [1]]


def test_a_token_attends_to_its_prompt_and_its_own_answer():
    seen = sharing_mask(torch.tensor([[0, 0, 1, 1, 2, 3]]))
    assert seen[0, 0].int().tolist() == [
        [1, 0, 0, 0, 0, 0],
        [1, 1, 0, 0, 0, 0],
        [1, 1, 1, 0, 0, 0],
        [1, 1, 1, 1, 0, 0],
        [1, 1, 0, 0, 1, 0],
        [1, 1, 0, 0, 0, 1],
    ]
