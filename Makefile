# Everything here sets itself up: the first target you make creates .venv and installs what it needs.
#
#   make demo           count the words of Python's standard library with a program of local processes
#   make test           the tests: eight minutes on two cores
#   make test-all       all lanes of tests; each can be run alone, too (an hour):
#   make test-ray         on a Ray cluster, which they start
#   make test-spark       on Spark, which they start (pyspark, and Java)
#   make test-cluster     on a Kubernetes cluster, which is started on this machine
#   make test-hosts       on a network of hosts, which are namespaces of this machine
#   make test-browser     of pages, in Chromium
#   make test-transports  of courier, over all its transports
#   make test-torch       with torch, JAX and Optuna
#   make test-gpu         on an NVIDIA GPU; skipped where there is none
#   make test-frameworks  what docs/your_framework.md shows (an environment of 4 GB)
#   make test-carry-over  programs written for dm-launchpad, with the real Reverb (an environment of 1.8 GB)
#   make test-endurance   what holds for long, or for very many
#   make flaky          the tests three times on a busy machine: which of them fail now and then
#   make check          format, lint, types and the fast tests: what to run before a commit
#   make docs           the documentation as a site, in site/: pages, reference, examples; a warning fails it
#   make gallery        the examples that are systems of papers: runs them, draws their graphs, and writes examples/README.md
#   make bench          our speed beside that of others, measured on this machine now (6 minutes)
#   make ordeal         what must never happen: a million odd inputs, garbage, kills at random moments (an hour)
#
# PYTHON=python3.12 picks an interpreter, VENV=/elsewhere another place for the environment.

VENV ?= .venv
BIN  := $(VENV)/bin
PIP  := $(BIN)/python -m pip install --quiet --disable-pip-version-check

PYTEST := $(BIN)/python -m pytest
# Tests wait more than they compute: one more at a time than there are cores.
IN_PARALLEL = -n $(shell expr $$(getconf _NPROCESSORS_ONLN) + 1) --dist worksteal
HERE := not ray and not spark and not kubernetes and not hosts and not browser and not endurance and not types \
  and not frameworks
# With PYTEST_ARGS, which select some tests, there may be none of a kind (exit status 5).
OR_NONE := $(if $(PYTEST_ARGS),|| [ $$? = 5 ])

# The record of a run, for `python -m tests.durations LANE`.
export LP_TEST_RECORD ?= build/tests/$(firstword $(MAKECMDGOALS)).jsonl
NEW_RECORD = @rm -f $(LP_TEST_RECORD)

.PHONY: demo test test-ray test-spark test-cluster test-hosts test-browser test-transports test-torch
.PHONY: test-gpu test-frameworks test-carry-over test-endurance test-all flaky check docs gallery bench
.PHONY: ordeal format lint types fast-tests compiled clean
.NOTPARALLEL: # two pips in one environment would trip over each other

demo: $(VENV)/.core-is-installed
	$(BIN)/python -m examples.mapreduce --lp_launch_type=local_mp

# Those that measure time run after the others, also if one of the others has failed.
test: $(VENV)/.dev-is-installed compiled
	$(NEW_RECORD)
	@failed=0; \
	$(PYTEST) $(IN_PARALLEL) -m "$(HERE) and not timing" $(PYTEST_ARGS) $(OR_NONE) || failed=1; \
	$(PYTEST) -m "$(HERE) and timing" $(PYTEST_ARGS) $(OR_NONE) || failed=1; \
	exit $$failed

test-ray: $(VENV)/.dev-is-installed compiled
	$(NEW_RECORD)
	$(PYTEST) -m "ray and not endurance" $(PYTEST_ARGS)

test-spark: $(VENV)/.spark-is-installed compiled
	$(NEW_RECORD)
	$(PYTEST) -m "spark and not endurance" $(PYTEST_ARGS)

test-browser: $(VENV)/.dev-is-installed compiled
	$(NEW_RECORD)
	$(PYTEST) $(IN_PARALLEL) -m "browser and not kubernetes and not ray" $(PYTEST_ARGS)

test-transports: $(VENV)/.dev-is-installed compiled
	$(NEW_RECORD)
	LP_TRANSPORTS=inproc,tcp,tls $(PYTEST) $(IN_PARALLEL) -m "$(HERE) and not timing" tests/courier $(PYTEST_ARGS)

test-endurance: $(VENV)/.dev-is-installed compiled
	$(NEW_RECORD)
	$(PYTEST) $(IN_PARALLEL) -m "endurance and not ray and not spark and not kubernetes and not hosts" $(PYTEST_ARGS)

