# A thin front: every target is a set-up step or a script that can be run by itself.
# The gateway is built by Meson and Ninja; what is provisioned goes to $FAILSOFT_CACHE
# (default: $XDG_CACHE_HOME/failsoft or ~/.cache/failsoft).

.DEFAULT_GOAL := help
.PHONY: help run test build unit e2e lint fuzz bench estimate-check clean
# The scripts use both cores themselves; two of them at once would only be in each other's way.
.NOTPARALLEL:

CONFIG ?=
PORT ?= 8080
export CONFIG PORT

# Tests close with `N passed, N failed`; a build that fails does so too.
OR_NONE = || { echo '0 passed, 1 failed'; exit 1; }

help:
	@echo 'failsoft: a checked second way to run behind every local AI request'
	@echo
	@echo '  make run     install what is missing, build, fetch engine and models, start the gateway'
	@echo '               CONFIG=file.yaml  your own configuration     PORT=8080  another port'
	@echo '  make test    the same set-up, then every test'
	@echo '  make build   only build:  build/src/failsoft'
	@echo '  make unit    unit tests under AddressSanitizer and UBSan'
	@echo '  make e2e     tests with a real engine and real clients'
	@echo '  make lint    gcc and clang warnings, layers, house rules, clang-format, clang-tidy'
	@echo '  make fuzz    every fuzz target for FUZZ_SECONDS (60) seconds'
	@echo '  make bench   the gateway against direct, nginx and HAProxy'
	@echo '  make estimate-check  predicted memory against what the engine allocates'
	@echo '  make clean   remove build folders (the cache stays)'

build:
	@setup/packages.sh build
	@setup/libs.sh
	@setup/build.sh build

run: build
	@setup/run.sh

test:
	@setup/packages.sh build test $(OR_NONE)
	@setup/libs.sh $(OR_NONE)
	@setup/build.sh build $(OR_NONE)
	@setup/build.sh build-asan $(OR_NONE)
	@setup/test.sh unit e2e

unit:
	@setup/packages.sh build test $(OR_NONE)
	@setup/libs.sh $(OR_NONE)
	@setup/build.sh build-asan $(OR_NONE)
	@setup/test.sh unit

e2e:
	@setup/packages.sh build $(OR_NONE)
	@setup/libs.sh $(OR_NONE)
	@setup/build.sh build $(OR_NONE)
	@setup/test.sh e2e

lint:
	@setup/packages.sh build test lint
	@setup/libs.sh
	@setup/build.sh build
	@setup/build.sh build-clang
	@tools/static_checks.py

fuzz:
	@setup/packages.sh build lint
	@setup/libs.sh
	@setup/build.sh build-fuzz
	@tools/static_checks.py fuzz

bench: build
	@setup/packages.sh bench
	@python3 bench/run.py --bin build/src/failsoft --tools build/bench $(BENCH_ARGS)

# The third model (sliding windows, 253 MB, Gemma terms) is fetched by this target alone.
estimate-check: build
	@setup/engine.sh >/dev/null
	@setup/models.sh all >/dev/null
	@python3 tools/estimate_check.py --bin build/src/failsoft $(ESTIMATE_ARGS)

clean:
	rm -rf build build-asan build-clang build-fuzz .deps
