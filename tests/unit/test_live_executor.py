"""The executor on a live cluster: on the real API with a controller that makes calls itself, and on real nodes."""

import asyncio
import functools
import os
import pickle
import random
import sys
import threading
import time
from concurrent.futures import (
    FIRST_COMPLETED,
    BrokenExecutor,
    CancelledError,
    as_completed,
    wait,
)

import dask
import httpx
import pytest
from starlette.testclient import TestClient

import dfrs
from dfrs.live.api.routes import create_app
from dfrs.live.client import Client, Endpoint
from dfrs.live.errors import TooManyError, UnavailableError
from dfrs.live.executor.remote_call import (
    MOST_OUTCOME,
    Outcome,
    packed_call,
    packed_outcome,
    read_outcome,
    taken_call,
)
from dfrs.live.protocol.resources import JobState, OutputPart
from tests.live_processes import PATIENCE_S, LiveCluster, wait_until
from tests.live_service import FakeService

URL = "http://127.0.0.1:7070"


def plus(a, b=0):
    """Of a module, so pickled by its name."""
    return a + b


class OddError(Exception):
    """Can be pickled, and not be made again: as the default is, which tblib (of Dask) mends where it was imported."""

    def __init__(self, one, two):
        super().__init__(one)
        self.two = two

    def __reduce__(self):
        return type(self), self.args


def call_of(request):
    """What the job of a request calls."""
    return pickle.loads(taken_call(dict(request.environment))[1])


class Caller(FakeService):
    """Calls at once what is submitted, unless it is told to wait; then jobs run until `go`."""

    def __init__(self):
        super().__init__()
        self.lines = {}
        self.errors = {}
        self.waits = False
        self.most_open = None
        self.refused = 0
        self.failed = 0
        self.away = 0

    async def submit(self, request, user, by):
        self.failed += self.unavailable
        going = [job for job in self.by_id.values() if job.state not in {JobState.DONE, JobState.FAILED}]
        if self.most_open is not None and len(going) >= self.most_open:
            self.refused += 1
            raise TooManyError("open jobs: ann has enough")
        (job,) = await super().submit(request, user, by)
        if self.waits:
            self.set(job, state=JobState.RUNNING)
        else:
            self.call(job)
        return [job]

    def set(self, job, **fields):
        self.by_id[job] = self.by_id[job].model_copy(update=fields)

    def call(self, job):
        try:
            outcome = Outcome(call_of(self.requests[job - 1])())
        except BaseException as error:
            outcome = Outcome(error, raised=True)
        self.lines[job] = packed_outcome(outcome)
        self.set(job, state=JobState.FAILED if outcome.raised else JobState.DONE)

    def go(self):
        self.waits = False
        for job, found in list(self.by_id.items()):
            if found.state == JobState.RUNNING:
                self.call(job)

    async def output(self, job, rank, piece):
        if self.away:
            self.away -= 1
            raise UnavailableError("the node is away")
        whole = self.lines.get(job, "") if piece.stream == "out" else self.errors.get(job, "")
        part = whole[piece.offset : piece.offset + piece.limit]
        end = piece.offset + len(part)
        return OutputPart(text=part, offset=piece.offset, next_offset=end, ended=end == len(whole))


@pytest.fixture
def service():
    return Caller()


@pytest.fixture
def transport(service):
    return TestClient(create_app(service, page=None))._transport


@pytest.fixture
def client(service, transport):
    with Client(Endpoint(url=URL, token=service.token("ann", "user")), transport=transport) as client:
        yield client


@pytest.fixture
def executor(client):
    with client.executor(memory_bytes=1 << 28) as executor:
        yield executor


def test_a_call_gives_its_result(executor, service):
    future = executor.submit(pow, 2, 5)
    assert future.result(30) == 32
    assert executor.submit(plus, 1, b=2).result(30) == 3
    assert executor.submit(lambda number: number + 1, 1).result(30) == 2
    assert (future.job, future.done(), future.running(), future.cancelled()) == (1, True, False, False)
    request = service.requests[0]
    assert request.command == (sys.executable, "-m", "dfrs.live.executor")
    assert (request.name, request.memory_bytes, request.directory) == ("pow", 1 << 28, os.getcwd())
    assert service.requests[2].name == "<lambda>"


def test_a_call_gives_what_it_raises(executor):
    def fails(text):
        raise LookupError(text)

    future = executor.submit(fails, "nothing there")
    assert isinstance(future.exception(30), LookupError)
    with pytest.raises(LookupError, match="nothing there"):
        future.result()
    odd = executor.submit(lambda: (_ for _ in ()).throw(OddError(1, 2))).exception(30)
    assert isinstance(odd, RuntimeError)
    assert "OddError: 1" in str(odd)
    assert isinstance(executor.submit(sys.exit, 3).exception(30), SystemExit)
    assert isinstance(executor.submit(threading.Lock).exception(30), TypeError)


