# On a fresh machine `make run` is enough.  It needs Python 3.11 or later with its venv module, and a package index.
# To use another interpreter: `make run PYTHON=python3.12`.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
# Marks of the installations to run, to demonstrate, and to test; installed again when pyproject.toml changes.
RUNNING := $(VENV)/.installed-run
SHOWING := $(VENV)/.installed-demo
TESTING := $(VENV)/.installed-test
COMPILED_ONCE := $(VENV)/.compiled-test
PIP := $(BIN)/python -m pip --disable-pip-version-check --quiet install

# Many containers set this.  Each test process would then compile all the modules that it imports.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := run
.DELETE_ON_ERROR:
.PHONY: run test suite test-compiled check explore demo cluster storm torture fuzz strangers mutants interop link-tests link-storm failover-storm steps-storm browser-tests coverage bench bench-check reference docs pyfiles wheel wheels clean

run: $(RUNNING)
	$(BIN)/bartleby run --config etc/broker.toml --data ./var

# The checks have what the tests leave of the processor.
test: $(TESTING)
	@$(MAKE) --no-print-directory --file $(firstword $(MAKEFILE_LIST)) --jobs 2 NICE='nice -n 19' check suite

# Four processes on two cores: two of them mostly wait, for brokers, clients and Spark.
suite: $(COMPILED_ONCE)
	$(BIN)/pytest -n 4

# What the processes import, in a new environment: otherwise each of them compiles all of it.  The tests themselves report
# collection errors.
$(COMPILED_ONCE): $(TESTING)
	-$(BIN)/pytest --collect-only -qq >/dev/null
	@touch $@

check: $(TESTING)
	$(NICE) $(BIN)/ruff check .
	$(NICE) $(BIN)/lint-imports --no-cache
	$(NICE) $(BIN)/mypy

# The property tests with many new random examples; a failure is printed with its example.
explore: $(TESTING)
	$(BIN)/pytest -n 2 --hypothesis-profile=explore -m hypothesis

# Orders, poison messages, messages that expire, a SIGKILL in the middle, the fate of every message, and the audits.
demo: $(SHOWING)
	$(BIN)/python -m demo

# Three linked brokers: orders sent to any and processed at any, a SIGKILL in the middle, one ledger over the journals.
cluster: $(SHOWING)
	$(BIN)/python -m demo.cluster

# A long run of the kill -9 loop of `make test`.
storm: $(TESTING)
	$(BIN)/python -m tests.storm --kills 10000

# Feeds malformed input to everything that reads foreign input.
fuzz: $(TESTING)
	$(BIN)/python -m tests.fuzz --inputs 1000000

# Kills random ones of three linked brokers; for a long run: `make link-storm KILLS=1000`.
KILLS ?= 100
link-storm: $(TESTING)
	$(BIN)/python -m tests.link_storm --kills $(KILLS)

# Faults of a pair of brokers and its PostgreSQL servers under load, each repeated; appends that go wrong.
ROUNDS ?= 100
failover-storm: $(TESTING)
	$(BIN)/python -m tests.failover_storm --rounds $(ROUNDS)
	$(BIN)/python -m tests.append_storm

# Power losses within long commits and wide fan-outs, in random stories of clients of all protocols, on a simulated disk.
SEEDS ?= 10000
steps-storm: $(TESTING)
	$(BIN)/python -m tests.steps_storm --seeds $(SEEDS)

# Power losses at every disk operation of random workloads, on a simulated disk; takes long.
torture: $(TESTING)
	$(BIN)/python -m tests.torture --points 1000000

# Changes one thing at a time in the store, the queues, the deliveries and the logins, and lists the changes that no test
# notices.  Takes hours; for a part: `make mutants MUTANTS='broker.engine.delivery.*'`, then `mutmut show NAME`.
MUTANTS ?= *
mutants: $(TESTING)
	$(PIP) --editable '.[mutants]'
	$(BIN)/mutmut run '$(MUTANTS)'
	$(BIN)/mutmut results

# The cost of connections that never log in, and whether clients can still connect among them.
strangers: $(TESTING)
	$(BIN)/python -m tests.strangers

# The tests with real clients, including the one in Rust, whose packages take some minutes to compile.
interop: $(TESTING)
	cd tests/interop/rust && cargo build
	$(BIN)/pytest tests/interop

# Long tests of links to other brokers.  Install these first: apt-get install rabbitmq-server mosquitto maven; Artemis
# is fetched from Maven Central.  RABBITMQ_4=.../sbin/rabbitmq-server adds a RabbitMQ 4.
ARTEMIS := apache-artemis-2.44.0
ARTEMIS_HOME ?= $(CURDIR)/build/$(ARTEMIS)
link-tests: $(TESTING) $(ARTEMIS_HOME)/bin/artemis
	BARTLEBY_LINK_TESTS=1 ARTEMIS_HOME=$(ARTEMIS_HOME) $(BIN)/pytest tests/interop -k test_links

$(CURDIR)/build/$(ARTEMIS)/bin/artemis:
	mkdir -p build
	cd build && mvn --quiet --batch-mode dependency:unpack -DoutputDirectory=$(CURDIR)/build \
	    -Dartifact=org.apache.activemq:apache-artemis:$(ARTEMIS:apache-artemis-%=%):tar.gz:bin

