"""Our model under lm-eval: log-likelihoods by hand, chance for a model that knows nothing, 100 for an oracle."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch
import yaml
from lm_eval import simple_evaluate
from lm_eval import tasks as lm_eval_tasks
from lm_eval.api.instance import Instance
from lm_eval.api.model import LM
from lm_eval.utils import apply_template
from tokenizers import Tokenizer

from stemrepro.common.errors import UserError
from stemrepro.config.arm import shaped
from stemrepro.data.items import parse
from stemrepro.evaluation.lm import TASKS, Row, StemLM, shared_rows, sharing_mask, task_manager
from stemrepro.measures.catalog import load
from stemrepro.model.transformer import build
from tests.conftest import ROOT

ARMS = load(ROOT / "recipes").arms
NAMES = sorted(path.stem for path in TASKS.glob("*/*.yaml"))


@pytest.fixture
def lm(make_run, sample):
    tokenizer = Tokenizer.from_file(str(sample / "tokenizer.json"))
    return StemLM(build(make_run("stem-full").model, 0), tokenizer, 32, batch=3)


def request(*arguments, kind="loglikelihood"):
    return Instance(kind, {}, arguments, 0)


def by_hand(lm, prompt, answer):
    """Sum of log-probabilities of the answer's tokens, one forward pass, no batch, no padding."""
    whole = lm.tokens.encode(prompt + answer).ids
    size = len(whole) - len(lm.tokens.encode(prompt).ids)
    row = [0, *whole][-33:]
    logits = lm.model(torch.tensor([row[:-1]])).double().log_softmax(-1)[0]
    return sum(float(logits[place - 1, row[place]]) for place in range(len(row) - size, len(row)))


@torch.no_grad()
def test_log_likelihoods_equal_a_hand_computation(lm):
    long = "the ship sailed on over the wide and stormy sea for many days, " * 2 + "the sea"
    pairs = [("The capital of France is", " Paris"), ("", " No prompt at all"), ("A", " b"), (long, " and home")]
    results = lm.loglikelihood([request(*pair) for pair in pairs], disable_tqdm=True)
    assert [score for score, _ in results] == pytest.approx([by_hand(lm, *pair) for pair in pairs], abs=1e-4)
    assert lm.truncated == 1


@torch.no_grad()
@pytest.mark.parametrize("arm", ARMS)
@pytest.mark.parametrize("fields", [{}, {"document_mask": True}])
def test_answers_to_one_prompt_score_as_each_by_itself(lm, tiny, arm, fields):
    """Also in networks that look at the token before, and where a row has no room for all answers."""
    model = build(shaped(tiny.model.model_copy(update=fields), ARMS[arm]), 0)
    lm = StemLM(model, lm.tokens, lm.context, batch=3)
    prompts = ["The capital of France is", "", "In the beginning God created"]
    answers = [" Paris", " the heavens and the earth", " b", " London and Rome", " a"]
    pairs = [(prompt, answer) for answer in answers for prompt in prompts]
    results, alone = lm.loglikelihood([request(*pair) for pair in pairs], disable_tqdm=True), []
    for pair in pairs:
        alone += lm.loglikelihood([request(*pair)], disable_tqdm=True)
    assert [score for score, _ in results] == pytest.approx([by_hand(lm, *pair) for pair in pairs], abs=3e-6, rel=1e-7)
    assert [greedy for _, greedy in results] == [greedy for _, greedy in alone]


@torch.no_grad()
def test_a_prompt_is_read_once_for_its_answers(lm):
    read = []
    lm.model.embedding.register_forward_pre_hook(lambda _, inputs: read.append(inputs[0].numel()))
    prompt, words = "In the beginning God", [" a", " the", " of", " b"]
    lm.loglikelihood([request(prompt, word) for word in words], disable_tqdm=True)
    sizes = [len(lm.tokens.encode(word).ids) - 1 for word in words]
    assert read == [1 + len(lm.tokens.encode(prompt).ids) + sum(sizes)]


@torch.no_grad()
def test_greedy_is_what_generation_gives(lm):
    prompt = "The capital of"
    (made,) = lm.generate_until([request(prompt, {"until": [], "max_gen_toks": 6}, kind="generate_until")])
    row = [0, *lm.tokens.encode(prompt).ids]
    for _ in range(6):
        row.append(int(lm.model(torch.tensor([row]))[0, -1].argmax()))
    assert made == lm.tokens.decode(row[-6:])
    lm.tok_encode = lambda text, **_: row[1:] if text else []  # the answer's very tokens; text may be split otherwise
    ((_, greedy),) = lm._loglikelihood_tokens([(("", made), row[1:-6], row[-6:])])
    assert greedy
    ((_, other),) = lm._loglikelihood_tokens([(("", made), row[1:-6], [*row[-6:-1], (row[-1] + 1) % 300])])
    assert not other


