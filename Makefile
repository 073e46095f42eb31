PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
# Folder of the results of `make report`.
DATABASE ?= results
TEST_JOBS ?= 2
# `make slow` runs one in SAMPLE files with slow tests, others every day.
SAMPLE ?= 1
# Folder of results, experiments and workers of `make paper`.
PAPER ?= paper-results
SIMULATIONS ?= iris-tv iris-std iris-w1 iris-claims iris-claims-w1 iris-claims-recipe iris-claims-features iris-noise iris-tv-activations iris-tv-deep iris-sensitivity iris-w1-certified
JOBS ?= 1

# If it is set, every process of the tests compiles the project and its tests again.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: help report paper paper-export rule-facts test slow attacks kernels coverage smoke lint benchmark hot-paths asv asv-pages docs clean

help:
	@echo "make report     write the report of the committed results, run the quick preset, and add its results"
	@echo "make paper      run the missing part of the paper's simulations, at low priority; hours"
	@echo "make paper-export   replace the committed results with those of make paper, in one file of measurements"
	@echo "make rule-facts write what reports read from reports/baselines/rule_facts.json; ten minutes"
	@echo "make test       lint (ruff, mypy, import contracts, phrases in added text) and the fast tests"
	@echo "make slow       run the tests marked as slow; SAMPLE=3 runs a third of their files, by date"
	@echo "make attacks    run the tests of damage, crashes and bad input"
	@echo "make coverage   run the fast tests and report line coverage; .coverage"
	@echo "make kernels    run the tests that compare bits or printed digits, without AVX"
	@echo "make smoke      run the smoke preset and write its report"
	@echo "make benchmark  run all speed benchmarks, both sides in one run; .benchmarks/all.json"
	@echo "make hot-paths  benchmark the hot paths only, one minute; .benchmarks/hot-paths.json"
	@echo "make asv        run the asv suite at this commit and write its pages; .asv/html/ratios.html; PROFILE=full runs all"
	@echo "make asv-gpu    run the asv suite on a GPU and store it under the name of the GPU"
	@echo "make docs       build the documentation; site/index.html"

# The stamp is newer than what it depends on, so a second call has nothing to install.
$(STAMP): pyproject.toml constraints.txt
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Python 3.11 or newer is needed: make PYTHON=python3.12 ...")'
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable '.[dev]'
	@touch $@

# The page of the committed results comes first, so that there is something to read while this machine measures.
report: $(STAMP)
	test -e $(DATABASE) || $(BIN)/sdp-bench report --output reports/html
	$(BIN)/sdp-bench run --all --preset quick --database $(DATABASE); status=$$?; \
	$(BIN)/sdp-bench report --database $(DATABASE) --output reports/html && exit $$status

# It can be stopped, and resumes when it is started again.
paper: $(STAMP)
	test -e $(PAPER) || cp -r reports/baselines/results $(PAPER)
	nice -n 19 $(BIN)/sdp-bench run $(SIMULATIONS) --preset paper --jobs $(JOBS) --database $(PAPER)

define COMPACT
import sys
from pathlib import Path
from sdp_bench.bench.results.folder import read, write_measurements
stored = read(Path(sys.argv[1]))
if stored.faults:
    sys.exit("\n".join(stored.faults))
write_measurements(Path(sys.argv[2]), "committed", stored.measurements)
endef
export COMPACT

# Without the weights of nets. The new folder is complete before it replaces the committed one.
paper-export: $(STAMP)
	rm -rf $(PAPER).export
	mkdir $(PAPER).export
	cp -r $(PAPER)/runs $(PAPER).export
	$(BIN)/python -c "$$COMPACT" $(PAPER) $(PAPER).export
	rm -rf reports/baselines/results
	mv $(PAPER).export reports/baselines/results
	$(BIN)/python -m sdp_bench.reports.results_page docs/results.md

# Docstrings and verdicts of the conformance kit on the rules of the committed results, the checks of the theorem,
# and errors of Monte Carlo estimates: what takes too long for a report.
rule-facts: $(STAMP)
	$(BIN)/python -m tests.reports.record_facts

smoke: $(STAMP)
	rm -rf smoke-results
	$(BIN)/sdp-bench run --all --preset smoke --database smoke-results
	$(BIN)/sdp-bench report --database smoke-results --output reports/html/smoke

