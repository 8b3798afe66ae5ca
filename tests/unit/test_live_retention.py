"""What is older than an operator keeps goes, and nothing else: numbers, open jobs and a start that finds everything."""

import asyncio
import json
import resource
import sqlite3
from contextlib import closing

import pytest
import sqlalchemy as sa

from dfrs.live.controller import retention, revisions, tables
from dfrs.live.controller.archive import Archive
from dfrs.live.controller.pruned import KEY, Pruned
from dfrs.live.errors import NotFoundError
from dfrs.live.protocol.resources import JobRequest, JobState
from dfrs.model.errors import DfrsError, InputError
from dfrs.policies.names import find_policy
from dfrs.simulator.recorded_log import decide_again
from dfrs.testing import InMemoryCluster, run_virtually, until
from dfrs.workloads.live_archive import complete
from dfrs.workloads.live_log import FILE, read_live_log

KEEP_S, LATER_S = 1000.0, 1500.0


def run(story):
    return run_virtually(0, lambda _: story())[0]


def cluster(tmp_path, **settings):
    return InMemoryCluster(directory=tmp_path, keep_s=KEEP_S, checkpoint_events=1, **settings)


def rows(tmp_path, query):
    with closing(sqlite3.connect(tmp_path / "live.db")) as connection:
        return connection.execute(query).fetchall()


def count(tmp_path, table):
    return rows(tmp_path, f"SELECT count(*) FROM {table}")[0][0]


async def run_jobs(live, number, *command, **fields):
    names = [await live.submit(*(command or ("fail", "0")), **fields) for _ in range(number)]
    for name in names:
        await live.reaches(name, JobState.DONE, JobState.FAILED)
    return names


async def age(live, **fields):
    """Time passes, and two states are stored: only then are events needed no more."""
    live.tick(LATER_S)
    await run_jobs(live, 2, **fields)


async def log_of(controller):
    return [line async for line in controller.log()]


def test_what_is_old_goes_and_numbers_go_on(tmp_path):
    async def story():
        async with cluster(tmp_path) as live:
            old = await run_jobs(live, 5)
            forever = await live.submit("forever")
            await live.reaches(forever, JobState.RUNNING)
            await age(live)
            before = live.controller.cluster()
            await live.controller.retention.prune()
            after = live.controller.cluster()
            assert (before.jobs, before.jobs_pruned_until) == (after.jobs, None)
            assert after.jobs_pruned_until is not None
            for job in old:
                with pytest.raises(NotFoundError, match=f"job {job}: .* is no longer kept"):
                    live.job(job)
            assert live.job(forever).state is JobState.RUNNING
            last = live.controller.state.activity.sequence
            await live.restart(kill=True)
            # What ended since is kept, and so is what runs; all that ever ended is counted.
            assert live.controller.cluster().jobs == before.jobs
            assert live.job(forever).state is JobState.RUNNING
            assert {job for (job,) in rows(tmp_path, "SELECT id FROM jobs")} == {6, 7, 8}
            assert count(tmp_path, "requests") == 3
            assert live.controller.state.activity.sequence >= last
            assert await live.submit("forever") == 9
        first, number = rows(tmp_path, "SELECT min(sequence), count(*) FROM events")[0]
        assert first > 1
        assert number < first
        assert (
            min(json.loads(body)["time"] for (body,) in rows(tmp_path, "SELECT body FROM activity")) >= LATER_S - KEEP_S
        )

    run(story)


def test_numbers_go_on_where_all_jobs_are_old(tmp_path):
    async def story():
        async with cluster(tmp_path) as live:
            await run_jobs(live, 4)
            live.tick(LATER_S)
            for _ in range(2):
                await live.controller.drain("n1", "ann")
                await live.controller.undrain("n1", "ann")
                await until(lambda: live.controller.engine.checkpointer.floor)
                await live.controller.retention.prune()
            assert rows(tmp_path, "SELECT id FROM jobs") == [(4,)]
            await live.restart()
            numbers = [*await run_jobs(live, 1), live.controller.state.sequence]
            assert numbers[0] == 5
            assert numbers[1] > rows(tmp_path, "SELECT min(sequence) FROM events")[0][0]

    run(story)


