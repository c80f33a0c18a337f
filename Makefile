# Every command that people and CI need. State lives in one folder: CACHESCOPE_CACHE, by default ~/.cache/cachescope.
SHELL := /bin/bash
.DEFAULT_GOAL := help
PYTHON ?= python3
VENV := .venv
RUN := $(VENV)/bin/python
PROVIDER ?= auto
export PYTHONPATH := operator

help: ## Show the commands
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | awk -F ':.*## ' '{printf "  make %-12s %s\n", $$1, $$2}'

demo: cluster images ## Bring up a cluster, images and the demo, and print what each tenant could observe
	$(RUN) -m e2e.demo

test: checks unit integration e2e ## All checks and tests

checks: $(VENV)/ok ## Format, lint, types, layers
	$(VENV)/bin/ruff format --check .
	$(VENV)/bin/ruff check .
	$(VENV)/bin/mypy
	$(VENV)/bin/lint-imports

unit: $(VENV)/ok ## Pure tests, without a network
	$(RUN) -m pytest tests/unit -q

integration: cluster ## Real API server, real Envoy
	$(RUN) -m pytest tests/integration -q

e2e: cluster images ## The real pool on the real cluster
	$(RUN) -m pytest e2e/tests -q

bench: $(VENV)/ok ## Bare Envoy beside the gateway, in one run
	$(RUN) -m bench.gateway

cluster: $(VENV)/ok ## Bring the cluster up
	$(RUN) -m e2e.cluster up --provider $(PROVIDER)

images: cluster ## Build the images that changed, and load them into the cluster
	$(RUN) -m images build

down: ## Remove the demo and the cluster; built binaries and images stay in the cache
	$(PYTHON) -m e2e.demo.down

purge: down ## Remove the cache, too
	$(PYTHON) -m e2e.cluster down --purge

vectors: $(VENV)/ok ## Write the published test vectors anew
	$(RUN) -m tests.unit.make_vectors

lock: $(VENV)/ok ## Write the hash-locked requirements anew from pyproject.toml
	for name in gateway operator; do $(VENV)/bin/uv pip compile -q --system-certs --generate-hashes --python-version 3.11 --no-header \
	  --no-annotate pyproject.toml --extra $$name --extra cli -o requirements/$$name.txt || exit 1; done
	$(VENV)/bin/uv pip compile -q --system-certs --generate-hashes --python-version 3.11 --no-header --no-annotate pyproject.toml \
	  --extra gateway --extra operator --extra cli --extra dev -o requirements/dev.txt

$(VENV)/ok: requirements/dev.txt
	$(PYTHON) -m venv $(VENV)
	$(VENV)/bin/pip install --quiet --require-hashes --no-deps -r requirements/dev.txt
	touch $@

.PHONY: help demo test checks unit integration e2e bench cluster images down purge vectors lock
