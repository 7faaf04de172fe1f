#!/bin/sh
# Builds the fuzz targets with ASan and UBSan in a build folder of their own and runs each for a
# while, from its seeds and what earlier runs have learnt.
#
#   tests/fuzz/run.sh SECONDS [TARGET…]      e.g. tests/fuzz/run.sh 60 fuzz_framer
#
# Exit: 0 nothing found, 1 a finding (its input is kept and named), 2 usage, 3 no clang or no build.
set -eu

seconds=${1:-}
case $seconds in
'' | *[!0-9]*)
    echo "usage: $0 SECONDS [TARGET...]" >&2
    exit 2
    ;;
esac
shift

root=$(cd "$(dirname "$0")/../.." && pwd)
build=${FUZZ_BUILD_DIR:-$root/build-fuzz}
here=$root/tests/fuzz

clang=${FUZZ_CC:-}
for candidate in clang clang-19 clang-18 clang-17 clang-16 clang-15 clang-14; do
    [ -n "$clang" ] || clang=$(command -v "$candidate" || true)
done
if [ -z "$clang" ]; then
    echo "fuzz: no clang found (a Debian package is clang-14); set FUZZ_CC" >&2
    exit 3
fi

if [ ! -f "$build/build.ninja" ]; then
    # fuzzer-no-link: coverage in the library too, main() only in the targets.
    CC=$clang PKG_CONFIG_PATH="$root/.deps/lib/pkgconfig${PKG_CONFIG_PATH:+:$PKG_CONFIG_PATH}" \
        meson setup "$build" "$root" -Dfuzz=true -Dunit_tests=disabled \
        -Db_sanitize=address,undefined -Db_lundef=false -Db_pie=false \
        -Dc_args='-fsanitize=fuzzer-no-link -fno-sanitize-recover=undefined -fno-omit-frame-pointer' \
        >/dev/null || exit 3
fi
ninja -C "$build" -j2 fuzz_targets >"$build/fuzz-build.log" 2>&1 || {
    cat "$build/fuzz-build.log" >&2
    exit 3
}

if [ $# -eq 0 ]; then
    for file in "$here"/fuzz_*.c; do
        set -- "$@" "$(basename "$file" .c)"
    done
fi

findings=0
mkdir -p "$build/findings"
for target in "$@"; do
    learnt=$build/corpus/$target
    seeds=$here/corpus/$target
    log=$build/$target.log
    mkdir -p "$learnt"
    status=0
    ASAN_OPTIONS=detect_leaks=1 UBSAN_OPTIONS=print_stacktrace=1 \
        "$build/tests/fuzz/$target" -max_total_time="$seconds" -timeout=10 -rss_limit_mb=1024 \
        -max_len=4096 -print_final_stats=1 -artifact_prefix="$build/findings/$target-" \
        "$learnt" "$seeds" >"$log" 2>&1 || status=$?
    runs=$(sed -n 's/^stat::number_of_executed_units: *//p' "$log")
    if [ "$status" -eq 0 ]; then
        echo "fuzz: $target: ${runs:-0} inputs in ${seconds} s, nothing found"
    else
        tail -n 60 "$log"
        echo "fuzz: $target: FINDING, input in $build/findings/, log in $log"
        findings=1
    fi
done
exit "$findings"
