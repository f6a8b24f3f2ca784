# Two commands for a newcomer: `make serve` and `make test`. Each makes what it needs.
SHELL := /bin/bash
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
# More arguments for pip, for instance an index that has PyTorch's CPU-only or CUDA builds.
PIP_ARGS ?=
# Processes that run tests side by side. Tests of the last four shelves wait for servers: one more than there are cores.
CORES := $(shell getconf _NPROCESSORS_ONLN)
# The distribution: what deploy/image/Dockerfile copies too.
WHEEL := pyproject.toml README.md LICENSE config policies adapters runtimes gateway
JOBS ?= $(shell cores=$(CORES); echo $$((cores < 4 ? cores + 1 : 4)))
SHELF = $(BIN)/pytest -n $(JOBS) -p no:randomly --durations=10
FAST = $(BIN)/pytest -n $(CORES) -m "not nightly" --shelf=plain

.PHONY: accuracy-llm serve wheel test test-runtimes test-processes test-servers test-benchmarks test-all check format help protos screenshots vendor pins conformance bench-gateway bench-memory bench-picker bench-shadows bench-transports bench-workers bench-balancing bench-bus bench-tensor bench-llm bench-pipelines bench-batch simulate-experiments simulate-rollouts simulate-scaling simulate-internet soak-llm clean

help: ## print these lines
	@sed -nE 's/^([a-z-]+):.*## (.*)/\1\t\2/p' $(firstword $(MAKEFILE_LIST)) | expand -t 20

serve: $(VENV)/.serve ## serve config/headrace.yaml, or ARGS="--config FILE"
	@extras=$$($(BIN)/headrace extras $(ARGS)) && if [ -n "$$extras" ]; then \
	  echo "Installing $$extras into $(VENV) (a few minutes the first time) ..."; \
	  $(locked) $(shown) --editable ".[$$extras]"; fi
	exec $(BIN)/headrace serve $(ARGS)

