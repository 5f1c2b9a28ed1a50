# Every target makes what it needs: `make test` works on a bare machine with Python 3.11 or 3.12.
PYTHON ?= python3
VENV   ?= .venv
BIN    := $(VENV)/bin
STAMP  := $(VENV)/.installed
RELEASE := build/release

MINUTES ?= 20

.PHONY: help check test test-ray attack lock style lint format demo pages docs lowest dist release clean

help:  ## List the targets
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed 's/:.*## /\t/' | expand -t 10

$(STAMP): pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
ifdef HASHES
	$(BIN)/python -m pip install --no-compile --quiet --disable-pip-version-check --no-deps --require-hashes -r requirements.lock
	$(BIN)/python -m pip install --no-compile --quiet --disable-pip-version-check -c constraints.txt --no-deps torch
	$(BIN)/python -m pip install --no-compile --quiet --disable-pip-version-check --no-deps -e .
else
	$(BIN)/python -m pip install --no-compile --quiet --disable-pip-version-check -c constraints.txt torch numpy
	$(BIN)/python -m pip install --no-compile --quiet --disable-pip-version-check -c constraints.txt -e '.[dev]'
endif
	$(BIN)/python -m pip install --no-compile --quiet --disable-pip-version-check -c constraints.txt --no-deps --target $(VENV)/timm timm torchvision
	@touch $@

check: lint  ## Before every commit, under a minute: lint, types, the loss and the contracts
	$(BIN)/python -m pytest -q -n 2 -m 'not slow' tests/loss tests/contracts $(ARGS)

test: style  ## Lint, type-check and run every test
	$(BIN)/python -m pytest -n 2 --dist worksteal $(ARGS)

test-ray: $(STAMP)  ## The tests of the Ray backend: adds the extra ray to the environment (240 MB, half a minute), two minutes
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[ray]'
	$(BIN)/python -m pytest -n 0 tests/train/test_on_ray.py $(ARGS)

attack: $(STAMP)  ## Kills, damages, mutants, full disks, bad commands for MINUTES=20; the record: results/attack/attack.json
	PYTHONPATH=src:tests:tests/support OMP_NUM_THREADS=1 $(BIN)/python -m attack --minutes $(MINUTES) $(ARGS)

lock: $(STAMP)  ## Hashes for every package of the environment: requirements.lock; `make test HASHES=1` installs by them
	$(BIN)/python tools/lock.py

style: $(STAMP)
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .

lint: style  ## Format check, lint and types
	$(BIN)/mypy

format: $(STAMP)  ## Format in place
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

demo: $(STAMP)  ## Four experiments on embedded data, about two minutes: a table, verdicts, rcad-demo/index.html
	$(BIN)/rcad demo $(ARGS)

pages: $(STAMP)  ## Tables and pictures of README.md and docs/, anew from the records
	PYTHONPATH=tools/docs $(BIN)/python -m rcad_docs.made
	PYTHONPATH=tools/docs $(BIN)/python tools/pictures.py

docs: $(STAMP)  ## The documentation site, with evidence from results/: site/index.html
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict $(ARGS)

lowest:  ## The tests of extras with the lowest declared versions, in an environment of its own: EXTRAS="hf timm"
	$(PYTHON) tools/lowest_versions.py $(EXTRAS)

dist:  ## Source archive and wheel, checked as a package index checks them: dist/
	$(PYTHON) -m venv $(RELEASE)
	$(RELEASE)/bin/python -m pip install --quiet --disable-pip-version-check build twine
	rm -rf dist
	$(RELEASE)/bin/python -m build
	$(RELEASE)/bin/python -m twine check --strict dist/*

release: dist  ## Build and check, print this version's changes and the tag to set; nothing is pushed
	$(RELEASE)/bin/python tools/release.py

clean:  ## Remove the environment and caches
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache .hypothesis site build dist
