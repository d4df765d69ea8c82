# Python 3.10 or newer, pip and make are all that must be there; everything else goes into $(VENV) and $(PEERS).
PYTHON ?= python3
VENV := .venv
PEERS := .venv-peers
RUN := $(VENV)/bin/python
ARGS ?=

.PHONY: setup demo test lint types check bench bench-peers protos docs clean
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
	@$(RUN) benchmarks/keras_step.py
	@$(RUN) benchmarks/exchange.py

# Other engines beside this one, in an environment of their own; the page is made of all results so far.
bench-peers: $(PEERS)/.peers
	@PYTHONPATH=benchmarks $(PEERS)/bin/python -m peers $(ARGS)
	@$(PEERS)/bin/python scripts/generate_performance_docs.py

protos: $(VENV)/.test
	@$(RUN) scripts/generate_protos.py

docs: $(VENV)/.demo
	@$(RUN) scripts/generate_optimizer_docs.py

# Numba's cached kernels lie in __pycache__ too.
clean:
	@find . \( -path ./$(VENV) -o -path ./$(PEERS) \) -prune -o -type d -name __pycache__ -prune -exec rm -rf {} +
	@rm -rf .hypothesis .mypy_cache .pytest_cache .ruff_cache build dist

# $(VENV)/.EXTRA says that anycore[EXTRA] is installed. It is touched last, so a failed installation is tried again.
$(VENV)/.%: pyproject.toml $(VENV)/.made
	@echo "installing anycore[$*] into $(VENV)"
	@$(RUN) -m pip install --quiet --disable-pip-version-check --editable '.[$*]'
	@touch $@

$(PEERS)/.peers: benchmarks/peers/requirements.txt pyproject.toml $(PEERS)/.made
	@echo "installing anycore and its peers into $(PEERS)"
	@$(PEERS)/bin/python -m pip install --quiet --disable-pip-version-check --editable . --requirement $<
	@touch $@

# Debian's Python has no ensurepip of its own; there pip itself fills the environment.
$(VENV)/.made $(PEERS)/.made:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 10) and \
		"Python 3.10 or newer is needed, got %d.%d: name one with make PYTHON=..." % sys.version_info[:2])'
	@if $(PYTHON) -c 'import ensurepip' 2>/dev/null; then $(PYTHON) -m venv --clear $(@D); else \
		$(PYTHON) -m venv --clear --without-pip $(@D) && $(PYTHON) -m pip --python $(@D)/bin/python install --quiet pip; fi
	@touch $@
