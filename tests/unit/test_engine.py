"""Every run is run once and gives the same result, whoever runs it and whatever ends meanwhile."""

import importlib.util
import os
import signal
import subprocess
import time
from contextlib import closing, contextmanager, suppress
from dataclasses import replace

import polars as pl
import pytest

from dfrs.experiments import campaign_engine as engine_module
from dfrs.experiments.campaign_engine import CampaignEngine
from dfrs.experiments.kinds import offline, online
from dfrs.experiments.planned_runs import FAILED, Work, perform
from dfrs.experiments.results import TIMES, study_frame
from dfrs.experiments.runners import InProcess, Processes
from dfrs.experiments.sources.instances import ServicesSource
from dfrs.experiments.sources.traces import LublinSource
from dfrs.experiments.spec import Study
from dfrs.experiments.store import Store
from dfrs.model.errors import InputError
from tests.fake_runs import FAKE, FakeConfiguration, executed, pids, planned, same, study
from tests.processes import alive, descendants, kill, script, until

HAS_DASK = importlib.util.find_spec("distributed") is not None
needs_dask = pytest.mark.skipif(not HAS_DASK, reason="Dask is not installed")
WAYS = ["in process", "two processes", pytest.param("three of Dask", marks=needs_dask)]


@pytest.fixture(scope="module")
def two():
    with closing(Processes(2)) as runner:
        yield runner


@pytest.fixture(scope="module")
def three():
    from dfrs.experiments.dask_runner import DaskRunner  # noqa: PLC0415 - Dask may be missing

    with closing(DaskRunner(local=3)) as runner:
        yield runner


@pytest.fixture
def runner(request):
    """Of the way that the test is asked to run in."""
    names = {"two processes": "two", "three of Dask": "three"}
    way = request.param
    return request.getfixturevalue(names[way]) if way in names else InProcess()


everyone = pytest.mark.parametrize("runner", WAYS, indirect=True)
others = pytest.mark.parametrize("runner", WAYS[1:], indirect=True)


def expected(asked, directory):
    """The results of runs that execute alone and undisturbed."""
    store = Store(directory)
    CampaignEngine(store, InProcess()).run(asked)
    return same(store)


def numbers(store, status):
    return sorted(store.results(FAKE).filter(pl.col("status") == status)["number"])


# Each run once.


@everyone
def test_every_cell_is_run_exactly_once_and_a_new_entry_runs_alone(runner, tmp_path):
    marks = tmp_path / "marks"
    a, b, c = (FakeConfiguration(label=label, what="value", at=(k,)) for k, label in enumerate("abc"))
    asked = planned(marks, 20, a, b)
    told = []
    tally = CampaignEngine(Store(tmp_path / "store"), runner, told.append).run([*asked, *asked[:5]])
    assert (tally.runs, tally.known, tally.executed, tally.failed) == (40, 0, 40, 0)
    assert sum(told) == 40
    once = {(str(k), label): 1 for k in range(20) for label in "ab"}
    assert executed(marks) == once
    store = Store(tmp_path / "store")
    assert CampaignEngine(store, runner).run(asked).executed == 0
    assert executed(marks) == once
    again = CampaignEngine(store, runner).run(planned(marks, 20, a, c, b))
    assert (again.known, again.executed) == (40, 20)
    assert executed(marks) == once | {(str(k), "c"): 1 for k in range(20)}
    assert same(store).equals(expected(planned(tmp_path / "other", 20, a, b, c), tmp_path / "alone"))


@others
def test_cells_are_run_by_other_processes_and_those_alone_by_this_one(runner, tmp_path):
    CampaignEngine(Store(tmp_path / "store"), runner).run(
        planned(tmp_path / "spread", 24, FakeConfiguration(seconds=0.02))
    )
    assert os.getpid() not in pids(tmp_path / "spread")
    assert 1 <= len(pids(tmp_path / "spread")) <= (3 if hasattr(runner, "address") else 2)
    CampaignEngine(Store(tmp_path / "store"), runner).run(planned(tmp_path / "alone", 4, alone=True))
    assert pids(tmp_path / "alone") == {os.getpid()}


