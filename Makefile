# rstore: `make help` lists what there is. Everything runs in .venv, made by `make setup` with pip alone.

PYTHON  ?= $(shell for p in python3 python3.14 python3.13 python3.12 python3.11; do \
             "$$p" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && { echo "$$p"; break; }; done)
VENV    := .venv
PY      := $(VENV)/bin/python
READY   := $(VENV)/.ready
INPUTS  ?= 1000000
SEED    ?= 0
PYTEST_ARGS ?=
BENCH_ARGS ?=

.DEFAULT_GOAL := help
.PHONY: help setup demo test lint types bench interop fuzz clean java

help: ## this list
	@awk -F ':.*## ' '/^[a-z]+:.*## /{printf "  make %-8s  %s\n", $$1, $$2}' $(firstword $(MAKEFILE_LIST))

setup: $(READY) ## .venv with rstore and all that the tests need (Python 3.11 or newer)
	@command -v java >/dev/null 2>&1 && command -v mvn >/dev/null 2>&1 || \
	  echo "Note: make interop needs Java 17 and Maven (Debian: apt-get install openjdk-17-jdk-headless maven)."

$(READY): pyproject.toml
	@test -n "$(PYTHON)" || { echo "rstore needs Python 3.11 or newer: none found on PATH." >&2; exit 1; }
	@test -x $(PY) || $(PYTHON) -m venv $(VENV) >/dev/null || { rm -rf $(VENV); \
	  echo "$(PYTHON) can't make virtual environments here (Debian: apt-get install python3-venv)." >&2; exit 1; }
	$(PY) -m pip install --quiet --disable-pip-version-check -e '.[dev]'
	@touch $@

demo: setup ## recover a crashed store with the real command line, step by step
	@sh fixtures/demo.sh

test: setup ## all tests but interop and fuzz, in parallel
	$(PY) -m pytest -n auto -m "not interop and not fuzz" $(PYTEST_ARGS)

lint: setup ## ruff: rules and format
	$(PY) -m ruff check .
	$(PY) -m ruff format --check .

types: setup ## mypy, strict
	$(PY) -m mypy

bench: setup java ## ours against Apache 4.9.8 on this machine: build/bench/report.md (BENCH_ARGS="--quick")
	$(PY) -m rstore_cli.app bench --output build/bench $(BENCH_ARGS)

interop: setup java ## against Apache RocketMQ 4.9.8 itself (needs Java and Maven; skipped without)
	@$(PY) -m pytest -m interop tests/compat $(PYTEST_ARGS) || { code=$$?; \
	  if [ $$code -eq 5 ]; then echo "No interop tests were found: nothing was compared."; else exit $$code; fi; }

fuzz: setup ## a million mutated inputs for each decoder (INPUTS=n SEED=n)
	$(PY) -m tests.fuzz --inputs $(INPUTS) --seed $(SEED)

java: # installs Java and Maven (make interop, make bench) where that needs no question: root on a system with apt-get
	@if ! { command -v java && command -v mvn; } >/dev/null 2>&1 && [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null 2>&1; \
	then echo "Installing Java and Maven for the interop tests (apt-get)"; export DEBIAN_FRONTEND=noninteractive; \
	  { apt-get -qq update && apt-get -qq install -y --no-install-recommends openjdk-17-jdk-headless maven; } \
	    </dev/null >/dev/null 2>&1 || echo "apt-get could not install them: the interop tests will be skipped."; fi

clean: ## remove what make has made
	rm -rf $(VENV) .demo build dist *.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