def test_what_cannot_be_sent_is_told_by_the_future(executor, service):
    assert "pickle" in str(executor.submit(print, threading.Lock()).exception(30))
    noise = random.Random(1).randbytes(200_000)
    with pytest.raises(dfrs.TooLargeError, match="must be at most 150000; pass the path of a file"):
        executor.submit(len, noise).result(30)
    assert executor.submit(len, noise[:140_000]).result(30) == 140_000
    assert executor.submit(len, b"0" * 10_000_000).result(30) == 10_000_000
    assert len(service.requests) == 2


def test_a_result_may_be_large_but_not_too_large():
    noise = random.Random(1).randbytes(MOST_OUTCOME)
    assert read_outcome(packed_outcome(Outcome(noise[: MOST_OUTCOME // 2]))).value == noise[: MOST_OUTCOME // 2]
    told = read_outcome(packed_outcome(Outcome(noise)))
    assert told.raised
    assert "write it to a file and return its path" in str(told.value)


def test_an_outcome_is_whole_or_none():
    line = packed_outcome(Outcome(7))
    assert read_outcome(line).value == 7
    for bad in ("", "hello\n", line[:-1], line[:-5] + "\n", line.replace("dfrs-call/1", "dfrs-call/2")):
        assert read_outcome(bad) is None, bad


def test_a_call_in_pieces_is_put_together_and_taken_away():
    noise = random.Random(1).randbytes(120_000)
    variables = packed_call(functools.partial(len, noise), ["/a"])
    assert len(variables) == 2
    environ = variables | {"PATH": "/bin"}
    path, call = taken_call(environ)
    assert (path, pickle.loads(call)(), environ) == (["/a"], 120_000, {"PATH": "/bin"})


def test_map_is_in_order_and_makes_chunks(executor, service):
    assert list(executor.map(pow, range(10), range(10))) == [n**n for n in range(10)]
    before = len(service.requests)
    assert list(executor.map(pow, range(10), range(10), chunksize=4)) == [n**n for n in range(10)]
    assert len(service.requests) - before == 3
    found = executor.map(divmod, [1, 1, 1], [1, 0, 1])
    assert next(found) == (1, 0)
    with pytest.raises(ZeroDivisionError):
        next(found)
    with pytest.raises(ValueError, match="chunksize"):
        executor.map(pow, [1], [1], chunksize=0)


def test_map_ends_after_its_time(executor, service):
    service.waits = True
    with pytest.raises(TimeoutError):
        list(executor.map(pow, [1], [1], timeout=0.2))
    wait_until(lambda: service.by_id[1].state == JobState.CANCELLED, "what nobody waits for is cancelled", 30)


def test_futures_can_be_waited_for_and_called_back(executor, service):
    service.waits = True
    first, second = executor.submit(pow, 2, 2), executor.submit(pow, 2, 3)
    told = []
    second.add_done_callback(lambda future: told.append(future.result()))
    wait_until(lambda: second.running() and first.running(), "both run", 30)
    with pytest.raises(TimeoutError):
        first.result(0.05)
    service.call(2)
    done, left = wait([first, second], 30, FIRST_COMPLETED)
    assert (done, left) == ({second}, {first})
    service.go()
    assert {future.result() for future in as_completed([first, second], 30)} == {4, 8}
    assert told == [8]


def test_cancelling_ends_the_job_also_one_that_runs(executor, service):
    service.waits = True
    future, other = executor.submit(pow, 2, 2), executor.submit(pow, 2, 3)
    wait_until(future.running, "it runs", 30)
    assert future.cancel()
    assert future.cancelled()
    assert not future.running()
    assert wait([future], 5).done == {future}
    with pytest.raises(CancelledError):
        future.result(5)
    wait_until(lambda: service.by_id[1].state == JobState.CANCELLED, "its job is cancelled", 30)
    assert not other.done()
    service.go()
    assert other.result(30) == 8
    assert not other.cancel()


def test_what_waits_here_is_cancelled_without_a_job(executor, service):
    service.most_open = 0
    future = executor.submit(pow, 2, 2)
    assert future.cancel()
    before, other = service.refused, executor.submit(pow, 2, 3)
    # The first one may have been on its way; then nothing is.
    wait_until(lambda: service.refused > before + 1, "the other one is refused", 30)
    service.most_open = None
    assert other.result(30) == 8
    assert len(service.requests) == 1


def test_a_job_that_somebody_else_cancels_is_a_cancelled_call(executor, service, client):
    service.waits = True
    future = executor.submit(pow, 2, 2)
    wait_until(future.running, "it runs", 30)
    client.cancel(future.job)
    with pytest.raises(CancelledError):
        future.result(30)


def test_what_a_quota_does_not_allow_yet_waits(executor, service):
    service.most_open, service.waits = 2, True
    futures = [executor.submit(pow, 2, n) for n in range(5)]
    wait_until(lambda: len(service.requests) == 2, "as many as allowed", 30)
    time.sleep(0.2)
    assert len(service.requests) == 2
    service.go()
    assert [future.result(30) for future in futures] == [1, 2, 4, 8, 16]


def test_a_job_that_ends_without_a_result_says_how(executor, service):
    service.waits = True
    future = executor.submit(pow, 2, 2)
    wait_until(future.running, "it runs", 30)
    service.errors[1] = "x" * 5000 + "\nKilled\n"
    service.set(1, state=JobState.FAILED, exit="killed for its memory")
    with pytest.raises(
        dfrs.JobFailedError, match="job 1: killed for its memory; its standard error ends with:"
    ) as told:
        future.result(30)
    assert str(told.value).endswith("Killed")
    assert len(str(told.value)) < 1200


def test_what_the_cluster_refuses_is_told_by_the_future(client, service):
    with client.executor(held=True, patience_s=0.2) as executor:
        service.unavailable = True
        with pytest.raises(dfrs.UnavailableError, match="disk full"):
            executor.submit(pow, 2, 2).result(30)
        service.unavailable = False
        assert executor.submit(pow, 2, 2).result(30) == 4
        assert service.requests[0].held


def test_what_waits_here_outlasts_a_controller_that_is_away_for_a_moment(service, transport):
    down, refused = threading.Event(), []

    def answer(request):
        if down.is_set() and request.method == "POST":
            refused.append(request)
            raise httpx.ConnectError("refused")
        return transport.handle_request(request)

    service.most_open, service.waits = 2, True
    endpoint = Endpoint(url=URL, token=service.token("ann", "user"))
    with Client(endpoint, transport=httpx.MockTransport(answer)) as client, client.executor() as executor:
        futures = [executor.submit(pow, 2, n) for n in range(5)]
        wait_until(lambda: service.refused, "more than allowed", 30)
        down.set()
        wait_until(lambda: refused, "one is submitted in vain", 30)
        service.unavailable = True
        down.clear()
        service.go()
        wait_until(lambda: service.failed, "one is not written", 30)
        service.unavailable = False
        assert [future.result(30) for future in futures] == [1, 2, 4, 8, 16]
    assert len(service.requests) == 5


def test_a_call_that_may_have_been_accepted_is_not_submitted_again(service, transport):
    lost = []

    def answer(request):
        found = transport.handle_request(request)
        if not lost and request.method == "POST":
            lost.append(found)
            raise httpx.ReadTimeout("late")
        return found

    endpoint = Endpoint(url=URL, token=service.token("ann", "user"))
    with Client(endpoint, transport=httpx.MockTransport(answer)) as client, client.executor() as executor:
        with pytest.raises(dfrs.UnreachableError, match="no answer"):
            executor.submit(pow, 2, 2).result(30)
        assert executor.submit(pow, 2, 3).result(30) == 8
    assert len(service.requests) == 2


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"cpu_cores": 0}, "cpu_cores 0: input should be greater than 0"),
        ({"tasks": 2}, "tasks: cannot be chosen"),
        ({"memory": "1G"}, "memory '1G': extra inputs"),
    ],
)
def test_what_no_job_can_have_is_refused_at_once(client, fields, words):
    with pytest.raises(dfrs.InputError, match=words):
        client.executor(**fields)


