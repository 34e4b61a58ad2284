# Needs make and Python 3.11 or newer, nothing else. Everything is installed into .venv, which no one has
# to activate. Another interpreter: `make test PYTHON=python3.12`.

PYTHON  ?= python3
WORKERS ?= 2
OUT     ?= out

# Paths are relative to this file: a checkout whose path has a space in it works too.
BIN   := .venv/bin
READY := .venv/.ready
PEERS := .venv/.peers
PAGES := .venv/.pages
NEW_ENOUGH := -c 'import sys; sys.exit(sys.version_info < (3, 11))'

export PIP_DISABLE_PIP_VERSION_CHECK := 1
export PYRIGHT_PYTHON_IGNORE_WARNINGS := 1
# Packages from outside .venv must not leak into a run.
export PYTHONNOUSERSITE := 1
unexport PYTHONPATH PYTHONHOME

.DEFAULT_GOAL := help
.PHONY: help demo test test-slow notebooks notebooks-keep docs pictures lint format wheel-test bench clean \
  distclean

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-14s %s\n", $$1, $$2 }' $(firstword $(MAKEFILE_LIST))

demo: $(READY) ## run the demonstration; results go to OUT=out
	$(BIN)/mixts demo --out "$(OUT)"

# A file's tests run in one process, where what they compile and fit is shared. A process that crashes ends
# the run: its tests would not come back.
test: $(READY) ## run the tests, except the slow ones (WORKERS=2)
	$(BIN)/python -m pytest -n $(WORKERS) --dist loadfile --max-worker-restart 0 --durations 10

test-slow: $(READY) ## run the slow tests only
	$(BIN)/python -m pytest -n $(WORKERS) --dist loadfile --max-worker-restart 0 -m slow

notebooks: $(PAGES) ## execute every notebook, whose statements are asserted (WORKERS=2)
	$(BIN)/python tests/notebooks/execute.py --workers $(WORKERS)

notebooks-keep: $(PAGES) ## execute every notebook and keep what it shows
	$(BIN)/python tests/notebooks/execute.py --workers $(WORKERS) --keep

# mkdocstrings reads the source as a package, which three links make of it.
docs: $(PAGES) ## run the code of the documentation and build it into site/, warnings are errors
	$(BIN)/python -m pytest -n $(WORKERS) -m pages tests/docs
	@rm -rf build/source && mkdir -p build/source/mixts
	@ln -s ../../../models ../../../inference ../../../bandit build/source/mixts/
	NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --quiet

pictures: $(READY) ## draw the pictures of the documentation anew
	$(BIN)/python docs/pictures.py

lint: $(READY) ## check format, style and types
	$(BIN)/python -m ruff format --check
	$(BIN)/python -m ruff check
	$(BIN)/python -m pyright

format: $(READY) ## format the code and fix what can be fixed
	$(BIN)/python -m ruff format
	$(BIN)/python -m ruff check --fix

wheel-test: $(READY) ## build the wheel and try it in an empty environment
	$(BIN)/python tests/packaging/check_wheel.py

bench: $(PEERS) ## run the benchmarks
	$(BIN)/mixts bench

clean: ## remove builds, caches and results, but not .venv
	rm -rf build dist site mixts.egg-info out .jax_cache .hypothesis .pytest_cache .ruff_cache
	find . -path ./.venv -prune -o -type d -name __pycache__ -exec rm -rf {} +

distclean: clean ## remove .venv too
	rm -rf .venv

# What notebooks and documentation need.
$(PAGES): $(READY)
	@$(BIN)/python -m pip install --quiet --editable '.[docs,notebooks]'
	@touch $@

# Other packages, to be measured beside mixts.
$(PEERS): $(READY)
	@$(BIN)/python -m pip install --quiet --editable '.[bench]'
	@touch $@

# The stamp is written last, so that an interrupted installation is resumed the next time.
$(READY): pyproject.toml
	@command -v "$(PYTHON)" >/dev/null || { \
	  echo "mixts needs Python 3.11 or newer, but '$(PYTHON)' was not found." >&2; \
	  echo "Install it, or name another one: make PYTHON=/path/to/python3" >&2; exit 1; }
	@"$(PYTHON)" $(NEW_ENOUGH) || { \
	  echo "mixts needs Python 3.11 or newer, but '$(PYTHON)' is $$("$(PYTHON)" --version 2>&1)." >&2; \
	  echo "Install a newer one, or name it: make PYTHON=/path/to/python3" >&2; exit 1; }
	@$(BIN)/python $(NEW_ENOUGH) 2>/dev/null || "$(PYTHON)" -m venv --clear .venv
	@echo "Installing mixts and its tools into .venv (about a minute, once) ..."
	@$(BIN)/python -m pip install --quiet --editable '.[dev]'
	@touch $@
