"""An arm and a recipe to start from: valid as they are written, and meant to be edited."""

import re
import shutil
from pathlib import Path
from tempfile import TemporaryDirectory

import yaml

from stemrepro.common.errors import UserError, checked
from stemrepro.common.files import atomic_write
from stemrepro.common.paths import ANALYSES, RECIPES
from stemrepro.common.yaml_records import Dumper, checked_name, parse, read_yaml
from stemrepro.config.arm import MARKERS, Arm, shaped
from stemrepro.config.catalog import MODULE, RESERVED, Catalog
from stemrepro.measures.catalog import load
from stemrepro.model.names import OWN_FILE, own_file
from stemrepro.model.needs import declared

NETWORK = '''"""A feed-forward network of your own: say in one sentence what it changes."""

import torch.nn.functional as F
from torch import Tensor

from stemrepro.model.ffn.stem import Stem


class {name}(Stem):
    """STEM, to be changed: y = W_d(SiLU(W_g x) * U[token]). A parameter `table.weight` is trained as tables are."""

    def forward(self, x: Tensor, tokens: Tensor) -> Tensor:
        """Return the network's output: x [batch, seq, width], tokens [batch, seq] -> [batch, seq, width]."""
        return self.down(F.silu(self.gate(x)) * self.rows(x, tokens))
'''
ARM = """{name}:
  {{ffn: {ffn}, placement: full{needs},
   label: "{name}", hue: {hue}, marker: "{marker}"}}
"""
RECIPE = """title: {low} compared with {high}
paper_item: our question
place: {place}
measure: comparison   # a file of stemrepro/measures/: what the metrics mean
origin: control       # paper, arithmetic or control: whose sentences the claims are
arms: [{arms}]
seeds: 5
claims:
  {key}:
    sentence: {low} ends below {high}.
    kind: greater
    metric: {{loss: prose}}
    arms: [{high}, {low}]
    smallest_effect: 0.02   # nats per token: fix it before any run
"""
METHOD = """title: How far ahead of dense is {name} on the tracks of the leaderboard?
paper_item: our question
place: {place}
measure: leaderboard
origin: control       # paper, arithmetic or control: whose sentences the claims are
scales: [leaderboard]
arms: [dense, {name}]
compare_at: own-rate  # at equal FLOPs
variants:
  own-rate: {{seeds: 5}}
  equal-size: {{seeds: 5}}
  width-16-own: {{seeds: 5}}
  # equal-time: {{seeds: 5}}   # once recipes/scales/leaderboard.yaml has its step time
claims:
  below-dense:
    sentence: At equal FLOPs {name} ends below dense.
    kind: greater
    metric: {{loss: prose}}
    arms: [dense, {name}]
    smallest_effect: 0.02   # nats per token: fix it before any run
"""
FIGURE = '''"""The leads of {name} on the tracks of the leaderboard."""

from analysis.leaderboard import collect, draw

__all__ = ["collect", "draw"]
'''

NEEDED = {"rank": 0.5, "slots": 4}
"""Values in a new arm whose network needs them."""


def _write(file: Path, text: str) -> None:
    """Write a file of recipes/ if all of recipes/ can be read with it; UserError names what can't."""
    with TemporaryDirectory() as aside:
        tried = Path(shutil.copytree(file.parent, Path(aside) / file.parent.name))
        (tried / file.name).write_text(text, encoding="utf-8")
        try:
            load(tried)
        except UserError as error:
            raise UserError(str(error).replace(str(tried), str(file.parent))) from error
    atomic_write(file, text)


