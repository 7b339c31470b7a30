# The commands for developers; `make` lists them. Works with GNU make 3.81 and newer.
# PYTHON   the Python for .venv
# TESTS    the tests for `make test` and `make test-long`; OPTIONS is passed to pytest, or to bench/run.py
# BENCHES  the benchmarks for `make bench`; default: all. BENCHES="bench/bench_queue.py bench/bench_query.py"
# JOBS     number of test processes: 3 for `make test`, because many tests wait; 2 for `make test-long`
# STAGES   the stages of `make test-long`, see tools/test_long.sh; default: all
# SECONDS  time that `make fuzz` spends on each of TARGETS; default: all targets. INPUT: a file, to run only that
PYTHON ?= python3
TESTS ?= tests
JOBS ?=
BENCHES ?=
OPTIONS ?=
STAGES ?= long measure property spark sanitize fuzz
SECONDS ?= 60
TARGETS ?=
INPUT ?=

# Tests start thousands of processes. Without bytecode files, each of them compiles all modules that it imports.
unexport PYTHONDONTWRITEBYTECODE
SHELL := /bin/sh
RUN := .venv/bin/python
STUBTEST := $(RUN) -m mypy.stubtest --allowlist tests/typing/stubtest_allowlist.txt --ignore-unused-allowlist --ignore-disjoint-bases
HEADERS := $(wildcard include/rocketc/*.h)
SOURCES := $(sort $(shell find pyx/rocketc -name '*.pyx' -o -name '*.pxd'))
MODULES := $(patsubst pyx/%.pyx,%,$(filter %.pyx,$(SOURCES)))
BUILT := $(sort $(shell find rocketc -name '_*.so' | sed 's/[.].*//'))
ifeq ($(words $(wordlist 1,50,$(MODULES))),50)
else
$(error $(words $(MODULES)) Cython modules found below pyx/rocketc: this is not a complete source tree)
endif
SWITCHES := $(strip $(if $(ROCKETC_DEBUG),debug) $(if $(ROCKETC_SANITIZE),sanitize) $(ROCKETC_MODULES))

# Build again for a module without its .so, a .so without its module, or other switches than last time.
REBUILD := $(filter-out $(BUILT),$(MODULES)) $(filter-out $(MODULES),$(BUILT))
ifneq ($(strip $(REBUILD)),)
FORCE_BUILD := again
endif
ifneq ($(shell cat build/.extensions 2>/dev/null),$(SWITCHES))
FORCE_BUILD := again
endif

.DEFAULT_GOAL := help
.PHONY: help setup test test-long fuzz bench bench-quick docs lint lint-python lint-prose lint-cython lint-c lint-types format dist demo screenshots lock clean distclean again

help:  ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-10s %s\n", $$1, $$2}' Makefile

setup: build/.extensions  ## create .venv and build the extensions; takes seconds if nothing changed

.venv/.tools: tools/setup.sh
	@tools/setup.sh tools "$(PYTHON)"

.venv/.packages: requirements-dev.lock .venv/.tools
	@tools/setup.sh packages "$(PYTHON)"

.venv/.editable: pyproject.toml .venv/.packages
	@tools/setup.sh editable

build/.extensions: setup.py $(HEADERS) $(SOURCES) .venv/.editable $(FORCE_BUILD)
	@tools/setup.sh extensions "$(SWITCHES)"

again:

test: setup  ## all tests except the long ones
	@tools/setup.sh strace || true
	@rm -rf build/counts/test
	ROCKETC_COUNTS=build/counts/test $(RUN) -m pytest $(TESTS) -m "not long" --numprocesses $(or $(JOBS),3) --dist loadscope \
	  --reruns 1 --reruns-delay 2 -raR $(OPTIONS)

test-long: setup  ## long tests, more examples, older Spark versions, sanitizers, short fuzzing; prints counts of cases
	@tools/test_long.sh "$(STAGES)" "$(TESTS)" "$(or $(JOBS),2)" $(OPTIONS)

fuzz: setup  ## fuzz every reader, with coverage and sanitizers: see tests/README.md
	@tools/fuzz.sh "$(SECONDS)" "$(TARGETS)" "$(INPUT)"

bench: setup  ## all benchmarks: a table, JSON and plots in build/bench; takes an hour or two
	@tools/setup.sh valgrind
	@tools/setup.sh peers
	$(RUN) bench/run.py $(OPTIONS) $(BENCHES)

bench-quick: setup  ## benchmark rows that have a goal, in five minutes
	@tools/setup.sh peers
	$(RUN) bench/run.py --quick --goals $(OPTIONS) $(BENCHES)

docs: setup  ## build the site from docs/, docstrings and notebooks into build/site
	@tools/setup.sh docs
	@NO_MKDOCS_2_WARNING=1 $(RUN) -m mkdocs build --quiet --strict -f tools/site/mkdocs.yml
	@echo "docs: open build/site/index.html"

lint: lint-python lint-prose lint-cython lint-c lint-types  ## ruff, prose, cython-lint, clang-format, stubtest, mypy

lint-python: setup
	$(RUN) -m ruff check --quiet .
	$(RUN) -m ruff format --quiet --check .

lint-prose: setup
	$(RUN) tools/prose.py

lint-cython: setup
	PATH="$$PWD/.venv/bin:$$PATH" cython-lint $(SOURCES)

lint-c: setup
	.venv/bin/clang-format --dry-run -Werror $(HEADERS)

lint-types: setup
	$(RUN) -m mypy rocketc rocketc_command.py pytest_rocketc.py pyspark_rocketmq tests/typing
	@for name in $(MODULES); do test -e $$name.pyi || { echo "$$name.pyi is missing"; exit 1; }; done
	$(STUBTEST) $(subst /,.,$(MODULES))

format: setup  ## format Python files and headers
	$(RUN) -m ruff check --quiet --fix .
	$(RUN) -m ruff format --quiet .
	.venv/bin/clang-format -i $(HEADERS)

dist: setup  ## build the sdist and wheels (PYTHONS="python3.10 ..."), and test each wheel
	@PYTHONS="$(PYTHONS)" TESTS="$(TESTS)" tools/dist.sh

demo: setup  ## a month of real flights: from RocketMQ's files to a table, Parquet and a plot; then through a live broker
	$(RUN) examples/demo.py

screenshots: setup  ## write pictures of rocketc in a terminal to docs/images
	$(RUN) tools/screenshots.py

lock:  ## pin the dependencies of pyproject.toml again, for Python 3.10 and newer; needs uv
	@tools/lock.sh

clean:  ## remove build results
	find rocketc -name '*.so' -exec rm {} +
	rm -rf build dist .mypy_cache .pytest_cache .ruff_cache .hypothesis

distclean: clean  ## also remove .venv
	rm -rf .venv *.egg-info
