# The two commands of the README: `cargo run --release -- up` and `make test`.

CARGO ?= cargo
PYTHON ?= python3

.PHONY: test lint unit clients python proto differential chaos suites equality corpus deny bench fuzz seeds clean

# Clients wait for distant regions most of the time, so all else is tested beside them, with the program that they speak with.
# The Python package comes behind them, when the live tests, which also wait, are over.
test: lint
	$(CARGO) test --workspace --locked --tests --no-run
	{ $(PYTHON) tests/clients/run.py --binary target/debug/isochrone; clients=$$?; \
	$(MAKE) --no-print-directory python && [ $$clients -eq 0 ]; } > target/beside.log 2>&1 & \
	beside=$$!; $(MAKE) --no-print-directory unit; unit=$$?; \
	wait $$beside; beside=$$?; cat target/beside.log; [ $$unit -eq 0 ] && [ $$beside -eq 0 ]

# Style and warnings; under the tests' profile, so that `unit` finds macros and build scripts built.
lint:
	$(CARGO) fmt --all --check
	$(CARGO) clippy --profile test --workspace --all-targets --locked -- -D warnings

# Unit, property, seed and live tests, and the examples in the documentation; those in files are only looked at by `lint`.
# Live tests wait more than they compute: twice as many at once as there are cores.
unit:
	RUST_TEST_THREADS=$$((2 * $$(nproc))) $(CARGO) test --workspace --locked --tests
	$(CARGO) test --workspace --locked --doc

# Real clients of seven languages (docs/redis.md, "Clients"), job queues and session stores on top of them, and grpcio,
# against a running cluster; installs what it needs, and skips a language whose tools are not there.
clients:
	$(CARGO) build --profile test --locked
	$(PYTHON) tests/clients/run.py --binary target/debug/isochrone

# Writes crates/proto/src/generated.rs and descriptors.bin from the files of proto/, where those have changed.
proto:
	$(CARGO) run --quiet --locked --manifest-path tools/proto/Cargo.toml

# The Python package, built, installed and tested in an environment of its own; skipped, and said so, without Python 3.10.
python:
	$(PYTHON) tests/python/run.py

# A million random commands for each of three protocols, answered as by redis-server (which must be on the path) while
# leaders and masters are killed; and a million more without a protocol. SEED=7 for others.
differential:
	COMMANDS=1000000 KILLS=50 $(CARGO) test --workspace --locked --test live -- --nocapture --test-threads 1 differential
	COMMANDS=1000000 $(CARGO) test --workspace --locked --test node -- --ignored differential

# T-COP-10 and T-COP-11 in full: up to 32 threads, 20 epochs, large data, and 60,000 random cases, each bit for bit what one
# thread learns; and all interleavings and damaged tables of which `unit` tries a part.
equality:
	CASES=20000 $(CARGO) test --locked -p isochrone-learn --features tables -- --include-ignored learn_what_one_would any_sets \
		any_features no_interleaving_gives no_length

# Writes the data of this version and format into crates/cli/tests/corpus, where none is kept: for all later versions to read.
corpus:
	UPDATE_EXPECT=1 $(CARGO) test --workspace --locked --test live -- --nocapture what_versions_have_written

# Real nodes of every protocol, killed, stopped and cut off at random under load. KILLS of each, SEED=7 for others.
chaos:
	KILLS=$${KILLS:-100} $(CARGO) test --workspace --locked --test live -- --ignored --nocapture --test-threads 1 chaos

# The tests that Redis and redis-py have for themselves; REDIS is a checkout of Redis 7.2.6. Needs Tcl.
suites:
	$(CARGO) build --release --locked
	$(PYTHON) tests/suites/run.py --redis $(REDIS)

# Advisories, licences, bans, sources (needs cargo-deny).
deny:
	$(CARGO) deny check

# Isochrone beside etcd and Redis, as in the first table of docs/benchmarks.md; what else is measured there names its command.
# Needs redis-server, redis-benchmark, etcd and go.
bench:
	$(CARGO) build --release --locked
	bench/peers/run.sh

# The long safety run: 20,000 seeds of every protocol at 3 and at 5 replicas.
seeds:
	$(CARGO) build --release --locked
	for protocol in multipaxos mencius fastpaxos epaxos sdpaxos domino curp curp-consensus; do for file in three five; do \
		target/release/isochrone sim deployments/$$file-regions.toml --protocol $$protocol \
			--seeds 20000 --faults all || exit 1; \
	done; done
	for protocol in carousel-fast carousel-basic 2pc tapir; do for file in carousel-ec2 five-regions; do \
		target/release/isochrone sim deployments/$$file.toml --protocol $$protocol --partitions 5 \
			--seeds 20000 --faults all || exit 1; \
	done; done

# A minute of each fuzz target (needs cargo-fuzz and a nightly toolchain).
fuzz:
	cd fuzz && for target in $$(cargo fuzz list); do cargo fuzz run $$target -- -max_total_time=60 || exit 1; done
