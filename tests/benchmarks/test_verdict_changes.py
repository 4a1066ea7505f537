"""Claims whose words changed since a commit, in a repository made for it."""

import json
import subprocess
from pathlib import Path

from benchmarks.verdict_changes import changes
from tests.report.made_up import row


def test_words_that_only_have_another_name_are_left_out(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    path = Path("results/laptop/rivals/verdicts.json")
    path.parent.mkdir(parents=True)

    def write(**words):
        path.write_text(json.dumps([row(claim, word) for claim, word in words.items()]))

    write(a="direction only", b="direction only", c="reproduced", d="not testable at this scale")
    for command in (
        ["init", "-q"],
        ["add", "-A"],
        ["-c", "user.name=t", "-c", "user.email=t@t", "commit", "-qm", "then"],
    ):
        subprocess.run(["git", *command], check=True)
    write(a="supported", b="contradicted", d="not tested", e="undecided")
    effect = "+0.100 (+0.050 to +0.150)"
    assert changes("HEAD") == [
        f"| rivals/b | direction only | contradicted | {effect} | {effect} | because <b> |",
        f"| rivals/c | reproduced | no claim | {effect} | - | no longer a claim |",
        f"| rivals/e | no claim | undecided | - | {effect} | because <b> |",
    ]
