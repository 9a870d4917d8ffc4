# `make demo` and `make test` need python3 (3.11 or later) and nothing else; the first run makes .venv.
PYTHON ?= python3
MODEL ?= fake
BIN := .venv/bin
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps

.DEFAULT_GOAL := help
.PHONY: help demo demo-local demo-team demo-team-local demo-service local-model test crash load-test simulate example-project check format bench bench-peers docs cover mutants dist lock clean trio-versions

help:  ## Show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-12s %s\n", $$1, $$2 }' Makefile

demo: .venv/core.stamp  ## Run an agent on real files, under a minute from nothing
	$(BIN)/python examples/quickstart.py

demo-local: .venv/core.stamp  ## The same on the local model (first: make local-model)
	$(BIN)/python examples/quickstart.py --local

demo-team: .venv/core.stamp  ## A lead with ten subagents at once, over real files
	$(BIN)/python examples/research_team.py

demo-team-local: .venv/core.stamp  ## The same on the local model: a few minutes
	$(BIN)/python examples/research_team.py --local

demo-service: .venv/service.stamp  ## A service over HTTP, and three curl lines to try (MODEL=local: the local model)
	$(BIN)/python -m examples.service --store build/service.db --model $(MODEL)

local-model: .venv/core.stamp  ## Build the local model's server into your cache: once, 5 minutes
	$(BIN)/python scripts/local_model.py build

test: .venv/dev.stamp  ## Run the tests
	$(BIN)/pytest

crash: .venv/dev.stamp  ## Kill running agents 300 times per store, look at what is left of them
	$(BIN)/python scripts/crash.py

load-test: .venv/dev.stamp  ## 500 conversations with the service, while it is stopped and killed: 4 minutes
	$(BIN)/python -m examples.service.load_test
	$(BIN)/python -m examples.service.load_test --store postgres

simulate: .venv/dev.stamp  ## Run three services 2,000 times each, with all that can go wrong: a few minutes
	$(BIN)/python scripts/simulate.py

example-project: .venv/dev.stamp  ## Build the wheel, and use it as a new user does: README's first test, examples/tests
	$(BIN)/python scripts/example_project.py

trio-versions: .venv/dev.stamp  ## Does simulate work with each trio that we allow?
	$(BIN)/python scripts/trio_versions.py

check: .venv/dev.stamp  ## Format, lint, types, imports, house rules: what CI runs
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/codespell
	$(BIN)/mypy
	$(BIN)/mypy scripts
	$(BIN)/mypy --package examples.service
	$(BIN)/pyright
	PATH="$(CURDIR)/$(BIN):$$PATH" pyright --verifytypes alpineagents --ignoreexternal
	$(BIN)/lint-imports
	$(BIN)/pytest -q tests/test_house_rules.py tests/test_public_names.py

format: .venv/dev.stamp  ## Format, and fix what can be fixed
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

bench: .venv/core.stamp  ## Run the benchmarks
	@for file in benchmarks/bench_*.py; do echo "== $$file"; $(BIN)/python $$file || exit 1; done

bench-peers: .venv/core.stamp  ## Compare with other libraries
	$(BIN)/python benchmarks/peers/run.py

docs: .venv/dev.stamp  ## Run the code in the docs
	$(BIN)/pytest -q tests/test_docs.py

cover: .venv/dev.stamp  ## Run the tests, demand full branch coverage
	$(BIN)/coverage run -m pytest
	$(BIN)/coverage report --fail-under=100

mutants: .venv/dev.stamp  ## Make the core wrong, line by line: does a test notice? Half an hour
	$(BIN)/python scripts/mutants.py

dist: .venv/dev.stamp  ## Build the wheel and the sdist
	$(BIN)/python -m build --outdir dist .

lock:  ## Pin the newest dependencies anew, for Python 3.11
	rm -rf build/lock && python3.11 -m venv build/lock
	build/lock/bin/pip install --quiet --upgrade pip
	build/lock/bin/pip install --quiet .
	build/lock/bin/pip freeze --exclude alpineagents > requirements/core.lock
	build/lock/bin/pip install --quiet --group dev --constraint requirements/core.lock
	build/lock/bin/pip freeze --exclude alpineagents > requirements/dev.lock

clean:  ## Remove what was made, .venv included
	rm -rf .venv build dist .coverage .hypothesis .*_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

.venv/core.stamp: requirements/core.lock pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit("alpineagents needs Python 3.11 or later" if sys.version_info < (3, 11) else 0)'
	@echo "Setting up .venv ..."
	@$(PYTHON) -m venv .venv
	@$(PIP) --requirement requirements/core.lock --editable .
	@touch $@

.venv/service.stamp: requirements/dev.lock .venv/core.stamp
	@echo "Installing the web server ..."
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint requirements/dev.lock \
		'hypercorn[trio]' 'psycopg[binary]' starlette
	@touch $@

.venv/dev.stamp: requirements/dev.lock .venv/core.stamp
	@echo "Installing the development tools ..."
	@$(PIP) --requirement requirements/dev.lock
	@touch $@
