# The two commands: `make demo` shows Tieline at work, `make test` checks it. Both set up .venv first.

.PHONY: help setup demo test test-harness format lock changelog clean
.DEFAULT_GOAL := help

help: ## say what can be made
	@sed -n 's/^\([a-z-]*\):.*## /make \1\t/p' Makefile | expand -t 18

setup: ## make .venv with the tieline command in it; quick when nothing changed
	@tools/setup

demo: setup ## run `tieline demo`: three agents, a message, its receipts, a crash and a recovery
	@.venv/bin/tieline demo

test: setup ## run every suite as an ordinary user; SUITE="unit typing" runs those, SUITE=PATH runs pytest on it
	@.venv/bin/python tests/run.py $(SUITE)

test-harness: setup ## install the coding agents that Tieline plugs into, and run them with it on a scripted model
	@.venv/bin/python -m tests.harness $(OPTIONS)

format: setup ## put the sources into the house form
	@.venv/bin/python -m ruff check --fix --quiet . || true
	@.venv/bin/python -m ruff format .

lock: ## choose the packages anew: versions at least seven days old, with hashes, without addresses
	@tools/lock

changelog: setup ## move the fragments of changes/ into CHANGELOG.md; needs VERSION=1.2.3
	@.venv/bin/python tools/changelog.py "$(VERSION)"

clean: ## remove what was made
	rm -rf .venv .setup.lock .coverage .hypothesis .mypy_cache .pytest_cache .ruff_cache build dist
	find src tests tools -name __pycache__ -type d -prune -exec rm -rf {} +
