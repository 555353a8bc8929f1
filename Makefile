# Every target uses .venv by path: no activated environment is needed, and an activated one of
# another project does no harm.

PYTHON ?= python3
BIN := .venv/bin
STAMP := .venv/.installed
# Postgres versions of the tests that depend on them: oldest and newest; test-all takes all.
PG ?= 14,18
# Test processes side by side: twice the cores, because most tests wait for other processes.
WORKERS ?= 4
STARTED := $(shell date +%s)

# uv from PATH where it works (a broken version-manager shim counts as missing), else our own.
LOCAL_UV := .tools/uv/bin/uv
UV := $(shell uv --version >/dev/null 2>&1 && echo uv || echo $(LOCAL_UV))

.DEFAULT_GOAL := help
.PHONY: help setup lock demo test test-lint test-fast test-integration test-crash test-all fuzz \
	chaos sabotage bench audit format clean

help:  ## Show this list
	@echo "Penstock: Postgres change data capture on Spark"
	@echo
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-17s %s\n", $$1, $$2 }' Makefile

setup: $(STAMP)  ## Create .venv with every locked dependency; a no-op when nothing changed

# The first line of defence is the hashes; --no-build-isolation keeps the build of the project
# itself from fetching a build backend that is not locked. Bytecode is made here, as pip makes it:
# where PYTHONDONTWRITEBYTECODE is set (usual in images), every process would compile all it loads.
$(STAMP): requirements/dev.txt pyproject.toml $(if $(filter $(UV),$(LOCAL_UV)),$(LOCAL_UV))
	@test -x $(BIN)/python || $(UV) venv --quiet --python '>=3.11' .venv || { \
		echo "make setup: no Python 3.11 or newer was found, and uv could not fetch one." >&2; \
		echo "Install one (Debian 12 and newer: apt-get install python3) and run make again." >&2; \
		exit 1; }
	$(UV) pip sync --quiet --python $(BIN)/python --require-hashes --compile-bytecode requirements/dev.txt
	$(UV) pip install --quiet --python $(BIN)/python --no-deps --no-build-isolation --editable .
	@$(BIN)/python -m compileall -q src
	@touch $@