# From a copy: a build leaves folders beside the sources.
wheel: ## build dist/headrace-VERSION-….whl, for machines without a checkout
	@copy=$$(mktemp -d) && trap 'rm -rf "$$copy"' EXIT && cp -RL $(WHEEL) "$$copy" && \
	  $(PYTHON) -m pip wheel --quiet --disable-pip-version-check $(PIP_ARGS) --no-deps --wheel-dir dist "$$copy" && ls dist/*.whl

# mypy takes a minute without its cache. It runs beside the tests, and its problems are printed after theirs.
test: $(VENV)/.test ## ruff, mypy, import-linter, and the tests without processes or real time
	$(static)
	@$(BIN)/mypy >.mypy.log 2>&1 & checked=$$!; $(FAST) $(ARGS); tested=$$?; \
	  wait $$checked; typed=$$?; cat .mypy.log; exit $$((tested ? tested : typed))

test-runtimes: $(VENV)/.dev ## the tests of both runtimes in process: torch, ONNX, OpenVINO, scikit-learn
	$(SHELF) --shelf=runtimes -m "not nightly" $(ARGS)

test-processes: $(VENV)/.dev ## the tests with processes, a browser, Redis and Postgres
	$(SHELF) --shelf=processes -m "not nightly" $(ARGS)

test-servers: $(VENV)/.dev ## the tests with foreign servers, brokers and clients
	$(SHELF) --shelf=servers -m "not nightly" $(ARGS)

test-benchmarks: $(VENV)/.dev ## the tests of loadtests/
	$(SHELF) --shelf=benchmarks -m "not nightly" $(ARGS)

# With the servers that take many minutes to install or to start, and a new interpreter for each gateway.
test-all: $(VENV)/.dev check ## all tests, nightly ones included
	HEADRACE_FORKED_STARTS=0 HEADRACE_SIMULATION_SEEDS=800 $(BIN)/pytest -n $(JOBS) -p no:randomly --durations=10 --examples many $(ARGS)

check: $(VENV)/.test ## ruff, mypy, import-linter
	$(static)
	$(BIN)/mypy

define static
$(BIN)/ruff check .
$(BIN)/ruff format --check .
$(BIN)/lint-imports --no-cache
endef

format: $(VENV)/.test ## apply what ruff can fix
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

# What the suite finds of every system that there is is written down, and the page that shows it anew.
conformance: $(VENV)/.dev
	HEADRACE_RECORD_CONFORMANCE=1 $(BIN)/pytest tests/conformance --deselect tests/conformance/test_page.py $(ARGS)
	$(BIN)/python -m tests.conformance.recorded

# The pictures of docs/console.md.
screenshots: $(VENV)/.dev
	HEADRACE_RECORD_SCREENSHOTS=1 $(BIN)/pytest tests/gateway/admin/console/test_screenshots.py $(ARGS)

# The console's JavaScript libraries, from npm.
vendor: $(VENV)/.dev
	$(BIN)/python -m tests.support.vendored

# Try newer versions with `make clean test-all CONSTRAINTS=/dev/null`, then write them down.
pins: $(VENV)/.dev ## write constraints.txt from the versions that are installed
	$(BIN)/python -m tests.support.pinned

# The descriptors of the published gRPC messages, from their .proto files.
PROTOS := adapters/wire/protos
protos: $(VENV)/.dev
	$(BIN)/python -m grpc_tools.protoc -I$(PROTOS) --descriptor_set_out=$(PROTOS)/oip.binpb $(notdir $(wildcard $(PROTOS)/*.proto))
	$(BIN)/python -m grpc_tools.protoc -I$(PROTOS)/tfserving --include_imports --descriptor_set_out=$(PROTOS)/tfserving/tfserving.binpb tensorflow.proto tensorflow_serving.proto
	$(BIN)/python -m grpc_tools.protoc -I$(PROTOS)/envoy --include_imports --descriptor_set_out=$(PROTOS)/envoy/ext_proc.binpb ext_proc.proto
	$(BIN)/python -m grpc_tools.protoc -I$(PROTOS)/keda --descriptor_set_out=$(PROTOS)/keda/keda.binpb externalscaler.proto

bench-gateway: $(VENV)/.dev
	$(BIN)/python -m loadtests.bench_gateway $(ARGS)

bench-shadows: $(VENV)/.dev
	$(BIN)/python -m loadtests.bench_shadows $(ARGS)

bench-picker: $(VENV)/.dev
	$(BIN)/python -m loadtests.bench_picker $(ARGS)

bench-memory: $(VENV)/.dev
	$(BIN)/python -m loadtests.bench_memory $(ARGS)

bench-transports: $(VENV)/.dev
	$(BIN)/python -m loadtests.bench_transports $(ARGS)

bench-workers: $(VENV)/.dev
	$(BIN)/python -m loadtests.bench_workers $(ARGS)

accuracy-llm: $(VENV)/.dev
	$(BIN)/python -m loadtests.accuracy_llm $(ARGS)

bench-tensor: $(VENV)/.dev
	$(BIN)/python -m loadtests.bench_tensor $(ARGS)

bench-llm: $(VENV)/.dev
	$(BIN)/python -m loadtests.bench_llm $(ARGS)

bench-batch: $(VENV)/.dev
	$(BIN)/python -m loadtests.bench_batch $(ARGS)

bench-pipelines: $(VENV)/.dev
	$(BIN)/python -m loadtests.bench_pipelines $(ARGS)

soak-llm: $(VENV)/.dev
	$(BIN)/python -m loadtests.soaks.llm $(ARGS)

bench-bus: $(VENV)/.dev
	$(BIN)/python -m loadtests.bench_bus $(ARGS)

bench-balancing: $(VENV)/.dev
	$(BIN)/python -m loadtests.simulations.balancing $(ARGS)

simulate-experiments: $(VENV)/.dev
	$(BIN)/python -m loadtests.simulations.experiments $(ARGS)

simulate-rollouts: $(VENV)/.dev
	$(BIN)/python -m loadtests.simulations.rollouts $(ARGS)

simulate-scaling: $(VENV)/.dev
	$(BIN)/python -m loadtests.simulations.scaling $(ARGS)

simulate-internet: $(VENV)/.dev
	$(BIN)/python -m loadtests.simulations.internet $(ARGS)

clean:
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache .hypothesis *.egg-info

# One lock, so that two targets started together do not install into each other.
locked = exec 9> .venv.lock && flock 9 &&
# The versions with which the tests passed: a newer release of a package changes nothing before constraints.txt does.
CONSTRAINTS ?= constraints.txt
pip = $(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint $(CONSTRAINTS) $(PIP_ARGS)
# PyTorch takes minutes: its download shows a bar.
shown = $(BIN)/python -m pip install --disable-pip-version-check --constraint $(CONSTRAINTS) $(PIP_ARGS)
define install
	@$(locked) { [ -x $(BIN)/python ] || $(PYTHON) -m venv $(VENV); } && $(pip) --editable '.$(1)'
	@touch $@
endef

# The native core is compiled by the installation.
NATIVE := $(wildcard adapters/native/*.[ch])

# Without extras: `make serve` installs those that the configuration needs.
$(VENV)/.serve: pyproject.toml $(CONSTRAINTS) $(NATIVE)
	@echo "Installing Headrace into $(VENV) ..."
	$(call install)

# Enough for `make test`: no framework, no server.
$(VENV)/.test: pyproject.toml $(CONSTRAINTS) $(NATIVE)
	@echo "Installing Headrace and the tools of its tests into $(VENV) (a minute the first time) ..."
	$(call install,[test])

$(VENV)/.dev: pyproject.toml $(CONSTRAINTS) $(NATIVE)
	@echo "Installing Headrace and everything that all its tests need into $(VENV) (a few minutes the first time) ..."
	$(call install,[dev])
