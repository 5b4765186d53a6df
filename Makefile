# Each target is a small program in tools/work; this file only makes sure that .venv is there.
PYTHON ?= python3
STACK ?= local
export STACK
RUN := .venv/bin/python -m tools.work

.DEFAULT_GOAL := help
.PHONY: help setup up recover preview destroy shell down check test soak bench record

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z]+:.*## / {printf "  make %-9s %s\n", $$1, $$2}' Makefile

setup: ## make .venv with the pinned packages
	@command -v $(PYTHON) >/dev/null || { echo "error: setup: $(PYTHON) is not installed; install Python 3.11 or newer, or name it: make PYTHON=/path/to/python3.11" >&2; exit 3; }
	@$(PYTHON) -m tools.work.setup

up: setup ## from a fresh checkout to a verified stack on the embedded cluster (STACK=x: another stack on its own cluster)
	@$(RUN) up -s "$$STACK"

recover: setup ## after a killed update: clear what it left behind, then up
	@$(RUN) recover -s "$$STACK"

preview: setup ## what `make up` would change, with the changed properties
	@$(RUN) preview -s "$$STACK"

destroy: setup ## delete the stack's resources; namespaces, claims and volumes stay
	@$(RUN) destroy -s "$$STACK"

shell: setup ## a shell with pulumi, kubectl, backend, passphrase and home of the embedded parts
	@$(RUN) shell -s "$$STACK"

down: setup ## stop the embedded cluster and everything of it
	@$(RUN) down

check: setup ## style, types, Go sources, generated files in date
	@$(RUN) check

test: setup ## everything from a fresh checkout to all tests passed
	@$(RUN) test

soak: setup ## the long suites in full; results as JSON in .state/soak-results
	@$(RUN) soak

bench: setup ## benchmarks; results as JSON in .state/bench.json and as a table
	@$(RUN) bench

record: setup ## ask the kubelet's own code anew what tests/kubelet holds the simulator against
	@$(RUN) record
