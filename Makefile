# Begin with `make demo` and `make test`. `make help` lists all targets.

CARGO ?= cargo
DEMO = -p cambric-cli -p cambric-bfd-daemon -p cambric-bgp-client -p cambric-cli -p cambric-cni -p cambric-felix -p cambric-kube-controller -p cambric-route-reflector
XTASK = $(CARGO) run -q --locked --profile quick -p xtask --

.PHONY: help build deb demo docs lint check test soak bench packages release-check

help:
	@echo 'make demo    build quickly, then bring up a fabric on this machine and prove that it routes'
	@echo 'make build   the programs, optimized, in target/release'
	@echo 'make deb     build, then Debian packages in target/debian'
	@echo 'make check   lints, documentation and tests; labs are skipped, they need root (make test)'
	@echo 'make test    everything that CI runs: check with its labs, fuzzing, the demo, the packages'
	@echo 'make docs    the documentation as a searchable site in target/docs/html, with mdBook'
	@echo 'make soak    the tests that draw, with seeds by chance, and long runs (MINUTES=n; a round takes hours)'
	@echo 'make bench   reflector, kernel and store beside BIRD and FRR: time, CPU, memory (BENCH=... for options)'
	@echo 'make release-check  what a release needs beside make test (RELEASE=... for options)'

demo:
	@echo 'Building the programs (some minutes the first time, seconds later).'
	$(CARGO) build --profile quick --locked $(DEMO)
	@echo
	target/quick/cambric lab demo

build:
	$(CARGO) build --release --locked $(DEMO) -p cambric-sim

deb: build
	tools/package.sh release

# The documentation as a site; installs mdBook in target/tools if it is missing.
docs:
	$(XTASK) docs

# Checks that run no program: format, lints, the shape of the repository, documentation. In the profile
# of the tests, so that nothing is built twice.
lint:
	$(CARGO) fmt --all --check
	$(CARGO) clippy --workspace --all-targets --locked --profile quick -- -D warnings
	$(XTASK) tidy
	RUSTDOCFLAGS='-D warnings' $(CARGO) doc --workspace --no-deps --locked --profile quick

check: lint
	$(CARGO) test --workspace --locked --profile quick

# The stages are in xtask/src/ci.rs.
test:
	$(XTASK) ci

MINUTES ?= 10
soak:
	$(XTASK) soak $(MINUTES)

# The reflector beside its peers, and fabrics on a store, as root: docs/design/bench.md. BENCH='--work s3 --pairs 3'.
bench: packages
	$(CARGO) build --release --locked -p cambric-bench -p cambric-bfd-daemon -p cambric-bgp-client -p cambric-cli -p cambric-cni -p cambric-felix -p cambric-kube-controller -p cambric-route-reflector
	target/release/bench $(BENCH)

# Checks of a release beside `make test`: RELEASING.md. RELEASE='--without cargo-deny --since v0.1.0'.
release-check:
	$(XTASK) release-check $(RELEASE)

# Installs or lists the missing packages before anything is built.
packages:
	tools/install-test-packages.sh
	tools/install-neutron-driver.sh
