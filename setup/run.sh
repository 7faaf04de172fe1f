#!/usr/bin/env bash
# Starts the gateway with a ready configuration (or CONFIG=file.yaml) and stays in the foreground.
#
#   CONFIG         your own configuration; nothing is written then. What it names and the set-up knows is
#                  provided: models below the cache, programs (setup/services.sh), simulated cards
#   PORT           port of the ready configuration, 8080
#   FAILSOFT_GPU   auto (default), sim, nvidia, amd, intel or none
#
# The ready configuration has the services chat and embed, each with the tiers gpu and cpu. The gpu tier
# runs on the real GPU where the engine can use one, else on the simulated accelerator. What to try is
# printed once each tier has really answered. Ctrl-C ends the gateway and its workers.
source "$(dirname "$0")/common.sh"

BIN=$ROOT_DIR/build/src/failsoft
STATE_DIR=$FAILSOFT_CACHE/run
PORT=${PORT:-8080}
CONFIG=${CONFIG:-}
GPU_KIND=''
GATEWAY=0
CARDS_MADE=() # destroyed at the end

# engine_sees ENGINE PATTERN — the engine itself lists a device; anything less is a guess.
engine_sees() {
    timeout 60 "$1/llama-server" --list-devices 2>/dev/null </dev/null | grep -qE "$2"
}

# real_gpu_kind — nvidia, amd or intel by what the kernel shows, or nothing.
real_gpu_kind() {
    local vendor
    if [ -e /dev/nvidia0 ]; then echo nvidia; return 0; fi
    for vendor in /sys/class/drm/renderD*/device/vendor; do
        case "$(cat "$vendor" 2>/dev/null)" in
        0x1002) echo amd; return 0 ;;
        0x8086) echo intel; return 0 ;;
        0x10de) echo nvidia; return 0 ;;
        esac
    done
}

# choose_engine — sets ENGINE and GPU_KIND. A real GPU that the engine can not use is said and skipped.
choose_engine() {
    local wanted=${FAILSOFT_GPU:-auto} kind candidate
    ENGINE=$("$SETUP_DIR/engine.sh" --own)
    case "$wanted" in
    auto) kind=$(real_gpu_kind) ;;
    sim | none) GPU_KIND=$wanted; return 0 ;;
    nvidia | amd | intel) kind=$wanted ;;
    *) die "FAILSOFT_GPU is '$wanted'; one of: auto, sim, nvidia, amd, intel, none" ;;
    esac
    if [ -n "$kind" ] && [ "$(uname -m)" = x86_64 ]; then
        say "there is a GPU ($kind); looking whether the engine can use it"
        if [ "$kind" = nvidia ]; then
            candidate=$("$SETUP_DIR/engine.sh" --gpu cuda)
            if engine_sees "$candidate" '^ *CUDA[0-9]'; then
                ENGINE=$candidate GPU_KIND=nvidia
                return 0
            fi
            say "the CUDA libraries of version 13 are not there; trying Vulkan"
        fi
        "$SETUP_DIR/packages.sh" gpu || true
        candidate=$("$SETUP_DIR/engine.sh" --gpu vulkan)
        # A software renderer is no GPU.
        if engine_sees "$candidate" '^ *Vulkan[0-9].*(NVIDIA|AMD|Radeon|RADV|Intel|Arc)'; then
            ENGINE=$candidate GPU_KIND=$kind
            return 0
        fi
        say "the engine can not use it (no CUDA 13 and no Vulkan driver answered)"
    fi
    GPU_KIND=sim
}

# require_free_port ADDRESS ADVICE — said before anything is started or a card is touched.
require_free_port() {
    python3 - "$1" <<'PY' || die "port ${1##*:} on ${1%:*} is taken by another program; $2"
import socket, sys
host, _, port = sys.argv[1].rpartition(":")
family = socket.AF_INET6 if ":" in host else socket.AF_INET
probe = socket.socket(family, socket.SOCK_STREAM)
probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
try:
    probe.bind((host.strip("[]"), int(port)))
except OSError:
    sys.exit(1)
PY
}

