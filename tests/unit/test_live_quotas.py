"""Nobody has more than their quota, nobody is kept from it, and who waits or is refused is told the rule."""

import json
import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from starlette.testclient import TestClient

from dfrs.cli.live.quota_file import read_quotas
from dfrs.live import client as clients
from dfrs.live.api.routes import create_app
from dfrs.live.controller.quotas import Pace
from dfrs.live.errors import TooManyError
from dfrs.live.protocol.job_update import JobUpdate
from dfrs.live.protocol.quotas import AccountQuota, Quota, Quotas
from dfrs.live.protocol.resources import JobRequest, JobState
from dfrs.model.errors import InputError
from dfrs.testing import InMemoryCluster, run_virtually, until
from tests.live_service import FakeService

MIB, GIB = 1 << 20, 1 << 30


def run(story):
    return run_virtually(0, lambda _: story())[0]


def cluster(tmp_path, default, **users):
    return InMemoryCluster(directory=tmp_path, nodes=4, quotas=Quotas(default=default, users=users))


async def settled(live):
    """All that can be told to the policy has been told."""
    steps = live.controller.engine.steps
    live.controller.engine.poke()
    await until(lambda: live.controller.engine.steps > steps + 2)


def registered(live, user="ann"):
    return [job.id for job in live.controller.state.jobs.values() if job.registered and job.user == user]


def test_jobs_beyond_the_quota_of_cpu_wait_in_order(tmp_path):
    async def story():
        async with cluster(tmp_path, Quota(cpu_cores=4.0), bob=Quota()) as live:
            first = await live.submit("forever", cpu_cores=2.0)
            large = await live.submit("forever", cpu_cores=1.0, tasks=4)
            small = await live.submit("forever", cpu_cores=0.5)
            other = await live.submit("forever", user="bob", cpu_cores=4.0)
            for job in (first, other):
                await live.reaches(job, JobState.RUNNING)
            await settled(live)
            assert registered(live) == [first]
            # It is not passed by the small one, which has room.
            assert live.job(large).state is JobState.WAITING
            assert live.job(large).why == "waits: jobs of ann have 2 of the 4 cores of their quota"
            assert live.job(small).why == "waits behind other jobs of ann, which are over their quota"
            await live.restart(kill=True)
            await settled(live)
            assert registered(live) == [first]
            await live.controller.cancel(first, "ann")
            await live.reaches(large, JobState.RUNNING)
            await settled(live)
            assert registered(live) == [large]
            await live.controller.cancel(large, "ann")
            await live.reaches(small, JobState.RUNNING)

    run(story)


def test_a_need_that_is_taken_back_counts_as_long_as_the_policy_keeps_it(tmp_path):
    async def story():
        async with cluster(tmp_path, Quota(cpu_cores=3.5)) as live:
            first = await live.submit("forever", cpu_cores=3.0)
            await live.reaches(first, JobState.RUNNING)
            await live.controller.update(first, JobUpdate(cpu_cores=None), "ann")
            second = await live.submit("forever", cpu_cores=1.0)
            for _ in range(2):
                await settled(live)
                assert registered(live) == [first]
                assert live.job(second).why == "waits: jobs of ann have 3 of the 3.5 cores of their quota"
                await live.restart(kill=True)
            await live.controller.update(first, JobUpdate(cpu_cores=2.0), "ann")
            await live.reaches(second, JobState.RUNNING)

    run(story)


def test_jobs_beyond_the_quota_of_memory_wait(tmp_path):
    async def story():
        async with cluster(tmp_path, Quota(memory_bytes=2 * GIB)) as live:
            first, second = [await live.submit("forever", memory_bytes=GIB + MIB, cpu_cores=0.1) for _ in range(2)]
            await live.reaches(first, JobState.RUNNING)
            await settled(live)
            assert live.job(second).why == "waits: jobs of ann have 1.001 GiB of the 2 GiB of memory of their quota"
            await live.controller.hold(second, "ann")
            await live.controller.release(second, "ann")
            await live.controller.cancel(first, "ann")
            await live.reaches(second, JobState.RUNNING)

    run(story)