BEST = "GreedyPM*/per/OPT=MIN/MVT=600"
STUDIES = (
    Study(
        name="policies",
        sources=(LublinSource(seeds=(1, 2), jobs=60, nodes=16, loads=(0.9,)),),
        configurations=tuple(online.OnlineConfiguration(label=name, policy=name) for name in ("FCFS", "EASY", BEST)),
    ),
    Study(
        name="algorithms",
        sources=(ServicesSource(nodes=(4,), services=(16,), slack=(0.3, 0.6), seeds=(1, 2)),),
        configurations=tuple(
            offline.OfflineConfiguration(label=name, algorithm=name) for name in ("RRNDNZ", "GA", "GREEDY")
        ),
    ),
)


@pytest.fixture(scope="module")
def by_themselves(tmp_path_factory):
    store = Store(tmp_path_factory.mktemp("by-themselves") / "store")
    CampaignEngine(store, InProcess()).run([run for part in STUDIES for run in part.runs])
    return [study_frame(part, store).drop(TIMES) for part in STUDIES]


@others
def test_real_cells_have_the_same_results_whoever_runs_them(runner, by_themselves, tmp_path):
    store = Store(tmp_path / "store")
    backwards = [run for part in STUDIES for run in part.runs][::-1]
    assert CampaignEngine(store, runner).run(backwards).failed == 0
    for part, frame in zip(STUDIES, by_themselves, strict=True):
        assert study_frame(part, store).drop(TIMES).equals(frame)
        assert len(frame) == len(part.runs)
    policies, algorithms = by_themselves
    assert set(policies["status"]) == {"complete"}
    assert algorithms["minimum_yield"].n_unique() > 4


def test_chance_is_of_the_cell_so_that_other_seeds_give_other_results():
    run = next(run for run in STUDIES[1].runs if run.configuration.label == "GA")
    prepared = offline.prepare(run.scenario)
    found = {offline.run(prepared, run.configuration, seed, None)["average_before"] for seed in range(5)}
    assert len(found) > 1


def test_results_of_a_study_are_in_the_order_of_its_cells_whatever_the_order_they_were_run_in(two, tmp_path):
    whole = study(tmp_path / "marks", 12, FakeConfiguration(label="a"), FakeConfiguration(label="b", at=(1,)))
    store = Store(tmp_path / "store")
    for k in range(5):
        CampaignEngine(store, two).run(list(whole.runs)[::-1][k::5])
    frame = study_frame(whole, store)
    assert frame["key"].to_list() == [run.key for run in whole.runs]
    assert frame["algorithm"].to_list() == ["a", "b"] * 12
    assert frame["case"].to_list() == [run.scenario.name for run in whole.runs]
    assert frame["number"].to_list() == [k for k in range(12) for _ in "ab"]


# What fails.


@everyone
@pytest.mark.parametrize(
    ("what", "message"),
    [
        ("ValueError", "ValueError: a line and another"),
        ("MemoryError", "MemoryError: 12 TiB"),
        ("PolicyStoppedError", "the policy ended its run"),
    ],
)
def test_what_a_cell_raises_is_its_result_and_is_run_again_only_when_asked_for(runner, what, message, tmp_path):
    marks = tmp_path / "marks"
    asked = planned(marks, 12, FakeConfiguration(what=what, at=(3, 7)), broken=[9])
    tally = CampaignEngine(Store(tmp_path / "store"), runner).run(asked)
    assert (tally.executed, tally.failed) == (12, 3)
    store = Store(tmp_path / "store")
    assert numbers(store, FAILED) == [3, 7, 9]
    assert numbers(store, "complete") == [k for k in range(12) if k not in {3, 7, 9}]
    told = store.results(FAKE).filter(pl.col("status") == FAILED).sort("number")["message"].to_list()
    assert told == [message, message, "fake-9 broken: there is no such part"]

    again = CampaignEngine(store, runner).run(asked)
    assert (again.known, again.executed, again.failed) == (12, 0, 3)
    before = executed(marks)
    assert CampaignEngine(store, runner).run(asked, retry_failed=True).failed == 3
    assert executed(marks) - before == {("3", "configuration"): 1, ("7", "configuration"): 1}

    (marks / "fixed").touch()
    more = [*asked, *planned(marks, 14)[12:]]
    before = executed(marks)
    fixed = CampaignEngine(store, runner).run(more, retry_failed=True)
    assert (fixed.executed, fixed.failed) == (3, 0)
    assert executed(marks) - before == {(k, "configuration"): 1 for k in "379"}
    assert same(Store(tmp_path / "store")).equals(same(store))
    other = planned(tmp_path / "other", 12, FakeConfiguration(what=what, at=(3, 7)), broken=[9])
    (tmp_path / "other" / "fixed").touch()
    assert same(store).equals(expected(other, tmp_path / "undisturbed"))


