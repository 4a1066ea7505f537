"""Scoring that reads a prompt once for all its answers, compared with once for each: CPU time, in turns.

    python -m benchmarks.shared_prompts [--rounds 15]

One thread, random weights at the laptop scale's shape, four answers a prompt out of the vendored sample, through
lm-eval's interface. Texts are split into tokens before the clock starts. Prints the ratio of the medians with its 95%
interval, and by how much the scores differ.
"""

import argparse

import torch

from benchmarks.interleaved import compared, interleaved
from benchmarks.peer_scoring import ARMS, requests
from benchmarks.peers import VOCAB, prepared, shaped
from benchmarks.runs import as_a_worker
from stemrepro.data.tokenizer import read_tokenizer
from stemrepro.evaluation.lm import StemLM
from stemrepro.measures.catalog import load
from stemrepro.model.transformer import build

COUNT, BATCH = 512, 64


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=15)
    rounds = parser.parse_args().rounds
    as_a_worker()
    torch.set_num_threads(1)
    with prepared() as home:
        steps = shaped(load(), "laptop", home, (8, 128), vocab=VOCAB)
        tokenizer = read_tokenizer(home / "data/tiny/tokenizer.json")
        instances = requests(home / "corpus/corpus.parquet", COUNT)
        for arm in ARMS:
            once, each = (StemLM(build(steps.run(arm).model, 0), tokenizer, 128, BATCH) for _ in range(2))
            each.shares = False
            encoded = [(request.args, *once._encode_pair(*request.args)) for request in instances]
            scores: dict[str, list] = {}
            turns = {
                name: lambda _, name=name, lm=lm, scores=scores, encoded=encoded: scores.update(
                    {name: lm._loglikelihood_tokens(encoded)}
                )
                for name, lm in {"once": once, "each": each}.items()
            }
            seconds = interleaved(turns, rounds, lambda: None, cpu_time=True)
            row = compared("scoring", arm, "a prompt for each", "requests/s", seconds["once"], seconds["each"], COUNT)
            gap = max(abs(a - b) for (a, _), (b, _) in zip(scores["once"], scores["each"], strict=True))
            flags = sum(a != b for (_, a), (_, b) in zip(scores["once"], scores["each"], strict=True))
            print(
                f"{arm}: {row.ours:.0f} requests a CPU second, each with its prompt {row.theirs:.0f}; "
                f"{row.ratio:.2f} times ({row.low:.2f} to {row.high:.2f}); "
                f"largest difference {gap:.1e} nats, {flags} other greedy flags"
            )


if __name__ == "__main__":
    main()