def test_nothing_is_pruned_that_the_next_start_may_need(tmp_path):
    async def story():
        async with InMemoryCluster(
            directory=tmp_path, keep_s=KEEP_S, checkpoint_events=10**9, checkpoint_s=1e9
        ) as live:
            await run_jobs(live, 3)
            live.tick(LATER_S)
            await run_jobs(live, 1)
            events, jobs = count(tmp_path, "events"), count(tmp_path, "jobs")
            await live.controller.retention.prune()
            assert (count(tmp_path, "events"), count(tmp_path, "jobs")) == (events, jobs)
            await live.restart(kill=True)
            assert live.controller.state.mismatches == 0

    run(story)


def test_a_start_with_a_long_past_need_not_wait_for_events_to_prune_it(tmp_path):
    async def story():
        never = {"checkpoint_events": 10**9, "checkpoint_s": 1e9}
        async with InMemoryCluster(directory=tmp_path, keep_s=KEEP_S, **never) as live:
            await run_jobs(live, 3)
            live.tick(LATER_S)
            await live.restart()
            await until(lambda: live.controller.engine.checkpointer.floor)
            await live.controller.retention.prune()
            assert rows(tmp_path, "SELECT min(sequence) FROM events")[0][0] > 1
            await live.restart(kill=True)
            assert live.controller.state.mismatches == 0

    run(story)


@pytest.mark.parametrize("kind", ["after", "after_any", "after_start"])
def test_a_job_that_an_open_one_waits_for_stays(tmp_path, kind):
    async def story():
        async with cluster(tmp_path) as live:
            good, bad = await live.submit("fail", "0"), await live.submit("fail", "3", "bad")
            await live.reaches(bad, JobState.FAILED)
            await live.reaches(good, JobState.DONE)
            waiting = await live.submit("forever", held=True, **{kind: (good,)})
            await age(live)
            await live.controller.retention.prune()
            assert {good, waiting} <= {job for (job,) in rows(tmp_path, "SELECT id FROM jobs")}
            await live.restart(kill=True)
            await live.controller.release(waiting, "ann")
            await live.reaches(waiting, JobState.RUNNING)
            with pytest.raises(InputError, match=f"after: {bad}: there is no such job, or it ended before"):
                await live.submit("forever", **{kind: (bad,)})

    run(story)


def test_an_arrays_request_goes_with_its_last_job(tmp_path):
    async def story():
        async with cluster(tmp_path) as live:
            request = JobRequest(command=("fail", "0"), array=3, held=True)
            array = list(await live.controller.submit(request, "ann", "ann"))
            for job in (array[0], array[2]):
                await live.controller.release(job, "ann")
                await live.reaches(job, JobState.DONE)
            await age(live)
            await live.controller.retention.prune()
            assert rows(tmp_path, f"SELECT id FROM requests WHERE id = {array[0]}") == [(array[0],)]
            await live.restart()
            await live.controller.release(array[1], "ann")
            await live.reaches(array[1], JobState.DONE)
            await age(live)
            await live.controller.retention.prune()
            assert not rows(tmp_path, f"SELECT id FROM requests WHERE id = {array[0]}")

    run(story)


