# What a newcomer needs: `make demo`, `make test`. `make help` lists the rest.

CARGO ?= cargo
PROGRAMS = -p cambric -p cambric-bgp-client -p cambric-cni -p cambric-felix -p cambric-route-reflector -p sim

.PHONY: help build deb demo lint check test bench packages

help:
	@echo 'make build   the programs, optimised, in target/release'
	@echo 'make deb     build, then Debian packages in target/debian'
	@echo 'make demo    build, then bring up a fabric on this machine and prove that it routes'
	@echo 'make check   everything that needs neither root nor foreign daemons'
	@echo 'make test    everything that CI runs: check with its labs, fuzzing, and the demo'
	@echo 'make bench   reflector, kernel and store beside BIRD and FRR: time, CPU, memory (BENCH=... for options)'

build:
	@echo 'Building the programs (some minutes the first time, seconds later).'
	$(CARGO) build --release --locked $(PROGRAMS)

deb: build
	tools/package.sh

demo: build
	@echo
	target/release/cambric lab demo

# What needs no run: format, lints, the shape of the repository, documentation.
lint:
	$(CARGO) fmt --all --check
	$(CARGO) clippy --workspace --all-targets --locked -- -D warnings
	$(CARGO) run -q --locked -p xtask -- tidy
	RUSTDOCFLAGS='-D warnings' $(CARGO) doc --workspace --no-deps --locked

check: lint
	$(CARGO) test --workspace --locked

# The reflector beside its peers, and fabrics on a store, as root: docs/design/bench.md. BENCH='--work s3 --pairs 3'.
bench: packages
	$(CARGO) build --release --locked -p bench -p cambric-bgp-client -p cambric-cni -p cambric-felix -p cambric-route-reflector
	target/release/bench $(BENCH)

# Says at once what is missing, before anything is built.
packages:
	tools/install-test-packages.sh
	tools/install-neutron-driver.sh

# One test at a time: two cores are enough for one lab's daemons, not for several labs' at once.
# All are run, so that a run shows everything that fails. What is drawn is drawn from one seed: what
# has passed passes again. `make check` draws anew each time.
test: packages
	$(MAKE) lint build
	@[ "$$(id -u)" -eq 0 ] || echo 'not root: tests that need namespaces are skipped'
	env $$([ "$$(id -u)" -ne 0 ] || echo CAMBRIC_LAB=1) PROPTEST_RNG_SEED=1 \
	    PATH="$$PATH:/usr/sbin:/sbin:/usr/lib/frr" \
	    $(CARGO) test --workspace --locked --no-fail-fast -- --test-threads=1
	tools/fuzz.sh 30 1
	target/release/cambric lab demo
	target/release/cambric lab demo --store etcd --members 3
	tools/kept-lab.sh
	tools/package.sh
	tools/package-lab.sh
