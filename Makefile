# Two virtual environments: .venv has the planner alone, .venv-test has everything, the real petals too.
# Each is made and filled once; a stamp inside it says from which folder and files. None needs to be active.

PYTHON ?=
ARGS ?=
DUMP := examples/llama-65b-hf.json

# The planner runs on Python 3.10 or newer; petals needs a tokenizers that has wheels for 3.10 and 3.11 only.
for_planner := (3, 10) <= sys.version_info[:2]
for_tests := (3, 10) <= sys.version_info[:2] <= (3, 11)
candidates := python3.11 python3.10 python3 python3.12 python3.13 python3.14 python

# The first interpreter that really runs (a name on the PATH may not), has venv and is of a version that fits.
find = $(shell for python in $(if $(PYTHON),'$(PYTHON)',$(candidates)); do \
	if "$$python" -c 'import ensurepip, sys, venv; sys.exit(not $(1))' >/dev/null 2>&1; \
	then printf %s "$$python"; break; fi; done)
goal = $(or $(firstword $(MAKECMDGOALS)),demo)
missing = $(error $(if $(PYTHON),PYTHON=$(PYTHON) is no,found no) $(1) that runs and has venv: \
	install one (Debian: apt-get install $(2)) or name one (make $(goal) PYTHON=/path/to/python3.11))
planner_python = $(or $(call find,$(for_planner)),$(call missing,Python 3.10 or newer,python3 python3-venv))
tests_python = $(or $(call find,$(for_tests)),$(call missing,Python 3.10 or 3.11,python3.11 python3.11-venv))

# A venv is made anew if it was made in another folder (its scripts hold the path), no longer runs, or is not PYTHON's.
stale = $(shell test "$$(cat $(1)/made 2>/dev/null)" = '$(CURDIR)' && $(1)/bin/python -c '' 2>/dev/null \
	&& $(if $(PYTHON),test "$$($(1)/bin/python -V 2>&1)" = "$$('$(PYTHON)' -V 2>&1)",true) || echo FORCE)

# By environment, so that the constraints also hold where pip builds a package (newer pips have a name of their own).
export PIP_CONSTRAINT := constraints.txt
export PIP_BUILD_CONSTRAINT := constraints.txt
export PIP_DISABLE_PIP_VERSION_CHECK := 1
unexport PYTHONHOME PYTHONPATH
pip = -m pip install --quiet --quiet --no-input --no-warn-conflicts
planner := .venv/bin/python
tests := .venv-test/bin/python

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.NOTPARALLEL:
.PHONY: FORCE help demo demo-swarm live-swarm test check lint fmt bench bench-gpu clean

help: ## show this list
	@sed -n 's/^\([a-z-]*\):.* ## /\1\t/p' Makefile | expand -t 12

demo: .venv/planner ## install the planner alone and plan a real swarm
	@$(call show,--dump $(DUMP))
	@$(call show,--dump $(DUMP) --span server4=21:40)
show = printf '\n$$ %s\n' 'plan-swarm $(1)' && .venv/bin/plan-swarm $(1)

demo-swarm: .venv-test/everything ## real servers follow a plan while a client generates; then stock ones, and the costs
	@.venv-test/bin/plan-swarm demo agents $(ARGS)

live-swarm: .venv-test/everything ## start a private swarm of real Petals servers to try plan-swarm on, until Ctrl-C
	@.venv-test/bin/plan-swarm demo swarm --peers-file live-swarm.peers

test: .venv-test/everything ## install everything, petals too, and run all tests (ARGS='-k word')
	@echo 'pytest'
	@$(tests) -m pytest -n 3 --dist loadfile --no-loadscope-reorder $(ARGS)

check: lint test ## ruff, mypy and all tests: what CI runs

lint: .venv-test/everything ## ruff (lint and format) and mypy
	@echo 'ruff check'
	@$(tests) -m ruff check --quiet --output-format concise .
	@echo 'ruff format --check'
	@$(tests) -m ruff format --quiet --check . || { echo 'not formatted: run make fmt' >&2; exit 1; }
	@echo 'mypy'
	@$(tests) -m mypy --no-error-summary

fmt: .venv-test/everything ## format, and mend what ruff can
	@$(tests) -m ruff check --quiet --fix . ; $(tests) -m ruff format .

bench: .venv-test/everything ## install everything and measure speed and quality, on a private DHT too
	@$(tests) -m benchmarks $(ARGS)

bench-gpu: .venv-test/everything ## change the span of a server on a CUDA device (ARGS='--device cpu': small)
	@$(tests) -m benchmarks.gpu_span_change $(ARGS)

clean: ## remove the venvs and all that the tools leave
	@rm -rf .venv .venv-test build dist .hypothesis .mypy_cache .pytest_cache .ruff_cache live-swarm.peers
	@find . -name .git -prune -o -name __pycache__ -type d -prune -exec rm -rf {} +

.venv/made: $(call stale,.venv)
	@echo 'making .venv'
	@'$(planner_python)' -m venv --clear .venv
	@printf %s '$(CURDIR)' >$@

.venv/planner: .venv/made pyproject.toml constraints.txt
	@echo 'installing the planner into .venv'
	@$(planner) $(pip) --editable .
	@touch $@

.venv-test/made: $(call stale,.venv-test)
	@echo 'making .venv-test'
	@'$(tests_python)' -m venv --clear .venv-test
	@printf %s '$(CURDIR)' >$@

requirements := petals test check
.venv-test/everything: .venv-test/made pyproject.toml constraints.txt $(requirements:%=requirements/%.txt)
	@echo 'installing the planner, petals and the test tools into .venv-test (minutes)'
	@$(tests) $(pip) --editable . $(requirements:%=--requirement requirements/%.txt)
	@$(tests) $(pip) --no-deps petals
	@touch $@
