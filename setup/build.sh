#!/usr/bin/env bash
# Configures and builds one build folder. What a folder is for follows from its name:
#
#   build         what ships: optimised, hardened, with the simulated accelerator's plug-in
#   build-asan    unit tests under AddressSanitizer and UBSan
#   build-clang   the same as build with clang, for its warnings and for clang-tidy
#   build-fuzz    fuzz targets (clang, libFuzzer, sanitizers)
#
# Ninja decides what has to be done; the folder is configured again only when its options change.
source "$(dirname "$0")/common.sh"

# clang_program NAME — Debian numbers the programs of clang when several can live side by side.
clang_program() {
    local candidate
    for candidate in "$1" "$1-14" "$1-15" "$1-16" "$1-17" "$1-18" "$1-19" "$1-20" "$1-21"; do
        if have "$candidate"; then echo "$candidate"; return 0; fi
    done
    die "$1 is needed for this; run: setup/packages.sh lint"
}

main() {
    local name=${1:?which build folder} folder wanted engine options=() targets=() compiler=''
    folder=$ROOT_DIR/$name
    case "$name" in
    # Across files: a small request costs a fifth less.
    build) options=(-Db_lto=true) ;;
    build-asan) options=(-Db_sanitize=address,undefined -Doptimization=1 -Dunit_tests=enabled) ;;
    build-clang) compiler=$(clang_program clang) ;;
    build-fuzz)
        compiler=$(clang_program clang)
        # libFuzzer and the sanitizers leave symbols to the runtime: no check for undefined ones.
        # fuzzer-no-link: coverage in the library too, main() only in the targets.
        options=(-Dfuzz=true -Db_sanitize=address,undefined -Db_lundef=false -Db_pie=false
            -Dunit_tests=disabled
            "-Dc_args=-fsanitize=fuzzer-no-link -fno-sanitize-recover=undefined")
        targets=(fuzz_targets)
        ;;
    *) die "unknown build folder '$name'; one of: build, build-asan, build-clang, build-fuzz" ;;
    esac
    engine=$("$SETUP_DIR/engine.sh" ${FAILSOFT_OWN_ENGINE:+--own})
    options+=("-Dengine_include=$engine/include"
        "-Dpkg_config_path=$ROOT_DIR/.deps/lib/pkgconfig${PKG_CONFIG_PATH:+:$PKG_CONFIG_PATH}")

    wanted="$compiler ${options[*]}"
    if [ ! -f "$folder/build.ninja" ] || [ ! -f "$folder/.options" ] ||
        [ "$(cat "$folder/.options")" != "$wanted" ]; then
        say "configuring $name"
        rm -rf "$folder"
        if [ -n "$compiler" ]; then export CC=$compiler; fi
        meson setup "$folder" "$ROOT_DIR" "${options[@]}" >"$FAILSOFT_CACHE/meson-$name.log" 2>&1 ||
            { tail -n 30 "$FAILSOFT_CACHE/meson-$name.log" >&2; die "$name could not be configured"; }
        printf '%s' "$wanted" >"$folder/.options"
    fi
    ninja -C "$folder" -j "$(jobs_allowed)" --quiet "${targets[@]}" </dev/null ||
        die "$name does not build; the compiler's lines are above"
}

main "$@"
