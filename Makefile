# Python packages are installed into .uv and .venv of this folder; jars and the local stack go where `make status` shows.
PYTHON ?= python3
UV_VERSION := 0.13.8
UV := .uv/bin/uv
TWINE := twine>=6.1,<8
ARGS ?=
# Two at a time: a test that waits for Airflow or for a broker leaves the other core idle. A file's tests stay together,
# since they share what they have started. `make test WORKERS=0` runs one after the other.
WORKERS ?= 2
SIDE_BY_SIDE := -n $(WORKERS) --dist loadfile --no-loadscope-reorder

UV_READY := .uv/ready-$(UV_VERSION)
VENV_READY := .venv/ready
DOCS_READY := .venv/docs-ready
# What the installers print; named in the message when something fails.
SETUP_LOG := build/setup.log

.DEFAULT_GOAL := help
.NOTPARALLEL:
.PHONY: help setup demo up down status test test-unit test-slow test-cluster test-browser faults lint bench docs dist clean java

##@ First steps
help: ## Show this list
	@awk 'BEGIN {FS = ":.*## "} /^##@/ {printf "\n%s\n", substr($$0, 5)} /^[a-z-]+:.*## / {printf "  %-12s  %s\n", $$1, $$2}' $(MAKEFILE_LIST)

setup: $(VENV_READY) ## Install everything into .venv (the other targets do it when needed)

demo: java setup ## Show a stream that survives a crash without losing or doubling a record
	@.venv/bin/airflow-ckpt demo $(ARGS)

##@ Kafka and Airflow on this machine
up: java setup ## Start them and print URL and login (ARGS="--brokers 3")
	@.venv/bin/airflow-ckpt local up $(ARGS)

down: setup ## Stop them; the data stays
	@.venv/bin/airflow-ckpt local down $(ARGS)

status: setup ## Show what runs, and where
	@.venv/bin/airflow-ckpt local status $(ARGS)

##@ Tests
test: java setup lint ## Lint, unit, integration and the quick fault tests, on a real Kafka, Spark and Airflow
	@.venv/bin/pytest $(SIDE_BY_SIDE) -m "not slow and not cluster and not browser" $(ARGS)

test-unit: setup ## Only the tests that start nothing, and how much of the source they run (build/coverage/index.html)
	@.venv/bin/pytest $(SIDE_BY_SIDE) -m unit --cov --cov-report=term --cov-report=html $(ARGS)

test-slow: java setup ## The tests that take minutes each: every crash point, the provider's faults, secured Kafka
	@.venv/bin/pytest $(SIDE_BY_SIDE) -m "slow and not cluster" $(ARGS)

test-cluster: java setup ## The tests on their own HDFS and YARN (the first time it downloads 90 MB)
	@.venv/bin/pytest -m cluster $(ARGS)

test-browser: java setup ## The example DAG through Airflow's UI (apt-get install chromium chromium-driver)
	@.venv/bin/pytest -m browser $(ARGS)

faults: java setup ## All fault tests: kill, freeze and corrupt things, then count records
	@.venv/bin/pytest -m faults $(ARGS)

lint: setup ## ruff and mypy
	@.venv/bin/ruff check
	@.venv/bin/ruff format --check
	@.venv/bin/mypy

bench: java setup ## Measure what the documentation claims
	@.venv/bin/python -m bench $(ARGS)

# Not with --quiet: that lets broken links pass.
docs: $(DOCS_READY) ## Build the documentation site (build/site/index.html)
	@NO_MKDOCS_2_WARNING=1 .venv/bin/mkdocs build --clean --strict $(ARGS)
	@echo "build/site/index.html"

dist: setup ## Build wheel and sdist into dist/, and check them
	@rm -rf dist
	@.venv/bin/python -m build >build/dist.log 2>&1 || { echo "airflow-ckpt: cannot build; details: build/dist.log" >&2; exit 1; }
	@$(UV) tool run --quiet --from '$(TWINE)' twine check --strict dist/*

##@ Housekeeping
clean: ## Stop the stack and remove what was installed or built here
	@if [ -x .venv/bin/airflow-ckpt ]; then .venv/bin/airflow-ckpt local down; fi
	rm -rf .venv .uv build dist .pytest_cache .mypy_cache .ruff_cache .hypothesis

java:
	@scripts/preflight.sh java

# The marker is written last, so an installation that was interrupted is done again from the start.
$(UV_READY):
	@scripts/preflight.sh python '$(PYTHON)'
	@scripts/preflight.sh disk .
	@mkdir -p build
	@rm -rf .uv
	@{ '$(PYTHON)' -m venv .uv && .uv/bin/pip install uv==$(UV_VERSION); } >$(SETUP_LOG) 2>&1 || { rm -rf .uv; \
		echo "airflow-ckpt: cannot download uv: check the network (HTTPS_PROXY, PIP_INDEX_URL), then the same command again; details: $(SETUP_LOG)" >&2; exit 1; }
	@touch $@

$(VENV_READY): pyproject.toml uv.lock $(UV_READY)
	@scripts/preflight.sh disk .
	@mkdir -p build
	@echo "installing Python packages into .venv (the first time 1 to 3 minutes; tail -f $(SETUP_LOG) shows more)"
	@rm -f $@
	@UV_PROJECT_ENVIRONMENT=.venv UV_PYTHON_DOWNLOADS=never \
		$(UV) sync --frozen --compile-bytecode --python '$(PYTHON)' --extra local --extra dev --extra s3 >$(SETUP_LOG) 2>&1 || { \
		echo "airflow-ckpt: cannot install the Python packages: check the network (HTTPS_PROXY), then the same command again; details: $(SETUP_LOG)" >&2; exit 1; }
	@touch $@

# Added to what is there, so that `make setup` stays as quick as it is. The versions are those of uv.lock, too.
$(DOCS_READY): $(VENV_READY)
	@UV_PROJECT_ENVIRONMENT=.venv UV_PYTHON_DOWNLOADS=never \
		$(UV) sync --frozen --inexact --no-install-project --python '$(PYTHON)' --extra docs >$(SETUP_LOG) 2>&1 || { \
		echo "airflow-ckpt: cannot install MkDocs: check the network (HTTPS_PROXY), then the same command again; details: $(SETUP_LOG)" >&2; exit 1; }
	@touch $@
