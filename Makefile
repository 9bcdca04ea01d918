# Two commands set everything up on a fresh machine: `make serve` and `make test`.
# What is installed goes into .venv/ and node_modules/, pinned by hash; nothing is done twice.

PORT ?= 8000
BASE ?= /

VENV := .venv
BIN := $(VENV)/bin
SITE_TOOLS := $(VENV)/.site-tools
DEV_TOOLS := $(VENV)/.dev-tools
MEASURE := .cache/measure/venv
MEASURE_TOOLS := $(MEASURE)/.tools
# The Python with PyTorch that `make bench` asks: what `make torch` made, unless another is named.
TORCH ?= $(wildcard $(MEASURE)/bin/python)
NPM_TOOLS := node_modules/.installed
BROWSER := .cache/browser
# Two at a time; tests that share something dear to make (a built site) stay together.
PARALLEL := --numprocesses 2 --dist loadgroup

export PIP_DISABLE_PIP_VERSION_CHECK := 1

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.PHONY: help serve site offline test test-fast test-drift tables check bench torch measure requirements clean distclean

help: ## Show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "make %-13s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

serve: site ## Build what changed and serve it at http://127.0.0.1:8000/ (PORT=…, BASE=/path/)
	@$(BIN)/python build/serve.py --port $(PORT) --base $(BASE)

site: $(SITE_TOOLS) $(NPM_TOOLS) ## Build what changed into site/
	@$(BIN)/python build/make_site.py

offline: site ## Copies that need no server: dist/where-training-memory-goes-VERSION.zip, calculator.html
	@mkdir -p dist && cp site/downloads/* dist/ && ls -l dist/

test: $(DEV_TOOLS) $(NPM_TOOLS) $(BROWSER) site check ## Check and test everything but what test-drift does, in a real browser too
	$(BIN)/pytest $(PARALLEL) -m "not drift"

test-fast: $(DEV_TOOLS) ## Test what is quick, needing no browser and no built page (under a minute)
	@# A module's tests by one process: what they record is recorded once.
	$(BIN)/pytest $(PARALLEL) --dist loadfile --ignore=tests/page -m "not page and not site and not thorough"

test-drift: $(DEV_TOOLS) $(NPM_TOOLS) site ## Change constants in copies and look for what did not follow (minutes)
	$(BIN)/pytest -m drift

tables: $(SITE_TOOLS) ## Make every results table anew from the calculator
	@$(BIN)/python build/make_tables.py

check: $(DEV_TOOLS) $(NPM_TOOLS) ## Format, lint and types, without changing anything
	$(BIN)/ruff format --check
	$(BIN)/ruff check
	$(BIN)/mypy
	$(BIN)/mypy --python-version 3.11 calculator
	node_modules/.bin/tsc --project calculator/web/jsconfig.json

bench: $(DEV_TOOLS) $(NPM_TOOLS) $(BROWSER) site ## Time all there is to time (TORCH=… names a Python with PyTorch)
	@echo; echo "== Answers, and the command line"
	@$(BIN)/python scripts/benchmarks/speed.py
	@echo; echo "== The same question asked of PyTorch's fake tensors"
	@$(BIN)/python scripts/benchmarks/tracker.py $(if $(TORCH),--python $(TORCH))
	@echo; echo "== The page's start, beside a plain page with the same Python (a minute or two)"
	@$(BIN)/python scripts/benchmarks/start.py
	@echo; echo "== Each change in the page, in every way of running (some minutes)"
	@$(BIN)/python scripts/benchmarks/changes.py
	@echo; echo "== Plans gone through in a second"
	@$(BIN)/python scripts/benchmarks/plans.py
	@echo; echo "== The site's build, in a copy (some minutes)"
	@$(BIN)/python scripts/benchmarks/building.py

torch: $(MEASURE_TOOLS) ## Install the PyTorch that bench and measure ask, apart from the rest (some GB)

measure: $(MEASURE_TOOLS) ## Trace PyTorch's own steps again, all of them or KINDS="steps sharded" (hours)
	@OMP_NUM_THREADS=1 PYTHONPATH=calculator:scripts $(MEASURE)/bin/python -m measure.record $(KINDS)

requirements: $(DEV_TOOLS) ## Pin the newest versions that requirements/*.in allow, with hashes
	@for name in site dev; do \
	  UV_CUSTOM_COMPILE_COMMAND="make requirements" $(BIN)/uv pip compile --quiet --upgrade \
	    --universal --python-version 3.13 --generate-hashes \
	    --no-emit-index-url --no-emit-find-links \
	    requirements/$$name.in --output-file requirements/$$name.txt || exit 1; \
	done

clean: ## Remove what was built, not what was installed or took hours to trace
	rm -rf site dist test-results .hypothesis .mypy_cache .pytest_cache .ruff_cache
	[ ! -d .cache ] || find .cache -mindepth 1 -maxdepth 1 ! -name measure ! -name browser -exec rm -rf {} +

distclean: clean ## Remove what was installed as well
	rm -rf $(VENV) node_modules .cache

# --- Setting up -----------------------------------------------------------------------------------

# Python 3.13: the page's Python is 3.13, and the site is built by the same.
$(VENV)/bin/python:
	@python=$$(sh build/find_python.sh) && $$python -m venv --clear $(VENV) || { \
	  echo "The virtual environment could not be made; on Debian: apt-get install python3.13-venv" >&2; \
	  rm -rf $(VENV); exit 1; }

$(SITE_TOOLS): requirements/site.txt | $(VENV)/bin/python
	@echo "Installing what builds the site into $(VENV)/"
	@$(BIN)/python -m pip install --quiet --require-hashes -r $<
	@touch $@

$(DEV_TOOLS): requirements/dev.txt | $(VENV)/bin/python
	@echo "Installing what tests and checks into $(VENV)/"
	@$(BIN)/python -m pip install --quiet --require-hashes -r $<
	@# The same versions and more: what builds the site is now there too.
	@touch $(SITE_TOOLS) $@

$(MEASURE_TOOLS): requirements/measure.txt
	@echo "Installing what traces PyTorch into $(MEASURE)/"
	@python=$$(sh build/find_python.sh) && $$python -m venv --clear $(MEASURE)
	@$(MEASURE)/bin/python -m pip install --quiet -r $<
	@touch $@

$(NPM_TOOLS): package-lock.json package.json .npmrc
	@command -v npm >/dev/null || { \
	  echo "npm is needed (Node.js 20 or newer brings it): apt-get install nodejs npm," \
	       "brew install node, or https://nodejs.org/" >&2; exit 1; }
	npm ci --no-progress --loglevel=error
	@touch $@

$(BROWSER): tests/browser.py $(DEV_TOOLS)
	@$(BIN)/python tests/browser.py --install
	@mkdir -p $(@D) && touch $@