def test_an_archive_and_what_is_left_are_the_whole_log(tmp_path, monkeypatch):
    monkeypatch.setattr(retention, "ROWS", 4)

    async def never(_):
        pass

    # It is pruned here, and not while the whole is read.
    monkeypatch.setattr(retention.Retention, "run", never)
    archive = tmp_path / "archive"

    async def story():
        async with cluster(tmp_path, archive=archive) as live:
            await run_jobs(live, 4)
            await age(live)
            await live.restart()
            await age(live)
            whole = await log_of(live.controller)
            await live.controller.retention.prune()
            left = await log_of(live.controller)
            await live.restart()
            await age(live)
            await live.controller.retention.prune()
            return whole, left, await log_of(live.controller)

    whole, left, latest = run(story)
    assert json.loads(left[0])["first_event"] > 1
    assert len(left) < len(whole)
    assert sorted(complete(left, archive)) == sorted(whole)
    again = list(complete(latest, archive))
    assert set(whole[1:]) <= set(again)
    assert (archive / next(archive.iterdir()).name).stat().st_mode & 0o77 == 0

    def export(lines):
        (tmp_path / FILE).write_text("".join(f"{line}\n" for line in lines))
        return decide_again(read_live_log(tmp_path), find_policy)

    assert export(again).mismatch is None
    with pytest.raises(InputError, match=r"events 1 to \d+, until .*, were no longer kept; dfrs export --archive"):
        export(latest)
    (archive / sorted(path.name for path in archive.glob("events-*"))[0]).unlink()
    with pytest.raises(InputError, match="archive"):
        list(complete(latest, archive))


def test_lines_that_are_missing_or_of_another_cluster_are_said(tmp_path):
    archive = Archive(tmp_path)
    header = {"format": "dfrs-log/1", "epoch": 5.0, "first_event": 4}
    archive.add("jobs", [], 5.0, 0.0)
    archive.add("events", [event_line(1), event_line(3)], 5.0, 0.0)
    with pytest.raises(InputError, match="line 3: events 2 to 2 are missing"):
        list(complete([json.dumps(header)], tmp_path))
    archive.add("events", [event_line(1), event_line(2), event_line(3)], 5.0, 0.0)
    with pytest.raises(InputError, match="must be the header of an archive of this cluster"):
        list(complete([json.dumps(header | {"epoch": 6.0})], tmp_path))


def event_line(number):
    return json.dumps({"sequence": number, "time_s": 1.0, "event": {"event": "wake"}, "digest": ""})


def test_half_a_line_of_a_killed_controller_is_cut_off(tmp_path):
    archive = Archive(tmp_path)
    archive.add("events", [event_line(1)], 5.0, 0.0)
    path = tmp_path / "events-1970-01.jsonl"
    whole = path.read_bytes()
    path.write_bytes(whole + b'{"sequence": 2, "ti' + b"x" * 200_000)
    archive.add("events", [event_line(2)], 5.0, 0.0)
    assert path.read_bytes() == whole + event_line(2).encode() + b"\n"
    path.write_bytes(b'{"form')
    archive.add("events", [event_line(2)], 5.0, 0.0)
    assert [json.loads(line).get("sequence") for line in path.read_text().splitlines()] == [None, 2]


def test_lines_that_find_only_room_in_part_are_not_archived(tmp_path):
    archive, path = Archive(tmp_path), tmp_path / "events-1970-01.jsonl"
    lines = [event_line(number) for number in range(1, 2000)]
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (10_000, before[1]))
    try:
        with pytest.raises(DfrsError, match=r"cannot be written: .*; nothing is pruned"):
            archive.add("events", lines, 5.0, 0.0)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert path.stat().st_size == 10_000
    archive.add("events", lines, 5.0, 0.0)
    assert path.read_text().splitlines()[-len(lines) :] == lines


def test_what_cannot_be_archived_is_not_pruned(tmp_path):
    archive = tmp_path / "archive"

    async def story():
        async with cluster(tmp_path, archive=archive) as live:
            archive.rmdir()
            archive.write_text("a file")
            await run_jobs(live, 3)
            await age(live)
            events = count(tmp_path, "events")
            with pytest.raises(DfrsError, match=r"cannot be written: .*; nothing is pruned"):
                await live.controller.retention.prune()
            assert count(tmp_path, "events") == events

    run(story)


