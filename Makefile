# make run      the paper's headline result in seconds (core and plot only)
# make test     the quick tests, in five minutes        make test-slow   the others: kills, Dask, browser, rates over many seeds
# make cover    the quick tests, with the branch coverage of the rule        make test-full   all tests, at full counts
# make test-portable   its numeric part, as other processors would compute (PROCESSORS="haswell prescott": only as these)
# make test-text  the language models, in a set-up of their own (.venv-text, 1.5 GB)
# make peers    other packages for the arena, in a set-up of their own (.venv-peers); make test-peers: their tests
# make docs     the documentation site, in a set-up of its own (.venv-docs): build/docs/index.html; a warning fails
# make check    format, lint, types, import layers
# make setup    everything but the text extra (make setup-text: that one)
# make bench    benchmark tables (BENCH="online --dim 26": one of them; BENCH=--help lists them)
# make arena    our policies beside other packages (ARENA="--world vancomycin --seeds 5"; ARENA=--help lists the options)
# make figures  our own figures beside the paper's, and their pictures in docs; hours
# make bench-service   the decision service under load, its page, the store
# make soak     kill -9 a thousand times, 20 minutes of missing outcomes and corrections, attacks; goes on where it stopped
#               (KILLS=20 MINUTES=1 DECISIONS=5000 ATTACK_SECONDS=5 WRONG_KEYS=1000: smaller; SEED=2; PARTS="kills drift")
# make release  wheel and sdist, built twice and checked, tried with each extra; SBOM, SHA256SUMS: in dist (.venv-release)
# make test-minimal   the core's tests with the oldest versions that pyproject.toml allows (.venv-minimal)
# make lock     re-resolve the hash-locked requirements (needs uv)

PYTHON ?= python3
VENV := .venv
TEXT_VENV := .venv-text
PEERS_VENV := .venv-peers
RELEASE_VENV := .venv-release
MINIMAL_VENV := .venv-minimal
DOCS_VENV := .venv-docs
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check install --quiet
# Many small matrices: one BLAS thread a process is fastest, and two test processes share two cores. Compiled modules
# are kept, whatever the environment says: tests start hundreds of processes.
QUICK := OPENBLAS_NUM_THREADS=1 OMP_NUM_THREADS=1 PYTHONDONTWRITEBYTECODE=
PYTEST := $(QUICK) $(BIN)/python -m pytest -n 2 --dist worksteal
# Every branch of the rule is run by a test of these: those of commands, of the service, or of a page do not count.
COVER := $(foreach room,model bounds policies rounds,--cov=src/safedial/$(room)) \
  --cov-branch --cov-report=term-missing:skip-covered --cov-fail-under=100
COUNTED := src $(wildcard tests/test_*.py) \
  $(addprefix tests/,golden model bounds policies rounds simulation study tools)

.PHONY: run setup setup-text test test-slow cover test-full test-portable test-text peers test-peers docs check format arena bench bench-service figures soak release test-minimal lock clean

run: $(VENV)/.run
	@$(BIN)/safedial reproduce table1 --out results
	@$(BIN)/safedial reproduce report --out results

setup: $(VENV)/.dev

setup-text: $(TEXT_VENV)/.text

test: $(VENV)/.dev
	$(PYTEST) -m "not slow"

test-slow: $(VENV)/.dev
	$(PYTEST) -m slow

cover: $(VENV)/.dev
	$(PYTEST) -m "not slow" $(COVER) $(COUNTED)
	$(PYTEST) -m "not slow" $(addprefix --ignore=,$(COUNTED))

test-full: $(VENV)/.dev
	SAFEDIAL_FULL=1 $(PYTEST)

test-portable: $(VENV)/.dev
	$(QUICK) $(BIN)/python -m tests.processors $(PROCESSORS)

test-text: $(TEXT_VENV)/.text
	HF_HUB_OFFLINE=1 $(TEXT_VENV)/bin/python -m pytest tests_text

peers: $(PEERS_VENV)/.peers

