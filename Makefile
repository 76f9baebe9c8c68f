# make demo    set up, train GraphSAGE under DGL and PyG with and without the backend, print the table
# make test    set up, run the tests that a contributor runs, some minutes
# make test-dgl2 set up, run the tests of DGL beside DGL 2, where setting up has installed DGL 1
# make test-aarch64 set up a Debian for Arm below out/, run tests in it under qemu-user; AARCH64_TESTS names others
# make test-all  set up, run everything, which takes a day: whole grids, every layer of DGL and PyG, whole programs, the wheel;
#                TEST_FLAGS="--part 3/40" runs one of 40 parts of it
# make lint    set up, ruff and mypy: what .pre-commit-config.yaml runs before a commit
# make docs    set up, build the documentation into out/site; any warning is an error
# make bench   set up, measure against the frameworks and the roofline: SpMM, or what BENCH names
# make fuzz    set up, compare random schedules of tensor expressions with NumPy for an hour, or FUZZ_FLAGS="--hours 8 --seed 0"
# make wheel   set up, build sdist and wheel into dist/, try the wheel in a fresh environment
# make clean   remove the environment and what the targets wrote
#
# PYTHON=python3.11      the interpreter that makes .venv (default: 3.11 or 3.10 if found, for DGL, otherwise python3)
# DEMO_FLAGS=--quick     options of models/demo.py
# TEST_FLAGS="-k spmm"   options of pytest
# JOBS=2                 processes that run tests
# BENCH=attention_layers the benchmark: spmm (default), sddmm, graphsage, attention_layers, rgcn, sparse_conv, pruned, tensor_algebra, epochs, planner, overhead or start
# BENCH_FLAGS=--help     its options

ifndef PYTHON
# run each: a shim of pyenv is on the path even where its Python is not installed
PYTHON := $(shell for p in python3.11 python3.10 python3; do $$p -c pass 2>/dev/null && echo $$p && break; done)
endif
BENCH ?= spmm
JOBS ?= 2
PYTEST_FLAGS = -n $(JOBS) --dist loadfile
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check
CONSTRAINTS := -c requirements/constraints.txt
# frameworks that have no wheels for every machine, as the package says itself
LIMITED := $(shell $(PYTHON) gnn_sparse_backend/extras.py)
DGL2 := $(VENV)/dgl2

# NVRTC and its headers, 96 MB: CUDA kernels are compiled by the tests as on a user's machine, which takes no GPU. Linux alone has wheels
# of all. Where PyTorch is built for CUDA it says which versions; elsewhere these are pinned.
CUDA := $(shell $(PYTHON) -c 'import sys, platform as p; print("cuda" if (sys.platform, p.machine()) in (("linux", "x86_64"), ("linux", "aarch64")) else "")')
PINNED_CUDA = $$($(BIN)/python -c 'import torch; print("" if torch.version.cuda else "-c requirements/cuda.txt")')

.DEFAULT_GOAL := help
.PHONY: help setup demo lint test test-dgl2 test-aarch64 test-all docs bench fuzz wheel clean

help:
	@sed -n '/^#/!q; s/^# \{0,1\}//p' Makefile

setup: $(VENV)/.ready

demo: setup
	$(BIN)/python -m models.demo $(DEMO_FLAGS)

lint: setup
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

# compiled modules are kept, whatever the environment says: pytest rewrites the assertions of 300 files
test test-dgl2 test-all: export PYTHONDONTWRITEBYTECODE =
# two workers share the cores: threads that spin while they wait take them from each other
test test-dgl2 test-all: export OMP_WAIT_POLICY = passive
test: setup
	$(BIN)/python -m pytest $(PYTEST_FLAGS) $(TEST_FLAGS)

test-all: setup
	$(BIN)/python -m pytest $(PYTEST_FLAGS) -m "" $(TEST_FLAGS)

test-dgl2: setup $(DGL2)/.ready
	PYTHONPATH=$(DGL2) $(BIN)/python -m pytest $(PYTEST_FLAGS) $(TEST_FLAGS) tests/integrations/dgl

# Importing PyTorch takes half a minute there, and a kernel some seconds: all files are run by one process.
AARCH64 := out/aarch64
AARCH64_TESTS ?= tests/platforms/test_arm_code.py tests/compiler/schedules/test_bf16_pair_dot.py tests/compiler/codegen/test_math.py \
  tests/ops/grouped/test_api.py tests/ops/message/test_sums.py tests/formats tests/integrations/pyg/test_sums.py
test-aarch64: setup
	$(BIN)/python -m tests.platforms.arm_root $(AARCH64)
	$(AARCH64)/python tests/packaging/pyg_layer.py
	$(AARCH64)/python -m pytest -p no:cacheprovider $(AARCH64_TESTS) $(TEST_FLAGS)

docs: setup
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet

bench: setup
	$(BIN)/python -m benchmarks.$(BENCH) $(BENCH_FLAGS)

fuzz: setup
	$(BIN)/python -m tests.tensor.scheduling.fuzz $(FUZZ_FLAGS)

# egg-info remembers files of earlier builds
wheel: setup
	rm -rf dist *.egg-info
	$(BIN)/python -m build
	$(BIN)/python -m twine check --strict dist/*
	DIST=dist $(BIN)/python -m pytest -m wheel tests/packaging

clean:
	rm -rf $(VENV) out build dist *.egg-info .pytest_cache .hypothesis .mypy_cache .ruff_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

# torch goes first and alone: what is installed after it finds its requirement met and does not choose another build
$(VENV)/.ready: pyproject.toml requirements/constraints.txt requirements/cuda.txt
	@$(PYTHON) -c pass 2>/dev/null || { echo "no Python found (PYTHON=$(PYTHON)): install Python 3.10 or 3.11"; exit 1; }
	@test -n "$(findstring dgl,$(LIMITED))" || echo "DGL has no wheel for this Python: going on with PyG alone. For both: make clean, then PYTHON=python3.11"
	$(PYTHON) -m venv $(VENV)
	$(PIP) install $(CONSTRAINTS) torch
	$(PIP) install $(CONSTRAINTS) -e ".[$(LIMITED)pyg,demo,docs,lint,test]"
	@test -z "$(CUDA)" || $(PIP) install $(CONSTRAINTS) $(PINNED_CUDA) -e ".[$(CUDA)]" \
	  || echo "NVRTC cannot be installed here: the tests that compile CUDA source with it are skipped"
	touch $@

# beside the environment, whose other packages it uses: GraphBolt's are what it does without
$(DGL2)/.ready: $(VENV)/.ready
	$(PIP) install --no-deps --target $(DGL2) dgl==2.1.0
	touch $@
