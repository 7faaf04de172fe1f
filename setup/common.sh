# Shared by the set-up scripts: where things go, how progress is said, and downloads that are
# either complete and verified, or not there.
#
# Everything provisioned lives outside the tree in $FAILSOFT_CACHE, by name, version and hash, so
# that two clones share it and a version change never overwrites what another clone uses.
# shellcheck shell=bash

set -euo pipefail

SETUP_DIR=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
ROOT_DIR=$(dirname "$SETUP_DIR")
FAILSOFT_CACHE=${FAILSOFT_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/failsoft}
DOWNLOAD_DIR=$FAILSOFT_CACHE/downloads
export FAILSOFT_CACHE

# pip must never wait for an answer or print its self-advertisement.
export PIP_NO_INPUT=1 PIP_DISABLE_PIP_VERSION_CHECK=1
# Debian refuses pip outside a virtual environment; every pip call here runs inside one.

say() { printf '%s: %s\n' "$(basename "$0" .sh)" "$*" >&2; }

die() {
    say "$*"
    exit 3
}

have() { command -v "$1" >/dev/null 2>&1; }

# jobs_allowed — one compiler per core, but no more than fit into memory at 1.5 GiB each.
jobs_allowed() {
    local cores memory
    if [ -n "${FAILSOFT_JOBS:-}" ]; then
        echo "$FAILSOFT_JOBS"
        return 0
    fi
    cores=$(nproc 2>/dev/null || echo 2)
    memory=$(awk '/^MemAvailable:/ { print int($2 / 1572864) }' /proc/meminfo 2>/dev/null || true)
    [ "${memory:-0}" -ge 1 ] || memory=1
    echo $((cores < memory ? cores : memory))
}

# digest_of ALGORITHM FILE — the hexadecimal digest, nothing else.
digest_of() { "${1}sum" "$2" | cut -d' ' -f1; }

# hex_of_integrity sha512-BASE64 — npm's integrity string as the hexadecimal of sha512sum.
hex_of_integrity() { printf '%s' "${1#sha512-}" | base64 -d | od -An -v -tx1 | tr -d ' \n'; }

# take_lock NAME — one writer per cached thing. The lock is held until the script ends: the
# descriptor closes with the process, so a killed run never leaves the cache locked.
take_lock() {
    mkdir -p "$FAILSOFT_CACHE/locks"
    exec 9>"$FAILSOFT_CACHE/locks/$1"
    have flock || return 0
    if ! flock -n 9; then
        say "another run is working on '$1'; waiting for it"
        flock 9
    fi
}

# make_venv DIR REQUIREMENTS — a virtual environment with exactly these pinned requirements. The
# stamp holds the digest of the requirements, so a changed pin rebuilds and nothing else does.
make_venv() {
    local dir=$1 requirements=$2 wanted python
    wanted=$(digest_of sha256 "$requirements")
    if [ -f "$dir/.stamp" ] && [ "$(cat "$dir/.stamp")" = "$wanted" ] &&
        "$dir/bin/python" -c '' 2>/dev/null; then
        return 0
    fi
    python=${PYTHON:-python3}
    have "$python" || die "python3 is needed; install it (Debian: apt-get install python3-venv)"
    rm -rf "$dir"
    mkdir -p "$(dirname "$dir")"
    "$python" -m venv "$dir" ||
        die "python3 cannot make a virtual environment (Debian: apt-get install python3-venv)"
    "$dir/bin/python" -m pip install --quiet --no-cache-dir -r "$requirements" ||
        die "pip could not install $requirements (network?); run again to retry"
    echo "$wanted" >"$dir/.stamp"
}
