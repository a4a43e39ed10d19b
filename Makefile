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
PROOF_ARGS ?= --stores 300 --expired 60 --newer 12 --kills 36

# tests wait for disks, timers and other processes part of their time: few cores get more workers than there are of them
CORES := $(shell getconf _NPROCESSORS_ONLN 2>/dev/null || echo 2)
WORKERS := $(shell echo $$(($(CORES) < 4 ? $(CORES) + 1 : $(CORES))))

# they compare stores, each in processes and a directory of its own, and wait for the end of Java's half of their time
INTEROP_WORKERS := $(shell echo $$(($(CORES) < 4 ? $(CORES) * 2 : $(CORES))))
INTEROP_BESIDE := $(patsubst %,tests/compat/test_%.py,bridged clean config_lost damaged lock loss_table operations proof \
  recovered_by_us starts5 wheel written_by_us)

# what it runs are many short processes: they read compiled modules instead of compiling them each time
unexport PYTHONDONTWRITEBYTECODE

# they load a broker or measure one: each alone. The others wait for brokers most of their time: three files at once, and
# those first whose tests take minutes, so that all workers end together
INTEROP_ALONE := $(patsubst %,tests/compat/test_%.py,bench hostile_clients killed_under_load mixed_groups soak) \
  tests/pipeline/test_bench.py
INTEROP_FIRST := $(patsubst %,tests/compat/test_%.py,replication conversation large_copy kill_matrix) \
  tests/pipeline/test_cluster.py
INTEROP_FILES = $(sort $(shell find tests/compat tests/pipeline -name 'test_*.py'))

.DEFAULT_GOAL := help
.PHONY: help setup demo test lint types bench interop fuzz proof sweep dist clean java browser

# what `java` looks for, and the packages that have it; the tests against Apache's own store need a compiler and Maven, too
JAVA_WANTED := javac mvn
JAVA_PACKAGES := openjdk-17-jdk-headless maven

help: ## this list
	@awk -F ':.*## ' '/^[a-z]+:.*## /{printf "  make %-8s  %s\n", $$1, $$2}' $(firstword $(MAKEFILE_LIST))

setup: $(READY) ## .venv with rstore and all that the tests need (Python 3.11 or newer), and Java for Spark where it may
	@test -e $(VENV)/.no-java || $(MAKE) --no-print-directory java JAVA_WANTED=java JAVA_PACKAGES=openjdk-17-jre-headless
	@command -v java >/dev/null 2>&1 && command -v mvn >/dev/null 2>&1 || { touch $(VENV)/.no-java; \
	  echo "Note: Spark needs Java 17 or newer, make interop Java 17 and Maven" \
	    "(Debian: apt-get install openjdk-17-jdk-headless maven)."; }

# compat: a path, where setuptools would else put a finder that each Python process imports (25 ms)
$(READY): pyproject.toml
	@test -n "$(PYTHON)" || { echo "rstore needs Python 3.11 or newer: none found on PATH." >&2; exit 1; }
	@test -x $(PY) || $(PYTHON) -m venv $(VENV) >/dev/null || { rm -rf $(VENV); \
	  echo "$(PYTHON) can't make virtual environments here (Debian: apt-get install python3-venv)." >&2; exit 1; }
	$(PY) -m pip install --quiet --disable-pip-version-check --config-settings editable_mode=compat -e '.[dev]'
	@$(PY) -m engine.bench.warm_up
	@touch $@

demo: setup ## recover a crashed store with the real command line, step by step
	@VENV=$(VENV) sh fixtures/demo.sh

test: setup ## all tests but interop, Spark's and fuzz, in parallel
	$(PY) -m pytest -n $(WORKERS) --dist worksteal -m "not interop and not spark and not fuzz" $(PYTEST_ARGS)

lint: setup ## ruff: rules and format
	$(PY) -m ruff check .
	$(PY) -m ruff format --check .

types: setup ## mypy, strict
	$(PY) -m mypy

bench: setup java ## ours against Apache 4.9.8 on this machine: build/bench/report.md (BENCH_ARGS="--quick")
	$(PY) -m rstore_cli.app bench --warm --cold --spark --serve --client --replication --backup --output build/bench $(BENCH_ARGS)

