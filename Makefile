# make demo: set up, then show the main job · make test: set up, then pass every test · make test-long: the tests that CI leaves out · make test-touched BRANCH=main: those of what a change touched, for ten minutes · make check: lints, types, generated docs · make test-kernels: ublk, cgroup v2 and Linux 5.15 in an emulated machine (on demand) · make campaign MINUTES=60 SEED=1: kill disklab at every step, on from where it stopped · make truth MINUTES=60: rehearse the cells that docs/truth.md lacks, and predict all of them · make power-cuts MINUTES=10 SEED=1: cut the power under file systems and PostgreSQL · make static-engine: an engine for other hosts that needs no library of theirs (3 minutes) · make azure-smoke SUBSCRIPTION=... SSH_FROM=...: a measurement in the real Azure, for at most 2 USD · make fuzz SECONDS=600: mutate what comes from outside · make attack TRIES=1000 SEED=1: hostile files, settings, names and requests · make mutants MINUTES=60 SEED=1: turn comparisons, and see that tests notice · make audit RUSTSEC=DIR PYPA=DIR: known vulnerabilities of what is locked · make bench: the benchmarks, of a release's engine · make release: build and try the packages of a release · make docs: write the generated docs · make site: the documentation as a site, in target/site
SHELL := /bin/bash
.DEFAULT_GOAL := help
VENV := .venv
BIN := $(VENV)/bin
export CARGO_TERM_COLOR ?= auto
# Where it is set, each process of the tests and each command that they run compiles all of its modules again.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: help parts lint-rust lint-python setup demo azure-smoke test check check-rust check-python test-rust test-python test-together test-beside test-alone test-long test-touched test-kernels campaign truth power-cuts bench release static-engine docs site lock clean audit fuzz attack demos promises mutants busy interrupts

help:
	@grep -E '^# make' Makefile | sed 's/^# //; s/ · /\n/g'

setup:
	@scripts/part.sh set-up scripts/setup.sh

check: setup
	$(MAKE) --no-print-directory --output-sync --jobs 2 check-rust check-python

check-rust:
	+@scripts/part.sh 'lints, Rust' $(MAKE) --no-print-directory lint-rust

check-python:
	+@scripts/part.sh 'lints, Python' $(MAKE) --no-print-directory lint-python

lint-rust:
	cargo fmt --all --check
	cargo clippy --workspace --all-targets --locked --profile checked -- -D warnings

lint-python:
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	PYTHONPATH=python $(BIN)/lint-imports
	$(BIN)/python scripts/tidy.py
	$(BIN)/python scripts/javascript.py
	$(BIN)/python scripts/reference.py --check
	$(BIN)/python scripts/supply_chain.py --check
	$(BIN)/python scripts/accuracy_page.py --check
	$(BIN)/python scripts/choice_page.py --check
	$(BIN)/python scripts/examples.py --check
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --quiet

test: parts
	@$(MAKE) --no-print-directory check test-together test-alone; code=$$?; scripts/part.sh --table; exit $$code

# The crates are built and tested with what the tests in Python leave of the processors; what they said comes afterwards.
test-together: setup
	@$(MAKE) --no-print-directory --jobs 2 RUST_SAYS='>target/rust.log 2>&1' test-beside test-rust; code=$$?; cat target/rust.log; exit $$code

# What each part of `make test` takes is written anew.
parts:
	@rm -f target/parts.tsv target/tests.tsv

test-rust: setup
	@scripts/part.sh 'Rust tests' scripts/cargo-test.sh $(RUST_SAYS)

test-python: test-beside test-alone

test-beside: setup
	scripts/part.sh beside scripts/beside.sh

# What measures time or fills memory: one test after the other, those with devices beside those of this process alone.
test-alone: setup
	scripts/part.sh alone scripts/pytest.sh -m "alone and not long" --numprocesses 2 --dist loadgroup --durations=30 --durations-min=1 $$(grep -rl mark.alone tests --include='test_*.py')

# What CI leaves out: whole rehearsals and many seeds.
test-long: setup
	$(BIN)/pytest -m long

# The long tests of what differs from BRANCH, nearest first, for ten minutes.
BRANCH := main
test-touched: setup
	$(BIN)/pytest -m long --touched $(BRANCH) --numprocesses 0

# On demand: needs QEMU, apt and the network (the first time); see docs/ublk.md.
test-kernels: setup
	$(BIN)/python -m campaigns.kernels
	$(BIN)/python -m campaigns.kernels --command-line
	$(BIN)/python -m campaigns.kernels --memory-groups
	$(BIN)/python -m campaigns.kernels --system ubuntu-22.04
	$(BIN)/python -m campaigns.kernels --system ubuntu-22.04 --memory-groups

# On demand, as root: kills every step of every command; see docs/campaign.md.
MINUTES := 60
SEED := 1
campaign: setup
	$(BIN)/python -m campaigns.kills --minutes $(MINUTES) --seed $(SEED) --resume --page docs/campaign.md

# On demand, as root, with Cassandra: see docs/truth.md.
truth: setup
	$(BIN)/python -m campaigns.truth --minutes $(MINUTES) --resume --page docs/truth.md