def test_what_can_never_run_is_refused(tmp_path):
    async def story():
        async with cluster(tmp_path, Quota(cpu_cores=2.0, memory_bytes=GIB)) as live:
            with pytest.raises(InputError, match="cpu_cores: 3 x 1: must be at most 2 together, the quota of ann"):
                await live.submit("forever", cpu_cores=1.0, tasks=3)
            with pytest.raises(InputError, match=r"memory_bytes: 2 x .* \(1 GiB\), the quota of ann"):
                await live.submit("forever", memory_bytes=GIB, tasks=2)

    run(story)


def test_open_jobs_are_counted_with_arrays_and_over_restarts(tmp_path):
    async def story():
        async with cluster(tmp_path, Quota(open_jobs=5)) as live:
            jobs = await live.controller.submit(JobRequest(command=("forever",), array=4), "ann", "ann")
            with pytest.raises(TooManyError, match="open jobs: ann has 4 and may have 5: submit 2 more when others"):
                await live.controller.submit(JobRequest(command=("forever",), array=2), "ann", "ann")
            await live.submit("forever")
            await live.submit("forever", user="bob")
            await live.restart(kill=True)
            with pytest.raises(TooManyError, match="ann has 5"):
                await live.submit("forever")
            await live.controller.cancel(jobs[0], "ann")
            await live.reaches(jobs[0], JobState.CANCELLED)
            await live.submit("forever")
            assert live.controller.state.open_of == {"ann": 5, "bob": 1}

    run(story)


@given(
    per_minute=st.sampled_from([1, 3, 60]),
    gaps_s=st.lists(st.sampled_from([0.0, 0.5, 1.0, 20.0, 61.0, -5.0]), min_size=1, max_size=40),
)
def test_no_minute_has_more_submissions_than_two_minutes_worth(per_minute, gaps_s):
    pace, now_s, taken, waits_s = Pace(), 1000.0, [], []
    for gap_s in gaps_s:
        now_s += max(0.0, gap_s)
        try:
            pace.take("ann", per_minute, now_s)
        except TooManyError as error:
            # After the time that it says it goes.
            now_s += error.retry_s
            pace.take("ann", per_minute, now_s)
            waits_s.append(error.retry_s)
        taken.append(now_s)
        # A full bucket and what comes back meanwhile.
        assert sum(now_s - 60.0 < each for each in taken) <= 2 * per_minute
    assert all(1 <= each <= math.ceil(60 / per_minute) for each in waits_s)
    pace.take("bob", per_minute, now_s)


@settings(max_examples=15, deadline=None)
@given(
    jobs=st.lists(
        st.tuples(st.sampled_from([0.5, 1.0, 2.0]), st.integers(1, 3), st.booleans()), min_size=1, max_size=8
    ),
    ends=st.lists(st.integers(0, 7), max_size=4),
)
def test_the_policy_never_knows_more_than_the_quota_nor_less_than_it_could(tmp_path_factory, jobs, ends):
    most = 6.0

    async def story():
        async with cluster(tmp_path_factory.mktemp("x"), Quota(cpu_cores=most)) as live:
            need = {}
            for cores, tasks, held in jobs:
                name = await live.submit("forever", cpu_cores=cores, tasks=tasks, held=held, memory_bytes=MIB)
                need[name] = cores * tasks
            names = list(need)
            for k in [*ends, None]:
                await settled(live)
                there = live.controller.state.jobs
                told = [name for name in names if name in there and there[name].registered]
                assert sum(need[name] for name in told) <= most
                waiting = [name for name in names if name in there and not there[name].registered]
                free = [name for name in waiting if not there[name].held]
                assert not free or sum(need[name] for name in told) + need[free[0]] > most
                if k is not None and k < len(names) and names[k] in there:
                    await live.controller.cancel(names[k], "ann")
                    await live.reaches(names[k], JobState.CANCELLED)

    run(story)