# In processes of their own, since JAX warns of every fork from the moment that it is loaded.
test-torch: $(VENV)/.torch-is-installed compiled
	$(NEW_RECORD)
	@failed=0; \
	$(PYTEST) tests/courier/test_tensors.py tests/courier/test_stacking.py tests/courier/test_inprocess.py || failed=1; \
	$(PYTEST) tests/collectives/test_torch.py tests/collectives/test_torch_environment.py \
	  tests/collectives/test_gloo_sockets.py tests/contract/test_torch_groups.py -m "$(HERE)" || failed=1; \
	LP_GPU_STAND_IN=1 $(PYTEST) tests/gpu || failed=1; \
	$(PYTEST) $(IN_PARALLEL) tests/examples -k 'torch or optuna or jax' \
	  -m "not ray and not spark and not kubernetes" || failed=1; \
	exit $$failed

# It needs nothing but a host with a GPU, so it has an environment of its own.
test-gpu:
	.ci/on_a_gpu $(PYTEST_ARGS)

test-frameworks: $(VENV)-frameworks/.is-installed
	$(NEW_RECORD)
	PATH=$(abspath $(VENV))-frameworks/bin:$$PATH $(VENV)-frameworks/bin/python -m pytest tests/frameworks $(PYTEST_ARGS)

test-carry-over: $(VENV)-reverb/.is-installed
	$(NEW_RECORD)
	$(VENV)-reverb/bin/python -m pytest tests/carry_over -m "$(HERE) or endurance" $(PYTEST_ARGS)

test-cluster: $(VENV)/.dev-is-installed compiled
	$(NEW_RECORD)
	PYTHON=$(BIN)/python .ci/on_a_cluster $(PYTEST_ARGS)

test-hosts: $(VENV)/.dev-is-installed compiled
	$(NEW_RECORD)
	PYTHON=$(BIN)/python .ci/on_hosts $(PYTEST_ARGS)

test-all:
	.ci/run --all

flaky: $(VENV)/.dev-is-installed compiled
	$(BIN)/python -m tests.flaky

check: format lint types fast-tests

format: $(VENV)/.dev-is-installed
	$(BIN)/ruff check --fix-only --quiet .
	$(BIN)/ruff format .

lint: $(VENV)/.dev-is-installed
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/python -m tests.prose

types: $(VENV)/.dev-is-installed
	$(BIN)/mypy
	$(PYTEST) -q tests/test_types.py -m types

fast-tests: $(VENV)/.dev-is-installed compiled
	$(PYTEST) $(IN_PARALLEL) -m "$(HERE) and not timing and not slow" $(PYTEST_ARGS)

# Tests start thousands of processes. Where PYTHONDONTWRITEBYTECODE is set, each would compile all anew.
compiled: $(VENV)/.dev-is-installed
	@$(BIN)/python -m compileall -q launchpad tests examples

docs: $(VENV)/.docs-is-installed
	NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build
	@echo "The first page is site/index.html; to read: $(BIN)/python -m http.server --directory site"

gallery: $(VENV)/.dev-is-installed compiled
	$(BIN)/python -m examples.gallery --run

bench: $(VENV)/.bench-is-installed
	@failed=0; measure() { \
	  echo "== benchmarks/$$1.py"; \
	  $(BIN)/python benchmarks/$$1.py --json benchmarks/results/$$1.json $$2 || failed=1; \
	}; \
	measure rpc; measure soak; measure launch --rounds=3; measure orphans; \
	measure recovery; measure logs; \
	$(BIN)/python benchmarks/plot.py && $(BIN)/python benchmarks/bars.py || failed=1; exit $$failed

# Exit status 3: the script cannot run on this machine, and has said why.
ordeal: $(VENV)/.ordeal-is-installed
	@failed=0; \
	undergo() { \
	  echo "== benchmarks/$$*"; \
	  $(BIN)/python benchmarks/"$$@" || [ $$? = 3 ] || failed=1; \
	}; \
	undergo history.py; undergo garbage.py; undergo fuzz.py; undergo nested_values.py --examples=100000; \
	undergo orphans.py --trials=300; undergo ctrl_c.py; undergo ctrl_c.py --presses=2; \
	undergo saves.py; undergo edges.py; undergo heartbeats.py; \
	undergo hosts.py; \
	undergo queues.py; undergo pool.py --chaos; undergo scale.py; undergo simulation.py; undergo cycles.py; undergo interrupts.py; \
	exit $$failed

clean:
	rm -rf build dist site .mypy_cache .pytest_cache .ruff_cache .hypothesis
	find . -name __pycache__ -not -path './$(VENV)/*' -prune -exec rm -rf {} +

