# Copyright (c) 2026, blackwell.inference contributors
# SPDX-License-Identifier: GPL-3.0-or-later

SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
export PATH := $(CURDIR)/.venv/bin:$(PATH)
.DEFAULT_GOAL := help

.PHONY: help
help: ## Show the targets
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 16

.PHONY: setup
setup: ## Install what is missing: system packages, .venv, the link to the collection
	@tools/setup

.PHONY: demo
demo: setup ## Provision the embedded lab with site.yml and fetch one completion
	@tests/demo

.PHONY: test
test: setup ## Unit tests, lint, molecule, the lab: everything CI runs
	@tests/run

.PHONY: unit
unit: ## Unit tests only (after "make setup")
	pytest tests/unit

.PHONY: lint
lint: setup ## ansible-lint, ansible-test sanity, ruff, mypy, reuse, documentation
	@tests/lint

.PHONY: lab-up lab-down
lab-up: setup ## Start the embedded lab
	@tests/lab/lab up
lab-down: ## Remove the embedded lab and everything it made
	@tests/lab/lab down

.PHONY: docs
docs: setup ## Build the documentation site into docs/build
	@tools/build_docs

.PHONY: build
build: setup ## Build the installable artifact
	ansible-galaxy collection build --force

.PHONY: requirements
requirements: setup ## Lock requirements.in again
	@tools/lock_requirements

.PHONY: test-gpu
test-gpu: ## Try the facts on this machine's GPU, also in real containers; as root (tests/gpu/run exits 77 without a GPU)
	@tests/gpu/run

.PHONY: gpu-bundle
gpu-bundle: setup ## Make .gpu, what test-gpu needs on a machine without network
	@tests/gpu/bundle

.PHONY: test-real
test-real: setup ## Tests on real packages from the index: gigabytes, and no part of CI
	@pytest tests/real

.PHONY: fuzz
fuzz: setup ## The property tests of the unit tests with 20,000 examples each
	@pytest tests/unit -m hypothesis --hypothesis-profile nightly --numprocesses 2

.PHONY: bench
bench: setup ## Measure ratios and write the table of docs/benchmarks.md
	@python tests/bench/run.py $(BENCH)