def test_submissions_that_are_refused_use_up_none_of_the_minute(tmp_path):
    async def story():
        async with cluster(tmp_path, Quota(open_jobs=1, submissions_per_minute=2)) as live:
            first = await live.submit("forever")
            for _ in range(3):
                with pytest.raises(TooManyError, match="open jobs"):
                    await live.submit("forever")
            await live.controller.cancel(first, "ann")
            await live.reaches(first, JobState.CANCELLED)
            await live.submit("forever")

    run(story)


def charged(tmp_path, default, **accounts):
    return InMemoryCluster(directory=tmp_path, nodes=4, quotas=Quotas(default=default, accounts=accounts))


def test_who_may_charge_an_account_and_how_many_open_jobs_it_may_have(tmp_path):
    async def story():
        physics = AccountQuota(open_jobs=2, users=frozenset({"ann", "bob"}))
        async with charged(tmp_path, Quota(open_jobs=10), physics=physics) as live:
            with pytest.raises(InputError, match="account: physics: eve may not charge it"):
                await live.submit("forever", user="eve", account="physics")
            first = await live.submit("forever", account="physics")
            assert live.job(first).account == "physics"
            await live.submit("forever", user="bob", account="physics")
            await live.restart(kill=True)
            with pytest.raises(TooManyError, match="open jobs: account physics has 2 and may have 2: submit 1 more"):
                await live.submit("forever", account="physics")
            # Accounts that the file does not name have no limit.
            await live.submit("forever", user="eve", account="other")
            await live.submit("forever")
            await live.controller.cancel(first, "ann")
            assert (await live.reaches(first, JobState.CANCELLED)).account == "physics"
            await live.submit("forever", account="physics")
            assert live.controller.state.open_charged == {"physics": 2, "other": 1}

    run(story)


def test_who_waits_for_a_user_and_an_account_keeps_the_place_in_both(tmp_path):
    async def story():
        async with charged(tmp_path, Quota(cpu_cores=4.0), physics=AccountQuota(cpu_cores=2.0)) as live:
            large = await live.submit("forever", cpu_cores=3.0)
            other = await live.submit("forever", user="bob", cpu_cores=2.0, account="physics")
            first = await live.submit("forever", cpu_cores=2.0, account="physics")
            small = await live.submit("forever", cpu_cores=2.0)
            await settled(live)
            assert live.job(first).why == "waits: jobs of ann have 3 of the 4 cores of their quota"
            assert live.job(small).why == "waits behind other jobs of ann, which are over their quota"
            await live.controller.cancel(large, "ann")
            await live.reaches(small, JobState.RUNNING)
            assert live.job(first).why == "waits: jobs of account physics have 2 of the 2 cores of their quota"
            later = await live.submit("forever", cpu_cores=3.0)
            behind = await live.submit("forever", user="bob", cpu_cores=1.0, account="physics")
            await settled(live)
            await live.controller.cancel(other, "bob")
            await live.reaches(first, JobState.RUNNING)
            await settled(live)
            assert [live.job(job).state for job in (later, behind)] == [JobState.WAITING] * 2
            jobs = [json.loads(line) for line in [line async for line in live.controller.log()] if '"job":' in line]
            exported = {each["job"]["id"]: each["job"]["account"] for each in jobs if isinstance(each["job"], dict)}
            assert exported == {large: None, other: "physics", first: "physics", small: None, later: None} | {
                behind: "physics"
            }

    run(story)


def test_jobs_wait_for_their_account_and_others_of_their_user_go_on(tmp_path):
    async def story():
        async with charged(tmp_path, Quota(), physics=AccountQuota(cpu_cores=2.0)) as live:
            with pytest.raises(InputError, match="at most 2 together, the quota of account physics"):
                await live.submit("forever", cpu_cores=3.0, account="physics")
            first = await live.submit("forever", cpu_cores=2.0, account="physics")
            waits = await live.submit("forever", user="bob", cpu_cores=1.0, account="physics")
            behind = await live.submit("forever", cpu_cores=0.5, account="physics")
            others = [await live.submit("forever", user=name, cpu_cores=1.0) for name in ("ann", "bob")]
            for job in (first, *others):
                await live.reaches(job, JobState.RUNNING)
            await settled(live)
            assert live.job(waits).why == "waits: jobs of account physics have 2 of the 2 cores of their quota"
            assert live.job(behind).why == "waits behind other jobs of account physics, which are over their quota"
            await live.controller.cancel(first, "ann")
            for job in (waits, behind):
                await live.reaches(job, JobState.RUNNING)

    run(story)


