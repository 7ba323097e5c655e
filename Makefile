# Every target makes .venv when it is missing and brings it up to date when pyproject.toml,
# constraints.txt or the directory has changed; otherwise it starts at once.

VENV    := .venv
RUN     := $(VENV)/bin/python -m
STAMP   := $(VENV)/.installed
PYTHON  ?= python3
OUT     ?= demo
SITE    ?= docs/_build/site
PYTEST  ?=
CONSTRAINTS ?= -c constraints.txt

# Threads that spin while they wait starve each other on a shared machine.
export OMP_WAIT_POLICY ?= PASSIVE

# The stamp holds a checksum instead of relying on times, which a fresh checkout changes.
WANTED  := $(shell (pwd; cat pyproject.toml constraints.txt) | cksum | tr ' ' '-')
ifneq ($(shell cat $(STAMP) 2>/dev/null),$(WANTED))
.PHONY: $(STAMP)
endif

.PHONY: demo test test-slow test-all lint types check check-figures docs site links test-life dist test-wheel clean

demo: $(STAMP)
	@$(RUN) impresslearn demo --out "$(OUT)"

# Each of pytest's workers has one thread, so that together they use the cores and no more.
test: $(STAMP)
	OMP_NUM_THREADS=1 $(RUN) pytest -n auto -m "not slow" $(PYTEST)

test-slow: $(STAMP)
	OMP_NUM_THREADS=1 $(RUN) pytest -n auto -m slow $(PYTEST)

test-all: test test-slow

lint: $(STAMP)
	$(RUN) ruff check .
	$(RUN) ruff format --check .

types: $(STAMP)
	$(RUN) mypy

# Every figure of the documents, against the record that it comes from (docs/figures).
check-figures: $(STAMP)
	$(RUN) impresslearn.experiments.figures docs/figures

# The site, with what its pages print; a warning, such as a link to nowhere, is an error.
docs: $(STAMP)
	OMP_NUM_THREADS=1 $(RUN) sphinx -W --keep-going -q -d docs/_build/doctrees docs docs/_build/html
	@echo "open docs/_build/html/index.html"

# The site beside those of other versions, with a page that lists them: make site SITE=/srv/www
site: docs
	$(VENV)/bin/python docs/versions.py docs/_build/html $(SITE)

# Every address that the pages name is asked for; needs the network, so no part of .ci/run.
links: $(STAMP)
	OMP_NUM_THREADS=1 $(RUN) sphinx -b linkcheck -q -d docs/_build/doctrees docs docs/_build/links

# The life of tasks (learn, update, restore, remove, kill) in 1,000 random orders instead of 12.
test-life: $(STAMP)
	IMPRESSLEARN_FULL_STORE_TESTS=1 OMP_NUM_THREADS=1 $(RUN) pytest tests/store/test_store_versions.py

# What is released: an archive of the sources, and a wheel that is built from it.
dist: $(STAMP)
	rm -rf dist
	@$(RUN) build --outdir dist . > dist.log 2>&1 || (cat dist.log; exit 1)
	@rm dist.log; ls -l dist

# The wheel, in an environment of its own that has never seen the sources, passes demo and fast
# tests. Another interpreter: make test-wheel PYTHON=python3.13; CONSTRAINTS= takes newest versions.
test-wheel: dist
	rm -rf .venv-wheel && $(PYTHON) -m venv .venv-wheel
	.venv-wheel/bin/pip install -qq --disable-pip-version-check $(CONSTRAINTS) \
	    "$$(ls dist/*.whl)[dev,vision]"
	.venv-wheel/bin/pip check
	cd "$$(mktemp -d)" && "$(CURDIR)/.venv-wheel/bin/impresslearn" demo --quiet && ls demo && \
	    "$(CURDIR)/.venv-wheel/bin/python" -c \
	    "import impresslearn as il; assert 'site-packages' in il.__file__; print(il.__version__)"
	OMP_NUM_THREADS=1 .venv-wheel/bin/python -m pytest -n auto -m "not slow" $(PYTEST)

check: lint types test check-figures

# pip resolves everything in one call, so that the pinned torch decides for torchvision too.
$(STAMP):
	@echo "Installing impresslearn into $(VENV); the first time takes a few minutes"
	@test -x $(VENV)/bin/pip || $(PYTHON) -m venv $(VENV)
	@$(RUN) pip install -qq --disable-pip-version-check -c constraints.txt -e '.[dev,vision,docs]'
	@echo "$(WANTED)" > $@

clean:
	rm -rf $(VENV) .venv-wheel "$(OUT)" build dist docs/_build .pytest_cache .mypy_cache .ruff_cache .hypothesis
	find src tests -name __pycache__ -type d -prune -exec rm -rf {} +
