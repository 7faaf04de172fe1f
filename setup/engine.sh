#!/usr/bin/env bash
# Provisions the engine: stock llama-server, llama-fit-params and ggml-rpc-server of llama.cpp
# v0.4.0, with the ggml headers for the simulated accelerator's plug-in.
#
#   setup/engine.sh               provision (0 s when done) and print the engine's folder
#   setup/engine.sh --gpu cuda    the same with the engine's CUDA backend beside it; or vulkan
#   setup/engine.sh --own         FAILSOFT_ENGINE or the llama-server on PATH instead, if compatible
#
# Sources, pinned and checked: the npm tarball of node-llama-cpp carries the whole llama.cpp source
# as a git bundle; its platform package carries the prebuilt libraries. Only the server is compiled
# (about 290 CPU seconds) and linked with those. On a platform without a prebuilt package everything
# is compiled (about 840 CPU seconds). A run that is interrupted goes on where it stopped.
source "$(dirname "$0")/common.sh"

ENGINE_VERSION=v0.4.0
NPM_VERSION=3.21.1
RECIPE=1 # raise when the way of building changes, so that caches are not mistaken for it
SOURCE_PACKAGE=node-llama-cpp
SOURCE_INTEGRITY=sha512-E3N0Ev2Va0wzydvXYFwM9Hvyo07PoWjt8T/9GMc43Cvt8YkV/NU/tYUgEMC1grTPv2o9PRjQi0G3Wb5P/awiMg==

# platform_package — the prebuilt package for this machine and its integrity, or nothing.
platform_package() {
    [ "$(uname -s)" = Linux ] || return 0
    case "$(uname -m)" in
    x86_64) echo "linux-x64 sha512-Totj6RTDMGo3FoK2yNUaz/oGmZD0olAqTrRluFUWmu0kW2i9TOzHSW0OWCAiGkzRCVX0WsU2CyUQo/W2NYtdPA==" ;;
    aarch64) echo "linux-arm64 sha512-eI3anSEGzJiwF2rpMpZVTdHzw47LztbvfvuRzlu/fPO18ROnBOd+75RPUBlV6qENPpmNtbov85+3VODwEwBurg==" ;;
    esac
}

# gpu_package KIND — the package that carries one GPU backend for the same version.
gpu_package() {
    [ "$(uname -s)-$(uname -m)" = Linux-x86_64 ] || return 0
    case "$1" in
    cuda) echo "linux-x64-cuda sha512-idsE55VoD/FbvLhnBC9krUJaUoC0XnebseAAnCpm/brKf61HEbu+idgbb5eN6mxkjLSrHtILprJ0nDcUJjVrFg==" ;;
    vulkan) echo "linux-x64-vulkan sha512-flEeSzONQ6OIm5bYKLQf4eEnBzcC5WugFbyPUwkCqyyOFZ8pH0H9ulQ7ZNDLSIczeKneMRJornlyY1Hq7d3GDA==" ;;
    esac
}

# fetch_npm PACKAGE INTEGRITY — prints the path of the verified tarball.
fetch_npm() {
    local package=$1 integrity=$2 name file wanted got
    name=${package#@}
    file=$DOWNLOAD_DIR/${name//\//-}-$NPM_VERSION.tgz
    wanted=$(hex_of_integrity "$integrity")
    if [ -f "$file" ] && [ "$(digest_of sha512 "$file")" = "$wanted" ]; then
        echo "$file"
        return 0
    fi
    have npm || die "npm is needed to fetch $package; install it (Debian: apt-get install npm)"
    say "downloading $package@$NPM_VERSION"
    rm -rf "$file.part"
    mkdir -p "$file.part"
    npm pack "$package@$NPM_VERSION" --silent --ignore-scripts --cache "$file.part/cache" \
        --pack-destination "$file.part" >/dev/null </dev/null ||
        die "npm could not fetch $package@$NPM_VERSION (network?); run again to retry"
    got=$(digest_of sha512 "$file.part/$(basename "$file")")
    [ "$got" = "$wanted" ] ||
        die "$package@$NPM_VERSION has sha512 $got, expected $wanted; nothing was installed"
    mv "$file.part/$(basename "$file")" "$file"
    rm -rf "$file.part"
    echo "$file"
}

# build_with_progress FOLDER TARGET… — one line about every ten seconds, with the time gone by.
build_with_progress() {
    local folder=$1 line last=-10 started=$SECONDS
    shift
    cmake --build "$folder" --parallel "$(jobs_allowed)" --target "$@" 2>&1 </dev/null |
        while IFS= read -r line; do
            case "$line" in
            \[*) if ((SECONDS - started - last >= 10)); then
                last=$((SECONDS - started))
                say "${line%%]*}] ${last} s"
            fi ;;
            embed:*) ;; # the generator of the web page that is left out
            *) printf '%s\n' "$line" >&2 ;;
            esac
        done
}

generator() {
    if have ninja; then echo Ninja; else echo 'Unix Makefiles'; fi
}

minutes_for() { echo $((($1 / $(jobs_allowed) + 59) / 60)); }

