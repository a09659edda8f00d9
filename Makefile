# Every target makes its own environment first; nothing has to be installed by hand. `make` alone lists them.
SHELL := /bin/bash
.DEFAULT_GOAL := help
MAKEFLAGS += --no-print-directory

PYTHON_IN_VENV := .venv/bin/python

# MEDIA and KEEP reach the demo through the environment, whether they are set there or on make's command line.
ifdef MEDIA
export MEDIA
endif
ifdef KEEP
export KEEP
endif
ifdef PYTHON
export PYTHON
endif

.PHONY: help
help: ## this list
	@printf 'ScopeFlow: very large medical media to a vision-language model'"'"'s answer, in bounded memory\n\n'
	@sed -nE 's/^([a-z-]+):[^#]*## (.*)/  make \1\t\2/p' $(MAKEFILE_LIST) | expand -t 22
	@printf '\n  make demo MEDIA=clip.mp4   the same with your own file, or s3://bucket/key\n'
	@printf '  make demo KEEP=1           leave the server and its UI running until Ctrl-C\n'
	@printf '  make test ARGS="-k name"   arguments for pytest\n'

.PHONY: environment
environment: ## the Python environment in .venv (the other targets make it themselves)
	@deployments/setup/environment.sh

.PHONY: demo
demo: environment ## render a clip, put it into S3, analyse it, show the answer
	@$(PYTHON_IN_VENV) -m deployments.demo

.PHONY: stack
stack: environment ## a local Prefect server with its UI and an S3 store, until Ctrl-C
	@$(PYTHON_IN_VENV) -m deployments.stack

.PHONY: test
test: environment ## the whole test suite
	@$(PYTHON_IN_VENV) -m pytest $(ARGS)

.PHONY: check
check: environment ## format, lint, types, layering, habits of the repository
	@deployments/setup/check.sh

.PHONY: bench
bench: bench-memory ## every benchmark; results in benchmarks/results/

.PHONY: bench-memory
bench-memory: environment ## peak memory on a 1-minute and on a 60-minute video
	@$(PYTHON_IN_VENV) -m benchmarks.memory

.PHONY: constraints
constraints: environment ## renew requirements/constraints.txt
	@deployments/setup/constraints.sh

.PHONY: clean
clean: ## remove the environment, caches and what demos left behind
	rm -rf .venv .scopeflow build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis *.egg-info
	find . -path ./.git -prune -o -name __pycache__ -type d -prune -exec rm -rf {} +
