# The door: `make demo` trains, `make test` checks, `make help` lists the rest.
# Needs Debian 12 or Ubuntu 24.04 (or newer), git and make; tools/setup sees to everything else.

BUILD := build
JOBS ?= $(shell nproc)
PREFIX ?= /usr/local
DEMO_ARGS ?=
BENCH_ARGS ?=
STRATEGY_BENCH_ARGS ?=
DATA_BENCH_ARGS ?=
AUTOTUNE_BENCH_ARGS ?=
TORCH_MODULE_BENCH_ARGS ?=
CONTENTION_BENCH_ARGS ?=
PS_PEERS_BENCH_ARGS ?=
LINT_ARGS ?=
TEST_FAST_ARGS ?=
CTEST_ARGS ?=

# Configures a preset in silence, and builds its targets ($(2)).
configure = cmake --preset $(1) --log-level=WARNING $(CONFIGURE_ARGS) >/dev/null
build = cmake --build --preset $(1) -j $(JOBS) $(if $(2),--target $(2))
say = @echo "==> $(1)"

.DEFAULT_GOAL := help
.PHONY: help setup demo test test-fast test-faults test-interop test-browser bench bench-ps bench-peers format lint install clean

help: ## this list
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/  make \1	\2/p' Makefile | expand -t 22

setup: ## install what is missing (packages, LibTorch); done by the others, too
	@tools/setup

demo: setup ## train a classifier of Fashion-MNIST on every core
	$(call say,building the demo)
	@$(call configure,release)
	@$(call build,release,fashion_mnist)
	$(call say,training)
	@$(BUILD)/release/examples/fashion_mnist --weights $(BUILD)/fashion.safetensors $(DEMO_ARGS)

test: setup ## build and run all tests, layer, size and formatting checks
	$(call say,building the tests)
	@$(call configure,dev)
	@$(call build,dev)
	$(call say,testing)
	@ctest --preset dev $(CTEST_ARGS)

test-fast: setup ## build and run the tests nearest to what differs from main (TEST_FAST_ARGS=--list)
	@$(call configure,dev)
	@tools/test_fast.py --build $(BUILD)/dev --jobs $(JOBS) $(TEST_FAST_ARGS)

FAULT_TESTS := death_test network_test restart_test worker_liveness_test mpi_test cohortrun_test rpc_test \
  parameter_servers_test parameter_servers_network_test replicated_servers_test resumed_test \
  server_memory_test
test-faults: setup ## kill workers at every place of a step, cut and slow their network (root)
	@$(call configure,dev)
	@$(call build,dev,$(FAULT_TESTS))
	@COHORT_FAULTS=all ctest --preset dev -R "^($$(echo $(FAULT_TESTS) | tr ' ' '|'))$$"

test-interop: setup ## hold files of models against real Keras and onnxruntime, which are set up where missing
	@$(call configure,dev)
	@$(call build,dev,keras_interop_program keras_predict_program)
	@CI=true ctest --preset dev -R '^interop$$' --verbose

test-browser: setup ## look at the page of a coordinator in Chromium, which is set up where missing (300 MB)
	@tools/setup browser
	@$(call configure,dev)
	@$(call build,dev,status_browser_test)
	@CI=true ctest --preset dev -R '^status_browser_test$$' --verbose

bench: setup ## measure the program and its step against the limit, LibTorch and peers that are set up
	@tools/setup bench
	$(call say,building the benchmarks)
	@$(call configure,bench)
	@$(call build,bench)
	$(call say,measuring the README's program)
	@benchmarks/fashion_mnist_bench.py --program $(BUILD)/release/examples/fashion_mnist
	$(call say,measuring the step)
	@$(BUILD)/release/benchmarks/step_bench $(BENCH_ARGS)
	$(call say,measuring what a strategy adds)
	@$(BUILD)/release/benchmarks/strategy_bench $(STRATEGY_BENCH_ARGS)
	$(call say,measuring processes that add up numbers together)
	@$(BUILD)/release/benchmarks/worker_bench $(WORKER_BENCH_ARGS)
	$(call say,measuring input pipelines)
	@$(BUILD)/release/benchmarks/data_bench $(DATA_BENCH_ARGS)
	$(call say,measuring kAutotune against fixed settings)
	@$(BUILD)/release/benchmarks/autotune_bench $(AUTOTUNE_BENCH_ARGS)
	$(call say,measuring a module of LibTorch)
	@$(BUILD)/release/benchmarks/torch_module_bench $(TORCH_MODULE_BENCH_ARGS)
	$(call say,measuring fit and predict and files beside Keras)
	@$(BUILD)/release/benchmarks/keras_bench $(KERAS_BENCH_ARGS)
	$(call say,measuring beside busy processes and under quotas)
	@$(BUILD)/release/benchmarks/contention_bench $(CONTENTION_BENCH_ARGS)

bench-ps: setup ## measure parameter servers beside those of TensorFlow and PyTorch, which are set up where missing
	@tools/setup bench
	@benchmarks/peers/setup
	@$(call configure,bench)
	@$(call build,bench,ps_peers_bench)
	@$(BUILD)/release/benchmarks/ps_peers_bench $(PS_PEERS_BENCH_ARGS)

bench-peers: ## set up the Python environments of the peers that make bench compares with
	@tools/setup bench
	@benchmarks/peers/setup

format: setup ## format the C++ files
	@python3 tools/check_format.py --fix

lint: ## clang-tidy on the files that differ from main (LINT_ARGS=--all: on every file)
	@tools/setup lint bench
	@tools/lint $(LINT_ARGS)

install: setup ## install the library for find_package(cohort): make install PREFIX=/usr/local
	$(call say,building the library)
	@$(call configure,release)
	@$(call build,release,cohort_layers)
	$(call say,installing into $(PREFIX))
	@cmake --install $(BUILD)/release --prefix $(PREFIX) >/dev/null

clean: ## remove what was built
	@rm -rf $(BUILD)
