# Python 3.10 or newer, pip and make are all that must be there; everything else goes into $(VENV).
PYTHON ?= python3
VENV := .venv
RUN := $(VENV)/bin/python
ARGS ?=

.PHONY: setup demo test lint types check bench protos docs clean
.NOTPARALLEL:

setup: $(VENV)/.test $(VENV)/.dev

demo: $(VENV)/.demo
	@$(VENV)/bin/anycore demo $(ARGS)

test: $(VENV)/.test
	@$(RUN) -m pytest $(ARGS)

lint: $(VENV)/.dev
	@$(RUN) -m ruff check .
	@$(RUN) -m ruff format --check .

types: $(VENV)/.test $(VENV)/.dev
	@$(RUN) -m mypy

check: lint types test

bench: $(VENV)/.test
	@$(RUN) benchmarks/step.py $(ARGS)
	@$(RUN) benchmarks/tensorflow_step.py $(ARGS)
	@$(RUN) benchmarks/torch_step.py $(ARGS)
	@$(RUN) benchmarks/jax_step.py $(ARGS)
	@$(RUN) benchmarks/exchange.py $(ARGS)

protos: $(VENV)/.test
	@$(RUN) scripts/generate_protos.py

docs: $(VENV)/.demo
	@$(RUN) scripts/generate_optimizer_docs.py

# Numba's cached kernels lie in __pycache__ too.
clean:
	@find . -path ./$(VENV) -prune -o -type d -name __pycache__ -prune -exec rm -rf {} +
	@rm -rf .hypothesis .mypy_cache .pytest_cache .ruff_cache build dist

# $(VENV)/.EXTRA says that anycore[EXTRA] is installed. It is touched last, so a failed installation is tried again.
$(VENV)/.%: pyproject.toml $(VENV)/.made
	@echo "installing anycore[$*] into $(VENV)"
	@$(RUN) -m pip install --quiet --disable-pip-version-check --editable '.[$*]'
	@touch $@

# Debian's Python has no ensurepip of its own; there pip itself fills the environment.
$(VENV)/.made:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 10) and \
		"Python 3.10 or newer is needed, got %d.%d: name one with make PYTHON=..." % sys.version_info[:2])'
	@if $(PYTHON) -c 'import ensurepip' 2>/dev/null; then $(PYTHON) -m venv --clear $(VENV); else \
		$(PYTHON) -m venv --clear --without-pip $(VENV) && $(PYTHON) -m pip --python $(RUN) install --quiet pip; fi
	@touch $@
