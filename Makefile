# make demo   the main job on the embedded model; make test   everything that CI checks but lint.
# Both set up a fresh machine first: a virtual environment in .venv, installed once (again when pyproject.toml changes).

PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
# Without a GPU: the tested versions, and with them torch's CPU build. With one: whatever fits it.
CONSTRAINTS := $(shell nvidia-smi -L 2>/dev/null | grep -q GPU || echo -c constraints-cpu.txt)
# One worker more than cores, for those that wait; four at most: each holds a torch of its own, and a process that forks.
WORKERS := -n $(shell $(PYTHON) -c "import os; print(min(4, os.cpu_count() + 1))") --dist worksteal

# deepspeed: nothing is compiled while it is installed
export DS_BUILD_OPS ?= 0

.PHONY: help demo test test-fast lint docs bench-demo bench-speed bench-nano bench-bagel bench-qwen wheel wheel-check
.DEFAULT_GOAL := help

help:
	@sed -n 's/^\([a-z-]*\):.*## /  make \1\t/p' $(MAKEFILE_LIST) | expand -t 20

$(BIN)/python:
	$(PYTHON) -m venv $(VENV)

$(VENV)/.installed: pyproject.toml constraints-cpu.txt | $(BIN)/python
	$(BIN)/python -m pip install --quiet $(CONSTRAINTS) -e .
	@touch $@

$(VENV)/.installed-dev: pyproject.toml constraints-cpu.txt | $(BIN)/python
	$(BIN)/python -m pip install --quiet $(CONSTRAINTS) -e '.[dev]'
	@touch $@ $(VENV)/.installed

demo: $(VENV)/.installed ## install, and train nano with the STARS curriculum: four minutes on two idle cores, prints a table and a report's path
	$(BIN)/python -m uni_train fit stars_curriculum
	@echo "next: . $(VENV)/bin/activate, then python -m uni_train --help"

test: $(VENV)/.installed-dev ## all tests, those that failed once more, and the ten slowest
	$(BIN)/python -m tests.suite $(WORKERS) --durations 10

test-fast: $(VENV)/.installed-dev ## all tests but the slow ones
	$(BIN)/python -m pytest $(WORKERS) -m "not slow"

lint: $(VENV)/.installed-dev ## ruff and mypy
	$(BIN)/python -m ruff check .
	$(BIN)/python -m mypy

$(VENV)/.installed-docs: pyproject.toml constraints-cpu.txt | $(BIN)/python
	$(BIN)/python -m pip install --quiet $(CONSTRAINTS) -e '.[docs]'
	@touch $@ $(VENV)/.installed

docs: $(VENV)/.installed-docs ## the documentation as a site: site/index.html, readable without a network
	NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --quiet

bench-demo: $(VENV)/.installed ## time, memory and accuracies of the main job; AGAINST=../main adds another checkout
	$(BIN)/python bench/demo.py $(if $(AGAINST),--against $(AGAINST))

bench-speed: $(VENV)/.installed-dev ## research/speed.md, 20 minutes; OFFICIAL=a clone of BAGEL's released code, AGAINST=../earlier
	$(BIN)/python bench/speed.py $(if $(OFFICIAL),--official $(OFFICIAL)) $(if $(AGAINST),--against $(AGAINST))

bench-nano: $(VENV)/.installed ## of these, the figures of nano
	$(BIN)/python bench/nano.py

bench-bagel: $(VENV)/.installed ## the same for BAGEL, tiny and with 100 million random weights
	$(BIN)/python bench/bagel.py

bench-qwen: $(VENV)/.installed-dev ## the same for a tiny Qwen-Image-Edit, beside plain diffusers
	$(BIN)/python bench/qwen_image_edit.py

wheel: $(VENV)/.installed-dev ## build dist/*.whl
	rm -rf dist
	$(BIN)/python -m build --wheel --outdir dist .

wheel-check: wheel ## install the wheel in an empty environment and run a small main job there
	.ci/wheel-check dist/*.whl "$(CONSTRAINTS)"
