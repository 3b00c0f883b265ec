# kafkasniff: `make demo` shows what it does, `make test` proves it. Both need Python 3.11 or newer and make, nothing else.

VENV ?= .venv
BIN := $(VENV)/bin
# Extra arguments: make test ARGS="-k records"
ARGS ?=
BENCH ?=
# What `make fuzz` runs: `quick`, or families and options (`python -m tests.fuzz --help`)
FUZZ ?= all
WORKERS ?= auto
# The interpreter that makes the virtual environment; looked for when not given: make test PYTHON=/opt/python3.13
PYTHON ?=

.DEFAULT_GOAL := help
.PHONY: help demo test test-all lint types check docs fuzz fuzz-kernel vectors golden manual wheels release-check bench bench-live scale clean

help:
	@echo "make demo    show what kafkasniff says of captures of real Apache Kafka brokers"
	@echo "make test    run the default tests, some minutes (ARGS='-k name' for some of them)"
	@echo "make test-all run all tests: brokers, clusters, processes, all captures (needs Java, tshark and more)"
	@echo "make lint    ruff, the import rules, the vocabulary and the files for GitHub"
	@echo "make types   mypy --strict"
	@echo "make check   lint, types and test"
	@echo "make docs    the documentation as a site with search, in build/site; every link is checked"
	@echo "make fuzz    fuzz every parser with a million inputs, a day or more (FUZZ=quick: a minute; FUZZ='records --seconds 60')"
	@echo "make fuzz-kernel give the native kernel 100 million changed inputs, with the walker as the oracle"
	@echo "make vectors have the classes of Kafka's newest release write the vectors again (needs Java and Maven)"
	@echo "make golden  write golden files, evidence and the list of what is proven again (needs the same)"
	@echo "make wheels  wheels for Linux and macOS on both machines, compiled here, in dist/"
	@echo "make release-check  build what a release consists of twice, check it, and write its SBOM (RELEASE=1.0.0)"
	@echo "make manual  write the manual pages, the reference and the completion scripts again, which follow from the code"
	@echo "make bench   time beside tshark, memory, growth (hours; needs tshark, tcpdump and root; BENCH=--quick for a try-out)"
	@echo "make bench-live  live capture under rising load, beside tshark (needs root, Linux, tshark, tcpdump, tcpreplay)"
	@echo "make scale   both engines of export on 1 to 8 GB of captures (some hours, 60 GB of disk; BENCH as above)"
	@echo "make clean   remove the virtual environment and all caches"

# A comma in the argument of a call.
, := ,