test-peers: $(VENV)/.dev $(PEERS_VENV)/.peers
	$(QUICK) SAFEDIAL_PEERS=$(PEERS_VENV)/bin/python $(BIN)/python -m pytest tests_peers

docs: $(DOCS_VENV)/.docs
	$(QUICK) $(DOCS_VENV)/bin/python -m sphinx -W --keep-going -q -j 2 -d build/doctrees docs build/docs
	$(DOCS_VENV)/bin/python docs/check_site.py build/docs

check: $(VENV)/.dev
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/basedpyright --level error
	$(BIN)/lint-imports

format: $(VENV)/.dev
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

ARENA ?=
arena: $(VENV)/.dev $(PEERS_VENV)/.peers
	$(QUICK) $(BIN)/python -m benchmarks.arena $(ARENA)

BENCH ?= tables
bench: $(VENV)/.dev
	$(BIN)/python -m benchmarks $(BENCH)

bench-service: $(VENV)/.dev
	$(BIN)/python -m benchmarks.service_load
	$(BIN)/python -m benchmarks.service_page
	$(BIN)/python -m benchmarks study --events 1000000

figures: $(VENV)/.dev
	for each in power toolkit conformal closed-loop; do \
	  $(QUICK) $(BIN)/python -m benchmarks.figures $$each --out results || exit 1; done
	cp results/power.png docs/power.png
	cp results/toolkit.png docs/choosing.png
	$(BIN)/python -m benchmarks.shield_picture --out docs

KILLS ?= 1000
MINUTES ?= 20
DECISIONS ?= 100000
ATTACK_SECONDS ?= 20
WRONG_KEYS ?= 100000
SEED ?= 1
PARTS ?= kills drift attack
soak: $(VENV)/.dev
	$(QUICK) $(BIN)/python -m benchmarks.soak --kills $(KILLS) --minutes $(MINUTES) --decisions $(DECISIONS) \
	  --attack-seconds $(ATTACK_SECONDS) --wrong-keys $(WRONG_KEYS) --seed $(SEED) --parts $(PARTS)

LOCK := uv pip compile -q --generate-hashes --no-header --no-annotate --universal --python-version 3.11
lock:
	$(LOCK) pyproject.toml requirements/build.in --extra plot -o requirements/run.txt
	$(LOCK) pyproject.toml requirements/build.in --extra plot --extra data --extra service --extra dask --extra jax --extra gym --extra dev \
	  -c requirements/run.txt -o requirements/dev.txt
	$(LOCK) pyproject.toml --extra service -c requirements/dev.txt -o requirements/service.txt
	$(LOCK) pyproject.toml requirements/build.in requirements/docs.in --extra plot --extra service --extra gym \
	  -c requirements/dev.txt -o requirements/docs.txt
	$(LOCK) requirements/release.in -o requirements/release.txt

release: $(RELEASE_VENV)/.release
	$(RELEASE_VENV)/bin/python tools/release.py $(EXTRAS)

MINIMAL_EXTRAS := plot data service dask jax gym
MINIMAL_TOOLS := clarabel cvxpy-base hypothesis mapie mpmath psutil pytest pytest-cov scikit-learn threadpoolctl
MINIMAL ?= tests/model tests/bounds tests/policies tests/rounds tests/simulation tests/study tests/cli tests/golden
test-minimal: $(MINIMAL_VENV)/.minimal
	$(QUICK) $(MINIMAL_VENV)/bin/python -m pytest $(MINIMAL)

clean:
	rm -rf $(VENV) $(TEXT_VENV) $(PEERS_VENV) $(RELEASE_VENV) $(MINIMAL_VENV) $(DOCS_VENV) build docs/auto_gallery results dist

$(VENV)/bin/python:
	$(PYTHON) -m venv $(VENV)

# The stamps say which set is installed; .dev contains .run, so either order works and nothing is installed twice.
$(VENV)/.run: requirements/run.txt pyproject.toml | $(VENV)/bin/python
	@echo "Installing safedial (core and plot) into $(VENV) ..."
	@if [ -e $(VENV)/.dev ]; then true; else $(PIP) --require-hashes --no-deps -r requirements/run.txt; fi
	@$(PIP) --no-deps --no-build-isolation -e .
	@touch $@