def test_a_node_that_is_away_for_a_moment_is_waited_for(client, service):
    service.away = 3
    with client.executor() as executor:
        assert executor.submit(pow, 2, 2).result(30) == 4
    service.away = 10**6
    with client.executor(patience_s=0.2) as executor:
        with pytest.raises(dfrs.UnavailableError, match="the node is away"):
            executor.submit(pow, 2, 2).result(30)
        service.away = 0
        assert executor.submit(pow, 2, 2).result(30) == 4


def test_when_nobody_answers_any_more_all_calls_fail(service, transport):
    down = threading.Event()

    def answer(request):
        if down.is_set():
            raise httpx.ConnectError("refused")
        return transport.handle_request(request)

    endpoint = Endpoint(url=URL, token=service.token("ann", "user"))
    with Client(endpoint, transport=httpx.MockTransport(answer)) as client, client.executor(patience_s=0.2) as executor:
        service.waits = True
        futures = [executor.submit(pow, 2, n) for n in range(3)]
        wait_until(lambda: len(service.requests) == 3, "submitted", 30)
        down.set()
        for future in futures:
            with pytest.raises(dfrs.UnreachableError):
                future.result(30)
        wait_until(lambda: executor._broken, "it is broken", 5)
        with pytest.raises(BrokenExecutor, match="can no longer be asked"):
            executor.submit(pow, 2, 2)