# unpack_source WORK — the llama.cpp tree of the bundle in WORK/source.
unpack_source() {
    local work=$1 tarball
    [ -d "$work/source" ] && return 0
    have git || die "git is needed to unpack the engine's source (Debian: apt-get install git)"
    tarball=$(fetch_npm "$SOURCE_PACKAGE" "$SOURCE_INTEGRITY")
    tar -xzf "$tarball" -C "$work" package/llama/gitRelease.bundle
    rm -rf "$work/source.part"
    git -c advice.detachedHead=false clone --quiet "$work/package/llama/gitRelease.bundle" \
        "$work/source.part"
    mv "$work/source.part" "$work/source"
    rm -rf "$work/package"
}

# copy_headers SOURCE FOLDER — the public headers and those of the plug-in interface.
copy_headers() {
    cp "$1/ggml/include"/*.h "$1/include"/*.h "$1/ggml/src"/ggml*.h "$2/"
    [ -f "$2/ggml-backend-impl.h" ] || die "ggml-backend-impl.h is not in the engine's source"
}

# build_linked WORK PACKAGE INTEGRITY — server compiled, libraries prebuilt; result in WORK/out.
build_linked() {
    local work=$1 package=$2 integrity=$3 tarball
    tarball=$(fetch_npm "@node-llama-cpp/$package" "$integrity")
    rm -rf "$work/libs" "$work/libs.part"
    mkdir -p "$work/libs.part"
    tar -xzf "$tarball" -C "$work/libs.part" --strip-components=3 "package/bins/$package"
    tar -xzf "$tarball" -C "$work/libs.part" --strip-components=1 package/LICENSE
    mv "$work/libs.part" "$work/libs"
    say "compiling llama-server $ENGINE_VERSION: this takes about $(minutes_for 290) minutes," \
        "once, with $(jobs_allowed) jobs"
    cmake -S "$SETUP_DIR/engine" -B "$work/build" -G "$(generator)" \
        -DSOURCE="$work/source" -DLIBS="$work/libs" >"$work/configure.log" 2>&1 ||
        { cat "$work/configure.log" >&2; die "the engine's build could not be configured"; }
    build_with_progress "$work/build" llama-server llama-fit-params ggml-rpc-server ggml-rpc
    rm -rf "$work/out"
    mkdir -p "$work/out"
    cp "$work/libs"/lib*.so "$work/build/libggml-rpc.so" "$work/out/"
    cp "$work/libs/LICENSE" "$work/out/LICENSE.prebuilt"
    cp "$work/build/llama-server" "$work/build/llama-fit-params" "$work/build/ggml-rpc-server" \
        "$work/out/"
}

# build_full WORK — everything from source, where there is no prebuilt package.
build_full() {
    local work=$1
    say "no prebuilt libraries for $(uname -s) $(uname -m): compiling all of llama.cpp" \
        "$ENGINE_VERSION; this takes about $(minutes_for 840) minutes, once"
    cmake -S "$work/source" -B "$work/build" -G "$(generator)" -DCMAKE_BUILD_TYPE=Release \
        -DBUILD_SHARED_LIBS=ON -DGGML_BACKEND_DL=ON -DGGML_NATIVE=OFF -DGGML_RPC=ON \
        -DGGML_CPU_ALL_VARIANTS="$([ "$(uname -m)" = aarch64 ] && echo ON || echo OFF)" \
        -DLLAMA_BUILD_TESTS=OFF -DLLAMA_BUILD_EXAMPLES=OFF -DLLAMA_USE_PREBUILT_UI=OFF \
        -DLLAMA_BUILD_UI=OFF -DLLAMA_OPENSSL=OFF -DLLAMA_BUILD_APP=OFF \
        -DCMAKE_BUILD_WITH_INSTALL_RPATH=ON "-DCMAKE_INSTALL_RPATH=\$ORIGIN" \
        >"$work/configure.log" 2>&1 ||
        { cat "$work/configure.log" >&2; die "the engine's build could not be configured"; }
    build_with_progress "$work/build" llama-server llama-fit-params ggml-rpc-server
    rm -rf "$work/out"
    mkdir -p "$work/out"
    cp -P "$work/build/bin"/lib*.so* "$work/out/"
    cp "$work/build/bin/llama-server" "$work/build/bin/llama-fit-params" \
        "$work/build/bin/ggml-rpc-server" "$work/out/"
}

# provision — builds into a work folder and moves the result into place in one step.
provision() {
    local target=$1 package=$2 integrity=$3 work=$FAILSOFT_CACHE/work/engine-$(basename "$1")
    local started=$SECONDS
    have cmake || die "cmake is needed to build the engine (Debian: apt-get install cmake)"
    have c++ || have g++ || die "a C++ compiler is needed (Debian: apt-get install g++)"
    mkdir -p "$work" "$DOWNLOAD_DIR" "$(dirname "$target")"
    unpack_source "$work"
    if [ -n "$package" ]; then
        build_linked "$work" "$package" "$integrity"
    else
        build_full "$work"
    fi
    mkdir -p "$work/out/include"
    copy_headers "$work/source" "$work/out/include"
    cp "$work/source/LICENSE" "$work/out/LICENSE"
    "$work/out/llama-server" --version >"$work/out/version.txt" 2>&1 </dev/null ||
        { cat "$work/out/version.txt" >&2; die "the engine was built but does not start"; }
    rm -rf "$target"
    mv "$work/out" "$target"
    touch "$target/.stamp"
    rm -rf "$work"
    say "engine ready in $target after $((SECONDS - started)) s"
}

# add_gpu BASE KIND — a sibling folder of the engine with one more backend. Copies, not links to
# files: the engine looks for backends beside the file that it really is.
add_gpu() {
    local base=$1 kind=$2 target=$1-$2 package integrity tarball part
    [ -f "$target/.stamp" ] && { echo "$target"; return 0; }
    read -r package integrity <<<"$(gpu_package "$kind")" || true
    [ -n "${package:-}" ] || die "no prebuilt $kind backend for $(uname -m); kinds: cuda, vulkan (x86_64)"
    tarball=$(fetch_npm "@node-llama-cpp/$package" "$integrity")
    part=$target.part
    rm -rf "$part" "$part.lib" "$target"
    cp -al "$base" "$part" 2>/dev/null || cp -a "$base" "$part"
    rm -f "$part/.stamp"
    mkdir -p "$part.lib"
    tar -xzf "$tarball" -C "$part.lib" --strip-components=3 "package/bins/$package"
    find "$part.lib" -name "libggml-$kind*.so" -exec cp {} "$part/" \;
    [ -f "$part/libggml-$kind.so" ] || die "$package does not contain libggml-$kind.so"
    rm -rf "$part.lib"
    touch "$part/.stamp"
    mv "$part" "$target"
    echo "$target"
}

# own_engine_problem PROGRAM — why this llama-server can not be used; nothing when it can. The
# plug-in interface and the flags are those of one version, so the version decides.
own_engine_problem() {
    local program=$1 said flag help
    said=$("$program" --version 2>&1 </dev/null) || { echo "it does not start"; return 0; }
    case "$said" in
    *"version: ${ENGINE_VERSION#v}"*) ;;
    *) echo "it is '$(sed -n '/version/{p;q}' <<<"$said")', ${ENGINE_VERSION#v} is needed"; return 0 ;;
    esac
    help=$("$program" --help 2>&1 </dev/null || true)
    for flag in --sse-ping-interval --fit --slot-save-path; do
        grep -q -- "$flag" <<<"$help" || { echo "it has no $flag"; return 0; }
    done
}

# use_own_engine — a folder like a provisioned one around the user's program: a link to it (it looks
# for its libraries where it really is), its neighbours, and the headers of the same version.
use_own_engine() {
    local program problem target part name
    program=${FAILSOFT_ENGINE:-$(command -v llama-server || true)}
    [ -n "$program" ] || return 1
    program=$(readlink -f "$program") || return 1
    problem=$(own_engine_problem "$program")
    if [ -n "$problem" ]; then
        say "not using $program: $problem; providing our own"
        return 1
    fi
    target=$FAILSOFT_CACHE/engine/own-$(stat -c '%n %s %Y' "$program" | sha256sum | cut -c1-10)
    if [ ! -f "$target/.stamp" ]; then
        take_lock engine
        part=$target.part
        rm -rf "$part" "$target"
        mkdir -p "$part/include" "$DOWNLOAD_DIR"
        unpack_source "$part"
        copy_headers "$part/source" "$part/include"
        rm -rf "$part/source"
        for name in llama-server llama-fit-params ggml-rpc-server; do
            [ -x "$(dirname "$program")/$name" ] && ln -s "$(dirname "$program")/$name" "$part/$name"
        done
        ln -sf "$program" "$part/llama-server"
        touch "$part/.stamp"
        mv "$part" "$target"
    fi
    say "using your own engine $program"
    echo "$target"
}

main() {
    local gpu='' own=0 package='' integrity='' id target
    while [ $# -gt 0 ]; do
        case "$1" in
        --own) own=1; shift ;;
        --gpu) gpu=${2:?--gpu needs cuda or vulkan}; shift 2 ;;
        *) die "unknown argument '$1'; see the head of setup/engine.sh" ;;
        esac
    done
    if [ $own = 1 ] && use_own_engine; then return 0; fi
    read -r package integrity <<<"$(platform_package)" || true
    id=$(printf '%s %s %s %s' "$SOURCE_INTEGRITY" "$package" "$integrity" "$RECIPE" |
        sha256sum | cut -c1-10)
    target=$FAILSOFT_CACHE/engine/$ENGINE_VERSION-$id
    if [ ! -f "$target/.stamp" ]; then
        take_lock engine
        [ -f "$target/.stamp" ] || provision "$target" "$package" "$integrity"
    fi
    if [ -n "$gpu" ]; then
        add_gpu "$target" "$gpu"
    else
        echo "$target"
    fi
}

main "$@"
