# One verb each. `make setup` happens by itself, and is quick when done.
.DEFAULT_GOAL := help
PYTHON ?= python3
BASE := $(shell command -v $(PYTHON) || echo $(PYTHON))
PYTEST_ARGS ?=
# Most tests wait for processes; PYTEST_ARGS="-n 0" runs them one after the other.
SIDE_BY_SIDE := -n auto --dist loadgroup
CLUSTER_TESTS ?= tests/cluster
# Two test clusters side by side; those that take longest begin. PYTEST_ARGS="-n 0" has one.
TWO_CLUSTERS := -n 2 --dist loadgroup --no-loadscope-reorder
# The torch of `make test-torch`.
TORCH ?= 2.9
IN_PLACE := tests/training $(wildcard tests/launcher/scenarios/test_*in_place.py) \
  $(addprefix tests/launcher/scenarios/test_,elastic_loop.py preemption.py rebuilt.py)
# Where `make test-gpu` and `make bench-gpu` run: cuda, or cpu in its place.
DEVICE ?= cuda
# Which programs `make tools` builds; all by default.
TOOLS ?=
BIN := $(CURDIR)/.venv/bin
export PATH := $(BIN):$(PATH)
# Thousands of processes import torch or Pulumi here: each module is compiled once, on machines that turn it off as well.
unexport PYTHONDONTWRITEBYTECODE
READY := @$(BASE) -m tools.setup
RUN := $(BIN)/python -m

.PHONY: help
help: ## what can be made
	@grep -hE '^[a-z -]+:.*## ' $(MAKEFILE_LIST) | sort | awk -F ':.*## ' '{printf "  make %-15s %s\n", $$1, $$2}'

.PHONY: setup demo
setup: ## everything this checkout needs; tries again what could not be had before
	@$(BASE) -m tools.setup --again

demo: ## the main job: one job rendered, explained, previewed, and run here with faults
	$(READY)
	@$(RUN) tools.demo

.PHONY: test test-oldest test-torch test-system-python test-frameworks test-gpu golden bench bench-quick bench-gpu soak
test: ## all tests that need no cluster and take no minutes
	$(READY)
	@$(RUN) pytest $(SIDE_BY_SIDE) -m "not cluster and not slow and not frameworks and not gpu" $(PYTEST_ARGS)

test-oldest: ## the launcher on the oldest torch and, where there is one, the oldest Python
	$(READY)
	@$(RUN) tools.extra_env oldest
	@$(CURDIR)/.venv-oldest/bin/python -m pytest $(SIDE_BY_SIDE) -m "not cluster and not slow" \
	  $(wildcard tests/launcher tests/training) $(PYTEST_ARGS)

test-torch: ## training in place on another torch, with every fault: an hour; TORCH=2.9 and the like
	$(READY)
	@$(RUN) tools.extra_env torch-$(TORCH)
	@$(CURDIR)/.venv-torch-$(TORCH)/bin/python -m pytest $(SIDE_BY_SIDE) $(IN_PLACE) $(PYTEST_ARGS)

test-system-python: ## command line, config, previews and tools on the system's own Python, without torch
	$(READY)
	@$(RUN) tools.extra_env system
	@HYPOTHESIS_PROFILE=brief $(CURDIR)/.venv-system/bin/python -m pytest $(SIDE_BY_SIDE) \
	  -m "not cluster and not slow and not engine and not launcher" \
	  tests/test_cli.py tests/config tests/preview tests/tools $(PYTEST_ARGS)

test-frameworks: ## scripts written for other launchers, with real packages: an hour
	$(READY)
	@$(RUN) tools.extra_env frameworks
	@$(CURDIR)/.venv-frameworks/bin/python -m pytest tests/frameworks $(PYTEST_ARGS)

test-gpu: ## what only a GPU can show; DEVICE=cpu runs the same tests with gloo on the CPU
	$(READY)
	@TEST_DEVICE=$(DEVICE) $(RUN) pytest tests/gpu $(PYTEST_ARGS)