lint: $(STAMP)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/python tests/english.py

test: lint
	$(BIN)/pytest -m "not slow" -n $(TEST_JOBS) --dist worksteal

slow: $(STAMP)
	$(BIN)/pytest -m slow -n $(TEST_JOBS) --dist worksteal --sample $(SAMPLE)

attacks: $(STAMP)
	$(BIN)/pytest tests/attacks tests/bench/runs/test_dask.py -n $(TEST_JOBS) --dist worksteal

# The code paths of a processor without AVX in PyTorch, MKL, oneDNN, OpenBLAS and the C library: the same numbers
# but for rounding. A library that is not there reads no setting.
WITHOUT_AVX = ATEN_CPU_CAPABILITY=default MKL_CBWR=COMPATIBLE ONEDNN_MAX_CPU_ISA=SSE41 OPENBLAS_CORETYPE=Nehalem \
	GLIBC_TUNABLES=glibc.cpu.hwcaps=-AVX2,-FMA

kernels: $(STAMP)
	$(WITHOUT_AVX) $(BIN)/pytest -m rounding -n $(TEST_JOBS) --dist worksteal

# Under xdist each process keeps its own data, which pytest-cov puts together.
coverage: $(STAMP)
	$(BIN)/pytest -m "not slow" -n $(TEST_JOBS) --dist worksteal --cov=sdp_bench --cov=sdp_ref --cov=bench --cov=oracles --cov=reports --cov-report=term:skip-covered

# Every run is also kept under a number of its own, for `pytest-benchmark compare`.
SAVED = --benchmark-enable --benchmark-time-unit=ms --benchmark-autosave --benchmark-storage=file://.benchmarks

benchmark: $(STAMP)
	@mkdir -p .benchmarks
	$(BIN)/pytest benchmarks -s $(SAVED) --benchmark-json=.benchmarks/all.json

hot-paths: $(STAMP)
	@mkdir -p .benchmarks
	$(BIN)/pytest benchmarks/test_hot_paths.py $(SAVED) --benchmark-json=.benchmarks/hot-paths.json

# The profile `fast` takes about three minutes; `make asv PROFILE=full` runs all benchmarks.
PROFILE ?= fast
SELECTED = $(if $(filter full,$(PROFILE)),,--quick --bench '^(ratios|throughput)')

asv: $(STAMP)
	$(BIN)/asv check -E existing
	$(BIN)/asv machine --yes
	$(BIN)/asv run -E existing --set-commit-hash $$(git rev-parse HEAD) $(SELECTED) $(ASV_FLAGS)
	$(MAKE) asv-pages

# Results of this machine and the committed ones. asv publishes after it has listed the benchmarks.
asv-pages: $(STAMP)
	mkdir -p .asv/results
	cp -r benchmarks/results/. .asv/results
	$(BIN)/asv machine --yes
	$(BIN)/asv run -E existing --bench just-discover
	$(BIN)/asv publish
	$(BIN)/python benchmarks/history.py page .asv/results .asv/html/ratios.html

# A machine of its own, since another GPU, driver or torch gives other times. A process that was forked cannot
# use CUDA where its parent has looked for it, so each benchmark is spawned.
.PHONY: asv-gpu
asv-gpu: GPU = $(shell $(BIN)/python -m sdp_bench.bench.runtime.workloads)
asv-gpu: GPU_NAME = $(shell echo "$(GPU)" | tr -cs 'A-Za-z0-9.\n' -)
asv-gpu: $(STAMP)
	@test "$(GPU)" != "no GPU" || { echo "make asv-gpu needs a GPU that torch can use; make asv times the processor"; exit 2; }
	$(BIN)/asv check -E existing
	$(BIN)/asv machine --yes --machine "$(GPU_NAME)" --cpu "$(GPU)"
	$(BIN)/asv run -E existing --launch-method spawn --set-commit-hash $$(git rev-parse HEAD) --machine "$(GPU_NAME)" --bench cuda --bench OnGPU $(ASV_FLAGS)

# The variable is the theme's own switch for its notice about its successor.
docs: $(STAMP)
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict
	@echo "site/index.html"

clean:
	rm -rf $(VENV) build site *.egg-info .mypy_cache .pytest_cache .ruff_cache