interop: setup java browser ## against Apache RocketMQ 4.9.8 itself (Java, Maven), and the pipeline on Spark (Java); skipped without
	@$(MAKE) --no-print-directory interop-stores
	@$(MAKE) --no-print-directory interop-brokers
	@$(MAKE) --no-print-directory interop-alone

# its parts: .ci/run puts other work beside the second
.PHONY: interop-parts interop-stores interop-brokers interop-alone
INTEROP_RUN = @run() { "$$@" || { code=$$?; [ $$code -eq 5 ] || exit $$code; \
  echo "No interop tests were found: nothing was compared."; }; }; run

interop-parts: setup java # what is built for them, before they wait for it
	@$(PY) -m tests.compat.toolchain

interop-stores: setup
	$(INTEROP_RUN) $(PY) -m pytest -n $(INTEROP_WORKERS) --dist worksteal -m interop $(INTEROP_BESIDE) $(PYTEST_ARGS)

interop-brokers: setup
	$(INTEROP_RUN) env RSTORE_LARGE=1 $(PY) -m pytest -n 3 --dist loadfile --no-loadscope-reorder -m "interop or spark" \
	  $(INTEROP_FIRST) $(filter-out $(INTEROP_FIRST) $(INTEROP_BESIDE) $(INTEROP_ALONE),$(INTEROP_FILES)) $(PYTEST_ARGS)

interop-alone: setup
	$(INTEROP_RUN) env RSTORE_LARGE=1 $(PY) -m pytest -n 0 -m "interop or spark" $(INTEROP_ALONE) $(PYTEST_ARGS)

proof: setup ## seeded damaged stores, repaired and judged: build/proof.md (PROOF_ARGS="--stores 300 --expired 60 --newer 12 --kills 36")
	$(PY) -m tests.proof $(PROOF_ARGS)

sweep: setup ## the whole range of what make test takes samples of: every kill, every damage, every seed (ten minutes)
	RSTORE_WIDE=1 $(PY) -m pytest -q -n auto --dist worksteal -m "wide and not interop and not spark and not fuzz" $(PYTEST_ARGS)

dist: setup ## dist/: the wheel with constraints (hashes) and SBOM, and Spark's executors' part of it as one zip (--py-files)
	rm -f dist/rstore-*.whl
	$(PY) -m pip wheel --quiet --disable-pip-version-check --no-deps --wheel-dir dist .
	$(PY) fixtures/release.py dist/rstore-*.whl dist
	$(PY) -m engine.pipeline.package dist/rstore-spark.zip

fuzz: setup ## a million mutated inputs for each decoder (INPUTS=n SEED=n)
	$(PY) -m tests.fuzz --inputs $(INPUTS) --seed $(SEED)

java: # installs Java (make setup), a compiler and Maven (make interop, bench) where that needs no question: root, apt-get
	@(for word in $(JAVA_WANTED); do command -v $$word || exit 1; done) >/dev/null 2>&1 || \
	if [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null 2>&1; \
	then echo "Installing $(JAVA_PACKAGES) (apt-get)"; export DEBIAN_FRONTEND=noninteractive; \
	  { apt-get -qq update && for packages in "$(JAVA_PACKAGES)" "$(subst 17,21,$(JAVA_PACKAGES))" no-such-package; do \
	      apt-get -qq install -y --no-install-recommends $$packages && break; done; } \
	    </dev/null >/dev/null 2>&1 || echo "apt-get could not install them: tests that need them will be skipped."; fi

browser: # installs Chromium for the console's tests, and a font with Chinese, as `java` does
	@command -v chromium >/dev/null 2>&1 || \
	if [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null 2>&1; \
	then echo "Installing chromium (apt-get)"; export DEBIAN_FRONTEND=noninteractive; \
	  { apt-get -qq update && apt-get -qq install -y --no-install-recommends chromium fonts-wqy-zenhei fonts-dejavu; } \
	    </dev/null >/dev/null 2>&1 || echo "apt-get could not install it: tests that need it will be skipped."; fi

clean: ## remove what make has made
	rm -rf $(VENV) .venv-system .demo build dist *.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
