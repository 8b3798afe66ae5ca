"""Hypothesis profiles, what several workers do first, and fixtures that several files use."""

import logging
import os
import sys

import numpy as np
import pytest
import structlog
from hypothesis import HealthCheck, Phase, settings

from dfrs.cli.main import main
from tests.kernel_types import use_compiled

settings.register_profile(
    "ci",
    derandomize=True,
    max_examples=80,
    deadline=None,
    phases=[Phase.explicit, Phase.generate, Phase.shrink],
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
settings.register_profile("quick", settings.get_profile("ci"), max_examples=25)
settings.register_profile("thorough", settings.get_profile("ci"), derandomize=False, max_examples=2_000)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "ci"))

use_compiled()

MASK = os.umask(0o022)
os.umask(MASK)
# Some tests turn swap space on: what other tests start meanwhile is not to use it. Nor a CRIU that is there.
os.environ["DFRS_SWAP"] = os.environ["DFRS_IMAGES"] = "0"
# Directories of tests are open to the account that runs them only.
if os.geteuid() == 0:
    os.environ["DFRS_RUN_AS"] = "root"

APART = (
    "acceptance/test_docs.py",
    "acceptance/test_live_faults.py",
    "acceptance/test_elastic_fuzz.py",
    "acceptance/test_live_hosts.py",
    "acceptance/test_live_up.py",
)
"""Their tests are long and share nothing: each may run on a worker of its own. Those of any other file go to one
worker, as they share what its fixtures start and the compiled kernels that it loads."""
FIRST = (
    "acceptance/test_installation.py",
    *APART,
    "acceptance/test_live_received.py",
    "acceptance/test_simulate_cli.py",
    "acceptance/test_live_moves.py",
    "acceptance/test_campaign_faults.py",
    "unit/test_engine.py",
    "unit/test_engine_fuzz.py",
    "acceptance/test_cli.py",
    "unit/test_imports.py",
    "acceptance/test_dashboard.py",
)
"""The longest files, the longest first: none of them is still to be done when all others are."""
LONG = (
    "acceptance/",
    "reproduction/",
    "unit/test_arrive_f_promises.py",
    "unit/test_aside.py",
    "unit/test_batch_oracle.py",
    "unit/test_cli_farm.py",
    "unit/test_dfrs_farm.py",
    "unit/test_discovery.py",
    "unit/test_driver_crashes.py",
    "unit/test_driver_images.py",
    "unit/test_driver_self_test.py",
    "unit/test_elastic_simulation.py",
    "unit/test_engine.py",
    "unit/test_engine_fuzz.py",
    "unit/test_executor_constraints.py",
    "unit/test_farm_",
    "unit/test_images.py",
    "unit/test_imports.py",
    "unit/test_kernels_cache.py",
    "unit/test_live_snapshots.py",
    "unit/test_live_storms.py",
    "unit/test_lublin.py",
    "unit/test_packaging.py",
    "unit/test_policies_resident.py",
    "unit/test_recorded.py",
    "unit/test_run_pictures.py",
    "unit/test_statistics.py",
    "unit/test_store.py",
    "unit/test_stretch_bound.py",
)
"""Not part of `make test`, which is to take five minutes: whole commands and pages, published tables, clusters of
unequal nodes, statistics of many runs, storms, what is packed."""
REAL = (
    "acceptance/",
    "slurm/",
    "unit/test_aside.py",
    "unit/test_best.py",
    "unit/test_cli_farm.py",
    "unit/test_driver_",
    "unit/test_images.py",
    "unit/test_kernels_cache.py",
    "unit/test_live_",
    "unit/test_milp.py",
    "unit/test_packaging.py",
    "unit/test_profiling_",
)
"""They start processes, or look at a clock: who starts them five at a time on two CPUs may disturb them."""

CRASHED = pytest.StashKey[bool]()


def pytest_addoption(parser):
    parser.addoption("--alone", action="store_true", help="of what failed, run tests of real processes again, alone")


def pytest_runtest_setup(item):
    if item.config.getoption("alone") and not file_of(item.nodeid).startswith(REAL):
        pytest.fail("it failed before, and nothing beside it can have disturbed it")


@pytest.fixture(autouse=True)
def _process_as_it_was():
    """What commands and libraries change of a whole process when a test calls them ends with the test: the next one
    would inherit an umask of `dfrs serve`, or how Dask has memory allocated."""
    environment = dict(os.environ)
    yield
    os.umask(MASK)
    for name in os.environ.keys() - environment.keys():
        del os.environ[name]
    os.environ.update(environment)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers():
    """Three more than there are CPUs: many tests wait for other processes."""
    return len(os.sched_getaffinity(0)) + 3


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items):
    """What is long is marked so, and begins first."""
    for item in items:
        if file_of(item.nodeid).startswith(LONG):
            item.add_marker(pytest.mark.long)
    rank = {file: k for k, file in enumerate(FIRST)}
    items.sort(key=lambda item: rank.get(file_of(item.nodeid), len(rank)))


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config, log):
    """What belongs together stays together (with `--no-loadscope-reorder`, in the order above)."""
    from xdist.scheduler import LoadScopeScheduling  # noqa: PLC0415 - may be missing, or not in use

    class ByFile(LoadScopeScheduling):
        def _split_scope(self, nodeid):
            return nodeid if file_of(nodeid) in APART else file_of(nodeid)

    return ByFile(config, log)


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node, error):
    """A worker has ended: with an error, if it crashed."""
    if error:
        node.config.stash[CRASHED] = True


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session):
    """Of a crash what failed does not say what else was not run: then nothing is run once more."""
    if session.config.stash.get(CRASHED, False):
        session.exitstatus = pytest.ExitCode.INTERNAL_ERROR


def file_of(nodeid):
    """Of a test, below this folder."""
    return nodeid.partition("::")[0].removeprefix("tests/")


@pytest.fixture
def rng() -> np.random.Generator:
    """A generator with a fixed seed, new for each test."""
    return np.random.default_rng(20_100_401)


@pytest.fixture
def logs_as_before():
    """What a test sets up to log to is gone after it: later ones in this process log to a closed stream else."""
    root, factory = logging.getLogger(), logging.getLogRecordFactory()
    handlers, level = root.handlers[:], root.level
    yield
    root.handlers[:] = handlers
    root.setLevel(level)
    logging.setLogRecordFactory(factory)
    structlog.reset_defaults()


@pytest.fixture
def dfrs(monkeypatch, capsys, logs_as_before):
    """`dfrs` in this process: exit status, standard output, standard error. A traceback would fail the test."""

    def called(*arguments):
        monkeypatch.setattr(sys, "argv", ["dfrs", *map(str, arguments)])
        with pytest.raises(SystemExit) as ended:
            main()
        return ended.value.code, *capsys.readouterr()

    return called