$(VENV)/.dev: requirements/dev.txt pyproject.toml | $(VENV)/bin/python
	@echo "Installing safedial with all extras but text, and the development tools, into $(VENV) ..."
	@$(PIP) --require-hashes --no-deps -r requirements/dev.txt
	@requirements/system.sh
	@$(PIP) --no-deps --no-build-isolation -e .
	@touch $@ $(VENV)/.run

# torch is heavy and its builds differ from machine to machine: pinned, not hash-locked, and apart from the rest.
$(TEXT_VENV)/.text: requirements/text.txt pyproject.toml
	@echo "Installing safedial with the text extra into $(TEXT_VENV) ..."
	@$(PYTHON) -m venv $(TEXT_VENV)
	@$(TEXT_VENV)/bin/python -m pip --disable-pip-version-check install --quiet -r requirements/text.txt
	@$(TEXT_VENV)/bin/python -m pip --disable-pip-version-check install --quiet --no-deps --no-build-isolation -e .
	@touch $@

# Peers are called by lines of JSON and never imported, so their versions need not agree with ours.
$(PEERS_VENV)/.peers: requirements/peers.txt
	@echo "Installing peers for the arena into $(PEERS_VENV) ..."
	@$(PYTHON) -m venv $(PEERS_VENV)
	@$(PEERS_VENV)/bin/python -m pip --disable-pip-version-check install --quiet --no-deps -r requirements/peers.txt
	@touch $@

# The oldest version of each direct requirement; what the tests need besides is as new as that allows. Older
# versions of typer and Matplotlib call what click from 8.4 on and pyparsing from 3.3 on warn of.
$(MINIMAL_VENV)/.minimal: pyproject.toml $(RELEASE_VENV)/.release
	@echo "Installing safedial with the oldest versions it allows into $(MINIMAL_VENV) ..."
	@$(RELEASE_VENV)/bin/uv venv --quiet --clear --python $(PYTHON) $(MINIMAL_VENV)
	@printf "click<8.4\npyparsing<3.3\n" > $(MINIMAL_VENV)/below.txt
	@$(RELEASE_VENV)/bin/uv pip compile --quiet pyproject.toml --resolution lowest-direct --python $(MINIMAL_VENV)/bin/python \
	  --constraint $(MINIMAL_VENV)/below.txt $(addprefix --extra ,$(MINIMAL_EXTRAS)) -o $(MINIMAL_VENV)/oldest.txt
	@$(RELEASE_VENV)/bin/uv pip install --quiet --python $(MINIMAL_VENV)/bin/python -r $(MINIMAL_VENV)/oldest.txt $(MINIMAL_TOOLS)
	@$(RELEASE_VENV)/bin/uv pip install --quiet --python $(MINIMAL_VENV)/bin/python --no-deps -e .
	@touch $@

$(RELEASE_VENV)/.release: requirements/release.txt
	@echo "Installing the tools of a release into $(RELEASE_VENV) ..."
	@$(PYTHON) -m venv $(RELEASE_VENV)
	@$(RELEASE_VENV)/bin/python -m pip --disable-pip-version-check install --quiet --require-hashes --no-deps -r requirements/release.txt
	@touch $@

# Sphinx and its companions need not agree with the versions of the tests' tools. What is imported is compiled then.
$(DOCS_VENV)/.docs: requirements/docs.txt pyproject.toml
	@echo "Installing safedial and the tools of its site into $(DOCS_VENV) ..."
	@$(PYTHON) -m venv $(DOCS_VENV)
	@$(DOCS_VENV)/bin/python -m pip --disable-pip-version-check install --quiet --no-compile --require-hashes --no-deps -r requirements/docs.txt
	@$(DOCS_VENV)/bin/python -m pip --disable-pip-version-check install --quiet --no-deps --no-build-isolation -e .
	@touch $@