def test_generation_stops_at_a_stop_text(lm):
    (made,) = lm.generate_until([request("The", {"until": [], "max_gen_toks": 8}, kind="generate_until")])
    stop = made[2:4]
    (cut,) = lm.generate_until([request("The", {"until": [stop], "max_gen_toks": 8}, kind="generate_until")])
    assert cut == made.split(stop)[0]


@torch.no_grad()
def test_rolling_scores_every_token_once(lm):
    text = "and it came to pass in those days that there went out a decree " * 3
    (results,) = lm.loglikelihood_rolling([request(text, kind="loglikelihood_rolling")], disable_tqdm=True)
    row, total = [0, *lm.tokens.encode(text).ids], 0.0
    for first in range(0, len(row) - 1, 32):
        size = len(row[first + 1 : first + 33])
        window = row[first : first + 33] if size == 32 else row[-33:]
        logits = lm.model(torch.tensor([window[:-1]])).double().log_softmax(-1)[0]
        total += sum(float(logits[place - 1, window[place]]) for place in range(len(window) - size, len(window)))
    assert results == pytest.approx(total, abs=1e-3)


def test_an_answer_longer_than_the_context(lm):
    with pytest.raises(UserError, match=r"an answer of \d+ tokens \('and so on.*is empty or longer than .* of 32"):
        lm.loglikelihood([request("Q:", " and so on" * 30)], disable_tqdm=True)


def write_items(folder, count):
    """Items of every task with answers of equal length and right places by lot."""
    lots, tokens = np.random.default_rng(1), ["alpha", "gamma", "delta", "kappa", "sigma", "omega"]
    folder.mkdir()
    for name in NAMES:
        rows = []
        for number in range(count):
            size = 2 if name in ("boolq", "piqa") else 4
            choices = [" ".join(lots.choice(tokens, 3)) + f" {number}{letter}" for letter in "abcd"[:size]]
            about = {"id": f"{number}", "cluster": f"{number}", "query": f"{name} {number}", "evidence": ""}
            rows.append(about | {"choices": choices, "gold": int(lots.integers(size))})
        (folder / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return folder


def score(model, items):
    return simple_evaluate(model, tasks=NAMES, task_manager=task_manager(items), bootstrap_iters=0, log_samples=True)


class Fixed(LM):
    """Answers with the log-likelihood that a function of (prompt, answer) gives."""

    def __init__(self, function):
        super().__init__()
        self.function = function

    def loglikelihood(self, requests, **_):
        return [(self.function(*request.args), False) for request in requests]

    def loglikelihood_rolling(self, requests, **_):
        raise AssertionError

    generate_until = loglikelihood_rolling


@pytest.mark.slow
def test_an_oracle_scores_100_on_every_task(sample, tmp_path):
    folder = write_items(tmp_path / "items", 20)
    right = set()
    for name in NAMES:
        for line in (folder / f"{name}.jsonl").read_text().splitlines():
            row = json.loads(line)
            answer = row["choices"][row["gold"]]
            right.add((answer, f" {row['query']}") if name.startswith("gloss") else (row["query"], f" {answer}"))
    results = score(Fixed(lambda *pair: 0.0 if pair in right else -9.0), folder)["results"]
    assert {metrics[f"{metric},none"] for metrics in results.values() for metric in ("acc", "acc_norm")} == {1.0}


ORIGINAL = {
    "openbookqa": {"question_stem": "Predators eat"},
    "piqa": {"goal": "Predators eat"},
    "social_iqa": {"context": "It is.", "question": "Predators eat"},
    "boolq": {"passage": "It is.", "question": "Predators eat"},
}


@pytest.mark.parametrize("task", ORIGINAL)
def test_prompts_are_worded_as_lm_evals_own(task):
    """Against the templates in lm-eval's package, so that the same names from the hub give the same requests."""
    folder = {"social_iqa": "siqa/siqa", "boolq": "super_glue/boolq/default"}.get(task, f"{task}/{task}")
    path = next(iter(lm_eval_tasks.__path__)) + f"/{folder}.yaml"
    template = yaml.safe_load(Path(path).read_text())["doc_to_text"]
    template = template if "{{" in template else "{{" + template + "}}"
    answer = "True" if task == "boolq" else "A. x"
    line = json.dumps({"question": "Predators eat", "passage": "It is.", "options": "A. x\nB. y", "answer": answer})
    (item,), _ = parse(task, [line])
    assert item.query == apply_template(template, ORIGINAL[task])


def test_an_answer_is_read_but_for_its_last_token_and_predicted_one_place_earlier():
    row = Row([5, 6], {3: [7, 8, 9], 1: [4], 0: [2, 3]})
    assert (row.tokens, row.owners) == ([5, 6, 7, 8, 2], [0, 0, 1, 1, 3])
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
