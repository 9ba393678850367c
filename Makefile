# Needs python3 (3.11 or later) and make; everything else goes into a virtual environment in .venv.
# Every target that needs it sets it up, and again when pyproject.toml has changed.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
EXPORTS := $(VENV)/.exports-installed
DEMO := build/demo
MODEL := tests/models/resnet50.raw.onnx
# Each worker begins with a half of the tests in their order, so that what a module plans once is planned once.
PYTEST_OPTIONS ?= -n 2 --dist worksteal --dearest 10 --most-seconds $(MOST_SECONDS)
# Of the processor, that tests may take, as tests/tools/dearest.py counts; 0: any. `.ci/run` states a number.
MOST_SECONDS ?= 0
# Models of the zoo whose plans must not come to cost more; `make check-costs CHECK_OPTIONS=--update` accepts what they cost.
GATED := mlp-5x300 mlp-4x8192 cnn-5x2048-6 lenet-5 alexnet gpt-2x1024 rnn-1-1k
CHECK_OPTIONS ?=
BENCH_OPTIONS ?=
# An empty folder, or none, is an error to mypy.
# `planner` has links to opdefs and configs.
TYPED := planner cli.py $(if $(wildcard bench/*.py),bench)

# `say` prints a command before it runs it, as a user would type it; what it runs is the installed one.
say = printf '\n$$ %s\n' "$(1)"; $(BIN)/$(1)

.DEFAULT_GOAL := help
.PHONY: help demo test test-slow test-nightly test-exports test-wheel release test-pytorch check-costs world schemas lint format bench papers bench-multifetch bench-pytorch cuda-stand-in hooks clean

help: ## show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-16s %s\n", $$1, $$2 }' Makefile

demo: $(STAMP) ## plan a ResNet-50 of a sixteenth of the channels for 4 workers, run 3 steps on this CPU and verify them
	@rm -rf $(DEMO) && mkdir -p $(DEMO)
	@set -e; \
	$(call say,tofu grad $(MODEL) --loss softmax_cross_entropy --optimizer momentum --lr 0.05 --batch 8 -o $(DEMO)/resnet50.train.onnx); \
	$(call say,tofu plan $(DEMO)/resnet50.train.onnx --gpus 4 -o $(DEMO)/plan); \
	$(call say,tofu explain $(DEMO)/plan); \
	$(call say,tofu explain $(DEMO)/plan m.classifier.1.weight); \
	$(call say,tofu run $(DEMO)/plan --steps 3 --verify)

# What each runs is said in docs/contributing.md. Tests start many hundreds of Pythons: each would compile tofu anew.
test test-slow test-nightly test-exports: export PYTHONDONTWRITEBYTECODE :=

test: $(STAMP) ## run the fast tests
	@$(BIN)/python -m pytest -m "not slow and not gpu_emulation and not exports and not nightly" $(PYTEST_OPTIONS)

test-slow: $(EXPORTS) ## run what `make test` leaves out, but for the night's; installs the extra `exports`
	@$(BIN)/python -m pytest -m "(slow or gpu_emulation or exports) and not nightly" $(PYTEST_OPTIONS)

# Tests with drawn examples draw four times as many as in CI, and other ones in every run; see tests/conftest.py.
test-nightly: $(STAMP) ## run the longest draws, and four times as many examples of every test that draws some
	@HYPOTHESIS_PROFILE=nightly $(BIN)/python -m pytest -m "nightly or hypothesis" $(PYTEST_OPTIONS)

test-exports: $(EXPORTS) ## run plans in JAX, on 8 virtual devices, and count what XLA moves; installs the extra `exports`
	@$(BIN)/python -m pytest -m exports tests/features/exports $(PYTEST_OPTIONS)

test-wheel: $(STAMP) ## build sdist and wheel, install each among strangers of the same names, plan and run there
	@$(BIN)/python tests/tools/installs.py

# Three minutes. Nothing is tagged or uploaded: the last lines are the commands that do so.
release: $(STAMP) ## check a clean commit, write its sdist, wheel and notes to dist/, and print the commands that publish them
	@$(BIN)/python tests/tools/release.py

check-costs: $(STAMP) ## hold plans of the zoo's models to what they cost before
	@$(BIN)/tofu check $(GATED) --gpus 2,4,8 --baseline .ci/costs.json $(CHECK_OPTIONS)

# An hour and more. What was measured stays in build/world, so that it goes on where it was stopped.
world: $(STAMP) ## export networks that other people wrote, plan, run and verify each; the table goes to bench/results/world.md
	@test -x build/world/env/bin/python || $(PYTHON) -m venv build/world/env
	@build/world/env/bin/python -m pip install -qq --disable-pip-version-check -r tests/tools/world-requirements.txt
	@$(BIN)/python -m pip download -qq --no-deps -d build/world/wheels -r tests/tools/world-wheels.txt
	@build/world/env/bin/python tests/tools/world_models.py build/world/models
	@$(BIN)/python tests/tools/world.py build/world/models --wheels build/world/wheels --table bench/results/world.md

# A quarter of an hour, and PyTorch is installed for it.
test-pytorch: $(STAMP) ## run the two pages on PyTorch beside it, and four networks, whose table goes to bench/results/pytorch.md
	@test -x build/pytorch/env/bin/python || $(PYTHON) -m venv build/pytorch/env
	@build/pytorch/env/bin/python -m pip install -qq --disable-pip-version-check -r tests/tools/pytorch-requirements.txt
	@PYTHONPATH="$(CURDIR)" PATH="$(CURDIR)/$(BIN):$$PATH" build/pytorch/env/bin/python tests/tools/pytorch_page.py build/pytorch/page docs/first-plan.md docs/export-from-pytorch.md
	@PYTHONPATH="$(CURDIR)" PATH="$(CURDIR)/$(BIN):$$PATH" build/pytorch/env/bin/python tests/tools/pytorch_networks.py build/pytorch/networks --table bench/results/pytorch.md

schemas: $(STAMP) ## write JSON schemas, docs/reference and the types of `import planner` anew
	@$(BIN)/python tests/tools/schemas.py

lint: $(STAMP) ## check style, format, types, import contracts, and what the code weighs (.ci/budget.toml)
	@failed=; \
	echo "ruff check"; $(BIN)/ruff check || failed="$$failed ruff-check"; \
	echo "ruff format --check"; $(BIN)/ruff format --check || failed="$$failed ruff-format"; \
	echo "mypy"; $(BIN)/mypy $(TYPED) || failed="$$failed mypy"; \
	echo "lint-imports"; $(BIN)/lint-imports --no-cache > $(VENV)/lint-imports.log 2>&1 \
	    && tail -n 1 $(VENV)/lint-imports.log || { cat $(VENV)/lint-imports.log; failed="$$failed lint-imports"; }; \
	echo "budget"; $(BIN)/python tests/tools/budget.py || failed="$$failed budget"; \
	if [ -n "$$failed" ]; then echo "lint: failed:$$failed" >&2; exit 1; fi; \
	echo "lint: all passed"

format: $(STAMP) ## format the code, and fix what ruff can fix
	@$(BIN)/ruff check --fix-only --quiet
	@$(BIN)/ruff format

# Every printed figure of the four papers that an estimate can be held against. `BENCH_OPTIONS='--only tofu'`: some.
papers: $(STAMP) ## print the figures of the papers beside ours: a quarter of an hour on two cores
	@$(BIN)/python bench/papers.py $(BENCH_OPTIONS)

# The one that needs a GPU is a target of its own, so are the papers' figures, and the contest's instances are not in the
# repository.
bench: $(STAMP) ## run the benchmarks; they print tables and judge nothing
	@set -e; for file in $(filter-out bench/multifetch.py bench/papers.py bench/against_pytorch.py bench/pytorch_steps.py bench/readme_table.py bench/iopddl%.py,$(sort $(wildcard bench/[a-z]*.py))); do printf '\n== %s\n' "$$file"; $(BIN)/python "$$file"; done

bench-multifetch: $(STAMP) ## time fetches on a GPU against a plain copy; ends with 2 where there is no GPU
	@$(BIN)/python bench/multifetch.py $(BENCH_OPTIONS)

# Half an hour, and PyTorch is installed for it. `BENCH_OPTIONS='--only gpt-2 --size small'`: some of it.
bench-pytorch: $(STAMP) ## time a step of fourteen networks beside PyTorch's and plain ONNX Runtime's
	@test -x build/pytorch/env/bin/python || $(PYTHON) -m venv build/pytorch/env
	@build/pytorch/env/bin/python -m pip install -qq --disable-pip-version-check -r tests/tools/pytorch-requirements.txt
	@$(BIN)/python bench/against_pytorch.py $(BENCH_OPTIONS)

# `make cuda-stand-in VERSION=1.32.0` tries another version of onnxruntime-gpu than the installed one.
cuda-stand-in: $(STAMP) ## load ONNX Runtime's CUDA provider without a GPU, over stand-ins for CUDA's libraries
	@$(BIN)/python tests/tools/cuda_stand_in.py $(if $(VERSION),--version $(VERSION))

hooks: $(STAMP) ## run the checks of `make lint` before each commit
	@$(BIN)/pre-commit install

clean: ## remove what make has made
	rm -rf $(VENV) build dist *.egg-info .pytest_cache .mypy_cache .ruff_cache .import_linter_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

# An environment whose Python is gone or another version is made anew; a healthy one is brought up to date.
$(STAMP): pyproject.toml setup.py
	@command -v $(PYTHON) > /dev/null || { echo "error: there is no $(PYTHON); install Python 3.11 or later" >&2; exit 1; }
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
	    echo "error: tofu needs Python 3.11 or later; $(PYTHON) is $$($(PYTHON) --version 2>&1)" >&2; \
	    echo "hint: make PYTHON=python3.12 ..." >&2; exit 1; }
	@wanted=$$($(PYTHON) -c 'import sys; print(sys.version_info[:2])'); \
	found=$$($(BIN)/python -c 'import sys; print(sys.version_info[:2])' 2> /dev/null || true); \
	if [ "$$found" != "$$wanted" ] || ! $(BIN)/python -m pip --version > /dev/null 2>&1; then \
	    echo "setting up $(VENV) (once)"; \
	    $(PYTHON) -m venv --clear $(VENV) || { echo "hint: on Debian and Ubuntu, install python3-venv" >&2; exit 1; }; \
	else \
	    echo "bringing $(VENV) up to date"; \
	    $(BIN)/python -m pip uninstall -qq --yes tofu; \
	fi
	@$(BIN)/python -m pip install -qq --disable-pip-version-check --editable '.[test]'
	@touch $@

# What exported plans are tried with; only `make test-exports` needs it.
$(EXPORTS): $(STAMP)
	@echo "installing the extra for exports (JAX)"
	@$(BIN)/python -m pip install -qq --disable-pip-version-check --editable '.[test,exports]'
	@touch $@