@settings(max_examples=8, deadline=None)
@given(
    jobs=st.lists(
        st.tuples(
            st.sampled_from([1.0, 2.0, 3.0]),
            st.sampled_from(["ann", "bob"]),
            st.sampled_from([None, "physics", "biology"]),
            st.booleans(),
        ),
        min_size=1,
        max_size=10,
    ),
    ends=st.lists(st.integers(0, 9), max_size=4),
)
def test_neither_users_nor_accounts_have_more_than_their_quota_nor_does_anybody_wait_for_nothing(
    tmp_path_factory, jobs, ends
):
    most = {"ann": 5.0, "bob": 5.0, "physics": 4.0, "biology": 3.0}

    async def story():
        quotas = {name: AccountQuota(cpu_cores=most[name]) for name in ("physics", "biology")}
        async with charged(tmp_path_factory.mktemp("x"), Quota(cpu_cores=5.0), **quotas) as live:
            there, need, pays = live.controller.state.jobs, {}, {}
            for cores, user, account, held in jobs:
                fields = {"cpu_cores": cores, "account": account, "held": held, "memory_bytes": MIB}
                name = await live.submit("forever", user=user, **fields)
                need[name], pays[name] = cores, [user, *([account] if account else [])]
            for k in [*ends, None]:
                for _ in range(3):
                    await settled(live)
                told = [name for name in need if name in there and there[name].registered]
                use = {each: sum(need[name] for name in told if each in pays[name]) for each in most}
                assert all(use[each] <= most[each] for each in most)
                waiting = [name for name in need if name in there and not there[name].registered]
                free = [name for name in waiting if not there[name].held]
                # The earliest has nobody before it: only a quota can keep it.
                assert not free or any(use[each] + need[free[0]] > most[each] for each in pays[free[0]])
                if k is not None and k < len(need) and (name := list(need)[k]) in there:
                    await live.controller.cancel(name, "root")
                    await live.reaches(name, JobState.CANCELLED)
            for name in waiting:
                if there[name].held:
                    await live.controller.release(name, "root")
            while there:
                await settled(live)
                told = [name for name in need if name in there and there[name].registered]
                assert told
                for name in told:
                    await live.controller.cancel(name, "root")
                    await live.reaches(name, JobState.CANCELLED)

    run(story)


def test_the_api_says_429_and_the_client_that_the_request_is_refused(monkeypatch):
    class Full(FakeService):
        async def submit(self, request, user, by):
            raise TooManyError("open jobs: ann has 5 and may have 5", request.array)

    service = Full()
    transport = TestClient(create_app(service, page=None))._transport
    endpoint = clients.Endpoint(url="http://127.0.0.1:7070", token=service.token("ann", "user"))
    with clients.Client(endpoint, transport=transport) as client:
        with pytest.raises(InputError, match="open jobs: ann has 5 and may have 5"):
            client.submit(JobRequest(command=("true",)))
        answer = client._http.post("/jobs", json={"command": ["true"], "array": 7})
        assert (answer.status_code, answer.headers["retry-after"]) == (429, "7")


def test_weights_above_one_are_for_those_who_may_have_them(tmp_path):
    async def story():
        async with cluster(tmp_path, Quota(), bob=Quota(largest_weight=4.0), eve=Quota(largest_weight=None)) as live:
            for user, weight in (("ann", 0.5), ("bob", 4.0), ("eve", 1000.0)):
                job = await live.submit("forever", user=user, weight=weight)
                await live.reaches(job, JobState.RUNNING)
                assert live.job(job).weight == weight
            with pytest.raises(InputError, match=r"weight: 2: must be at most 1, the largest_weight of ann"):
                await live.submit("forever", weight=2.0)
            with pytest.raises(InputError, match=r"weight: 5: must be at most 4, the largest_weight of bob"):
                await live.controller.update(2, JobUpdate(weight=5.0), "bob")

    run(story)


