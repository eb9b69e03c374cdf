# `make` alone lists the targets.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin

# The tests of the service that `make test` runs on PostgreSQL too, and how many tests have to pass there, at least.
PART := $(addprefix tests/test_,$(addsuffix .py,items lists joins events idempotency preconditions converting))
STORE_TESTS := 58
PART_TESTS := 91
SERVICE_TESTS := 708

COMPILE = $(BIN)/uv pip compile -q --universal --generate-hashes --no-strip-extras --no-emit-index-url --no-header $(UPGRADE)

.DEFAULT_GOAL := help
unexport PYTHONDONTWRITEBYTECODE  # else each process of the tests compiles all of them again, which takes 4 seconds
.PHONY: help run test test-matrix matrix-schemathesis matrix-tests matrix-service fmt lint pytest pytest-sqlite \
  pytest-postgresql compiled bench figures soak pictures docs lock release clean

help: ## list the targets
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | awk -F':.*## ' '{printf "  make %-11s %s\n", $$1, $$2}'

run: $(VENV)/.run ## serve at http://127.0.0.1:8000 on restkeeper.db
	@$(BIN)/python app.py

test: $(VENV)/.dev ## every check: lint, types, tests with branch coverage, docs, OpenAPI, schemathesis
	@$(MAKE) --no-print-directory -j2 --output-sync=target lint pytest-postgresql
	@$(MAKE) --no-print-directory pytest-sqlite

lint: $(VENV)/.dev ## ruff, mypy --strict, and the lines of code of each room
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	@$(BIN)/python -m bench.sizes >/dev/null

pytest: pytest-postgresql pytest-sqlite ## the tests alone: on SQLite, the suite of all stores and a part of the service on PostgreSQL

pytest-sqlite: $(VENV)/.dev
	$(BIN)/pytest -n 4 --dist worksteal --cov --cov-report=term:skip-covered --at-least $(STORE_TESTS)

pytest-postgresql: compiled
	$(BIN)/pytest --store postgresql --at-least $(PART_TESTS) $(PART)

test-matrix: $(VENV)/.dev ## the longer tests: the wheel, kill -9 under load, clients, pages, all on PostgreSQL, each feature closed once
	@$(MAKE) --no-print-directory -k -j2 --output-sync=target matrix-schemathesis matrix-tests matrix-service >$(VENV)/matrix.log 2>&1; \
	status=$$?; cat $(VENV)/matrix.log; [ $$status = 0 ] || { echo "What failed:"; \
	grep -aE '^(FAILED|ERROR|E  )' $(VENV)/matrix.log | cut -c 1-300 | tail -n 120; }; exit $$status

matrix-schemathesis: $(VENV)/.dev
	$(BIN)/pytest -m matrix -n 2 --dist worksteal tests/test_schemathesis.py

matrix-tests: $(VENV)/.dev
	$(BIN)/pytest -m matrix -n 4 --dist loadscope --ignore tests/test_schemathesis.py
	$(BIN)/pytest -m matrix --store postgresql tests/test_readme.py tests/test_conversions.py -k "tutorial or whole"

matrix-service: $(VENV)/.dev
	$(BIN)/pytest --store postgresql --at-least $(SERVICE_TESTS) -n 4 --dist worksteal
	@sets=$$($(BIN)/python -c 'import restkeeper; print(*(",".join(sorted(one.name for one in restkeeper.FEATURES)[each::4]) for each in range(4)))') && \
	printf "%s\n" $$sets | xargs -P 2 -I NAMES sh -c \
	  'out=$$($(BIN)/pytest --close NAMES 2>&1); status=$$?; printf "Without %s:\n%s\n" NAMES "$$out"; exit $$status'

# pytest compiles the tests in its own way. Each of its processes would do that again, with coverage, in 6 seconds.
compiled: $(VENV)/.dev
	@$(BIN)/pytest --collect-only -q >/dev/null

fmt: $(VENV)/.dev ## format the code and fix what ruff can fix
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

