"""Any task of lm-eval's: its own task files on local rows of the hub's form, its own means, groups, generation."""

from pathlib import Path

import lm_eval.tasks
import pandas as pd
import pytest
from datasets import Dataset, DatasetDict
from lm_eval import simple_evaluate
from lm_eval.tasks import TaskManager
from tokenizers import Tokenizer

from stemrepro.config.scores import PlannedReasoning
from stemrepro.evaluation import reasoning
from stemrepro.evaluation.lm import StemLM
from stemrepro.evaluation.reasoning import members, score, score_tasks, task_manager
from stemrepro.model.transformer import build
from tests.conftest import quiet, tables_of

FOLDERS = ("gsm8k", "leaderboard", "longbench")
MUSR = {"narrative": "A king was found.", "question": "Who did it?", "choices": "['one', 'two']"}
LONG = {"input": "", "question": "Who?", "answers": ["a king"], "all_classes": [], "dataset": "x", "language": "en"}
ROWS = {
    "openai/gsm8k": [{"question": f"What is {n} and 1?", "answer": f"It is so.\n#### {n + 1}"} for n in range(8)],
    "TAUR-Lab/MuSR": [MUSR | {"answer_index": n % 2, "answer_choice": ("one", "two")[n % 2]} for n in range(4)],
    "Xnhyacinth/LongBench": [LONG | {"context": "word " * n, "length": 3000 * n, "_id": str(n)} for n in range(1, 5)],
}


@pytest.fixture
def hub(monkeypatch):
    """Datasets of the hub's form; gives the names of those that were requested."""
    requested = []

    def load_dataset(path, name=None, **_):
        requested.append((path, name))
        splits = ("train", "test", "validation", "murder_mysteries", "object_placements", "team_allocation")
        return DatasetDict(dict.fromkeys(splits, Dataset.from_list(ROWS[path])))

    monkeypatch.setattr("datasets.load_dataset", load_dataset)
    return requested


@pytest.fixture(scope="module")
def manager():
    """Of these of lm-eval's task files; an index of all takes seconds."""
    folder = Path(lm_eval.tasks.__file__).parent
    return TaskManager(include_path=[folder / name for name in FOLDERS], include_defaults=False)


@pytest.fixture
def lm(make_run, sample):
    return StemLM(build(make_run("dense").model, 0), Tokenizer.from_file(str(sample / "tokenizer.json")), 32)


def planned(**tasks):
    return PlannedReasoning(items=4, batch=4, tasks=tasks)


@pytest.mark.slow
def test_means_are_lm_evals(hub, lm, manager):
    scores = score_tasks(lm, manager, planned(gsm8k="exact_match", leaderboard_musr="acc_norm"), quiet)
    names = ["gsm8k", "leaderboard_musr"]
    results = simple_evaluate(lm, tasks=names, limit=4, bootstrap_iters=0, task_manager=manager)["results"]
    expected = results["gsm8k"]["exact_match,strict-match"], results["leaderboard_musr"]["acc_norm,none"]
    assert [scores[name]["value"].mean() / 100 for name in names] == pytest.approx(expected)
    assert len(scores["gsm8k"]["value"]) == 4  # one filter of the two
    assert len(scores["leaderboard_musr"]["value"]) == 12  # three tasks
    assert {path for path, _ in hub} == {"openai/gsm8k", "TAUR-Lab/MuSR"}


def test_what_is_generated_counts(hub, lm, manager, monkeypatch):
    """A model that says the right number to every other question."""
    texts = iter([f" so #### {n + 1}" if n % 2 else " no idea" for n in range(4)])
    monkeypatch.setattr(StemLM, "generate_until", lambda self, requests, **_: [next(texts) for _ in requests])
    results = score_tasks(lm, manager, planned(gsm8k="exact_match"), quiet)
    assert results["gsm8k"]["value"].tolist() == [0, 100, 0, 100]


def test_floors_and_lengths(hub, lm, manager):
    pytest.importorskip("jieba")
    tasks = {"leaderboard_musr": "acc_norm", "gsm8k": "exact_match", "longbench_hotpotqa_e": "score"}
    results = score_tasks(lm, manager, planned(**tasks), quiet)
    assert set(results["leaderboard_musr"]["floor"]) == {50.0}
    assert set(results["gsm8k"]["floor"]) == {25.0}  # four different answers
    assert results["longbench_hotpotqa_e"]["length"].tolist() == [3000, 6000, 9000, 12000]
    assert results["gsm8k"]["length"].tolist() == sorted(results["gsm8k"]["length"])
    assert hub[-1][1] == "hotpotqa_e"


NEEDLES = """\
task: needles
dataset_path: ""
custom_dataset: !function needles.items
output_type: generate_until
test_split: test
doc_to_text: "{{input}}"
doc_to_target: "{{outputs}}"
process_results: !function needles.points
generation_kwargs: {max_gen_toks: 4, until: []}
metric_list:
  - {metric: "4096", aggregation: mean, higher_is_better: true}
  - {metric: "8192", aggregation: mean, higher_is_better: true}
"""
MADE = """\
import random
from datasets import Dataset
from transformers import AutoTokenizer

def items(tokenizer, max_seq_lengths, **_):
    tokenizer = AutoTokenizer.from_pretrained(tokenizer)
    rows = []
    for length in max_seq_lengths:
        for _ in range(2):
            number = str(random.randint(10**6, 10**7))
            text = f"word {number} " * (length // 100)
            size = len(tokenizer(text).input_ids)
            rows.append({"input": text, "outputs": [number], "max_length": length, "length": size})
    return {"test": Dataset.from_list(rows)}

def points(doc, results):
    return {"4096": -1.0} | {str(doc["max_length"]): float(doc["outputs"][0] in results[0])}
"""


