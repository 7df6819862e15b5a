# The few commands a developer needs. `make` alone lists them.
.DEFAULT_GOAL := help
PYTHON ?= python3
PIP := .venv/bin/pip --disable-pip-version-check -q
LOCKED := $(PIP) install --no-deps --only-binary :all: --require-hashes
# Threads that wait should sleep: torch, numba and faiss share these cores.
export OMP_WAIT_POLICY ?= PASSIVE
export NO_MKDOCS_2_WARNING = 1
# Every process would compile all modules again.
unexport PYTHONDONTWRITEBYTECODE

help: ## list the commands
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 12

demo: .venv/installed ## the whole way on handwritten digits: train, encode, search, report
	.venv/bin/orbithash demo --out demo-report --force

test: .venv/installed ## the quick tests, under five minutes on two cores
	.venv/bin/pytest -n 3 --dist loadfile

test-page: .venv/installed ## the search page in Chromium, about two minutes
	.venv/bin/pytest -m browser -n 2

fuzz: .venv/installed ## search for failing inputs at random, 15 minutes at most: readers of files, properties, the HTTP API
	timeout 9m .venv/bin/python fuzz/run.py 15 || test $$? = 124
	HYPOTHESIS_PROFILE=fuzz timeout 5m .venv/bin/pytest -m hypothesis -n 2 -x || test $$? = 124

test-faults: .venv/installed ## kills, power cuts, full disks and the like, about ten minutes; prints what was lost
	.venv/bin/pytest -m faults tests/faults

test-all: .venv/installed ## every test, slow ones too, against real servers
	.venv/bin/pytest -m ""

test-oldest: build/oldest/done ## the quick tests of the library with the oldest versions that pyproject.toml allows
	build/oldest/bin/python -m pytest -o filterwarnings=default $(OLDEST_TESTS)

check: .venv/installed ## format, lint, types, import layers, docs
	.venv/bin/ruff format --check .
	.venv/bin/ruff check .
	.venv/bin/mypy
	.venv/bin/lint-imports
	.venv/bin/mkdocs build --strict --quiet --site-dir build/site

format: .venv/installed ## rewrite the code as `check` wants it
	.venv/bin/ruff format .
	.venv/bin/ruff check --fix .

bench: .venv/installed ## our claims of speed, each a ratio against a peer in the same run
	.venv/bin/python benchmarks/loss.py
	.venv/bin/python benchmarks/evaluate.py
	.venv/bin/python benchmarks/encoding.py
	.venv/bin/python benchmarks/fine_tuning.py
	.venv/bin/python benchmarks/training.py
	.venv/bin/python benchmarks/search.py 100000 1000000
	.venv/bin/python benchmarks/duplicates.py
	.venv/bin/python benchmarks/serving.py
	.venv/bin/python benchmarks/unfriendly.py

dist: ## build the wheel and the source distribution into build/dist, the same bytes every time
	rm -rf build/dist
	$(PYTHON) -m venv build/packaging
	build/packaging/bin/pip --disable-pip-version-check -q install build
	SOURCE_DATE_EPOCH=$$(git log -1 --format=%ct) build/packaging/bin/python -m build --outdir build/dist

docs: .venv/installed ## build the documentation into build/site
	.venv/bin/mkdocs build --strict --site-dir build/site

results: .venv/installed ## put the committed results into README and docs
	.venv/bin/python -m orbithash.experiments.report.show_results README.md docs/results.md docs/methods/shallow.md docs/order-awareness.md

setup: .venv/installed ## install everything: all extras, tools, what the benchmarks compare with

lock: .venv/bin/python ## write requirements.lock, as pyproject.toml asks; UPGRADE=--upgrade takes newer versions
	$(PIP) install uv
	PATH=.venv/bin:$$PATH .venv/bin/python .ci/lock.py $(UPGRADE)

clean: ## remove the environment and everything that was built
	rm -rf .venv build demo-report .pytest_cache .mypy_cache .ruff_cache .hypothesis
	find src tests benchmarks -name __pycache__ -prune -exec rm -rf {} +

# One environment, of the files with the SHA-256 that the lock lists and of no others.
.venv/bin/python:
	$(PYTHON) -m venv .venv

# Torch first: where an index has a CPU build beside the registry's CUDA build, pip would prefer the latter once it
# compares hashes.
.venv/installed: .venv/bin/python pyproject.toml requirements.lock requirements-cuda.lock
	rm -rf build/torch
	$(PIP) download --no-deps --only-binary :all: -d build/torch $$(grep -o '^torch==[^ ]*' requirements.lock)
	.venv/bin/pip hash build/torch/*.whl | grep -o 'sha256:.*' | grep -qF -f - requirements.lock
	$(PIP) install --no-deps build/torch/*.whl
	rm -rf build/torch
	$(LOCKED) -r requirements.lock
	if $(PIP) show torch | grep -q nvidia; then $(LOCKED) -r requirements-cuda.lock; fi
	$(PIP) install --no-deps --no-build-isolation -e .
	$(PIP) check
	@touch $@

# The lower bounds of pyproject.toml; torch's cannot be tested beside the others, and is the lock's.
OLDEST_TESTS := tests/test_package.py tests/test_codes.py tests/cli tests/data tests/encoders tests/evaluation \
	tests/hashers tests/index tests/losses tests/metrics tests/networks tests/retrieval tests/training

build/oldest/done: pyproject.toml requirements-oldest.lock
	rm -rf build/oldest && $(PYTHON) -m venv build/oldest
	build/oldest/bin/pip --disable-pip-version-check -q install -c requirements-oldest.lock -e '.[test]'
	@touch $@

.PHONY: help demo test test-page test-oldest fuzz test-faults test-all check format bench dist docs results setup lock clean
