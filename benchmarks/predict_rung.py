"""What will the next rung of a ladder bring? Foretold from the rungs below it, to be committed before it is run.

    python -m benchmarks.predict_rung rung-4
        the rung-4 of recipes/token_ladder.yaml, from the scores of those below
    python -m benchmarks.predict_rung main
        the scale itself, the ladder's last rung
    python -m benchmarks.predict_rung wide-rung-3
        a rung of the wider model, by the law over parameters and tokens
    python -m benchmarks.predict_rung rung-4 --arms dense stem-full
        some arms, where others' rungs below are still to be scored
    python -m benchmarks.predict_rung --came
        what came of all that was foretold, and how much of it within its interval

Adds lines to docs/predicted_rungs.csv: the prose loss of every arm, and its gap to dense, with 95% intervals
(stemrepro/measures/forecast.py). A rung that has scores, or was foretold before, is refused.
"""

import argparse
import sys
from pathlib import Path

import pandas as pd

from stemrepro.common.errors import UserError, unknown
from stemrepro.common.files import atomic_write
from stemrepro.config.address import MAIN
from stemrepro.measures.catalog import load
from stemrepro.measures.inputs import Inputs
from stemrepro.measures.scaling import Scaling

FILE = Path("docs/predicted_rungs.csv")


def lines(measure: Scaling, rung: str, chosen: list[str] | None = None) -> list[dict]:
    """Return the loss of every arm, or of those chosen, and its gap to dense at a rung, in nats per token.

    Raises:
        UserError: the rung is unknown, has scores, or too few below it have.
    """
    variant = None if rung == MAIN else rung
    tokens, predictions = measure.tokens_at(variant), []
    arms = [arm for arm in measure.arms if variant is None or variant in measure.arms[arm].variants]
    for arm in chosen or ():
        if arm not in arms:
            raise unknown("arm", arm, arms, f"{measure.inputs.name} at '{rung}'")
    arms = [arm for arm in arms if not chosen or arm in chosen]
    for arm in arms:
        if (scored := measure.all_losses(arm, variant).folder / "summary.json").exists():
            raise UserError(f"{scored} exists: what has been run can't be foretold")
    for pair in [(arm,) for arm in arms] + [("dense", arm) for arm in arms if arm != "dense"]:
        forecast = measure.forecast(pair, variant)
        low, high = forecast.interval(0.05)
        fitted = " ".join(name or MAIN for name in measure.below(variant))
        predictions.append({
            "recipe": measure.inputs.name, "scale": measure.inputs.scale_name, "rung": rung, "tokens": tokens,
            "what": " - ".join(pair), "value": forecast.mean, "ci_low": low, "ci_high": high,
            "seeds": len(forecast.differences), "fitted": fitted,
        })  # fmt: skip
    return predictions


def added(file: Path, new: list[dict]) -> pd.DataFrame:
    """Return the file's lines, then the new ones.

    Raises:
        UserError: the rung was foretold before.
    """
    before = pd.read_csv(file) if file.exists() else pd.DataFrame(columns=list(new[0]))
    same = before[["recipe", "scale", "rung"]].eq([new[0][key] for key in ("recipe", "scale", "rung")]).all(axis=1)
    if again := sorted({*before["what"][same]} & {line["what"] for line in new}):
        raise UserError(f"{file} has a prediction of '{new[0]['rung']}' already ({again[0]}); it stands as it was made")
    return pd.DataFrame([*before.to_dict("records"), *new])


def came(measure: Scaling, predicted: pd.DataFrame) -> pd.DataFrame:
    """Return the predictions of a recipe at a scale with what came of them.

    Column "came" is over all seeds that were scored. Column "inside" says whether it lies in the interval.

    Raises:
        UserError: a rung that was foretold has no scores.
    """
    predictions = predicted[
        (predicted["recipe"] == measure.inputs.name) & (predicted["scale"] == measure.inputs.scale_name)
    ]
    values = []
    for line in predictions.itertuples():
        arms, variant = line.what.split(" - "), None if line.rung == MAIN else line.rung
        if len(arms) == 2:
            values.append(measure.gap(*arms, variant).mean)
        else:
            values.append(float(measure.all_losses(arms[0], variant).whole().loss("prose").mean()))
    predictions = predictions.assign(came=values)
    return predictions.assign(inside=predictions["came"].between(predictions["ci_low"], predictions["ci_high"]))


def main() -> None:
    """Write the prediction and print it, or print what came of all."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    chosen = parser.add_mutually_exclusive_group(required=True)
    chosen.add_argument("rung", nargs="?")
    chosen.add_argument("--came", action="store_true", help="what came of all that was foretold")
    parser.add_argument("--recipe", default="token_ladder")
    parser.add_argument("--scale", default="ladder")
    parser.add_argument("--arms", nargs="+")
    options, catalog = parser.parse_args(), load()
    try:
        catalog.recipe(options.recipe)
        measure = Scaling(
            Inputs(options.recipe, catalog.at(options.scale), options.scale, Path("scores") / options.scale)
        )
        if options.came:
            outcomes = came(measure, pd.read_csv(FILE))
            print(outcomes.drop(columns=["recipe", "scale", "tokens", "seeds", "fitted"]).to_string(index=False))
            print(f"\n{outcomes['inside'].sum()} of {len(outcomes)} within their 95% intervals")
            return
        new = lines(measure, options.rung, options.arms)
        atomic_write(FILE, added(FILE, new).to_csv(index=False, float_format="%.6g"))
    except UserError as error:
        sys.exit(str(error))
    print(pd.DataFrame(new).drop(columns=["recipe", "scale"]).to_string(index=False))
    print(f"\n{FILE}: commit it before '{options.rung}' is run.")


if __name__ == "__main__":
    main()
