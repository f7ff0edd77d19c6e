# Everything a newcomer needs: `make demo` and `make test`. Each target sets up .venv first if it is stale.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
READY  := $(VENV)/.ready
TOOLS  := $(VENV)/.tools
INSTALL = $(BIN)/pip install --disable-pip-version-check -c constraints.txt

.DEFAULT_GOAL := help

.PHONY: help demo test test-slow test-browser test-docker keys lint docs proto type bench format clean purge

# BLAS threads: our matrices are small, and two processes with two threads each only get in each other's way.
export OMP_NUM_THREADS := 1
export OPENBLAS_NUM_THREADS := 1
# Where Python is told to keep no bytecode, each of the hundreds of processes below would compile every module again.
unexport PYTHONDONTWRITEBYTECODE

help:
	@echo "make demo        run the paper's experiment and DPP³, and attack both (sets up $(VENV) first)"
	@echo "make test        the tests, in five minutes; test-slow, test-browser, test-docker: the others"
	@echo "make lint type   style and types; make format mends style"
	@echo "make docs        the documentation as a site, in build/site"
	@echo "make keys        keys for docker-compose up"
	@echo "make bench       how fast this machine is"
	@echo "make clean       remove what a command can make again; runs and keys stay"

# What the demo and the commands of the README need; pip says what it is doing.
$(READY): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "dpp2 needs Python 3.11 or newer")'
	@echo "Setting up $(VENV): about 500 MB, a minute or two."
	$(PYTHON) -m venv $(VENV)
	$(INSTALL) -e '.[data,page]'
	@touch $@

# The rest, for those who change it: tests, types, documentation, notebooks.
$(TOOLS): $(READY)
	@echo "Adding what tests and checks need: about 900 MB, another minute or two."
	$(INSTALL) -e '.[dev]'
	@touch $@

# Both halves at once, on two cores; what the second says is shown after the first.
SECOND := runs/demo-tier-three
demo: $(READY)
	@mkdir -p runs
	@( $(BIN)/dpp2 run experiments/tier-three.toml --out $(SECOND) --force && $(BIN)/dpp2 audit $(SECOND) ) \
	    > $(SECOND).txt 2>&1 & second=$$!; \
	  echo "dpp2 run paper --out runs/demo; dpp2 audit runs/demo"; \
	  $(BIN)/dpp2 run experiments/paper.toml --out runs/demo --force && $(BIN)/dpp2 audit runs/demo || failed=1; \
	  wait $$second || failed=1; echo "dpp2 run tier-three --out $(SECOND); dpp2 audit $(SECOND)"; cat $(SECOND).txt; test -z "$$failed"
	$(BIN)/dpp2 overheard runs/demo $(SECOND)
	@echo "DPP² overheard and undone, DPP³ overheard and not. Read runs/demo/report.html and $(SECOND)/report.html."

# Three processes for two cores: some tests wait for others' processes.
test: $(TOOLS)
	$(BIN)/pytest -n 3 --dist worksteal -m "not slow and not docker and not netns and not browser"

test-slow: $(TOOLS)
	$(BIN)/pytest -n 2 --dist worksteal -m slow

# The live page in a real browser: Debian's Chromium; elsewhere a sentence says why it did not run (in CI, a failure).
test-browser: $(TOOLS)
	$(BIN)/pytest -m browser -rs

# Keys, data and certificates of containers: once, before `docker-compose up`. AGENTS=20 for as many.
AGENTS ?= 6
keys: $(READY)
	$(BIN)/python tools/keys.py --agents $(AGENTS)

# Real containers and network namespaces, as root on Debian; elsewhere a sentence says why they did not run (in CI, a failure).
test-docker: $(TOOLS)
	$(BIN)/pytest -m "docker or netns" -rs

lint: $(TOOLS)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/python tools/proto.py --check

# The documentation site, in build/site: every warning is an error, and nothing is fetched.
docs: $(TOOLS)
	NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --strict
	@echo "Open build/site/index.html; to search it, python -m http.server -d build/site."

proto: $(TOOLS)
	$(BIN)/python tools/proto.py

format: $(TOOLS)
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

type: $(TOOLS)
	$(BIN)/mypy

bench: $(READY)
	$(BIN)/dpp2 bench core

# What a command can make again, and nothing else. runs/ and secrets/ are left alone: they hold what has been spent.
clean:
	rm -rf $(VENV) build *.egg-info .mypy_cache .ruff_cache .pytest_cache

# Without its ledger a data set has a full budget again, and without its journal a node would draw old noise for new data.
purge:
	@echo "This removes runs/, secrets/ and .env: ledgers (what has been spent), journals, homes of nodes and keys."
	@printf 'Nothing can bring them back. Type yes to go on: '; read -r answer || true; \
	  [ "$$answer" = yes ] || { echo "Nothing was removed."; exit 1; }
	rm -rf runs secrets .env
	@$(MAKE) --no-print-directory clean