# write_config — the ready configuration. Both tiers of a service are the same weights, the same
# context per request, the same key-value types: they answer alike.
write_config() {
    local models chat embed device='' gpu_tier='' threads
    models=$("$SETUP_DIR/models.sh" all)
    chat=$(sed -n 1p <<<"$models")
    embed=$(sed -n 2p <<<"$models")
    # The simulated accelerator computes on the CPU: half the cores for each tier, or an engine that
    # loads on one side would starve the answer on the other.
    threads=auto
    if [ "$GPU_KIND" = sim ]; then threads=$((($(nproc) + 1) / 2)); fi
    case "$GPU_KIND" in
    none) ;;
    sim)
        device="
devices:
  gpu0: { kind: sim, card: $CARD, plugin: \"$PLUGIN\" }
"
        gpu_tier="
      - { name: gpu, device: gpu0, threads: $threads }"
        ;;
    *)
        device="
devices:
  gpu0: { kind: $GPU_KIND }
"
        gpu_tier="
      - { name: gpu, device: gpu0 }"
        ;;
    esac
    cat >"$CONFIG.part" <<YAML
# Written by make run; written again at its next start. Copy it to keep changes, then:
#   make run CONFIG=your.yaml
listen: 127.0.0.1:$PORT
engine: "$ENGINE/llama-server"
$device
services:
  chat:
    kind: chat
    model: "$chat"
    context: 4096
    tiers:$gpu_tier
      - { name: cpu, threads: $threads }
  embed:
    kind: embeddings
    model: "$embed"
    context: 512
    tiers:$gpu_tier
      - { name: cpu, threads: $threads }
YAML
    mv "$CONFIG.part" "$CONFIG"
}

# prepare_card — a card of its own name for each port, so that two gateways do not share one.
prepare_card() {
    CARD=gpu0
    if [ "$PORT" != 8080 ]; then CARD=gpu0-$PORT; fi
    PLUGIN=$(find "$ROOT_DIR/build/sim" -maxdepth 1 -name '*.so' 2>/dev/null | head -n 1)
    [ -n "$PLUGIN" ] || die "the simulated accelerator's plug-in is not built (build/sim)"
    # Left over from a run that was killed, or lost by the last demonstration: a fresh one. A card
    # that a process still uses is not destroyed, and creating it again fails with the reason.
    "$BIN" sim destroy "$CARD" >/dev/null 2>&1 || true
    create_card "$CARD"
}

create_card() {
    "$BIN" sim create "$1" --capacity 2GiB >/dev/null ||
        die "the simulated card '$1' could not be created (reason above)"
    CARDS_MADE+=("$1")
}

# named_by CONFIG WHAT — what a configuration names, one a line: cards, programs or models. Nothing for a
# file with mistakes: `failsoft serve` says those, with their places.
named_by() {
    { "$BIN" check --json --no-files "$1" 2>/dev/null || true; } | python3 -c '
import json, sys
page = json.loads(sys.stdin.read() or "{}")
tiers = [tier for service in page.get("services") or [] for tier in service["tiers"]]
found = {"cards": [device["card"] for device in page.get("devices") or []],
         "programs": [tier["program"] for tier in tiers],
         "models": [tier["model"] for tier in tiers if tier["managed"] and not tier["program"]]}
print("\n".join(sorted({name for name in found[sys.argv[1]] if name})))' "$2"
}

# provide_programs — those that a person has on PATH stay theirs, with their own models.
provide_programs() {
    local program missing=() provided
    while IFS= read -r program; do
        case "$program" in
        agent-cli | rapidocr_api) have "$program" || missing+=("$program") ;;
        esac
    done < <(named_by "$CONFIG" programs)
    [ ${#missing[@]} -gt 0 ] || return 0
    provided=$("$SETUP_DIR/services.sh")
    PATH=$PATH:$(sed -n 1p <<<"$provided")
    case " ${missing[*]} " in
    *' agent-cli '*)
        HF_HUB_CACHE=$(sed -n 2p <<<"$provided")
        export HF_HUB_CACHE
        ;;
    esac
}

# provide_models — the two that setup/models.sh knows, by their names. Where the cache is not where the file
# looks for them, a link stands there.
provide_models() {
    local path kind file
    while IFS= read -r path; do
        [ -n "$path" ] && [ ! -e "$path" ] || continue
        case "${path##*/}" in
        SmolLM2-135M-Instruct-Q4_1-*) kind=chat ;;
        all-MiniLM-L6-v2-F16-*) kind=embed ;;
        *) continue ;;
        esac
        file=$("$SETUP_DIR/models.sh" "$kind")
        if [ ! -e "$path" ] && [ "${path##*/}" = "${file##*/}" ]; then
            mkdir -p "${path%/*}"
            ln -s "$file" "$path"
        fi
    done < <(named_by "$CONFIG" models)
}

