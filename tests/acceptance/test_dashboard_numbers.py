"""Every number that the page shows, in a real browser, is that of the snapshot whose number it carries."""

import shutil
from dataclasses import dataclass, field
from decimal import ROUND_HALF_UP, Decimal

import pytest

from dfrs.live.controller import cluster_views
from dfrs.live.protocol.resources import ENDED, ClusterSnapshot, JobState, shown_yield
from tests.dashboard_server import Told, serving
from tests.dashboard_visits import probe, see, visit
from tests.live_states import NOW, random_controller

BROWSER = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
SNAPSHOTS = 36
NOTICEABLE = 0.05


@dataclass
class Random(Told):
    """Shows one snapshot of a random cluster after the other."""

    seen: ClusterSnapshot | None = None
    known: list[ClusterSnapshot] = field(default_factory=list)

    async def latest(self):
        return self.seen

    def jobs(self, *, of, user=None, states=None, before=None, limit=100, sort=None, skip=0):
        wanted = frozenset(JobState) - ENDED if states is None else states
        return [job for job in of.jobs if job.state in wanted and (before is None or job.id < before)][:limit]

    def explain(self, job, *, of):
        self.jobs_ = {each.id: each for each in of.jobs}
        return Told.explain(self, job, of=of)


def two(value, places="0.01"):
    """As the page writes it: halves go up."""
    return "–" if value is None else str(Decimal(value).quantize(Decimal(places), ROUND_HALF_UP))


def cores(value):
    return two(value, "1") if float(value).is_integer() else two(value, "0.1")


def check_headline(cluster, page):
    least, bound = cluster.minimum_yield, cluster.bound
    assert page["hero"] == two(least)
    assert page["title"].startswith(f"{two(least)} ")
    if least is None:
        assert page["beside"] == "no job runs"
    elif bound is None:
        assert page["beside"] == "best possible: not known yet"
    else:
        assert page["beside"].startswith(f"best possible {two(bound)}")
        assert least <= bound
    running = cluster.jobs[JobState.RUNNING] + cluster.jobs[JobState.STARTING]
    assert (f"of {running} job" in page["aside"]) == (running > 0)
    assert (f"{cluster.unmeasured} as granted" in page["aside"]) == (cluster.unmeasured > 0)
    paused = cluster.jobs[JobState.PAUSED]
    assert (f"{paused} {'is' if paused == 1 else 'are'} paused" in page["aside"]) == (paused > 0)
    tiles = page["tiles"]
    assert tiles["Median yield"][0] == two(cluster.median_yield)
    assert tiles["Jain’s index"][0] == two(cluster.jain, "0.001")
    assert tiles["Jobs running"][0] == str(running)
    waiting = sum(cluster.jobs[each] for each in (JobState.WAITING, JobState.PENDING, JobState.HELD))
    assert tiles["Jobs waiting"][0] == str(waiting)
    ends = {"least": least, "median": cluster.median_yield, "bound": bound, "jain": cluster.jain}
    assert page["ends"] == {kind: two(value) for kind, value in ends.items() if value is not None}


def check_nodes(seen, page):
    assert [node["name"] for node in page["nodes"]] == [node.name for node in seen.nodes]
    for node, row in zip(seen.nodes, page["nodes"], strict=True):
        assert row["figures"][0] == f"used {two(node.used_cores)} · granted {two(node.granted_cores)}"
        others = (node.outside_cores or 0.0) > NOTICEABLE * node.cpus
        assert (f"others use {two(node.outside_cores)}" in row["figures"]) == others
        left = None if node.left_cores is None else f"{two(node.left_cores)} left"
        assert [each for each in row["figures"] if each.endswith(" left")] == ([] if left is None else [left])
        assert row["figures"][-1].startswith(f"of {cores(node.cpus)} cores")
        assert len(row["tasks"]) == len(node.tasks)
        for task, words in zip(node.tasks, row["tasks"], strict=True):
            used = "use not measured" if task.used_cores is None else f"uses {two(task.used_cores)}"
            what = f"granted {two(task.share_cores)} of {cores(node.cpus)} cores, {used}"
            assert words.endswith("paused" if task.paused else what)