def new_arm(name: str, ffn: str, folder: Path = RECIPES) -> list[str]:
    """Append an arm to arms.yaml; write the class of a user's network, unless its file exists. Return the files."""
    file, catalog = folder / "arms.yaml", load(folder)
    if checked_name(name, file) in catalog.arms:
        raise UserError(f"{file} has an arm '{name}' already; choose another name")
    code = own_file(ffn) if OWN_FILE.fullmatch(ffn) else None
    new = [code] if code is not None and not code.exists() else []
    for path in new:
        atomic_write(path, NETWORK.format(name=ffn.partition(":")[2]))
    try:
        _add_arm(name, ffn, file, catalog)
    except BaseException:
        for path in new:
            path.unlink()
        raise
    return [path.as_posix() for path in (file, *new)]


def _add_arm(name: str, ffn: str, file: Path, catalog: Catalog) -> None:
    taken = {arm.marker for arm in catalog.arms.values() if arm.hue == "grey"}
    marker = next((marker for marker in MARKERS if marker not in taken), MARKERS[0])
    wanted: dict[str, float] = {key: value for key, value in NEEDED.items() if key in declared(ffn).needs}
    wanted |= {"top_k": declared(ffn).fewest} if declared(ffn).fewest > 1 else {}
    arm = parse(Arm, {"ffn": ffn, "placement": "full"} | wanted, file, name)
    for scale in catalog.scales.values():
        shaped(scale.model, arm)
    needs = "".join(f", {key}: {value}" for key, value in wanted.items())
    text = file.read_text(encoding="utf-8")
    text += "" if text.endswith("\n") else "\n"
    _write(file, text + ARM.format(name=name, ffn=ffn, needs=needs, hue="grey", marker=marker))


def _check_free(name: str, file: Path, *others: Path) -> None:
    """Raise UserError unless a recipe can have the name, and none of its files exists."""
    checked_name(name, file, MODULE)
    if name in RESERVED:
        raise UserError(f"a stage of the pipeline is called '{name}'; choose another name")
    if taken := next(filter(Path.exists, (file, *others)), None):
        raise UserError(f"{taken} exists already; choose another name")


def new_method(name: str, folder: Path = RECIPES) -> list[str]:
    """Write what enters a method into the leaderboard: a class and its arm, unless the arm exists, a study, a recipe.

    Return the files; raise UserError where the name is taken or invalid.
    """
    file, study = folder / f"{name}.yaml", folder / "sweeps" / f"{name}.yaml"
    figure, common = ANALYSES / f"{name}.py", folder / "sweeps" / "leaderboard.yaml"
    _check_free(name, file, study, figure)
    ffn = f"my/{name}.py:{re.sub('[_-]', '', name.title())}"
    written = [] if name in load(folder).arms else new_arm(name, ffn, folder)
    place = max(recipe.place for recipe in load(folder).recipes.values()) + 10
    space = read_yaml(common)["space"] | {"arm": [name]}
    settings = read_yaml(common) | {"title": f"Rate, table rate, decay and initialisation of {name}", "space": space}
    _write(file, METHOD.format(name=name, place=place))
    atomic_write(study, yaml.dump(settings, Dumper=Dumper, sort_keys=False))
    atomic_write(figure, FIGURE.format(name=name))
    return [*written, *(path.as_posix() for path in (study, file, figure))]


def new_recipe(name: str, names: list[str], folder: Path = RECIPES) -> list[str]:
    """Write <name>.yaml with one claim: the last arm ends below the first. Return the files."""
    file, catalog = folder / f"{name}.yaml", load(folder)
    _check_free(name, file)
    if len(names) < 2:
        raise UserError("a claim compares arms: name two or more, as in 'stemrepro new recipe mine dense stem-full'")
    if len(set(names)) < len(names):
        raise UserError(f"{', '.join(names)}: name each arm once")
    for arm in names:
        checked("arm", arm, catalog.arms, "recipes/arms.yaml")
    high, *_, low = names
    place = max(recipe.place for recipe in catalog.recipes.values()) + 10
    key = f"{low}-below-{high}"
    _write(file, RECIPE.format(low=low, high=high, place=place, arms=", ".join(names), key=key))
    return [file.as_posix()]