def test_items_that_a_task_makes_by_length(lm, sample, tmp_path, monkeypatch):
    """As RULER's: drawn by chance, as long as the tokenizer says, each under the metric that its length is."""
    for name, text in {"needles.yaml": NEEDLES, "needles.py": MADE}.items():
        (tmp_path / name).write_text(text)
    file = sample / "tokenizer.json"
    (tmp_path / "tokenizer").mkdir()
    manager = task_manager(file, (4096, 8192), tmp_path / "tokenizer", include_path=[tmp_path], include_defaults=False)
    drawn = [[doc["outputs"] for doc in members(manager, "needles")["needles"].test_docs()] for _ in range(2)]
    assert drawn[0] == drawn[1]  # the same for every run
    answers = iter([f"It is {drawn[0][0][0]}.", "no", "no", f"{drawn[0][3][0]}"])
    monkeypatch.setattr(StemLM, "generate_until", lambda self, requests, **_: [next(answers) for _ in requests])
    needles = score_tasks(lm, manager, planned(needles="max_length"), quiet)["needles"]
    assert needles["value"].tolist() == [100, 0, 0, 100]
    assert needles["floor"].tolist() == [25] * 4  # of four answers
    tokenizer = Tokenizer.from_file(str(file))
    lengths = [4096] * 2 + [8192] * 2
    docs = [f"word {number} " * (length // 100) for (number,), length in zip(drawn[0], lengths, strict=True)]
    assert needles["length"].tolist() == [len(tokenizer.encode(text).ids) for text in docs]


def test_examples_before_a_question_are_the_same_for_every_run(hub, manager, monkeypatch):
    """Drawn by lm-eval's sampler, which has no seed of its own."""
    rows = [{"question": f"What is {n} and 1?", "answer": f"It is so.\n#### {n + 1}"} for n in range(200)]
    monkeypatch.setitem(ROWS, "openai/gsm8k", rows)
    prompts = []
    for _ in range(2):
        (task,) = members(manager, "gsm8k").values()
        prompts.append([str(task.fewshot_context(doc, num_fewshot=5)) for doc in list(task.test_docs())[:5]])
    assert prompts[0] == prompts[1]
    assert len(set(prompts[0])) == 5


def test_one_answer_to_everything_is_the_floor(hub, lm, manager, monkeypatch):
    """Of a graded score by the score itself: one line of code is like another."""
    pytest.importorskip("jieba")
    lines = ["return self.value", "return self.values", "return self.valued", "x = 1"]
    like = [{**ROWS["Xnhyacinth/LongBench"][0], "answers": [line], "context": "code " * 9} for line in lines]
    monkeypatch.setitem(ROWS, "Xnhyacinth/LongBench", like)
    (floor,) = set(score_tasks(lm, manager, planned(longbench_lcc_e="score"), quiet)["longbench_lcc_e"]["floor"])
    assert 70 < floor < 90  # three near misses and one line of another kind


def test_what_does_not_fit_the_context_is_marked(hub, lm, manager):
    pytest.importorskip("jieba")
    results = score_tasks(lm, manager, planned(leaderboard_musr="acc_norm", longbench_hotpotqa_e="score"), quiet)
    assert results["longbench_hotpotqa_e"]["cut"].all()
    lm.context = 10_000
    again = score_tasks(lm, manager, planned(leaderboard_musr="acc_norm"), quiet)
    assert not again["leaderboard_musr"]["cut"].any()


def test_nothing_is_scored_without_the_hub(make_run, tmp_path, monkeypatch):
    monkeypatch.setattr(reasoning, "load_run", lambda _: pytest.fail("no model is needed"))
    assert score(make_run("dense"), quiet, planned(), tmp_path / "none.json") == {}
    assert tables_of("reasoning", [make_run("dense")], [{}]) == ({"tasks": {}}, {})


def test_lines_of_two_seeds(make_run):
    items = pd.DataFrame({"length": [3, 4], "floor": [50.0, 50.0], "cut": [False, True], "cluster": ["a/0", "a/1"]})
    results = [{"a": items.assign(value=[0.0, value])} for value in (100.0, 0.0)]
    about, tables = tables_of("reasoning", [make_run("dense", seed) for seed in (0, 1)], results)
    assert about == {"tasks": {"a": {"items": 2, "mean": 25.0, "floor": 50.0}}}
    assert tables["reasoning"].to_numpy().tolist() == [
        [seed, "a", item, f"a/{item}", value, 3 + item, 50.0, item == 1]
        for seed, values in ((0, (0.0, 100.0)), (1, (0.0, 0.0)))
        for item, value in enumerate(values)
    ]
