"""Fixtures of the black-box tests. Every test gets its own gateway (a start costs milliseconds),
its own fakes, a deadline, and the checks of Gateway.finish() when it ends."""

import os
import sys
import tempfile
from pathlib import Path

import pytest
import yaml

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent / "fakes")]

from fake_engines import FakeLlama  # noqa: E402
from rig_config import two_tiers  # noqa: E402
from rig_gateway import Gateway, binary  # noqa: E402

CASES = HERE.parent / "cases"
TEST_DEADLINE_S = 45
# Files whose tests start real engines, in two lines that each run one after the other.
ENGINE_FILES = {
    "test_real_engine.py": "engine", "test_rpc_device.py": "engine", "test_sim_engine.py": "engine",
    "test_kv_engine.py": "engine", "test_prompt_bound.py": "engine",
    "test_admission.py": "memory", "test_falling_memory.py": "memory", "test_home.py": "memory",
    "test_learning.py": "memory",
}
SIM_DIR = pytest.StashKey()


def pytest_configure(config):
    config.addinivalue_line("markers", "real_engine: needs llama-server and the models")
    os.environ.pop("STATE_DIRECTORY", None)  # see state_dir; every gateway gets a folder of its own
    # Simulated cards in a folder of this run: no other run, and nobody who tidies up, is in the way.
    # The processes that xdist starts get it from here.
    if "FAILSOFT_SIM_DIR" not in os.environ:
        shared = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
        config.stash[SIM_DIR] = tempfile.TemporaryDirectory(prefix="failsoft-e2e-", dir=shared)
        os.environ["FAILSOFT_SIM_DIR"] = config.stash[SIM_DIR].name


def pytest_unconfigure(config):
    if SIM_DIR in config.stash:
        config.stash[SIM_DIR].cleanup()


def pytest_collection_modifyitems(items):
    for item in items:
        if not item.get_closest_marker("timeout"):
            item.add_marker(pytest.mark.timeout(TEST_DEADLINE_S))


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config, log):
    """Any free process takes the next test; those with a real engine go one after the other in one
    of two processes: engines that compute at the same time starve each other on a small machine.
    Not by @pytest.mark.xdist_group: xdist 3.8 with pytest 9.2 takes no notice of it and says nothing.
    """
    from xdist.scheduler import LoadScopeScheduling

    class EnginesInLine(LoadScopeScheduling):
        def _split_scope(self, nodeid):
            file = nodeid.split("::")[0].rsplit("/", 1)[-1]
            return ENGINE_FILES.get(file, nodeid)

    return EnginesInLine(config, log)


def load_cases(name):
    """The cases of tests/cases/NAME.yaml as pytest parameters, named by their field case."""
    with open(CASES / f"{name}.yaml", encoding="utf-8") as file:
        cases = yaml.safe_load(file)
    return [pytest.param(case, id=case["id"]) for case in cases]


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item, call):
    report = yield
    if report.when == "call" and report.failed:
        for gateway in item.stash.get(GATEWAYS, []):
            report.sections.append(("gateway log", "\n".join(gateway.log()[-60:])))
    return report


GATEWAYS = pytest.StashKey()


@pytest.fixture
def fakes():
    """Makes fakes that end with the test: fakes(FakeLlama, says=[…])."""
    made = []

    def make(kind=FakeLlama, **options):
        fake = kind(**options)
        made.append(fake)
        return fake

    make.all = made
    yield make
    for fake in made:
        fake.stop()


@pytest.fixture
def gpu(fakes):
    return fakes(FakeLlama, says=["G1", " G2", " G3"], model="fake-gpu")


@pytest.fixture
def cpu(fakes):
    return fakes(FakeLlama, says=["C1", " C2", " C3"], model="fake-cpu")


@pytest.fixture
def start_gateway(tmp_path, fakes, request):
    """Starts gateways: start_gateway(config, …). Checked and stopped after the test."""
    if not binary().exists():
        pytest.fail(f"no gateway at {binary()}; set FAILSOFT_BIN")
    started = []
    request.node.stash[GATEWAYS] = started

    def start(config, expect_children=0, **options):
        gateway = Gateway(config, tmp_path / f"gateway{len(started)}", **options)
        gateway.expect_children = expect_children
        started.append(gateway)
        return gateway

    yield start
    for fake in fakes.all:
        fake.close_connections()
    problems = []
    for gateway in started:
        try:
            gateway.finish(gateway.expect_children)
        except AssertionError as problem:
            problems.append(str(problem))
    assert not problems, "\n".join(problems)


@pytest.fixture
def gateway(start_gateway, gpu, cpu):
    """The usual one: service `chat` (and `embed`), tier gpu → cpu, both external."""
    return start_gateway(two_tiers(gpu, cpu))


@pytest.fixture
def engine_files():
    """Paths of the real engine and models, or skip (fail where FAILSOFT_REQUIRE_ENGINE is set)."""
    from rig_engine import find_engine_files
    files, missing = find_engine_files()
    if missing:
        message = "not provisioned: " + ", ".join(missing)
        if os.environ.get("FAILSOFT_REQUIRE_ENGINE"):
            pytest.fail(message)
        pytest.skip(message)
    return files
