"""Tables and functions give every contrast of the old files by the old readers, to 1e-12. For one commit."""

import json
import os
import subprocess
import sys
import tarfile

import numpy as np
import pytest

from stemrepro.measures.base import call, scores_of
from stemrepro.report.evidence import effect_of
from stemrepro.verdicts.effect import Unmeasured
from tests.conftest import ROOT

BEFORE = "16053c43"
CHILD = """
import json, sys
from pathlib import Path
from stemrepro.measures.base import measured
from stemrepro.measures.catalog import load
from stemrepro.measures.inputs import Inputs
from stemrepro.report.evidence import contrast_of
from stemrepro.verdicts.contrast import Unmeasured

def numbers(of):
    try:
        one = of()
    except Unmeasured:
        return None
    return one and [*map(float, one.differences), one.item_se, *one.interval(0.05), *one.interval(0.01)]

catalog, found = load(), {}
for path in sorted(Path("results").glob("*/*/verdicts.json")):
    scale, recipe = path.parts[1:3]
    measure = measured(Inputs(recipe, catalog, scale, Path("scores") / scale))
    for key, asked in {**measure.inputs.recipe.claims, **measure.inputs.recipe.estimates}.items():
        own = numbers(lambda: measure.own(*asked.arms, asked.metric)) if asked.arms else None
        found[f"{scale}/{recipe}/{key}"] = [numbers(lambda: contrast_of(asked, measure)), own]
print(json.dumps(found))
"""


def numbers(of):
    try:
        effect = of()
    except Unmeasured:
        return None
    return effect and [*effect.differences, effect.item_se, *effect.interval(0.05), *effect.interval(0.01)]


@pytest.mark.slow
def test_every_contrast_is_that_of_the_old_readers(catalog, tmp_path):
    archive = subprocess.Popen(["git", "archive", BEFORE], cwd=ROOT, stdout=subprocess.PIPE)
    with tarfile.open(fileobj=archive.stdout, mode="r|") as opened:
        opened.extractall(tmp_path, filter="data")
    environment = os.environ | {"PYTHONPATH": str(tmp_path)}
    command = [sys.executable, "-c", CHILD]
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=True)
    before = json.loads(done.stdout)
    assert len(before) == 463
    for name, (common, own) in before.items():
        scale, recipe, key = name.split("/")
        scores = scores_of(recipe, catalog, scale, ROOT / "scores" / scale)
        asked = {**scores.recipe.claims, **scores.recipe.estimates}[key]
        read = call(asked.metric, catalog, scores.recipe)
        now = [numbers(lambda asked=asked, scores=scores: effect_of(asked, scores)), None]
        if asked.arms:
            now[1] = numbers(lambda read=read, asked=asked, scores=scores: read.own(scores, *asked.arms))
        for old, new in zip((common, own), now, strict=True):
            if old is not None and not np.isnan(old[0]):  # a scale without the items now says so by an error
                assert new is not None, name
                np.testing.assert_allclose(new, old, rtol=1e-12, atol=1e-12, equal_nan=True, err_msg=name)