# On demand, as root: see docs/power-cuts.md.
power-cuts: setup
	$(BIN)/python -m campaigns.power --minutes $(MINUTES) --seed $(SEED) --page docs/power-cuts.md

# On demand, as root; what breaks something is kept in tests/corpora.
# The targets inside the crates go on for SECONDS altogether, CASES of each at a time; what fails is kept beside them.
SECONDS := 600
CASES := 200000
fuzz: setup
	until=$$(($$(date +%s) + $(SECONDS))); while [ $$(date +%s) -lt $$until ]; do \
		PROPTEST_CASES=$(CASES) cargo test --quiet --locked --profile checked -p disklab-emulator -p disklab-load -p disklab-node --lib fuzz_ || exit 1; done
	$(BIN)/python -m campaigns.fuzz --seconds $(SECONDS) --seed $(SEED)

# On demand: what somebody would try who wants disklab to run a command of his; see docs/security-tries.md.
TRIES := 1000
attack: setup
	$(BIN)/python -m campaigns.attack --tries $(TRIES) --seed $(SEED) --page docs/security-tries.md

# On demand: the demo again and again beside a load of LOAD; see docs/demos.md.
DEMOS := 20
LOAD := 4
demos: setup
	$(BIN)/python -m campaigns.demos --demos $(DEMOS) --load $(LOAD) --page docs/demos.md

# On demand, as root, its quiet trials on a quiet machine: whether figures count that other work spoiled, and others do.
busy: setup
	$(BIN)/python -m campaigns.busy

# On demand, as root: Ctrl-C at random moments of every command; about half an hour.
INTERRUPTS := 200
interrupts: setup
	$(BIN)/python -m campaigns.interrupts --tries $(INTERRUPTS) --seed $(SEED) --page docs/security-tries.md

# On demand: random questions whose recommendation is simulated again, with credits spent; about ten seconds a question.
QUESTIONS := 200
promises: setup
	$(BIN)/python -m campaigns.promises --cases $(QUESTIONS)

# On demand: whether the tests of ten rooms notice ten turned comparisons in each; goes on from where it stopped.
mutants: setup
	$(BIN)/python -m campaigns.mutants --minutes $(MINUTES) --seed $(SEED)

# On demand, from copies of github.com/rustsec/advisory-db and github.com/pypa/advisory-database; cargo-deny and pip-audit
# besides, where they are installed: these fetch what they need.
audit: setup
	$(BIN)/python scripts/audit.py $(if $(RUSTSEC),--rust $(RUSTSEC)) $(if $(PYPA),--python $(PYPA))
	if cargo deny --version >/dev/null 2>&1; then cargo deny --locked check; fi
	if pip-audit --version >/dev/null 2>&1; then pip-audit --disable-pip --require-hashes --requirement requirements.lock; fi

# Figures are of an engine as it is released, with link-time optimisation.
bench: setup
	cargo build --quiet --locked --profile release --target-dir target -p disklab-engine --bin disklab-engine
	DISKLAB_ENGINE=$(CURDIR)/target/release/disklab-engine $(BIN)/python -m benches

release: setup
	scripts/release.sh

# With a subscription of your own, after `az login`: one small VM with a P4 in the real Azure, for at most 2 USD; see docs/azure.md.
REGION := eastus
azure-smoke: setup
	$(BIN)/disklab measure tests/cloud/smoke.yaml --quick --cloud azure --region $(REGION) --subscription $(SUBSCRIPTION) --ssh-from $(SSH_FROM) --max-usd 2; \
		code=$$?; $(BIN)/disklab clean --cloud; exit $$code

demo:
	@scripts/setup.sh --quick
	scripts/demo.sh

# Of the GNU target: its C library can be linked whole. It resolves no names that the host's own library would have to
# load a part for: give addresses. Beside the engine, disklab finds it.
static-engine: setup
	RUSTFLAGS="-C target-feature=+crt-static -C strip=symbols" cargo build --locked --profile release --target "$$(rustc -vV | sed -n 's/^host: //p')" \
		--target-dir target/static -p disklab-engine --bin disklab-engine
	install -m755 target/static/*/release/disklab-engine $(BIN)/disklab-engine-static.new
	mv $(BIN)/disklab-engine-static.new $(BIN)/disklab-engine-static

docs: setup
	$(BIN)/python scripts/reference.py

# target/site works from files; nothing is sent anywhere.
site: docs
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --quiet
	scripts/knob.sh
	$(BIN)/disklab knob target/site/turn-the-knob.html

lock:
	$(BIN)/python -m pip install --quiet uv
	$(BIN)/uv pip compile --quiet --universal --python-version 3.10 --extra dev --generate-hashes --no-header --no-emit-index-url --no-annotate pyproject.toml -o requirements.lock
	echo maturin | $(BIN)/uv pip compile --quiet --universal --python-version 3.10 --generate-hashes --no-header --no-emit-index-url --no-annotate -c requirements.lock pyproject.toml - -o requirements.run.lock
