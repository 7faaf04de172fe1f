#!/usr/bin/env bash
# Installs what is missing with the system's package manager, and says what and why before it does.
#
#   setup/packages.sh build            what the gateway and the engine need to be built
#   setup/packages.sh build test e2e lint bench
#   setup/packages.sh --dry-run …      only say what would be installed
#
# Nothing that is there is installed again or upgraded. sudo is used only where it is needed and can
# answer; where neither root nor sudo is possible the exact command is printed and nothing is done.
# Tested on Debian 12; the names for the other managers come from their package lists.
source "$(dirname "$0")/common.sh"

# group | how to see that it is there | apt | dnf | pacman | apk | zypper | why
#   cmd:X    a program X on the path, or X-14 … X-21 as Debian numbers them
#   pc:X     pkg-config knows X
#   lib:X    the dynamic linker finds X
#   venv     python3 can make a virtual environment
#   fuzzer   clang can link libFuzzer and AddressSanitizer
TABLE='
build|cmd:cc|gcc libc6-dev|gcc glibc-devel|gcc|gcc musl-dev|gcc glibc-devel|compiles the gateway
build|cmd:c++|g++|gcc-c++|gcc|g++|gcc-c++|compiles the engine
build|cmd:cmake|cmake|cmake|cmake|cmake|cmake|builds the engine
build|cmd:meson|meson|meson|meson|meson|meson|builds the gateway
build|cmd:ninja|ninja-build|ninja-build|ninja|samurai|ninja|builds the gateway
build|cmd:pkg-config|pkg-config|pkgconf-pkg-config|pkgconf|pkgconf|pkg-config|finds libraries
build|pc:libuv|libuv1-dev|libuv-devel|libuv|libuv-dev|libuv-devel|event loop and processes
build|pc:yaml-0.1|libyaml-dev|libyaml-devel|libyaml|yaml-dev|libyaml-devel|reads the configuration
build|cmd:git|git|git-core|git|git|git|unpacks the engine source
build|cmd:npm|npm|npm|npm|npm|npm-default|downloads the engine source
build|cmd:python3|python3|python3|python|python3|python3|downloads libraries and models
build|venv|python3-venv|python3-pip|python|python3|python3-pip|keeps Python packages out of the system
build|cmd:curl|curl|curl|curl|curl|curl|asks the gateway whether it answers
test|pc:cmocka|libcmocka-dev|libcmocka-devel|cmocka|cmocka-dev|libcmocka-devel|unit tests
e2e|cmd:espeak-ng|espeak-ng|espeak-ng|espeak-ng|espeak-ng|espeak-ng|speaks what the speech service has to understand
lint|cmd:clang|clang|clang|clang|clang|clang|the second compiler, fuzz targets
lint|cmd:clang-tidy|clang-tidy|clang-tools-extra|clang|clang-extra-tools|clang-tools|static analysis
lint|cmd:clang-format|clang-format|clang-tools-extra|clang|clang-extra-tools|clang-tools|checks the layout of the code
lint|fuzzer|libclang-rt-14-dev|compiler-rt|compiler-rt|compiler-rt|clang|fuzz targets with sanitizers
gpu|lib:libvulkan.so.1|libvulkan1|vulkan-loader|vulkan-icd-loader|vulkan-loader|libvulkan1|lets the engine use the GPU
bench|cmd:nginx|nginx-light|nginx|nginx|nginx|nginx|a peer to measure against; its package starts a service
bench|cmd:haproxy|haproxy|haproxy|haproxy|haproxy|haproxy|a peer to measure against; its package starts a service
'

manager() {
    local name
    for name in apt-get dnf pacman apk zypper; do
        if have "$name"; then echo "$name"; return 0; fi
    done
}

# column MANAGER — the field of TABLE that holds this manager's names.
column() {
    case "$1" in apt-get) echo 3 ;; dnf) echo 4 ;; pacman) echo 5 ;; apk) echo 6 ;; zypper) echo 7 ;; esac
}

install_command() {
    case "$1" in
    apt-get) echo "apt-get install -y --no-install-recommends -o DPkg::Lock::Timeout=300" ;;
    dnf) echo "dnf install -y" ;;
    pacman) echo "pacman -S --needed --noconfirm" ;;
    apk) echo "apk add" ;;
    zypper) echo "zypper --non-interactive install" ;;
    esac
}

program_there() {
    local number
    PATH=$PATH:/usr/sbin:/sbin have "$1" && return 0
    for number in 14 15 16 17 18 19 20 21; do
        have "$1-$number" && return 0
    done
    return 1
}

