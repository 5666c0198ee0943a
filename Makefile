# Every target works alone on a fresh machine: it creates the virtual environment that it needs.
# Needs only a Python 3.11, 3.12 or 3.13 with venv.  PYTHON=... chooses another one.

SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help
.PHONY: help demo test test-all test-latest lint types bench bench-trace conformance conformance-api conformance-sharding api-coverage fuzz fuzz-artifacts fuzz-c \
  docs clean netron venv

VENV ?= .venv
PY := $(VENV)/bin/python
WORKERS ?= 2

# The first of the named interpreters that runs; pyenv keeps more of them outside of PATH.
find_python = $(firstword $(foreach p,$(1) $(foreach v,$(1),$(wildcard $(HOME)/.pyenv/versions/$(v:python%=%)*/bin/python3)),\
  $(shell $(p) -c 'import sys, venv; sys.exit(sys.version_info < (3, 11))' >/dev/null 2>&1 && echo $(p))))
PYTHON ?= $(call find_python,python3.11 python3.12 python3.13)
PYTHON_LATEST ?= $(call find_python,python3.12 python3.13)

help:
	@echo "make demo         train, compile, verify and load the digits classifier"
	@echo "make test         the tests, on $(WORKERS) processes; of the largest tables a sample"
	@echo "make test-all     every row of every table"
	@echo "make test-latest  all tests with the newest supported jaxlib (Python 3.12 or later)"
	@echo "make lint types   ruff and pyright"
	@echo "make bench        ratios against jax"
	@echo "make fuzz         2,000 random programs against jax"
	@echo "make fuzz-artifacts, fuzz-c   200,000 damaged artifacts against the loader in Python, in C"
	@echo "make api-coverage, conformance-api, conformance-sharding, bench-trace   the API: names, calls and trace times against jax"
	@echo "make conformance  the public StableHLO programs: FORMAT=onnx|tflite|c|xla [OPSET=21] [FILTER=regex]"
	@echo "make netron       exported files in netron's parsers (needs node)"
	@echo "make docs clean"

# ---- environments ---------------------------------------------------------------------------------------------------

venv: $(VENV)/.installed

$(VENV)/.installed: pyproject.toml
	@test -n "$(PYTHON)" || { echo "error: no Python 3.11, 3.12 or 3.13 with venv found"; exit 1; }
	test -x $(PY) || $(PYTHON) -m venv $(VENV)
	$(PY) -m pip install --quiet --disable-pip-version-check --upgrade 'setuptools>=77' wheel
	$(PY) -m pip install --quiet --disable-pip-version-check --no-build-isolation -e '.[dev]'
	touch $@

.venv-latest/.installed: pyproject.toml
	@test -n "$(PYTHON_LATEST)" || { echo "error: no Python 3.12 or 3.13 with venv found"; exit 1; }
	test -x .venv-latest/bin/python || $(PYTHON_LATEST) -m venv .venv-latest
	.venv-latest/bin/python -m pip install --quiet --disable-pip-version-check --upgrade 'setuptools>=77' wheel
	.venv-latest/bin/python -m pip install --quiet --disable-pip-version-check jaxlib==0.12.0.1 \
	  pytest pytest-xdist hypothesis scikit-learn safetensors cryptography jsonschema
	.venv-latest/bin/python -m pip install --quiet --disable-pip-version-check --no-build-isolation -e .
	touch $@

# ---- work -----------------------------------------------------------------------------------------------------------

demo: $(VENV)/.installed
	PATH="$(CURDIR)/$(VENV)/bin:$$PATH" $(PY) examples/digits/demo.py

test: $(VENV)/.installed
	JAX_PLATFORMS=cpu $(PY) -m pytest -q -n $(WORKERS) $(TESTS)

# Every row of every table of tests; `make test` takes a sample of the largest.
test-all: export AOT_ALL_ROWS = 1
test-all: test

# jax 0.10.2 does not run on this jaxlib: tests that compare with it are skipped.
test-latest: .venv-latest/.installed
	.venv-latest/bin/python -m pytest -q -n $(WORKERS) $(TESTS)

lint: $(VENV)/.installed
	$(PY) -m ruff check .

types: $(VENV)/.installed
	$(PY) -m pyright --pythonpath $(PY)

bench: $(VENV)/.installed
	JAX_PLATFORMS=cpu $(PY) benchmarks/run.py $(BENCH)

bench-trace: $(VENV)/.installed
	JAX_PLATFORMS=cpu $(PY) tests/conformance_api.py --trace

conformance-api: $(VENV)/.installed
	JAX_PLATFORMS=cpu $(PY) tests/conformance_api.py

conformance-sharding: $(VENV)/.installed
	AOT_ALL_ROWS=1 JAX_PLATFORMS=cpu XLA_FLAGS=--xla_force_host_platform_device_count=8 $(PY) -m pytest -q --import-mode=importlib \
	  -o norecursedirs= tests/eight

api-coverage: $(VENV)/.installed
	$(PY) tests/api_coverage.py

fuzz: $(VENV)/.installed
	JAX_PLATFORMS=cpu $(PY) tests/fuzz.py --count 2000

# FILTER: a regular expression of program names; OPTIONS: more options, e.g. "--set runtime=2.14".  The programs: AOT_TESTDATA.
FORMAT ?= tflite
fuzz-artifacts: $(VENV)/.installed
	$(PY) tests/fuzz_artifacts.py --count 200000

# Under the address and undefined-behaviour sanitizers; `make test` does 2,000 of them.
fuzz-c: $(VENV)/.installed
	FUZZ_C=200000 FUZZ_SEED=$${SEED:-1} $(PY) -m pytest -q tests/test_c_loader.py -k mutated

netron: $(VENV)/.installed
	@command -v node > /dev/null || { echo "error: make netron needs node"; exit 1; }
	$(PY) -m pip install --quiet --disable-pip-version-check netron
	JAX_PLATFORMS=cpu $(PY) -m tests.netron_files

conformance: $(VENV)/.installed
	$(PY) -m tests.conformance $(FORMAT) --workers $(WORKERS) $(if $(FILTER),-k '$(FILTER)') $(if $(OPSET),--set opset=$(OPSET)) $(OPTIONS)

docs: $(VENV)/.installed
	@if test -f docs/build.py; then $(PY) docs/build.py; else echo "the documentation is README.md and docs/*.md"; fi

clean:
	rm -rf .venv .venv-latest build dist site *.egg-info .ruff_cache .pytest_cache .hypothesis .bench
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