# provide_cards — a simulated card that is there is somebody's, with the state that they gave it.
provide_cards() {
    local card
    while IFS= read -r card; do
        [ -n "$card" ] || continue
        if "$BIN" sim show "$card" >/dev/null 2>&1; then
            say "using the simulated card '$card' that is there"
        else
            create_card "$card"
            say "made the simulated card '$card' of 2 GiB; it goes when the gateway ends"
        fi
        CARD=${CARD:-$card}
    done < <(named_by "$CONFIG" cards)
}

# provide_for_config — everything that a person's configuration names and the set-up can give.
provide_for_config() {
    # `engine: llama-server` finds the user's own on PATH first, else the provisioned one.
    PATH=$PATH:$("$SETUP_DIR/engine.sh")
    provide_programs
    export PATH
    provide_models
    CARD=''
    provide_cards
}

# address_of CONFIG — host:port of the configuration's listen line, or the default.
address_of() {
    local listen
    listen=$(sed -nE "s/^listen:[[:space:]]*[\"']?([^\"'#[:space:]]+).*/\1/p" "$1" | head -n 1)
    echo "${listen:-127.0.0.1:8080}"
}

# finish — the gateway runs in a session of its own, so that Ctrl-C reaches it once, from here, and it
# lets running requests end. A second Ctrl-C makes it stop at once.
finish() {
    local status=$? card
    trap - EXIT
    trap 'kill -TERM "$GATEWAY" 2>/dev/null' INT TERM
    if [ "$GATEWAY" != 0 ]; then
        kill -TERM "$GATEWAY" 2>/dev/null || true
        while kill -0 "$GATEWAY" 2>/dev/null; do wait "$GATEWAY" 2>/dev/null || true; done
    fi
    for card in "${CARDS_MADE[@]}"; do "$BIN" sim destroy "$card" >/dev/null 2>&1 || true; done
    exit "$status"
}

main() {
    local status=0 fail_command=''
    [ -x "$BIN" ] || die "build/src/failsoft is not built; run: make build"
    mkdir -p "$STATE_DIR"
    trap finish EXIT
    trap 'exit 130' INT
    trap 'exit 143' TERM HUP
    if [ -z "$CONFIG" ]; then
        CONFIG=$STATE_DIR/failsoft-$PORT.yaml
        [[ $PORT =~ ^[0-9]+$ ]] && [ "$PORT" -ge 1 ] && [ "$PORT" -le 65535 ] ||
            die "PORT is '$PORT'; a number from 1 to 65535"
        require_free_port "127.0.0.1:$PORT" "choose one: make run PORT=8081"
        choose_engine
        if [ "$GPU_KIND" = sim ]; then
            prepare_card
            fail_command="build/src/failsoft sim lose $CARD"
            say "no usable GPU here, so the gpu tier runs on the simulated accelerator (card $CARD)"
        fi
        write_config
    else
        [ -r "$CONFIG" ] || die "CONFIG=$CONFIG can not be read"
        require_free_port "$(address_of "$CONFIG")" "change \`listen\` in $CONFIG"
        provide_for_config
        if [ -n "$CARD" ]; then fail_command="build/src/failsoft sim lose $CARD"; fi
    fi
    if [ -n "${FAILSOFT_DRY_RUN:-}" ]; then cat "$CONFIG"; return 0; fi
    setsid "$BIN" serve --config "$CONFIG" &
    GATEWAY=$!
    python3 "$SETUP_DIR/wait_ready.py" --address "$(address_of "$CONFIG")" --pid "$GATEWAY" \
        --config "$CONFIG" --fail "$fail_command" || status=$?
    # Not ready in time is said, and the gateway goes on: a slow tier may still come.
    if [ "$status" != 0 ] && ! kill -0 "$GATEWAY" 2>/dev/null; then
        wait "$GATEWAY" || status=$?
        GATEWAY=0
        exit "$status"
    fi
    status=0
    wait "$GATEWAY" || status=$?
    GATEWAY=0
    exit "$status"
}

main "$@"
