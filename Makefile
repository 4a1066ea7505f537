# make reproduce                  the default study by DVC, from pinned text to the page
# make reproduce SCALE=smoke      a scale of recipes/scales/ in one process; RECIPE=rivals: one table or figure
# make test                       the test suite
# make lint                       style, words and types
# make figures [SCALE=width]      redraws from committed scores what an edit has changed, or a scale
# make ui [SCALE=laptop]          the arms side by side in MLflow, at the address that it prints [PORT=5000]
# make docs/report.pdf            docs/report.md as a PDF, for a release
# make bundle                     all that is committed as one file with hashes, for an archive such as Zenodo
PYTHON ?= python3
PORT ?= 5000
BIN := .venv/bin
export PATH := $(CURDIR)/$(BIN):$(PATH)
export DVC_NO_ANALYTICS := 1
export MLFLOW_DISABLE_TELEMETRY := true
export MLFLOW_SERVER_ENABLE_JOB_EXECUTION := false
PIP := $(BIN)/python -m pip install --disable-pip-version-check
LOCKED := $(PIP) --no-deps --require-hashes

.PHONY: reproduce repository place test figures ui bundle lint

reproduce: repository $(BIN)/.installed
ifeq ($(SCALE)$(RECIPE),)
	@dvc --wait-for-lock repro
	-@stemrepro track
	@stemrepro verify; code=$$?; echo "Figures and verdicts: results/laptop/"; [ $$code -eq 3 ] || exit $$code
else
	@stemrepro reproduce $(if $(SCALE),--scale $(SCALE)) $(if $(RECIPE),--recipe $(RECIPE))
endif

repository:
	@said=$$(LC_ALL=C git rev-parse --git-dir 2>&1) || case "$$said" in *dubious*) ;; *) \
	  echo "DVC needs git and a repository here ($$said): git init -q && git add -A && git commit -qm stemrepro" >&2; exit 2 ;; \
	esac

# Tests start many processes; without this each may compile stemrepro anew.
test: $(BIN)/.installed-dev
	@PYTHONDONTWRITEBYTECODE= $(BIN)/python -m pytest -n 2 --dist loadfile --no-loadscope-reorder

figures: repository $(BIN)/.installed
ifeq ($(SCALE),)
	@dvc repro -q -s studies/dvc.yaml:figure
	@dvc repro -s analyse
	@stemrepro report
	@dvc commit -q -f report
else
	@stemrepro analyse --scale $(SCALE)
endif

ui: $(BIN)/.installed
	@stemrepro track $(if $(SCALE),--scale $(SCALE)) --port $(PORT)
	@case "$$MLFLOW_TRACKING_URI" in \
	  http*) ;; \
	  *) exec mlflow server --backend-store-uri "$${MLFLOW_TRACKING_URI:-sqlite:///mlflow.db}" --host 127.0.0.1 --port $(PORT) --workers 1 ;; \
	esac

# The same commit gives the same bytes: nothing is compressed, line ends and time zone are set.
bundle:
	@changed=$$(git status --porcelain --untracked-files=normal) || exit; \
	[ -z "$$changed" ] || { printf 'a bundle is made of a commit; commit or undo first:\n%s\n' "$$changed" >&2; exit 2; }
	@set -e; export TZ=UTC; folder=$$(mktemp -d); trap 'rm -rf "$$folder"' EXIT; mkdir -p bundle; \
	name=stemrepro-$$(sed -n 's/^version = "\(.*\)".*/\1/p' pyproject.toml)-$$(git rev-parse --short=7 HEAD); \
	git -c core.autocrlf=false archive HEAD | tar -xf - -C "$$folder"; \
	sum=$$(command -v sha256sum || echo shasum -a 256); \
	git ls-tree -rz --name-only HEAD | (cd "$$folder" && xargs -0 $$sum) > "$$folder/MANIFEST.sha256"; \
	git -c core.autocrlf=false archive -0 -o "bundle/$$name.zip" --prefix="$$name/" \
	  --add-file="$$folder/MANIFEST.sha256" HEAD; \
	$$sum "bundle/$$name.zip"

docs/report.pdf: docs/report.md docs/src/report.typ
	@$(PYTHON) -m venv .venv/pdf
	@.venv/pdf/bin/python -m pip install --disable-pip-version-check -q --no-deps pypandoc-binary==1.17 typst==0.15.2
	@.venv/pdf/bin/python -c 'import pypandoc, typst; \
	  pypandoc.convert_file("$<", "typst", "gfm", ["--template=docs/src/report.typ"], outputfile="docs/report.typ"); \
	  typst.compile("docs/report.typ", output="$@", root=".")'
	@rm docs/report.typ

lint: $(BIN)/.installed-dev
	@ruff check . && ruff format --check .
	@codespell stemrepro analysis benchmarks recipes tests docs README.md CONTRIBUTING.md
	@mypy

$(BIN)/python:
	@$(PYTHON) -c 'import sys; sys.exit("stemrepro needs Python 3.11 or newer; set PYTHON=") if sys.version_info < (3, 11) else 0'
	@$(PYTHON) -m venv .venv

# Scripts begin with the folder in which they were installed: pip's first lines are these three.
place:
	@[ ! -e $(BIN)/dvc ] || head -n 2 $(BIN)/dvc | grep -qF -e "#!$(CURDIR)/$(BIN)/" -e "exec' $(CURDIR)/$(BIN)/" -e "exec' \"$(CURDIR)/$(BIN)/" || { \
	  echo ".venv was made in another folder than $(CURDIR); remove it, and make it anew: rm -rf .venv" >&2; exit 2; }

# Every file is one of locks/. A build of torch that pip's find-links has is taken first; that of the index may want CUDA.
$(BIN)/.installed: pyproject.toml $(wildcard locks/*.txt) | place $(BIN)/python
	@echo "Installing into .venv (some minutes the first time)"
	@$(LOCKED) -q --no-index -r locks/torch.txt 2>/dev/null || $(LOCKED) -r locks/torch.txt
	@! grep -qs '^Requires-Dist: nvidia' .venv/lib/python3*/site-packages/torch-*.dist-info/METADATA || $(LOCKED) -r locks/cuda.txt
	@$(LOCKED) -r locks/default.txt
	@$(PIP) --no-deps --no-build-isolation -e .
	@touch $@

$(BIN)/.installed-dev: $(BIN)/.installed constraints.txt
	@echo "Installing what tests and checks need"
	@$(PIP) -c constraints.txt -e '.[dev]'
	@touch $@
