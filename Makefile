# make reproduce [SCALE=laptop]   everything, from pinned text to judged figures
# make test                       the test suite
# make figures [SCALE=laptop]     redraws from committed scores, without training
SCALE ?= laptop
PYTHON ?= python3
BIN := .venv/bin
export PATH := $(CURDIR)/$(BIN):$(PATH)
export DVC_NO_ANALYTICS := 1
PIP := $(BIN)/python -m pip install --disable-pip-version-check -c constraints.txt

.PHONY: reproduce test figures lint

reproduce: $(BIN)/.installed
	@stemrepro plan --scale $(SCALE)
	@dvc repro
	@stemrepro verify --scale $(SCALE); code=$$?; echo "Figures and verdicts: results/$(SCALE)/"; exit $$code

test: $(BIN)/.installed-dev
	@$(BIN)/python -m pytest

figures: $(BIN)/.installed
	@stemrepro plan --scale $(SCALE) --quiet
	@dvc repro --single-item --force validation_loss@$(SCALE) benchmark_scores@$(SCALE) report@$(SCALE)
	@echo "Figures and verdicts: results/$(SCALE)/"

lint: $(BIN)/.installed-dev
	@ruff check . && ruff format --check .

$(BIN)/python:
	@$(PYTHON) -c 'import sys; sys.exit("stemrepro needs Python 3.11 or newer; set PYTHON=") if sys.version_info < (3, 11) else 0'
	@$(PYTHON) -m venv .venv

$(BIN)/.installed: pyproject.toml constraints.txt | $(BIN)/python
	@echo "Installing into .venv (some minutes the first time)"
	@$(PIP) -e .
	@touch $@

$(BIN)/.installed-dev: pyproject.toml constraints.txt | $(BIN)/python
	@echo "Installing into .venv with the test extra (some minutes the first time)"
	@$(PIP) -e '.[dev]'
	@touch $@ $(BIN)/.installed
