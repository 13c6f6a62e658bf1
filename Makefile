# All commands for developers. They need make and Python 3.11 or newer with venv; everything else is installed into .venv.
# Another Python: make PYTHON=python3.13 …      More test processes: make WORKERS=8 test

WORKERS ?= 2
export PYTHON
# Tests start hundreds of processes; without kept bytecode each of them would compile all of Pausepoint again.
unexport PYTHONDONTWRITEBYTECODE

PY := .venv/bin/python
PYTEST := $(PY) -m pytest -q --numprocesses $(WORKERS) --dist worksteal
SUITE := $(PY) -m tools.suite --workers $(WORKERS)
CORE := .venv/.core
DEV := .venv/.dev
NATIVE := tools/native.py src/pausepoint/integrations/gate.c

# All targets share one .venv: never build it twice at the same time.
.NOTPARALLEL:
.PHONY: help venv demo test test-all replay check format coverage bench bench-peers bench-check fleet campaign chaos tasks browser shots recording programs peers reference docs acceptance release clean mutants

help: ## list these targets
	@echo "Pausepoint. Targets:"
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-11s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

# Install again when the dependencies, or the way they are installed, have changed.
$(CORE): pyproject.toml tools/venv $(NATIVE)
	@tools/venv core

$(DEV): pyproject.toml tools/venv $(NATIVE)
	@tools/venv dev

venv: $(DEV) ## build .venv with everything that tests and checks need
	@echo ".venv is ready."

demo: $(CORE) ## kill, resume and pause a real session (ARGS=--keep)
	@$(PY) -m pausepoint.apps.demo $(ARGS)

test: $(DEV) ## run the short tests, check the acceptance list
	@$(SUITE) short $(ARGS)

test-all: $(DEV) ## run all tests, as a release needs it (ARGS=tests/gate)
	@$(SUITE) all $(ARGS)

replay: $(DEV) ## run the engine's tests; replay steps after each operation
	@$(PYTEST) --pausepoint-always-replay tests/runtime tests/engine tests/log tests/model tests/questions tests/integrations tests/files tests/laws/test_replay.py tests/testing $(ARGS)

check: $(DEV) ## run ruff, mypy --strict and the import contracts
	@$(PY) -m ruff check --quiet --output-format concise
	@$(PY) -m ruff format --check --quiet || { echo "Some files are not formatted; run: make format"; exit 1; }
	@$(PY) -m mypy --no-error-summary
	@.venv/bin/lint-imports --no-logo
	@echo "All checks passed."

format: $(DEV) ## format the code and apply ruff's fixes
	@$(PY) -m ruff check --fix --quiet || true
	@$(PY) -m ruff format

coverage: $(DEV) ## run the tests; engine and stores need 95 % coverage
	@rm -rf build/coverage && mkdir -p build/coverage
	@$(PY) -m coverage run -m pytest -q --numprocesses $(WORKERS) --dist worksteal $(ARGS)
	@$(PY) -m coverage combine --quiet
	@$(PY) -m coverage report
	@$(PY) tools/coverage_gate.py 95

mutants: $(DEV) ## put faults into the code; tests must catch 95 % of them
	@$(PY) -m tests.mutants $(ARGS)

bench: $(DEV) ## measure costs on this machine, relative to plain SQLite
	@$(PY) -m benchmarks $(ARGS)

bench-peers: $(DEV) ## measure the same work with other engines (ARGS="--only W1")
	@$(PY) -m benchmarks.peers $(ARGS)

bench-check: $(DEV) ## count instructions of a step, time imports (needs valgrind)
	@$(PY) -m benchmarks.instructions --check
	@$(PY) -m benchmarks --check --only gate --only import

fleet: $(DEV) ## measure the store in Postgres, relative to raw commits
	@$(PY) -m benchmarks.fleet $(ARGS)

campaign: $(DEV) ## run all fault instruments (ARGS="--seconds 7200")
	@$(PY) -m tests.faults.campaign $(ARGS)

chaos: $(DEV) ## an hour of faults for a fleet (ARGS="--seconds 300")
	@mkdir -p build && $(PY) -m tests.faults.fleet.chaos --seconds 3600 --json build/chaos.json $(ARGS)

tasks: $(DEV) ## run 1,700 tasks and kill agents (ARGS="--kills 1000")
	@$(PY) -m tests.orchestrator.campaign $(ARGS)

browser: $(DEV) ## try every screen in Chromium, in every look
	@$(PYTEST) -m "browser or not browser" tests/page $(ARGS)

shots: $(DEV) ## take the pictures of the page (FOLDER=docs/pictures)
	@$(PY) -m tests.page.shots $(or $(FOLDER),docs/pictures)

recording: $(DEV) ## record six agents at the gate, with tmux (FOLDER=docs)
	@$(PY) -m tests.gate.recording $(or $(FOLDER),docs/pictures)

programs: $(DEV) ## install Claude Code, its SDK and Restate (needs npm)
	@tools/programs

peers: $(DEV) ## run tests of LangGraph and OpenAI Agents with our parts
	@$(PY) -m tools.peer_suites $(ARGS)

reference: $(DEV) ## write the generated pages: docs/cli.md, http.md, api.md
	@$(PY) -m tools.cli_reference
	@$(PY) -m tools.http_reference
	@$(PY) -m tools.api_reference

docs: $(DEV) ## build the documentation as a site: build/site
	@$(PY) -m tools.site

acceptance: $(DEV) ## run all tests, count the proven items of docs/acceptance.md
	@$(SUITE) all || echo "The items of failed tests do not count below."
	@$(PY) -m tools.acceptance --report build/acceptance.json

release: $(DEV) ## build, check and try sdist and wheel (ARGS="--python 3.12")
	@$(PY) -m tools.release $(ARGS)

clean: ## remove .venv, caches and all other generated files
	@rm -rf .venv build dist .coverage .coverage.* .hypothesis .import_linter_cache .mypy_cache .pytest_cache .ruff_cache
	@find . -name __pycache__ -type d -prune -exec rm -rf {} +
