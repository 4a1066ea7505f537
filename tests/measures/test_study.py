"""A study's table that is missing, cut off or without the rows asked for is named."""

import pandas as pd
import pytest

from stemrepro.common.errors import UserError
from stemrepro.measures import study
from stemrepro.verdicts.effect import Unmeasured
from tests.made_up import made


def test_a_study_s_table_that_is_cut_off_and_rows_that_are_not_there_are_named(catalog, tmp_path):
    path, lines = tmp_path / "spread/a.parquet", pd.DataFrame({"layer": [0, 1], "side": "rows"})
    path.parent.mkdir()
    lines.to_parquet(path)
    scores = made(catalog, "model_spread", tmp_path)
    assert study.table(scores, "spread", "a").equals(lines)
    assert study.rows(scores, "spread", "a", layer=1, side="rows").index.tolist() == [1]
    with pytest.raises(Unmeasured, match=r"spread/a\.parquet has nothing of layer 2, side 'rows'"):
        study.rows(scores, "spread", "a", layer=2, side="rows")
    path.write_bytes(path.read_bytes()[:-40])
    for name in ("a", "b"):
        with pytest.raises(UserError, match=rf"{name}\.parquet is missing or damaged"):
            study.table(made(catalog, "model_spread", tmp_path), "spread", name)
