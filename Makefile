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

.PHONY: demo test test-ci test-nightly lint types check docs site links reproduce dist test-wheel clean

demo: $(STAMP)
	@$(RUN) impresslearn demo --out "$(OUT)"

# Each of pytest's workers has one thread, so that together they use the cores and no more.
test: $(STAMP)
	OMP_NUM_THREADS=1 $(RUN) pytest -n auto --dist loadfile -m "not slow and not nightly" $(PYTEST)

# And one test of each slow mechanism: a kill, a fallback, Triton's interpreter, a server, Ray.
test-ci: $(STAMP)
	OMP_NUM_THREADS=1 $(RUN) pytest -n auto --dist loadfile -m "not nightly" $(PYTEST)

# Everything, with 1,000 random lives of tasks in place of 12, 10,000 damaged copies.
test-nightly: $(STAMP)
	$(RUN) pip install -qq --disable-pip-version-check -c constraints.txt -e '.[examples,avalanche]'
	IMPRESSLEARN_FULL_STORE_TESTS=1 OMP_NUM_THREADS=1 $(RUN) pytest -n auto $(PYTEST)

lint: $(STAMP)
	$(RUN) ruff check .
	$(RUN) ruff format --check .

types: $(STAMP)
	$(RUN) mypy

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

# A figure or table of the paper: make reproduce TARGET=rotated-mnist SCALE=smoke DATA=data
TARGET ?= all
SCALE  ?= smoke
DATA   ?= data
reproduce: $(STAMP)
	$(RUN) benchmarks reproduce $(TARGET) --scale $(SCALE) --data "$(DATA)"

# What is released: an archive of the sources, and a wheel that is built from it.
dist: $(STAMP)
	rm -rf dist
	@$(RUN) build --outdir dist . > dist.log 2>&1 || (cat dist.log; exit 1)
	@rm dist.log; ls -l dist

# The wheel from another folder, in an environment that never saw the sources but uses the
# packages of the first one: every public name, the demo, and a store that was made earlier.
test-wheel: dist
	rm -rf .venv-wheel && $(PYTHON) -m venv --without-pip .venv-wheel
	$(RUN) pip --python .venv-wheel/bin/python install -qq --disable-pip-version-check --no-deps dist/*.whl
	$(VENV)/bin/python -c "import site; print(site.getsitepackages()[0])" > \
	    "$$(.venv-wheel/bin/python -c 'import site; print(site.getsitepackages()[0])')/packages.pth"
	cd "$$(mktemp -d)" && "$(CURDIR)/.venv-wheel/bin/impresslearn" demo && ls demo && \
	    "$(CURDIR)/.venv-wheel/bin/python" "$(CURDIR)/tests/golden/check_wheel.py"

check: lint types test

# pip resolves everything in one call, so that the pinned torch decides for torchvision too.
$(STAMP):
	@echo "Installing impresslearn into $(VENV); the first time takes a few minutes"
	@test -x $(VENV)/bin/pip || $(PYTHON) -m venv $(VENV)
	@$(RUN) pip install -qq --disable-pip-version-check --no-compile -c constraints.txt -e '.[dev,vision,docs]'
	@echo "$(WANTED)" > $@

clean:
	rm -rf $(VENV) .venv-wheel "$(OUT)" build dist docs/_build .pytest_cache .mypy_cache .ruff_cache .hypothesis
	find src tests -name __pycache__ -type d -prune -exec rm -rf {} +