def test_a_client_that_is_closed_too_early_fails_its_calls(service, transport):
    service.waits = True
    with Client(Endpoint(url=URL, token=service.token("ann", "user")), transport=transport) as client:
        future = client.executor().submit(pow, 2, 2)
        wait_until(future.running, "it runs", 30)
    # The second is what this transport, which is no socket, says of itself.
    with pytest.raises(RuntimeError, match=r"closed|portal is not running"):
        future.result(30)


def test_shutdown_waits_for_all_calls_and_takes_no_more(client, service):
    service.waits = True
    executor = client.executor()
    future = executor.submit(pow, 2, 2)
    wait_until(future.running, "it runs", 30)
    executor.shutdown(wait=False)
    assert not future.done()
    with pytest.raises(RuntimeError, match="cannot schedule new futures after shutdown"):
        executor.submit(pow, 2, 2)
    threading.Timer(0.2, service.go).start()
    executor.shutdown()
    assert future.done()
    assert future.result() == 4
    executor.shutdown()


def test_shutdown_cancels_what_does_not_run_yet(client, service):
    service.waits = True
    executor = client.executor()
    running = executor.submit(pow, 2, 2)
    wait_until(running.running, "it runs", 30)
    service.most_open = 1
    waiting = executor.submit(pow, 2, 3)
    executor.shutdown(wait=False, cancel_futures=True)
    assert waiting.cancelled()
    service.go()
    assert running.result(30) == 4


def test_nothing_is_left_where_there_is_nothing_to_do(client):
    def threads():
        return [thread for thread in threading.enumerate() if thread.name == "dfrs-executor"]

    executor = client.executor()
    assert executor.submit(pow, 2, 2).result(30) == 4
    wait_until(lambda: not threads(), "no thread", 5)
    assert executor.submit(pow, 2, 3).result(30) == 8


def test_many_threads_may_use_it(executor):
    found = {}

    def work(k):
        found[k] = [executor.submit(pow, k, 2).result(30) for _ in range(3)]

    threads = [threading.Thread(target=work, args=(k,)) for k in range(5)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert found == {k: [k * k] * 3 for k in range(5)}


def test_an_event_loop_may_use_it(executor):
    async def story():
        return await asyncio.get_running_loop().run_in_executor(executor, pow, 2, 5)

    assert asyncio.run(story()) == 32


def test_dask_computes_with_it(executor, service):
    graph = dask.delayed(sum)([dask.delayed(pow)(2, k, pure=False) for k in range(5)])
    assert graph.compute(scheduler=executor) == 31
    assert len(service.by_id) > 1
    with pytest.raises(ZeroDivisionError):
        dask.delayed(divmod)(1, 0).compute(scheduler=executor)


def test_on_real_nodes(tmp_path, monkeypatch):
    """Modules that are nowhere installed, output of its own, an exception with its place, a job that is killed."""
    (tmp_path / "mine.py").write_text("def twice(x):\n    print('in the job')\n    return 2 * x\n")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(place for place in sys.path if place.endswith("src")))
    import mine  # noqa: PLC0415 - it is written by the test

    def killed():
        os.kill(os.getpid(), 9)

    def raises():
        raise LookupError("there")

    with (
        LiveCluster(tmp_path, nodes=2) as cluster,
        Client(Endpoint(url=cluster.server, token=cluster.token)) as client,
        client.executor(cpu_cores=1, memory_bytes=200 << 20, directory=str(tmp_path)) as executor,
    ):
        forever = executor.submit(time.sleep, 120)
        twice = executor.submit(mine.twice, "ab")
        assert twice.result(PATIENCE_S) == "abab"
        assert "".join(client.follow(twice.job, stream="err")) == "in the job\n"
        assert client.job(twice.job).state == "done"
        large = executor.submit(os.urandom, 3_000_000)
        places = executor.map(lambda k: (k, os.getcwd(), "_DFRS_CALL_0" in os.environ), range(4), chunksize=2)
        with pytest.raises(dfrs.JobFailedError, match="was ended by signal SIGKILL"):
            executor.submit(killed).result(PATIENCE_S)
        error = executor.submit(raises).exception(PATIENCE_S)
        assert isinstance(error, LookupError)
        assert any("in raises" in note and "on node n" in note for note in error.__notes__)
        assert len(large.result(PATIENCE_S)) == 3_000_000
        assert list(places) == [(k, str(tmp_path), False) for k in range(4)]
        graph = dask.delayed(sum)([dask.delayed(pow)(2, k, pure=False) for k in range(3)])
        assert graph.compute(scheduler=executor) == 7
        wait_until(forever.running, "it runs")
        assert forever.cancel()
        wait_until(lambda: client.job(forever.job).state == "cancelled", "its job is cancelled")