@pytest.mark.parametrize("what", ["SystemExit", "mute"])
def test_not_even_what_is_no_ordinary_exception_ends_the_others(what, two, tmp_path):
    store = Store(tmp_path / "store")
    CampaignEngine(store, two).run(planned(tmp_path / "marks", 6, FakeConfiguration(what=what, at=(2,))))
    assert numbers(store, FAILED) == [2]
    assert numbers(store, "complete") == [0, 1, 3, 4, 5]


def test_a_worker_with_other_code_is_refused_in_one_line(tmp_path):
    with pytest.raises(InputError, match=r"^a worker has other code of dfrs [^\n]*$"):
        perform(Work(runs=tuple(planned(tmp_path, 1)), source="another"))
    assert not executed(tmp_path)


def test_a_kept_run_is_made_where_it_lacks_and_found_where_it_is(tmp_path):
    asked = planned(tmp_path / "marks", 4, FakeConfiguration(what="ValueError", at=(1,)))
    store = Store(tmp_path / "store")
    CampaignEngine(store, InProcess()).run(asked)
    assert CampaignEngine(store, InProcess(), keep_runs=True).run(asked).executed == 3
    assert {path.name for path in store.saved_runs(FAKE).iterdir()} == {asked[k].key for k in (0, 2, 3)}
    assert CampaignEngine(store, InProcess(), keep_runs=True).run(asked).executed == 0
    assert len(store.results(FAKE)) == 4


def test_runs_of_a_kind_that_saves_none_are_run_once_where_runs_are_kept(tmp_path):
    unsaved = replace(FAKE, saves=False)
    asked = [replace(run, kind=unsaved) for run in planned(tmp_path / "marks", 3)]
    store = Store(tmp_path / "store")
    kept = [CampaignEngine(store, InProcess(), keep_runs=True).run(asked).executed for _ in range(2)]
    assert kept == [3, 0]
    assert not store.saved_runs(FAKE).exists()


# Workers that are killed.


@pytest.fixture
def strict_dask(runner):
    """One death, not four, and Dask gives up: the tests need not wait for it."""
    scheduler = getattr(getattr(runner, "_cluster", None), "scheduler", None)
    usual = getattr(scheduler, "allowed_failures", None)
    if scheduler is not None:
        scheduler.allowed_failures = 0
    yield
    if scheduler is not None:
        scheduler.allowed_failures = usual


