# Every target sets up .venv by itself; nothing else is installed or assumed.
.DEFAULT_GOAL := help
.PHONY: help man demo demo-replay test test-all test-slow fuzz lint bench reproduce docs criu lock clean

# Tests start thousands of processes: what they import is compiled once.
unexport PYTHONDONTWRITEBYTECODE

PYTHON ?= $(shell command -v python3.11 || command -v python3)
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
KERNELS := $(VENV)/.kernels
FAILED := -o cache_dir=$(VENV)/.tests
# After a worker has crashed, pytest-xdist waits for ever for what that one was to do.
PYTEST := $(BIN)/pytest -n auto --max-worker-restart 0 --dist loadscope --no-loadscope-reorder $(FAILED) --cache-clear
# Tests of real processes that failed beside others run once more, alone: they measure, and what is beside is measured too.
ALONE := test $$? = 1 && echo "Once more, with nothing beside:" && $(BIN)/pytest $(FAILED) --last-failed --last-failed-no-failures none --alone
# More for pytest, as TESTS='tests/unit -x' or TESTS='--random-order --random-order-seed 7'.
TESTS ?=

help: ## Show what can be made
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 14

$(READY): requirements.lock pyproject.toml reproduction/pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "dfrs needs Python 3.11 or later: set PYTHON=/path/to/python3"; exit 1; }
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV) || { echo "no venv module: apt-get install python3-venv"; exit 1; }
	@echo "Setting up $(VENV) (once; a minute or two)."
	@$(BIN)/python -m pip install --quiet --require-hashes -r requirements.lock
	@$(BIN)/python -m pip install --quiet --no-deps --no-build-isolation -e . -e reproduction
	@touch $@

demo: $(READY) ## Real programs on a live cluster of two nodes on this machine, a minute; then what EASY and FCFS had done
	@$(BIN)/python examples/live_demo.py

demo-replay: $(READY) ## Replay 1,000 jobs on 128 nodes under three policies: tables, checked runs, pictures
	$(BIN)/dfrs simulate examples/demo.swf.gz -p FCFS -p EASY -p 'GreedyPM*/per/OPT=MIN/MVT=600' --seed 1 -o out/demo
	$(BIN)/dfrs validate out/demo
	$(BIN)/dfrs plot out/demo/FCFS out/demo/EASY 'out/demo/GreedyPM+_per_OPT=MIN_MVT=600' -o out/demo
	$(BIN)/dfrs plot 'out/demo/GreedyPM+_per_OPT=MIN_MVT=600' -o out/demo

lint: $(READY) ## Style, types, who may import whom, and what is known to be insecure
	$(BIN)/ruff check src reproduction tests benchmarks examples
	$(BIN)/ruff format --check src reproduction tests benchmarks examples
	$(BIN)/pyright --pythonpath $(BIN)/python
	$(BIN)/lint-imports
	$(BIN)/python -m tests.audit_dependencies

test: $(KERNELS) ## The tests, but for those that take long: six minutes
	export HYPOTHESIS_PROFILE=quick; $(PYTEST) -m 'not long and not slow' $(TESTS) || { $(ALONE) -m 'not long and not slow' $(TESTS); }

test-all: $(VENV)/.docs $(KERNELS) ## All tests but the slow ones: also whole commands, pages, faults, fuzzing; 25 minutes
	$(PYTEST) -m 'not slow' $(TESTS) || { $(ALONE) -m 'not slow' $(TESTS); }

# Inner loops are compiled once, and again when one of them has changed.
$(KERNELS): $(READY) tests/compile_kernels.py $(shell find src/dfrs/kernels -name '*.py')
	@echo "Compiling inner loops (once; a minute or two)."
	@$(BIN)/python -m tests.compile_kernels
	@touch $@

test-slow: $(READY) ## Every published policy with every option, all streams of commands, broken kernels, long pages
	$(PYTEST) -m slow $(TESTS)

SEEDS ?= 0:1000
fuzz: $(READY) ## Storms: the live cluster in simulation, to which anything happens, SEEDS=0:1000
	@$(BIN)/python -m tests.storms $(SEEDS) --quiet

bench: $(READY) ## Speed, memory, and a peer in the same run
	@$(BIN)/python -m pip install --quiet --no-deps --no-build-isolation VectorPack==0.1.5
	@$(BIN)/python -m pip install --quiet ortools==9.15.6755
	$(BIN)/python -m benchmarks.run

reproduce: $(READY) ## Published tables and figures beside ours, into out/reproduce
	$(BIN)/dfrs reproduce -o out/reproduce

$(VENV)/.docs: requirements-docs.lock $(READY)
	@$(BIN)/python -m pip install --quiet --require-hashes -r requirements-docs.lock
	@touch $@

docs: $(VENV)/.docs ## The documentation as a site, into out/site; a warning or a broken link is an error
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict

man: $(READY) ## Manual pages of all verbs, made of their help, into out/man: man -l out/man/dfrs.1
	$(BIN)/python -m dfrs.cli.manual out/man

criu: $(READY) ## A CRIU that works, from Debian's next release into .venv/criu, for tests of check-points; installs nothing
	examples/get-criu.sh $(VENV)/criu

# Extras name other extras, which pip-compile follows only in built metadata: hence --build-deps-for.
lock: $(READY) ## Renew requirements.lock and requirements-docs.lock from pyproject.toml
	$(BIN)/python -m pip install --quiet pip-tools
	$(BIN)/pip-compile --quiet --strip-extras --extra all --extra test --extra lint --build-deps-for editable --allow-unsafe --generate-hashes --no-emit-index-url --no-emit-find-links --no-header --output-file requirements.lock pyproject.toml
	$(BIN)/python -c 'import tomllib; print(*tomllib.load(open("pyproject.toml", "rb"))["project"]["optional-dependencies"]["docs"], sep="\n")' | $(BIN)/pip-compile --quiet --strip-extras --constraint requirements.lock --allow-unsafe --generate-hashes --no-emit-index-url --no-emit-find-links --no-header --no-annotate --output-file requirements-docs.lock -

clean: ## Remove what was made
	rm -rf $(VENV) out .pytest_cache .ruff_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