# A stamp per set of dependencies: pip runs again when pyproject.toml or the native kernel changes, else not at all.
BUILD := pyproject.toml hatch_build.py $(wildcard kafkasniff/kernel/*.zig)
$(VENV)/bin/python:
	@python="$(PYTHON)"; \
	for candidate in python3 python3.13 python3.12 python3.11 python3.14; do \
	    if [ -n "$$python" ]; then break; fi; \
	    if $$candidate -c 'import sys; sys.exit(sys.version_info < (3, 11))' >/dev/null 2>&1; then python=$$candidate; fi; \
	done; \
	if [ -z "$$python" ]; then \
	    echo "kafkasniff needs Python 3.11 or newer; none was found. Name one with: make PYTHON=/path/to/python3.11" >&2; exit 1; \
	fi; \
	if ! "$$python" -c 'import ensurepip, venv' >/dev/null 2>&1; then \
	    echo "$$python cannot make virtual environments: install its venv module (Debian, Ubuntu: apt install python3-venv)" >&2; exit 1; \
	fi; \
	"$$python" -m venv "$(VENV)"

# install WHAT,WHY: pip takes a minute, so each package that it fetches is named. Bytecode is written when modules are first
# imported, which is quicker than compiling all of them now; but for the tests, whose processes would each compile the same.
define install
	@echo "Installing $(2) into $(VENV), packages from PyPI:"
	@{ $(BIN)/python -m pip install --disable-pip-version-check --no-compile --progress-bar off $(1) 2>&1; echo "status $$?"; } | \
	    awk '/^Collecting /{printf " %s", $$2; fflush()} /^Building/{printf " [%s]", $$0; fflush()} /^ERROR|error:/{print; failed=1} \
	        /^status /{code=$$2} {kept=kept $$0 "\n"} END{print ""; if (code) print kept; exit code}'
endef

$(VENV)/.installed: $(BUILD) | $(VENV)/bin/python
	$(call install,--editable '.[tables]',kafkasniff and compiling its kernel)
	@touch $@

# Only the packages of an extra, since kafkasniff is installed: the kernel is not compiled again.
$(VENV)/.installed-test: $(VENV)/.installed
	$(call install,'kafkasniff[test]',what the tests need)
	@# Some packages have files for other versions of Python, which do not compile.
	@$(BIN)/python -m compileall -qq -j 0 $(VENV)/lib kafkasniff || true
	@touch $@

$(VENV)/.installed-test-all: $(VENV)/.installed
	$(call install,'kafkasniff[test-all]',what all tests need)
	@touch $@ $(VENV)/.installed-test

$(VENV)/.installed-dev: $(VENV)/.installed
	$(call install,'kafkasniff[dev]',the tools for development)
	@touch $@ $(VENV)/.installed-test-all $(VENV)/.installed-test

$(VENV)/.installed-fuzz: $(VENV)/.installed
	$(call install,'kafkasniff[fuzz]',the fuzzers)
	@touch $@ $(VENV)/.installed-test-all $(VENV)/.installed-test

# All of these at once, as `.ci/run` needs them: pip resolves and fetches only once.
$(VENV)/.installed-all: $(VENV)/.installed
	$(call install,'kafkasniff[dev$(,)docs$(,)fuzz]',what all checks need)
	@touch $@ $(VENV)/.installed-dev $(VENV)/.installed-docs $(VENV)/.installed-fuzz $(VENV)/.installed-test-all \
	    $(VENV)/.installed-test

$(VENV)/.installed-docs: $(VENV)/.installed
	$(call install,'kafkasniff[docs]',Sphinx)
	@touch $@

# Each step is a command that a reader can repeat.
SHOW = @echo; printf '\033[1m$$ %s\033[0m\n' "kafkasniff $(1)"; PATH="$(BIN):$$PATH" kafkasniff $(1)
demo: $(VENV)/.installed
	@echo
	@echo "What went wrong here? A broker was killed while clients were connected."
	$(call SHOW,check -q --fail-on never captures/faults/broker-killed.pcap)
	@echo
	@echo "Where did the time of this Fetch go? It waited for the answer to an earlier request."
	$(call SHOW,timing -q captures/java-group-classic.pcap --exchange 55)
	@echo
	@echo "What did the clients and brokers say? One line per message, responses paired with requests."
	$(call SHOW,decode -q captures/librdkafka-codecs.pcap --api Produce$(,)Fetch) | head -n 10
	@echo
	@echo "The same for programs, down to single records:"
	$(call SHOW,decode -q --format json captures/librdkafka-codecs.pcap --api Produce --count 1) | cut -c 1-700 | sed 's/$$/ …/'
	@echo
	@echo "Next: $(BIN)/kafkasniff stats CAPTURE        an overview of your own capture (pcap, pcapng, compressed)"
	@echo "      $(BIN)/kafkasniff live -i INTERFACE    the same for live traffic (sudo)"
	@echo "      $(BIN)/kafkasniff help                 filters, TLS, exit codes"
	@echo "      README.md                             install it, recipes, Parquet and Spark"

# The default tests: no server, no other program, no root. `test-all` has everything, needs Java and more (.ci/run installs it).
PYTEST = $(BIN)/python -m pytest -n $(WORKERS) --dist loadgroup --no-loadscope-reorder
test: $(VENV)/.installed-test
	$(PYTEST) $(ARGS)

test-all: $(VENV)/.installed-test-all
	KAFKASNIFF_ALL=1 $(PYTEST) $(ARGS)

lint: $(VENV)/.installed-dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/lint-imports
	$(BIN)/python -m tests.vocabulary
	$(BIN)/check-jsonschema --builtin-schema vendor.github-workflows .github/workflows/*.yml
	$(BIN)/check-jsonschema --builtin-schema vendor.github-issue-config .github/ISSUE_TEMPLATE/config.yml
	$(BIN)/check-jsonschema --builtin-schema vendor.github-issue-forms $(filter-out %/config.yml,$(wildcard .github/ISSUE_TEMPLATE/*.yml))
	$(BIN)/check-jsonschema --builtin-schema vendor.citation-file-format CITATION.cff

types: $(VENV)/.installed-dev
	$(BIN)/mypy

check: lint types test

# Links are checked by Sphinx itself, whose warnings are errors here; links to other sites are not followed.
docs: $(VENV)/.installed-docs
	$(BIN)/python -m tests.reference docs/reference
	$(BIN)/python -m sphinx --fresh-env --fail-on-warning --keep-going --quiet --jobs auto -c docs/site -d build/docs-trees . build/site
	@echo "build/site/index.html"

fuzz: $(VENV)/.installed-fuzz
	$(BIN)/python -m tests.fuzz $(FUZZ)

# A hundred million inputs of each kind take some minutes; KERNEL_FUZZ='--only bodies --records' for others.
KERNEL_FUZZ ?= --executions 100000000
fuzz-kernel: $(VENV)/.installed-fuzz
	$(BIN)/python -m tests.fuzz.native_kernel $(KERNEL_FUZZ)

vectors: $(VENV)/.installed-test-all
	$(BIN)/python -m tests.vectors make

golden: $(VENV)/.installed-test-all
	$(BIN)/python -m tests.golden
	$(BIN)/python -m tests.cli.transcripts
	$(BIN)/python -m tests.vectors proven
	$(BIN)/python -m tests.evidence

# One environment with the compiler serves all of them. Each library is compiled anew: the same sources make the same bytes.
DIST ?= dist
wheels: $(VENV)/.installed-dev
	$(BIN)/python -m pip install --quiet --disable-pip-version-check "$$($(BIN)/python hatch_build.py --compiler)" 'hatchling>=1.25'
	for platform in linux-x86_64 linux-aarch64 macos-arm64 macos-x86_64; do \
	    KAFKASNIFF_BUILD_PLATFORM=$$platform $(BIN)/python -m build --wheel --no-isolation --outdir "$(DIST)" . || exit 1; \
	done

# Of the last commit, into dist/release. RELEASE=1.0.0 also demands that this is the version.
RELEASE ?=
release-check: $(VENV)/.installed-dev
	rm -rf "$(DIST)/release"
	$(BIN)/python -m tests.release build "$(DIST)/release" $(RELEASE)

manual: $(VENV)/.installed-test-all
	$(BIN)/python -m kafkasniff.cli.manual docs/man
	for shell in bash zsh fish; do $(BIN)/python -m kafkasniff completion $$shell >docs/completion/kafkasniff.$$shell || exit 1; done
	$(BIN)/python -m tests.reference docs/reference

# Options that only the comparison has go to it alone.
bench: $(VENV)/.installed-test-all
	$(BIN)/python -m benchmarks.generate --missing $(filter --quick,$(BENCH))
	$(BIN)/python -m benchmarks.compare $(BENCH)
	$(BIN)/python -m benchmarks.growth $(filter --quick,$(BENCH))

bench-live: $(VENV)/.installed-test-all
	$(BIN)/python -m benchmarks.live_load $(BENCH)

scale: $(VENV)/.installed-test-all
	$(BIN)/python -m benchmarks.scale $(BENCH)

clean:
	rm -rf "$(VENV)" build dist .pytest_cache .mypy_cache .ruff_cache .hypothesis .import_linter_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