@others
@pytest.mark.usefixtures("strict_dask")
def test_a_cell_that_kills_its_worker_fails_and_takes_no_other_with_it(runner, tmp_path):
    """Those on their way at that time are run again, and one that kills but once completes.

    They are far apart: never on their way together.
    """
    entries = (
        FakeConfiguration(what="kill", at=(2,), seconds=0.02),
        FakeConfiguration(what="kill once", at=(14,), label="once", seconds=0.02),
    )
    asked = planned(tmp_path / "marks", 16, *entries)
    told = []
    store = Store(tmp_path / "store")
    tally = CampaignEngine(store, runner, told.append).run(asked)
    assert (tally.executed, tally.failed) == (32, 1)
    assert sum(told) == 32
    failed = store.results(FAKE).filter(pl.col("status") == FAILED)
    assert failed["number"].to_list() == [2]
    assert failed["message"].to_list() == ["the process that ran it ended: was there too little memory?"]
    assert executed(tmp_path / "marks")["2", "configuration"] > 1
    assert executed(tmp_path / "marks")["14", "once"] > 1
    other = planned(tmp_path / "other", 16, *entries)
    (tmp_path / "other" / "fixed").touch()
    wanted = expected(other, tmp_path / "undisturbed")
    key = failed["key"][0]
    assert same(store).filter(pl.col("key") != key).equals(wanted.filter(pl.col("key") != key))
    assert same(Store(tmp_path / "store")).equals(same(store))


@needs_dask
def test_a_dask_worker_that_is_killed_changes_no_result(three, tmp_path):
    marks = tmp_path / "marks"
    asked = planned(marks, 60, FakeConfiguration(seconds=0.03))
    killed = []

    def advance(_):
        if not killed and len(executed(marks)) > 20:
            killed.append(sorted(pids(marks))[0])
            os.kill(killed[0], signal.SIGKILL)

    store = Store(tmp_path / "store")
    tally = CampaignEngine(store, three, advance).run(asked)
    assert killed
    assert len(executed(marks)) == 60
    assert tally.failed == 0
    assert killed[0] in pids(marks)
    assert same(store).equals(
        expected(planned(tmp_path / "other", 60, FakeConfiguration(seconds=0.0)), tmp_path / "undisturbed")
    )


LOST = """
import json, subprocess, sys
from pathlib import Path
from dfrs.experiments.dask_runner import DaskRunner
from dfrs.experiments.campaign_engine import CampaignEngine
from dfrs.experiments.store import Store
from dfrs.model.errors import DfrsError
from tests.fake_runs import FakeConfiguration, planned
from tests.processes import until
directory = Path(sys.argv[1])
place = directory / "scheduler.json"
started, told = [], []
def dask(what, *arguments):
    command = [sys.executable, "-m", f"distributed.cli.dask_{what}", *arguments, "--no-dashboard"]
    started.append(subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL))
def advance(planned):
    told.append(planned)
    if sum(told) > 6:
        started[0].kill()
try:
    dask("scheduler", "--host", "127.0.0.1", "--port", "0", "--scheduler-file", str(place))
    assert until(lambda: place.exists() and place.read_text().endswith("}"))
    address = json.loads(place.read_text())["address"]
    dask("worker", address, "--nthreads", "2", "--no-nanny")
    store = Store(directory / "store")
    asked = planned(directory / "marks", 100, FakeConfiguration(seconds=0.1))
    CampaignEngine(store, DaskRunner(address), advance).run(asked)
except DfrsError as error:
    print(error)
    print(sum(told))
finally:
    for process in started:
        process.kill()
"""


@needs_dask
def test_a_dask_scheduler_that_is_killed_is_one_line_and_what_was_done_is_kept(tmp_path):
    process = script(LOST, tmp_path)
    try:
        told, error = process.communicate(timeout=60)
    except subprocess.TimeoutExpired:
        kill(process)
        raise
    lines = told.splitlines()
    assert len(lines) == 2, error
    assert "scheduler is gone" in lines[0]
    store = Store(tmp_path / "store")
    assert 6 < len(store.results(FAKE)) == int(lines[1]) < 100
    assert set(store.results(FAKE)["status"]) == {"complete"}


# Several at once, and ends of all kinds.


SHARE = """
import sys
from pathlib import Path
from dfrs.experiments.campaign_engine import CampaignEngine
from dfrs.experiments.runners import InProcess
from dfrs.experiments.store import Store
from tests.fake_runs import FakeConfiguration, planned, same
directory = Path(sys.argv[1])
store = Store(directory / "store")
mine = planned(directory / "marks", 60, FakeConfiguration(seconds=0.03))
print("ready", flush=True)
sys.stdin.readline()
tally = CampaignEngine(store, InProcess()).run(mine)
print(tally.executed, len(store.results(mine[0].kind)), flush=True)
"""


