"""What is imported where nothing is trained or drawn: seconds that a command with nothing to do can do without."""

import subprocess
import sys

HEAVY = {"lightning", "transformers", "pandas", "scipy", "matplotlib", "seaborn", "pyarrow", "datasets"}
CODE = """
import sys
from stemrepro import cli
from stemrepro.common import files, progress, provenance, stopping, workers, yaml_records
from stemrepro.data import corpus, tokenizer, vocabularies
from stemrepro.measures.catalog import load
from stemrepro.pipeline import verify
from stemrepro.training import run, run_folder

load()
print(*sys.modules)
"""


def test_reading_recipes_imports_neither_tables_nor_figures():
    done = subprocess.run([sys.executable, "-c", CODE], capture_output=True, text=True, check=True)
    assert HEAVY & {*done.stdout.split()} == set()