def test_while_somebody_reads_the_log_nothing_of_it_goes(tmp_path):
    async def story():
        async with cluster(tmp_path) as live:
            await run_jobs(live, 3)
            await age(live)
            lines = live.controller.log()
            assert json.loads(await anext(lines))["first_event"] == 1
            events = count(tmp_path, "events")
            await live.controller.retention.prune()
            assert count(tmp_path, "events") == events
            await lines.aclose()
            await live.controller.retention.prune()
            assert count(tmp_path, "events") < events

    run(story)


def test_who_begins_to_read_the_log_while_some_of_it_goes_waits_for_that(tmp_path, monkeypatch):
    """The header says which event is the first, and that one is there."""

    async def story():
        async with cluster(tmp_path) as live:
            await run_jobs(live, 3)
            await age(live)
            whole, write, began = await log_of(live.controller), live.controller.database.write, asyncio.Event()
            lines = live.controller.log()

            async def write_late(changes):
                if any(statement is tables.DROP_EVENTS for statement, _ in changes) and not began.is_set():
                    began.set()
                    await asyncio.sleep(1.0)
                await write(changes)

            monkeypatch.setattr(live.controller.database, "write", write_late)
            pruning = asyncio.create_task(live.controller.retention.prune())
            await began.wait()
            header = json.loads(await anext(lines))
            await pruning
            return whole, header, [line async for line in lines]

    whole, header, left = run(story)
    assert header["first_event"] > 1
    assert left[0] == whole[header["first_event"]]


def test_jobs_stay_as_long_as_their_events_whatever_the_wall_clock_is_set_to(tmp_path):
    async def story():
        live = cluster(tmp_path)
        live._options |= {"clock": live.hosts.clock, "steady": live.hosts.steady}
        async with live:
            (old,) = await run_jobs(live, 1)
            live.tick(600.0)
            (young,) = await run_jobs(live, 1)
            live.hosts.wall_ahead += 86400.0
            live.tick(900.0)
            await run_jobs(live, 2)
            await live.controller.retention.prune()
            assert {row[0] for row in rows(tmp_path, "SELECT id FROM jobs")} >= {young}
            with pytest.raises(NotFoundError):
                live.job(old)
            events = [json.loads(text) for (text,) in rows(tmp_path, "SELECT event FROM events")]
            there = {event["job_id"] for event in events if event["event"] == "submit"}
            assert young in there
            assert old not in there

    run(story)


def test_a_start_that_lacks_the_events_it_needs_is_refused(tmp_path):
    async def story():
        async with cluster(tmp_path) as live:
            await run_jobs(live, 3)
            await age(live)
            await live.controller.retention.prune()

    run(story)
    with closing(sqlite3.connect(tmp_path / "live.db")) as connection, connection:
        connection.execute("DELETE FROM checkpoints")

    async def again():
        async with cluster(tmp_path):
            pass

    with pytest.raises(InputError, match=r"has no stored state, and events 1 to \d+ are no longer kept: restore"):
        run(again)


def test_a_migration_that_drops_the_stored_state_is_undone_where_events_are_gone(tmp_path):
    engine = sa.create_engine(f"sqlite:///{tmp_path}/old.db")
    with engine.connect() as connection:
        revisions.migrate(connection, "0001")
        with connection.begin():
            connection.execute(sa.text("INSERT INTO checkpoints VALUES (7, x'', '')"))
            text = Pruned(events=5).text()
            connection.execute(sa.text("INSERT INTO meta VALUES (:key, :value)"), {"key": KEY, "value": text})
        with pytest.raises(InputError, match="in the form of another dfrs, and events 1 to 5 are no longer kept"):
            revisions.migrate(connection)
        assert connection.execute(sa.text("SELECT version_num FROM alembic_version")).scalar() == "0001"
        assert connection.execute(sa.text("SELECT count(*) FROM checkpoints")).scalar() == 1
    engine.dispose()