# --- the environment ---------------------------------------------------------------------------

# The demo wants little, so that it starts soon; everything else wants all of it.
$(VENV)/.core-is-installed: pyproject.toml | $(BIN)/python
	@echo "Installing launchpad in $(VENV) (once) …"
	@$(PIP) --editable .
	@touch $@

$(VENV)/.dev-is-installed: pyproject.toml | $(BIN)/python
	@echo "Installing launchpad and its development tools in $(VENV) (once; about a minute) …"
	@$(PIP) --editable '.[dev]'
	@touch $(VENV)/.core-is-installed $@

$(VENV)/.spark-is-installed: $(VENV)/.dev-is-installed
	@echo "Installing Spark in $(VENV) (once; half a gigabyte) …"
	@$(PIP) --editable '.[dev,spark]'
	@touch $@

# Pinned: where a build for CPUs is at hand, it is of this version. PyPI's is for CUDA, and has gigabytes.
$(VENV)/.torch-is-installed: $(VENV)/.dev-is-installed
	@echo "Installing torch, JAX and Optuna in $(VENV) (once; minutes) …"
	@$(PIP) torch==2.13.0 jax optuna
	@touch $@

$(VENV)/.docs-is-installed: pyproject.toml | $(BIN)/python
	@echo "Installing launchpad and what makes its documentation in $(VENV) (once) …"
	@$(PIP) --editable '.[docs]'
	@touch $(VENV)/.core-is-installed $@

$(VENV)/.bench-is-installed: pyproject.toml | $(BIN)/python
	@echo "Installing launchpad and those that it is measured against in $(VENV) (once) …"
	@$(PIP) --editable '.[bench]'
	@touch $(VENV)/.core-is-installed $@

# Reverb wants a TensorFlow and a numpy that are older than what others want.
$(VENV)-reverb/.is-installed: pyproject.toml | $(BIN)/python
	@echo "Installing launchpad with Reverb in $(VENV)-reverb (once; minutes) …"
	@$(BIN)/python -m venv $(VENV)-reverb
	@$(VENV)-reverb/bin/python -m pip install --quiet --disable-pip-version-check --editable '.[reverb]' \
	  gymnasium hypothesis pytest pytest-timeout pytest-xdist pyyaml
	@touch $@

# DeepSpeed compiles a module of C++ where it is first used: here, and not in the ranks of a test. That takes two minutes.
BUILD_SHM := from deepspeed.accelerator import get_accelerator as get; get().create_op_builder("ShareMemCommBuilder").load()

$(VENV)-frameworks/.is-installed: pyproject.toml tests/frameworks/requirements.txt | $(BIN)/python
	@echo "Installing launchpad with frameworks in $(VENV)-frameworks (once; ten minutes) …"
	@$(BIN)/python -m venv $(VENV)-frameworks
	@$(VENV)-frameworks/bin/python -m pip install --quiet --disable-pip-version-check --editable '.[test]' \
	  -r tests/frameworks/requirements.txt
	@PATH=$(abspath $(VENV))-frameworks/bin:$$PATH $(VENV)-frameworks/bin/python -c '$(BUILD_SHM)'
	@touch $@

# ensurepip is what Debian and Ubuntu leave out of python3, and venv fails halfway without it.
FITS := import sys; sys.version_info >= (3, 11) or sys.exit("Python %d.%d is too old" % sys.version_info[:2]); import venv, ensurepip

$(VENV)/.ordeal-is-installed: pyproject.toml | $(BIN)/python
	@echo "Installing launchpad and a fuzzer in $(VENV) (once) …"
	@$(PIP) --editable '.[ordeal]'
	@touch $(VENV)/.core-is-installed $@

$(BIN)/python:
	@for python in $(or $(PYTHON),python3 python3.14 python3.13 python3.12 python3.11); do \
	  if why=$$($$python -c '$(FITS)' 2>&1); then \
	    echo "Creating $(VENV) with $$($$python --version) …"; \
	    exec $$python -m venv $(if $(wildcard $(VENV)/pyvenv.cfg),--clear) $(VENV); \
	  fi; \
	  tried="$$tried    $$python: $$(echo "$$why" | tail -n 1)\n"; \
	done; \
	printf '%b' "launchpad needs Python 3.11 or newer with its venv module. Tried:\n$$tried" \
	  "  Debian, Ubuntu:  sudo apt install python3 python3-venv\n" \
	  "  Fedora:          sudo dnf install python3\n" \
	  "  macOS:           brew install python\n" \
	  "Then run make again, or name an interpreter: make $(MAKECMDGOALS) PYTHON=/path/to/python3\n" >&2; \
	exit 1