@pytest.fixture(scope="module")
def shared(tmp_path_factory):
    """Where two processes have run the same planned into one store, and what each told."""
    directory = tmp_path_factory.mktemp("shared")
    processes = [script(SHARE, directory) for _ in range(2)]
    assert [process.stdout.readline() for process in processes] == ["ready\n"] * 2
    told = []
    for process in processes:
        process.stdin.write("go\n")
        process.stdin.flush()
    for process in processes:
        answer, error = process.communicate(timeout=60)
        assert process.returncode == 0, error
        told.append([int(number) for number in answer.split()])
    return directory, told


def test_two_runners_share_the_work_and_both_have_all_results(shared, tmp_path):
    directory, told = shared
    assert executed(directory / "marks") == {(str(k), "configuration"): 1 for k in range(60)}
    assert [found for _, found in told] == [60, 60]
    assert len(pids(directory / "marks")) == 2
    store = Store(directory / "store")
    assert same(store).equals(expected(planned(tmp_path / "other", 60, FakeConfiguration()), tmp_path / "undisturbed"))


def test_two_runners_do_not_count_the_same_run_twice(shared):
    assert sum(run for run, _ in shared[1]) == 60


@pytest.mark.parametrize("runner", WAYS[:2], indirect=True)
@pytest.mark.parametrize("after", [1, 7])
def test_what_was_done_before_ctrl_c_is_kept_and_only_the_rest_is_run(runner, after, tmp_path):
    marks = tmp_path / "marks"
    asked = planned(marks, 30, FakeConfiguration(seconds=0.01))
    done = []

    def advance(planned):
        done.append(planned)
        if sum(done) >= after:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        CampaignEngine(Store(tmp_path / "store"), runner, advance).run(asked)
    store = Store(tmp_path / "store")
    kept = {str(number) for number in store.results(FAKE)["number"]}
    assert len(kept) == sum(done) < 30
    # What waits in a pool's queue may still be running, on a busy machine for a while.
    time.sleep(1.5)
    before = executed(marks)
    tally = CampaignEngine(store, runner).run(asked)
    assert (tally.known, tally.executed) == (len(kept), 30 - len(kept))
    assert executed(marks) - before == {(str(k), "configuration"): 1 for k in range(30) if str(k) not in kept}
    assert same(store).equals(expected(planned(tmp_path / "other", 30, FakeConfiguration()), tmp_path / "undisturbed"))


def test_results_are_written_while_others_are_still_to_come(monkeypatch, tmp_path):
    monkeypatch.setattr(engine_module, "WRITE_EVERY_S", 0.0)
    found = []
    store = Store(tmp_path / "store")
    CampaignEngine(store, InProcess(), lambda _: found.append(len(Store(tmp_path / "store").results(FAKE)))).run(
        planned(tmp_path / "marks", 8)
    )
    # Told of its first piece before that is written.
    assert found[1:-1] == sorted(found[1:-1])
    assert 0 < found[-1] < 8


@contextmanager
def mounted(directory, size):
    directory.mkdir()
    made = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", f"size={size}", "none", directory], capture_output=True, text=True, check=False
    )
    if made.returncode:
        pytest.skip(f"cannot mount a small file system: {made.stderr.strip()}")
    try:
        yield directory
    finally:
        subprocess.run(["umount", "-l", directory], check=True)


@pytest.fixture
def small_disk(tmp_path):
    if os.geteuid():
        pytest.skip("only root can mount a small file system")
    with mounted(tmp_path / "disk", "256k") as disk:
        yield disk


def fill(path):
    """Write until nothing more fits."""
    with suppress(OSError), path.open("wb", buffering=0) as file:
        while True:
            file.write(bytes(512))
    assert os.statvfs(path.parent).f_bavail == 0


