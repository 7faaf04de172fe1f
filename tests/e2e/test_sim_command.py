"""`failsoft sim`: what it says, the exit status it ends with, and the processes that hold memory."""

import os
import select
import signal
import subprocess

import pytest
from rig_sim import FAILSOFT, MIB, Card

GOOD, FINDING, USAGE, ENVIRONMENT = 0, 1, 2, 3


@pytest.fixture
def gpu0():
    card = Card(f"c{os.getpid()}", "1GiB", release_delay="0ms")
    yield card
    card.close()


@pytest.mark.parametrize("arguments, status, words", [
    (["create", "{name}", "--capacity", "1GiB"], ENVIRONMENT, "exists already"),
    (["create", "other"], USAGE, "--capacity is missing"),
    (["create", "a/b", "--capacity", "1GiB"], USAGE, "letters, digits"),
    (["create", "other", "--capacity", "3zb"], USAGE, "512MiB"),
    (["create", "other", "--capacity", "999TiB"], USAGE, "at most 16TiB"),
    (["create", "other", "capcity=1GiB"], USAGE, "capacity, reserve"),
    (["set", "{name}", "slowdown=0.5"], USAGE, "1 to 1000"),
    (["set", "{name}", "spill=yes"], USAGE, "neither on nor off"),
    (["set", "{name}", "release-delay=2h"], USAGE, "at most 10m"),
    (["set", "{name}", "capacity"], USAGE, "key=value"),
    (["set", "absent", "spill=on"], ENVIRONMENT, "failsoft sim create absent"),
    (["show", "absent"], ENVIRONMENT, "there is no card absent"),
    (["show", "{name}", "--jsn"], USAGE, "allowed: NAME --json"),
    (["fail", "{name}"], USAGE, "--next N"),
    (["fail", "{name}", "--next", "-1"], USAGE, "no count"),
    (["fail", "{name}", "--off", "--next", "1"], USAGE, "neither"),
    (["lose", "{name}", "--mode", "x"], USAGE, "neither graph nor abort"),
    (["lose", "{name}", "--message", "x"], USAGE, "neither cuda nor vulkan"),
    (["lose", "{name}", "--mode"], USAGE, "needs a value"),
    (["hog", "{name}"], USAGE, "one of --bytes"),
    (["hog", "{name}", "--share", "120%"], USAGE, "80%"),
    (["hog", "{name}", "--bytes", "2GiB"], FINDING, "only 1 GiB could be had"),
    (["hold", "{name}", "--bytes", "1MiB"], USAGE, "-- COMMAND"),
    (["hold", "{name}", "--bytes", "2GiB", "--", "true"], FINDING, "out of memory"),
    (["hold", "{name}", "--bytes", "1MiB", "--", "/no/such"], 127, "cannot run"),
    (["wait", "{name}", "--free", "2GiB", "--timeout", "1ms"], FINDING, "1 GiB free of"),
    (["explode"], USAGE, "allowed: create"),
    ([], USAGE, ""),
])
def test_complaints(gpu0, arguments, status, words):
    result = Card.run(*[argument.format(name=gpu0.name) for argument in arguments])
    assert result.returncode == status, result.stderr
    assert words in result.stderr


def test_help_names_every_command():
    result = Card.run("--help")
    assert result.returncode == GOOD
    for command in ("create", "show", "set", "fail", "stall", "lose", "reset", "hog", "hold", "wait",
                    "destroy"):
        assert f"failsoft sim {command} " in result.stdout


def test_show_says_simulated_and_what_is_wrong(gpu0):
    gpu0.command("fail", "--next", 3, "--above", "10MiB")
    gpu0.command("lose", "--after-graphs", 7, "--mode", "abort", "--message", "vulkan")
    gpu0.command("stall")
    text = gpu0.sim("show", gpu0.name)
    assert "(simulated)" in text
    assert ("faults      lost after 7 graphs, stalled, next 3 allocations fail, "
            "allocations above 10 MiB fail") in text
    shown = gpu0.show()
    assert shown["simulated"] is True
    assert shown["faults"] == {
        "fail_next": 3, "fail_above_bytes": 10 * MIB, "stalled": True, "lost": False,
        "lose_armed": True, "lose_after_graphs": 7, "lose_mode": "abort", "lose_message": "vulkan",
    }
    gpu0.command("reset")
    assert "faults      none" in gpu0.sim("show", gpu0.name)
    assert gpu0.show()["generation"] == 2