golden: ## write the expected files anew; look at the difference before you commit it
	$(READY)
	@ELASTIC_INFRA_REWRITE_GOLDEN=1 $(RUN) pytest -q -m "not cluster and not slow and not frameworks and not gpu and not launcher" $(PYTEST_ARGS)

bench: ## the benchmarks, side by side with peers
	$(READY)
	@$(RUN) benchmarks

bench-quick: ## the headline table in five minutes; fails where a ratio is 25 % worse than the committed one
	$(READY)
	@$(RUN) benchmarks.headline

bench-gpu: ## outages, a restart with a CUDA context and the stall of a snapshot; DEVICE=cpu tries the benchmark out
	$(READY)
	@TEST_DEVICE=$(DEVICE) $(RUN) benchmarks.gpu --write

soak: ## long runs under random faults
	$(READY)
	@$(RUN) pytest -m slow $(PYTEST_ARGS)

.PHONY: fuzz
fuzz: ## ten minutes of damaged traffic on the store and the status port; FUZZ_ARGS="--seconds 60 --seed 1"
	$(READY)
	@$(RUN) tests.launcher.fuzz $(FUZZ_ARGS)

.PHONY: lint fmt types imports
lint: ## every check that needs no run
	$(READY)
	@$(RUN) ruff check .
	@$(RUN) ruff format --check .
	@$(MAKE) --no-print-directory types imports

fmt: ## format, and fix what can be fixed
	$(READY)
	@$(RUN) ruff check --fix --exit-zero --quiet .
	@$(RUN) ruff format .

types: ## mypy, strict
	$(READY)
	@$(RUN) mypy
	@for program in $(wildcard examples/*-*/*.py); do $(RUN) mypy --no-error-summary "$$program" || exit 1; done

imports: ## the direction of imports
	$(READY)
	@$(BIN)/lint-imports --no-logo

.PHONY: linters
linters: ## kube-score, kubeconform and checkov on the objects of every example and every shape of a job
	$(READY)
	@$(BASE) -m tools.build build kube-score kubeconform
	@$(RUN) tools.extra_env linters
	@$(RUN) pytest -m slow tests/manifests/test_linters.py $(PYTEST_ARGS)

.PHONY: lock schema versions tools
lock: ## make the locked requirement files anew
	$(READY)
	@$(RUN) tools.lock

schema: ## write the JSON Schema of job.yaml
	$(READY)
	@$(BIN)/elastic-infra schema

versions: ## every pinned version
	@$(BASE) -m tools.versions

tools: ## build the programs of the test cluster (minutes, once); as root also Debian's packages for it
	@$(BASE) -m tools.build build $(TOOLS)
	@$(BASE) -m tools.debian

.PHONY: cluster-up cluster-down cluster-status test-cluster
cluster-up cluster-down cluster-status: cluster-%: ## start, stop, show the test cluster (needs root on Linux)
	$(READY)
	$(if $(filter up,$*),@$(MAKE) --no-print-directory tools)
	@$(RUN) tests.cluster.testbed $*

test-cluster: ## the tests on a real Kubernetes
	$(READY)
	-@$(MAKE) --no-print-directory tools
	@$(RUN) pytest $(TWO_CLUSTERS) $(CLUSTER_TESTS) -m "cluster and not slow" $(PYTEST_ARGS)

.PHONY: docs
docs: ## the documentation as a site in dist/site; fails on a link or a page that leads nowhere
	$(READY)
	@$(RUN) tools.extra_env docs
	@PYTHONPATH=$(CURDIR) NO_MKDOCS_2_WARNING=1 $(CURDIR)/.venv-docs/bin/python -m mkdocs build --strict --quiet

.PHONY: clean
clean: ## remove what was made here, except the built tools
	rm -rf .venv .venv-oldest .venv-system .venv-frameworks .venv-docs .venv-linters .venv-torch-* .mypy_cache .pytest_cache .ruff_cache .hypothesis \
	  .import_linter_cache .coverage .demo dist
