# The whole interface: make run, make test, make lint.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PIP_INSTALL := $(BIN)/python -m pip install --disable-pip-version-check --quiet
STAMP := $(VENV)/.installed

# Where torch comes from, "" for pip's default: the CUDA build on Linux.
TORCH_INDEX ?=

unexport AORTA_CONFIG

.PHONY: help run test lint format schema bench lab-deps clean

help:  ## what can be made
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed 's/:.*##/\t/'

$(STAMP): pyproject.toml constraints.txt
	@command -v $(PYTHON) >/dev/null || { echo "$(PYTHON) is missing: install Python 3.11 or newer, or set PYTHON=" >&2; exit 1; }
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "$$($(PYTHON) -V) is too old: Python 3.11 or newer is needed; set PYTHON=" >&2; exit 1; }
	$(PYTHON) -m venv $(VENV)
	$(PIP_INSTALL) $(if $(TORCH_INDEX),--index-url $(TORCH_INDEX)) --constraint constraints.txt torch
	$(PIP_INSTALL) --constraint constraints.txt --editable '.[dev]'
	@touch $@

run: $(STAMP)  ## the whole lifecycle on this machine: two CPU ranks, no container, no root
	$(BIN)/python -m pytest --aorta-config=configs/local_cpu.json

test: $(STAMP)  ## every test this machine can run
	$(BIN)/python -m pytest -n auto

lint: $(STAMP)  ## ruff, mypy --strict, import-linter
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

format: $(STAMP)  ## let ruff write the code's layout
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

bench: $(STAMP)  ## print what the plugin itself costs
	$(BIN)/python benchmarks/startup.py

lab-deps:  ## install the services that tests/lab runs (Debian, Ubuntu; as root); starts none of them
	@tests/lab/install.sh

clean:  ## remove what make made here (never run folders or reports)
	rm -rf $(VENV) .nox dist build .mypy_cache .ruff_cache .pytest_cache .import_linter_cache