def test_settings_are_kept_as_written(gpu0):
    gpu0.set(capacity="2GiB", slowdown="1.25", spill="on", spill_slowdown="12x", reserve="64MiB",
             max_alloc="1GiB", context="300MiB", workspace="128KiB", release_delay="2s", hidden="on")
    assert gpu0.show()["settings"] == {
        "capacity_bytes": 2048 * MIB, "reserve_bytes": 64 * MIB, "max_alloc_bytes": 1024 * MIB,
        "context_bytes": 300 * MIB, "workspace_bytes": 128 * 1024, "release_delay_ms": 2000,
        "slowdown_pct": 125, "spill": True, "spill_slowdown_pct": 1200, "hidden": True,
    }
    assert gpu0.show()["free_bytes"] == (2048 - 64) * MIB


def test_a_hog_takes_a_share_of_what_is_free(gpu0):
    first = gpu0.hog("--bytes", "512MiB")
    second = gpu0.hog("--share", "50%")
    assert first == 512 * MIB
    assert 255 * MIB < second <= 256 * MIB
    shown = gpu0.show()
    assert shown["used_bytes"] == first + second
    assert [process["role"] for process in shown["processes"]] == ["hog", "hog"]
    assert Card.run("destroy", gpu0.name).returncode == FINDING
    gpu0.hogs[0].stdin.close()
    assert gpu0.hogs[0].wait(timeout=10) == GOOD
    gpu0.hogs[1].send_signal(signal.SIGTERM)
    assert gpu0.hogs[1].wait(timeout=10) == GOOD
    assert gpu0.show()["used_bytes"] == 0


def test_a_fragmenting_hog_leaves_small_holes(gpu0):
    assert gpu0.hog("--fragment", "32MiB") == 512 * MIB
    shown = gpu0.show()
    assert shown["free_bytes"] == 512 * MIB
    assert shown["largest_free_bytes"] == 32 * MIB
    # Another hog gets its bytes all the same, in pieces.
    assert gpu0.hog("--bytes", "100MiB") == 100 * MIB


def test_a_hog_ends_when_its_memory_is_gone(gpu0):
    gpu0.hog("--bytes", "10MiB")
    gpu0.command("reset")
    assert gpu0.hogs[0].wait(timeout=10) == FINDING


def test_a_hog_in_the_background_does_not_end_at_dev_null(gpu0):
    hog = subprocess.Popen([FAILSOFT, "sim", "hog", gpu0.name, "--bytes", "10MiB", "--for", "300ms"],
                           stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True)
    assert hog.stdout.readline().startswith("READY ")
    assert gpu0.show()["used_bytes"] == 10 * MIB
    assert hog.wait(timeout=10) == GOOD
    hog.stdout.close()


def test_hold_runs_the_command_and_gives_its_status(gpu0):
    script = f"{FAILSOFT} sim show {gpu0.name} --json; exit 7"
    result = Card.run("hold", gpu0.name, "--bytes", "100MiB", "--", "sh", "-c", script)
    assert result.returncode == 7
    assert f'"used_bytes": {100 * MIB}' in result.stdout
    assert '"role": "hold"' in result.stdout
    assert gpu0.show()["used_bytes"] == 0


def test_memory_of_a_killed_held_program_comes_back_late(gpu0):
    gpu0.set(release_delay="600s")
    result = Card.run("hold", gpu0.name, "--bytes", "100MiB", "--", "sh", "-c", "kill -9 $$")
    assert result.returncode == 128 + signal.SIGKILL
    assert gpu0.show()["releasing_bytes"] == 100 * MIB


def hold_in_background(card, *command):
    wrapper = subprocess.Popen(
        [FAILSOFT, "sim", "hold", card.name, "--bytes", "10MiB", "--", *command],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    pid = int(wrapper.stdout.readline())
    return wrapper, pid


def test_a_held_program_dies_with_the_card(gpu0):
    wrapper, _ = hold_in_background(gpu0, "sh", "-c", "echo $$; exec sleep 60")
    gpu0.command("lose", "--message", "cuda")
    _, errors = wrapper.communicate(timeout=10)
    assert wrapper.returncode == 128 + signal.SIGABRT
    assert "CUDA error" in errors


def test_signals_and_death_reach_the_held_program(gpu0):
    wrapper, pid = hold_in_background(
        gpu0, "sh", "-c", "trap 'exit 9' TERM; echo $$; while :; do sleep 0.05; done")
    wrapper.terminate()
    wrapper.communicate(timeout=10)
    assert wrapper.returncode == 9
    wrapper, pid = hold_in_background(gpu0, "sh", "-c", "echo $$; exec sleep 60")
    watch = os.pidfd_open(pid)
    wrapper.kill()
    wrapper.communicate(timeout=10)
    assert select.select([watch], [], [], 10)[0] == [watch]
    os.close(watch)
    assert gpu0.show()["used_bytes"] == 0