# pip's --target is allowed where the system's Python is externally managed (PEP 668).
$(LOCAL_UV): requirements/uv.txt
	@command -v $(PYTHON) >/dev/null || { \
		echo "make setup: $(PYTHON) was not found. Install Python 3.11 or newer." >&2; exit 1; }
	@rm -rf .tools; mkdir -p .tools; \
	if $(PYTHON) -m pip --version >/dev/null 2>&1; then pip="$(PYTHON) -m pip"; \
	elif $(PYTHON) -m venv .tools/pip >/dev/null 2>&1; then pip=".tools/pip/bin/python -m pip"; \
	elif [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null; then \
		echo "make setup: this Python has no pip; installing python3-pip with apt-get"; \
		apt-get update -qq && apt-get install -y -qq python3-pip >/dev/null && pip="python3 -m pip"; \
	fi; \
	if [ -z "$$pip" ]; then \
		echo "make setup: there is no uv on PATH, and $(PYTHON) has neither pip nor venv to fetch it." >&2; \
		echo "Install one of them (Debian: sudo apt-get install python3-pip) and run make again." >&2; \
		exit 1; \
	fi; \
	echo "make setup: fetching uv into .tools"; \
	$$pip install --quiet --disable-pip-version-check --target .tools/uv --require-hashes -r requirements/uv.txt
	@touch $@

COMPILE = $(UV) pip compile --quiet --universal --python-version 3.11 \
	--fork-strategy fewest --generate-hashes --no-emit-index-url --no-emit-find-links \
	--custom-compile-command 'make lock' $(LOCK_FLAGS)

lock: $(if $(filter $(UV),$(LOCAL_UV)),$(LOCAL_UV))  ## Lock requirements again (LOCK_FLAGS=--upgrade takes newer releases)
	$(COMPILE) requirements/uv.in -o requirements/uv.txt
	$(COMPILE) pyproject.toml -c requirements/pins.in -o requirements/runtime.txt
	$(COMPILE) pyproject.toml --all-extras requirements/dev.in \
		-c requirements/pins.in -c requirements/runtime.txt -o requirements/dev.txt

demo: setup  ## Replicate one embedded Postgres into another for 30 seconds and verify (PAGE=1: on a web page)
	$(BIN)/penstock demo $(if $(PAGE),--page)

# Databases and folders of tests come and go by the thousand, and to remove a file takes long on some
# disks. So they live in memory where there is room for them.
MEMORY := $(shell awk '/MemAvailable/ { exit !($$2 > 10000000) }' /proc/meminfo 2>/dev/null && \
	df -Pk /dev/shm 2>/dev/null | awk 'END { if ($$4 > 8000000) print "/dev/shm" }')
PYTEST = $(if $(MEMORY),TMPDIR=$(MEMORY)) $(BIN)/pytest -n $(WORKERS) --dist loadgroup

test: setup  ## What every push runs, in 20 minutes (PG=14,18 picks the Postgres versions)
	@$(BIN)/python -m penstock.spark.class_archive & \
		$(MAKE) --no-print-directory test-lint && wait $$!
	PENSTOCK_TEST_PG=$(PG) $(PYTEST) -m "not release" tests
	@seconds=$$(($$(date +%s) - $(STARTED))); \
		echo "make test took $$((seconds / 60)) min $$((seconds % 60)) s, set-up included"

test-lint: setup  ## ruff, mypy --strict, import-linter and bandit
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/bandit --quiet --configfile pyproject.toml --recursive src bench

test-fast: setup  ## Unit, fuzz and contract tests
	$(PYTEST) -m "not release" tests/unit tests/fuzz tests/contract

test-integration: setup  ## Tests on a real Postgres and a real Spark
	PENSTOCK_TEST_PG=$(PG) $(PYTEST) tests/integration

test-crash: setup  ## All tests that kill processes, also those for releases
	$(PYTEST) tests/crash

# The second run: what the version hardly touches, on the oldest one.
test-all: setup  ## What a release needs: every test, on Postgres 14 to 18; takes more than an hour
	@$(MAKE) --no-print-directory test-lint
	PENSTOCK_PROPERTIES=release PENSTOCK_TEST_PG=14,15,16,17,18 $(PYTEST) tests
	PENSTOCK_TEST_PG=14 $(PYTEST) -m "not every_postgres" tests/integration

fuzz: setup  ## Search for examples that break a property, TIMES=5 times anew
	for time in $$(seq $(or $(TIMES),5)); do PENSTOCK_PROPERTIES=search \
		$(BIN)/pytest -q -m hypothesis tests/unit tests/fuzz tests/contract tests/integration || exit 1; done

# Variables given to make reach the command as its environment.
chaos: setup  ## Kill, crash and cut for SEEDS=n seeds (FIRST=k KILLS=10 COPY=1 TABLES=1 SCHEMA=1 TRUST=1 OBJECTS=1 CLUSTER=1 TRANSFORM=1 INTO=kafka); SEED=17 replays one
	$(BIN)/python -m tests.crash.chaos

sabotage: setup  ## Break every guarantee on a copy of the source: a test has to notice (ONLY=name,name JOBS=2)
	$(BIN)/python -m tests.sabotage

bench: setup  ## Measure against pg_recvlogical and native replication (WORKLOADS=w1,w3 SCALE=0.1)
	$(BIN)/python -m bench

audit: setup  ## Look for known vulnerabilities in all locked dependencies; asks PyPI
	$(BIN)/pip-audit --strict --require-hashes --disable-pip --requirement requirements/dev.txt

format: setup  ## Format the code and apply the safe fixes of ruff
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

clean:  ## Remove everything that make created
	rm -rf .venv .tools .cache .mypy_cache .pytest_cache .ruff_cache .import_linter_cache .hypothesis
	find src tests bench -name __pycache__ -type d -prune -exec rm -rf {} +
