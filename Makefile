# tandem: `make train` and `make test` do everything from a bare Debian 12 or Ubuntu 24.04; docs/building.md tells more.
.DEFAULT_GOAL := help
SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.NOTPARALLEL:

TORCH_DIR ?=
CUDA ?= auto
CUDA_ARCHS ?= native
JOBS ?= $(shell nproc)
PRESET ?= release
BUILD_DIR ?= build$(if $(filter-out release,$(PRESET)),-$(PRESET))
PREFIX ?= /usr/local
ARGS ?=
TESTS ?=
EXECUTIONS ?= 1000000
TRIALS ?= 500
SEED ?=
WORKERS ?=
MUTANT ?=
export TORCH_DIR CUDA CUDA_ARCHS JOBS PRESET BUILD_DIR PYTHON EXECUTIONS TRIALS

.PHONY: help setup build train test bench format lint tidy fuzz simulate test-faults test-long test-gpu test-monitor install package clean distclean

help:
	@echo 'make train     set up, build, train the six web-test agents: 9 minutes on 2 cores, then one (ARGS="--agents analysis" adds to it)'
	@echo 'make test      set up, build everything, run all tests and the lint (TESTS=regex: only those)'
	@echo 'make build     set up and build $(BUILD_DIR)/bin/tandem and tandem-worker'
	@echo 'make setup     only the set-up: Debian packages, and .venv with torch, CMake and ninja'
	@echo 'make bench     measure, beside the peer, in one run'
	@echo 'make format    put the sources in shape          make lint   check the shape and the promises'
	@echo 'make test-gpu  what needs a GPU: kernels, operators, digests (ARGS="--only digests"); docs/results.md'
	@echo 'make test-monitor  the monitor in a real browser, in tmux and before promtool, which it installs (300 MB)'
	@echo 'make fuzz      fuzz every reader (EXECUTIONS=$(EXECUTIONS) each)     make tidy   clang-tidy, if installed'
	@echo 'make simulate  10,000 seeded schedules of kills, freezes, joins (SEED=n replays one)'
	@echo 'make test-faults  500 random plans and faults of each test recipe (TRIALS=$(TRIALS))'
	@echo 'make test-long the campaigns of which `make test` runs a part: 1,000 kills, schedules, faults on every plane (hours)'
	@echo 'make install   to PREFIX=$(PREFIX), for find_package(tandem)'
	@echo 'make package   a .deb and a wheel in $(BUILD_DIR)/package; packaging/Containerfile takes the .deb (docs/building.md)'
	@echo 'make clean     remove $(BUILD_DIR)               make distclean   and .venv'
	@echo
	@echo 'CUDA=auto|on|off|pypi  CUDA_ARCHS=native|all  TORCH_DIR=/your/libtorch  PRESET=release|debug|asan|tsan'
	@echo 'JOBS=$(JOBS)  BUILD_DIR=$(BUILD_DIR)'

setup:
	@scripts/setup.sh

build:
	@scripts/setup.sh
	@scripts/build.sh tandem tandem-worker

train: build
	@$(BUILD_DIR)/bin/tandem train web-test --quick $(ARGS)

test:
	@scripts/setup.sh test
	@scripts/build.sh all
	@scripts/test.sh $(if $(TESTS),-R '$(TESTS)') $(ARGS)

bench:
	@scripts/setup.sh
	@scripts/build.sh bench/all
	@scripts/bench.sh $(ARGS)

format:
	@scripts/setup.sh lint
	@scripts/format.sh

lint:
	@scripts/setup.sh lint
	@scripts/lint.sh

tidy:
	@scripts/setup.sh
	@scripts/tidy.sh

fuzz:
	@scripts/setup.sh fuzz
	@scripts/fuzz.sh $(ARGS)

test-faults: build
	@scripts/test_faults.sh $(ARGS)

test-long:
	@scripts/setup.sh test
	@scripts/build.sh all
	@scripts/test_long.sh

test-monitor:
	@scripts/setup.sh test monitor
	@scripts/build.sh tandem tandem-worker fake_nvml
	@for class in Formats Web Browser; do .venv/bin/python3 tests/python/monitor_test.py $(BUILD_DIR)/bin $$class || exit 1; done
	@for class in Terminal Tty Cost; do .venv/bin/python3 tests/python/monitor_terminal_test.py $(BUILD_DIR)/bin $$class || exit 1; done

# All that tests/gpu/test_gpu.py runs (tests/python/gpu_scripts_test.py compares).
GPU_TARGETS := tandem tandem-worker tandem_cuda environment_twins kernel_twins twins_chess twins_options twins_ppo twins_video \
  gpu_dqn peer_sum gpu_layer_bits gpu_mixed_model gpu_operators gpu_repetitions nccl_sum shard_models
test-gpu:
	@scripts/setup.sh
	@CUDA=$${CUDA:-on} scripts/build.sh $(GPU_TARGETS)
	@.venv/bin/python3 tests/gpu/test_gpu.py $(BUILD_DIR) $(ARGS)

simulate:
	@scripts/setup.sh
	@SEED='$(SEED)' WORKERS='$(WORKERS)' MUTANT='$(MUTANT)' scripts/simulate.sh

install: build
	@scripts/build.sh tandem_libraries
	@.venv/bin/cmake --install $(BUILD_DIR) --prefix '$(PREFIX)'

package:
	@scripts/setup.sh package
	@scripts/build.sh tandem tandem-worker
	@scripts/package.sh $(ARGS)

clean:
	rm -rf -- '$(BUILD_DIR)'

distclean: clean
	rm -rf -- .venv .cache build-debug build-asan build-tsan build-fuzz build-simulate build-tidy