bench: $(VENV)/.bench ## compare with bare Flask and with peers, as ratios
	$(BIN)/python -m bench

figures: $(VENV)/.bench ## write the figures and plots of docs/scaling.md, on a quiet machine (10 minutes)
	$(BIN)/python -m bench.figures

bench-large: $(VENV)/.bench ## what 10,000,000 items cost on PostgreSQL (20 GB of disk, half an hour)
	$(BIN)/python -m bench.large $(ARGUMENTS)

soak: $(VENV)/.dev ## the proofs at full length, on SQLite and PostgreSQL: exactly once, linearizable and delivered under faults; attacks; conversions
	@for store in sqlite postgresql; do for proof in soak attacks conversions; do \
	  $(BIN)/python -m tests.$$proof --store $$store || exit 1; done; done
	@$(BIN)/python -m tests.soak --store file
	@SCHEMATHESIS_SEED=$$(date +%s) $(BIN)/pytest -m "matrix or not matrix" tests/test_schemathesis.py

pictures: $(VENV)/.dev ## make the drawings of docs/concepts.md, and the pictures of the README with Chromium
	$(BIN)/python docs/drawings.py
	$(BIN)/python -m tests.pictures

docs: $(VENV)/.dev ## build the site in build/site, and build/site.zip, which `restkeeper docs` shows and a wheel takes along
	rm -rf build/site build/site.zip build/doctrees
	$(BIN)/sphinx-build -q --nitpicky --fail-on-warning --keep-going -c docs -d build/doctrees . build/site \
	  || (rm -f build/site.zip; exit 1)

lock: $(VENV)/.dev ## write requirements*.txt again from pyproject.toml, and those of the generated clients
	$(BIN)/pip install -q uv
	$(COMPILE) -o requirements.txt pyproject.toml --extra metrics --extra redis
	$(COMPILE) -o requirements-postgresql.txt pyproject.toml --all-extras
	$(COMPILE) -o requirements-dev.txt pyproject.toml --all-extras --group dev
	$(COMPILE) -o requirements-bench.txt pyproject.toml --all-extras --group dev --group bench
	$(COMPILE) -o requirements-release.txt --group release
	$(COMPILE) --python-version 3.11 -o tests/clients/requirements.txt tests/clients/requirements.in
	for each in clients json_server; do \
	  (cd tests/$$each && npm install --package-lock-only --ignore-scripts --no-audit --no-fund); done

release: $(VENV)/.dev $(VENV)/.release ## build the release twice, test it with the oldest and newest dependencies, say what to upload
	@$(BIN)/python -m tools.release $(ARGUMENTS)

clean: ## remove the virtual environment and caches (never the data)
	rm -rf $(VENV) .pytest_cache .mypy_cache .ruff_cache .hypothesis .coverage*

# Stamps: an environment is made once, and again when its pins change.
$(VENV)/.venv:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Restkeeper needs Python 3.11 or newer; set PYTHON=…")'
	@$(PYTHON) -m venv $(VENV)
	@touch $@
$(VENV)/.run: requirements.txt $(VENV)/.venv
	@echo "Setting up $(VENV) …" && $(BIN)/pip install -q --disable-pip-version-check --require-hashes -r $<
	@touch $@
$(VENV)/.dev: requirements-dev.txt $(VENV)/.venv
	@echo "Setting up $(VENV) …" && $(BIN)/pip install -q --disable-pip-version-check --require-hashes -r $<
	@touch $@ $(VENV)/.run
$(VENV)/.bench: requirements-bench.txt $(VENV)/.venv
	@echo "Setting up $(VENV) …" && $(BIN)/pip install -q --disable-pip-version-check --require-hashes -r $<
	@touch $@ $(VENV)/.run
$(VENV)/.release: requirements-release.txt $(VENV)/.venv
	@echo "Setting up $(VENV)/release …" && $(PYTHON) -m venv $(VENV)/release
	@$(VENV)/release/bin/pip install -q --disable-pip-version-check --require-hashes -r $<
	@touch $@