def test_a_file_of_quotas(tmp_path):
    path = tmp_path / "quotas.toml"
    path.write_text(
        'default = {open_jobs = 100, memory = "64G", submissions_per_minute = 60}\n'
        '[users.ann]\ncpu_cores = 2.5\nopen_jobs = "none"\nlargest_weight = 4\n[users.bob]\nopen_jobs = 0\n'
    )
    found = read_quotas(path)
    assert found.of("eve") == Quota(open_jobs=100, memory_bytes=64 * GIB, submissions_per_minute=60)
    assert found.of("ann") == Quota(cpu_cores=2.5, memory_bytes=64 * GIB, submissions_per_minute=60, largest_weight=4)
    assert found.of("bob").open_jobs == 0
    assert not found.accounts


def test_a_file_of_quotas_of_accounts(tmp_path):
    path = tmp_path / "quotas.toml"
    path.write_text(
        "[default]\nopen_jobs = 100\n"
        '[accounts.physics]\nopen_jobs = 5\nmemory = "1G"\nusers = ["ann"]\n[accounts.biology]\ncpu_cores = 2\n'
    )
    assert read_quotas(path).accounts == {
        "physics": AccountQuota(open_jobs=5, memory_bytes=GIB, users=frozenset({"ann"})),
        "biology": AccountQuota(cpu_cores=2),
    }


@pytest.mark.parametrize(
    ("text", "match"),
    [
        ("[defaults]", r'"defaults": must be \[default\], \[users.NAME\] or \[accounts.NAME\]'),
        ("[default]\njobs = 3", r"default.jobs: must be one of open_jobs, cpu_cores, memory"),
        ("[default]\nopen_jobs = 1.5", "default.open_jobs = 1.5: must be a whole number"),
        ("[default]\nopen_jobs = true", "must be a whole number"),
        ("[default]\ncpu_cores = -1", "default.cpu_cores = -1: must be a number of at least 0"),
        ("[default]\ncpu_cores = nan", "must be a number of at least 0"),
        ("[default]\nmemory = 64", 'memory = 64: must be a size with a unit, as "64G"'),
        ('[users.ann]\nmemory = "64"', "users.ann.memory.*must be a number with a unit"),
        ("[users.ann]\nsubmissions_per_minute = 0", "must be at least 1"),
        ("[users.ann]\nlargest_weight = 0", "users.ann.largest_weight = 0: must be above 0"),
        ("users = 3", "users: must be tables"),
        ("accounts = 3", r"accounts: must be tables \[accounts.NAME\]"),
        ("[accounts]\nphysics = 3", r"accounts.physics: must be a table, as \[accounts.NAME\]"),
        ('[accounts.physics]\nusers = "ann"', "accounts.physics.users = 'ann': must be a list of names"),
        ("[accounts.physics]\nusers = [3]", "accounts.physics.users = .*: must be a list of names"),
        (
            "[accounts.physics]\nsubmissions_per_minute = 3",
            "accounts.physics.submissions_per_minute: must be one of open_jobs, cpu_cores, memory, share, users",
        ),
        ("[accounts.physics]\nopen_jobs = 1.5", "accounts.physics.open_jobs = 1.5: must be a whole number"),
        ("default = 3", "default: must be a table"),
        ("[default", "is no TOML"),
    ],
)
def test_files_that_are_refused(tmp_path, text, match):
    path = tmp_path / "quotas.toml"
    path.write_text(text)
    with pytest.raises(InputError, match=match):
        read_quotas(path)
    with pytest.raises(InputError, match="cannot be read"):
        read_quotas(tmp_path / "none.toml")
