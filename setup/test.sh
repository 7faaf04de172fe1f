#!/usr/bin/env bash
# Provides what the tests need and hands over to tools/run_tests.py:
#
#   setup/test.sh unit e2e      both, or one of them
#
# The build folders have to be there (make test builds them first).
source "$(dirname "$0")/common.sh"

main() {
    local engine models services part
    # Only for an end before the tests: the exec below takes the trap away.
    trap "echo '0 passed, 1 failed'" EXIT
    for part in "$@"; do
        [ "$part" = e2e ] || continue
        engine=$("$SETUP_DIR/engine.sh")
        models=$("$SETUP_DIR/models.sh" all)
        "$SETUP_DIR/packages.sh" e2e
        services=$("$SETUP_DIR/services.sh")
        take_lock venv-e2e
        make_venv "$FAILSOFT_CACHE/venv/e2e" "$ROOT_DIR/tests/requirements.txt"
        exec 9>&- # the tests may run for minutes; nobody has to wait for that
        export FAILSOFT_BIN=$ROOT_DIR/build/src/failsoft
        export FAILSOFT_ENGINE=$engine/llama-server
        export FAILSOFT_REQUIRE_ENGINE=1 # here everything is provided: nothing may be skipped
        export FAILSOFT_CHAT_MODEL FAILSOFT_EMBED_MODEL FAILSOFT_SIM_PLUGIN FAILSOFT_PYTEST
        export FAILSOFT_SERVICES FAILSOFT_SPEECH_MODELS
        FAILSOFT_CHAT_MODEL=$(sed -n 1p <<<"$models")
        FAILSOFT_EMBED_MODEL=$(sed -n 2p <<<"$models")
        FAILSOFT_SERVICES=$(sed -n 1p <<<"$services")
        FAILSOFT_SPEECH_MODELS=$(sed -n 2p <<<"$services")
        FAILSOFT_SIM_PLUGIN=$(find "$ROOT_DIR/build/sim" -maxdepth 1 -name '*.so' 2>/dev/null | head -n 1)
        FAILSOFT_PYTEST=$FAILSOFT_CACHE/venv/e2e/bin/python
    done
    exec python3 "$ROOT_DIR/tools/run_tests.py" "$@"
}

main "$@"