# The console in a real browser.  Install it first: apt-get install chromium chromium-driver.
browser-tests: $(TESTING)
	BARTLEBY_BROWSER_TESTS=1 $(BIN)/pytest tests/browser

# Checks that the store's own tests cover its every branch.
coverage: $(TESTING)
	$(BIN)/coverage run --source=store -m pytest --timeout 600 tests/store
	$(BIN)/coverage report --fail-under=100

# Measures speed, beside another broker if one is installed: docs/performance.md.
bench: $(TESTING)
	$(BIN)/python -m bench run

# Fails if a message costs 3 % more than at another commit: `make bench-check AGAINST=v0.1.0`.  Compares instructions
# where `perf` counts them, CPU time elsewhere.  If the result is unclear on a busy machine, raise ROUNDS.
AGAINST ?= HEAD^
ROUNDS ?= 15
CHECKED := stomp-nondurable stomp-durable amqp-nondurable amqp-durable mqtt-qos0 mqtt-qos1
bench-check: $(TESTING)
	$(BIN)/python -m bench run --broker bartleby --against $(AGAINST) --loss 3 --rounds $(ROUNDS) --duration 1 \
	    $(CHECKED:%=--case %)

# Regenerates etc/broker.toml, the tables of docs/configuration.md and docs/reasons.md, and the man pages from the code.
reference: $(TESTING)
	$(BIN)/python -m tests.support.reference

# Builds the pages of docs/ as a site with search, in build/site.
docs: $(RUNNING)
	$(PIP) --editable '.[docs]'
	$(BIN)/zensical build --strict

# Zips the audits' code for the executors of a Spark cluster: docs/audits.md.
pyfiles: $(RUNNING)
	$(BIN)/python -m spark_jobs.pyfiles dist/bartleby-audit.zip

# Builds a wheel of the sources, and one with the hot path compiled for this Python and machine (docs/performance.md).
wheel: $(RUNNING)
	$(BIN)/python -m pip --disable-pip-version-check --quiet wheel --no-deps --wheel-dir dist .
	BARTLEBY_COMPILE=1 $(BIN)/python -m pip --disable-pip-version-check --quiet wheel --no-deps --wheel-dir dist .
	@ls -1 dist/*.whl

# Builds compiled wheels for every Python and any Linux in containers, and tests each once it is installed.
wheels: $(RUNNING)
	@command -v docker podman >/dev/null || { echo "make: wheels are built in containers: install docker or podman" >&2; exit 1; }
	$(PIP) cibuildwheel
	$(BIN)/cibuildwheel --platform linux --output-dir dist

# Tests the compiled build (docs/performance.md): the tests of the compiled modules, and real clients.  It uses a fresh
# directory, so no extension module is older than its source.  Compiling takes some minutes first.
COMPILED := build/compiled
test-compiled: $(TESTING)
	rm -rf $(COMPILED)
	BARTLEBY_COMPILE=1 $(BIN)/python -m pip --disable-pip-version-check --quiet wheel --no-deps --wheel-dir $(COMPILED) .
	$(BIN)/python -m zipfile -e $(COMPILED)/bartleby-*.whl $(COMPILED)/tree
	cp -R CHANGELOG.md Dockerfile LICENSE Makefile README.md bench demo docker-compose.yml docs etc hatch_build.py pyproject.toml tests $(COMPILED)/tree
	cd $(COMPILED)/tree && ../../../$(BIN)/python -m broker version | grep compiled
	cd $(COMPILED)/tree && PYTHONPATH=$(CURDIR)/$(COMPILED)/tree ../../../$(BIN)/python -m pytest -n 2 \
	    tests/protocols tests/store tests/broker/engine tests/broker/sessions tests/simulation tests/interop

clean:
	rm -rf $(VENV) build dist .mypy_cache .pytest_cache .ruff_cache .hypothesis

$(RUNNING): pyproject.toml | $(VENV)/.made
	$(PIP) --editable .
	@touch $@

$(SHOWING): pyproject.toml | $(VENV)/.made
	@echo 'Installing the broker, a client, Spark and Java for the demonstration. This takes some minutes.'
	$(PIP) --editable '.[demo]'
	@touch $@ $(RUNNING)

# Without compiling: most modules of these packages are never imported.
$(TESTING): pyproject.toml | $(VENV)/.made
	$(PIP) --no-compile --editable '.[test]'
	@touch $@ $(RUNNING) $(SHOWING)

$(VENV)/.made:
	@command -v $(PYTHON) >/dev/null || { echo "make: $(PYTHON) is missing: install Python 3.11 or later, or name one with PYTHON=..." >&2; exit 1; }
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "make: $(PYTHON) is $$($(PYTHON) -V 2>&1), and 3.11 or later is needed: name another with PYTHON=..." >&2; exit 1; }
	@$(PYTHON) -c 'import venv, ensurepip' 2>/dev/null || { echo "make: $(PYTHON) has no venv module: install it (Debian, Ubuntu: apt-get install python3-venv)" >&2; exit 1; }
	$(PYTHON) -m venv $(VENV)
	@touch $@