def check_jobs(seen, page):
    assert len(page["jobs"]) == len(seen.jobs)
    for job, row in zip(seen.jobs, page["jobs"], strict=True):
        assert row["Job"].startswith(f"{job.id} ")
        assert job.state.value in row["State"]
        error = "" if job.need_error_cores is None else f" ± {two(job.need_error_cores)}"
        assert row["Need, cores"] == two(job.need_cores) + error
        value = two(shown_yield(job))
        if job.yield_received is not None:
            assert row["Yield"] == f"received {value} ± {two(job.yield_received_error)}"
        else:
            assert row["Yield"] == (value if job.yield_granted is None else f"{value} granted")
    queued = [job for job in seen.jobs if job.state in {JobState.WAITING, JobState.PENDING, JobState.HELD}]
    queued.sort(key=lambda job: (job.submitted_at, job.id))
    assert page["queue"] == [str(job.id) for job in queued][:12]


def check_drawer(job, bound, page):
    facts = page["drawer"]
    on_nodes = job.yield_granted is not None
    received = "not measured yet"
    if job.yield_received is not None:
        received = f"{two(job.yield_received)} ± {two(job.yield_received_error)}"
    assert facts.get("Yield received") == (received if on_nodes else None)
    assert facts.get("Yield granted") == (two(job.yield_granted) if on_nodes else None)
    assert facts.get("Not as granted") == (job.apart or None)
    best = None if not on_nodes or bound is None else f"a minimum yield of {two(bound)}"
    assert facts.get("Best possible") == best
    assert facts["Stretch"] == two(job.stretch) + ("" if job.virtual_measured else ", as granted, not measured")


@pytest.mark.skipif(BROWSER is None, reason="no Chromium is installed (apt-get install chromium)")
def test_every_number_of_the_page_is_its_snapshots(tmp_path):
    from playwright.sync_api import sync_playwright  # noqa: PLC0415 - only the tests in a browser need it

    told = Random(now0=NOW)
    for seed in range(SNAPSHOTS):
        controller = random_controller(seed, tmp_path, most_jobs=20, most_nodes=6)
        controller.database.close()
        made = controller.snapshots.make()
        cluster = made.cluster.model_copy(update={"name": "attic", "started_at": NOW - 3600.0})
        past = cluster_views.point(controller.state, NOW - 60.0).model_copy(
            update={"minimum_yield": 0.123, "bound": 0.987}
        )
        told.points_ = [past, past.model_copy(update={"time": NOW - 30.0})]
        told.known.append(
            ClusterSnapshot.model_construct(
                sequence=1000 + seed, activity=made.activity, cluster=cluster, nodes=made.nodes, jobs=made.jobs
            )
        )
    told.seen = told.known[0]
    with serving(told) as address, sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path=BROWSER, args=["--no-sandbox", "--disable-gpu"])
        with visit(chromium, address) as page:
            page.select_option("#job-states", "live")
            for seen in told.known:
                told.seen = seen
                if seen.jobs:
                    page.evaluate("(job) => { location.hash = `#job=${job}`; }", seen.jobs[0].id)
                told.tell("share", job=1)
                there = "([n, job]) => Number(document.querySelector('#main').dataset.snapshot) === n"
                title = " && (!job || document.querySelector('#drawer-title')?.textContent.startsWith(`Job ${job} `))"
                see(page, there + title, [seen.sequence, seen.jobs[0].id if seen.jobs else None])
                shows = probe(page, "numbers")
                assert shows["sequence"] == seen.sequence
                check_headline(seen.cluster, shows)
                check_nodes(seen, shows)
                check_jobs(seen, shows)
                if seen.jobs:
                    check_drawer(seen.jobs[0], seen.cluster.bound, shows)
        chromium.close()