def test_a_full_disk_is_one_line_loses_nothing_and_after_making_room_the_rest_is_run(small_disk, tmp_path):
    marks = tmp_path / "marks"
    asked = planned(marks, 30)
    with closing(Store(small_disk / "store")) as store:
        CampaignEngine(store, InProcess()).run(asked[:10])
        wanted = same(store)
    fill(small_disk / "filler")
    before = {path.name: path.read_bytes() for path in (small_disk / "store").rglob("*.parquet")}
    with closing(Store(small_disk / "store")) as store, pytest.raises(InputError) as raised:
        CampaignEngine(store, InProcess()).run(asked)
    told = str(raised.value)
    assert "No space left" in told
    assert "run again" in told
    assert "\n" not in told
    assert {path.name: path.read_bytes() for path in (small_disk / "store").rglob("*.parquet")} == before
    assert not list((small_disk / "store").rglob(".*"))
    with closing(Store(small_disk / "store")) as store:
        assert same(store).equals(wanted)

    (small_disk / "filler").unlink()
    with closing(Store(small_disk / "store")) as store:
        tally = CampaignEngine(store, InProcess()).run(asked)
        assert (tally.known, tally.executed, tally.failed) == (10, 20, 0)
        assert same(store).equals(expected(planned(tmp_path / "other", 30), tmp_path / "undisturbed"))
    assert {number: count for (number, _), count in executed(marks).items()} == {
        str(k): 1 if k < 10 else 2 for k in range(30)
    }


def test_after_making_room_the_same_store_writes_what_it_could_not(small_disk, tmp_path):
    asked = planned(tmp_path / "marks", 12)
    with closing(Store(small_disk / "store")) as store:
        CampaignEngine(store, InProcess()).run(asked[:1])
        fill(small_disk / "filler")
        with pytest.raises(InputError, match="No space left"):
            CampaignEngine(store, InProcess()).run(asked)
        (small_disk / "filler").unlink()
        CampaignEngine(store, InProcess()).run(asked)
    assert len(Store(small_disk / "store").results(FAKE)) == 12


LONG = """
import sys
from pathlib import Path
from dfrs.experiments.campaign_engine import CampaignEngine
from dfrs.experiments.runners import Processes
from dfrs.experiments.store import Store
from tests.fake_runs import FakeConfiguration, planned
directory = Path(sys.argv[1])
if sys.argv[2] == "Dask":
    from dfrs.experiments.dask_runner import DaskRunner
    runner = DaskRunner(local=2)
else:
    runner = Processes(2)
mine = planned(directory / "marks", 12, FakeConfiguration(seconds=30.0))
try:
    CampaignEngine(Store(directory / "store"), runner).run(mine)
finally:
    runner.close()
"""


@pytest.fixture
def working(tmp_path):
    """A process that has two workers in the middle of long work, and the workers' ids."""
    started = []

    def work(how):
        (tmp_path / "marks").mkdir()
        process = script(LONG, tmp_path, how)
        started.append(process)
        assert until(lambda: len(pids(tmp_path / "marks")) == 2 or process.poll() is not None)
        assert process.poll() is None, process.communicate()[1]
        return process

    yield work
    for process in started:
        kill(process)


@pytest.mark.parametrize("how", ["processes", pytest.param("Dask", marks=needs_dask)])
def test_no_process_outlives_a_runner_that_is_killed(how, working, tmp_path):
    process = working(how)
    all_of_it = descendants(process.pid)
    assert pids(tmp_path / "marks") <= set(all_of_it)
    assert all(alive(pid) for pid in all_of_it)
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    assert until(lambda: not any(alive(pid) for pid in all_of_it), seconds=8), [p for p in all_of_it if alive(p)]


def test_an_interrupted_runner_does_not_wait_for_what_its_workers_are_doing(working):
    process = working("processes")
    all_of_it = descendants(process.pid)
    os.kill(process.pid, signal.SIGINT)
    assert until(lambda: process.poll() is not None, seconds=5)
    assert until(lambda: not any(alive(pid) for pid in all_of_it), seconds=5)