# fuzzer_links — clang's own runtime is a package of its own on some systems.
fuzzer_links() {
    local clang folder status=1
    clang=$(command -v clang || command -v clang-14 || true)
    [ -n "$clang" ] || return 1
    folder=$(mktemp -d)
    echo 'int LLVMFuzzerTestOneInput(const unsigned char *d, unsigned long n);
          int LLVMFuzzerTestOneInput(const unsigned char *d, unsigned long n)
          { return n > 0 && d[0] == 255 ? 0 : 0; }' >"$folder/f.c"
    "$clang" -fsanitize=fuzzer,address "$folder/f.c" -o "$folder/f" 2>/dev/null && status=0
    rm -rf "$folder"
    return $status
}

there() {
    case "$1" in
    cmd:*) program_there "${1#cmd:}" ;;
    pc:*) have pkg-config && pkg-config --exists "${1#pc:}" ;;
    lib:*) PATH=$PATH:/usr/sbin:/sbin ldconfig -p 2>/dev/null | grep -qF "${1#lib:}" ;;
    venv) have python3 && python3 -c 'import venv, ensurepip' 2>/dev/null ;;
    fuzzer) fuzzer_links ;;
    esac
}

# names_for CHECK NAMES — the runtime of clang is numbered on Debian like clang itself.
names_for() {
    local check=$1 names=$2 version
    if [ "$check" = fuzzer ] && [ "$MANAGER" = apt-get ]; then
        version=$(apt-cache depends clang 2>/dev/null | sed -n 's/.*Depends: clang-\([0-9]*\)$/\1/p' |
            head -n 1)
        names="libclang-rt-${version:-14}-dev"
    fi
    echo "$names"
}

run_install() {
    local command=$1 prefix=''
    if [ "$(id -u)" != 0 ]; then
        if have sudo && { sudo -n true 2>/dev/null || [ -t 0 ]; }; then
            prefix='sudo '
        else
            die "these packages are missing and this user may not install them; run as root: $command"
        fi
    fi
    say "running: $prefix$command"
    if [ "$MANAGER" = apt-get ]; then
        command="env DEBIAN_FRONTEND=noninteractive $command"
        # A machine that has never fetched the lists cannot install anything.
        # shellcheck disable=SC2086
        $prefix $command </dev/null >"$LOG" 2>&1 && return 0
        say "refreshing the package lists first"
        $prefix apt-get update -qq </dev/null >>"$LOG" 2>&1 || true
    fi
    if [ "$MANAGER" = apt-get ]; then
        # shellcheck disable=SC2086
        $prefix $command </dev/null >>"$LOG" 2>&1 || { tail -n 20 "$LOG" >&2; return 1; }
    else
        # The other managers ask sudo for a password on the terminal.
        # shellcheck disable=SC2086
        $prefix $command >>"$LOG" 2>&1 || { tail -n 20 "$LOG" >&2; return 1; }
    fi
}

main() {
    local dry=0 groups=' ' missing='' row group check why names fields
    MANAGER=$(manager)
    while [ $# -gt 0 ]; do
        case "$1" in
        --dry-run) dry=1 ;;
        build | test | e2e | lint | bench | gpu) groups="$groups$1 " ;;
        *) die "unknown group '$1'; one of: build, test, e2e, lint, bench, gpu" ;;
        esac
        shift
    done
    while IFS='|' read -ra fields; do
        [ "${#fields[@]}" -eq 8 ] || continue
        group=${fields[0]} check=${fields[1]} why=${fields[7]}
        case "$groups" in *" $group "*) ;; *) continue ;; esac
        there "$check" && continue
        if [ -n "$MANAGER" ]; then
            names=$(names_for "$check" "${fields[$(($(column "$MANAGER") - 1))]}")
        else
            names=${fields[2]}
        fi
        say "missing: $names ($why)"
        missing="$missing $names"
    done <<<"$TABLE"
    [ -n "$missing" ] || return 0
    [ -n "$MANAGER" ] || die "no known package manager here; install the above by hand"
    missing=$(tr ' ' '\n' <<<"$missing" | sort -u | tr '\n' ' ')
    missing=${missing# }
    row="$(install_command "$MANAGER") ${missing% }"
    if [ $dry = 1 ]; then say "would run: $row"; return 0; fi
    LOG=$(mktemp)
    trap 'rm -f "$LOG"' EXIT
    run_install "$row" || die "the package manager failed (last lines above); the command was: $row"
    say "installed: ${missing% }"
}

main "$@"
