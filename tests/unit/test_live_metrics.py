"""Figures for Prometheus: each is documented with its unit, and counts what it says."""

import asyncio
import re
import time
from pathlib import Path

import httpx
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.registry import Collector

from dfrs.live.api import prometheus
from dfrs.live.api.prometheus import Meters
from dfrs.live.api.routes import create_app
from dfrs.live.api.timing import watch_loop
from dfrs.live.protocol.durations import BOUNDS_S, Durations, Measures
from dfrs.live.protocol.resources import JobRequest, NodeState
from dfrs.testing import InMemoryCluster, run_virtually
from tests.live_service import FakeService

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "live-metrics.md"


def scraped(requests):
    """Figures by (name, labels) after these requests to a service with a node."""
    service = FakeService()
    service.add_node("n1")
    token = service.token("ann", "admin")

    async def story():
        app = create_app(service, page=None)
        transport = httpx.ASGITransport(app=app)
        headers = {"Authorization": f"Bearer {token}"}
        async with httpx.AsyncClient(transport=transport, base_url="http://x", headers=headers) as client:
            for method, path in requests:
                await client.request(method, path)
            return (await client.get("/metrics")).text

    return families(asyncio.run(story()))


def families(text):
    return {
        (sample.name, *sorted(sample.labels.items())): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def test_answers_are_counted_by_route_and_not_by_path():
    found = scraped([("GET", "/api/v1/jobs/7"), ("GET", "/api/v1/jobs/8"), ("GET", "/nonsense/1"), ("GET", "/healthz")])
    job = (("method", "GET"), ("route", "/api/v1/jobs/{job}"))
    assert found[("dfrs_answers_total", *job, ("status", "404"))] == 2
    assert found[("dfrs_answer_seconds_count", *job)] == 2
    assert 0 < found[("dfrs_answer_seconds_sum", *job)] < 60
    assert found[("dfrs_answers_total", ("method", "GET"), ("route", "none"), ("status", "404"))] == 1
    assert found[("dfrs_answers_total", ("method", "GET"), ("route", "/healthz"), ("status", "200"))] == 1


def test_methods_that_clients_make_up_are_counted_as_one():
    found = scraped([("MADEUP1", "/healthz"), ("MADEUP2", "/nonsense"), ("GET", "/healthz"), ("PUT", "/healthz")])
    methods = {value for _, *labels in found for name, value in labels if name == "method"}
    assert methods == {"other", "GET", "PUT"}
    assert sum(found[key] for key in found if key[0] == "dfrs_answers_total" and ("method", "other") in key) == 2


def test_figures_of_nodes_are_written_as_the_library_writes_them():
    service = FakeService()
    for name in ("n1", "n2.example-x_y"):
        service.add_node(name)
    seen = asyncio.run(service.latest())
    states = GaugeMetricFamily("dfrs_node_state", "1 for the state that the node is in.", labels=["node", "state"])
    found = [states]
    for node in seen.nodes:
        for state in NodeState:
            states.add_metric([node.name, state.value], node.state is state)
    for name, words, figure in prometheus.NODE_FIGURES:
        found.append(GaugeMetricFamily(f"dfrs_node_{name}", words, labels=["node"]))
        for node in seen.nodes:
            found[-1].add_metric([node.name], figure(node, seen.cluster.now))

    class Collected(Collector):
        def collect(self):
            return found

    registry = CollectorRegistry()
    registry.register(Collected())
    assert prometheus.node_figures(seen).encode() == generate_latest(registry)


def test_each_node_has_one_state():
    found = scraped([])
    states = {state: found["dfrs_node_state", ("node", "n1"), ("state", state.value)] for state in NodeState}
    assert [state for state, value in states.items() if value] == [NodeState.UP]
    assert found["dfrs_node_cpu_cores", ("node", "n1")] == 2
    assert found["dfrs_node_memory_free_bytes", ("node", "n1")] == 1 << 30


def test_the_page_has_every_figure_and_no_other():
    service = FakeService()
    service.add_node("n1")
    meters = Meters()
    meters.answered("/x", "GET", 200, 0.1)
    seen = asyncio.run(service.latest())
    full = {"minimum_yield", "median_yield", "jain", "bound", "standbys"}
    seen = seen.model_copy(update={"cluster": seen.cluster.model_copy(update=dict.fromkeys(full, 0.5))})
    measures = Measures(commits=Durations(), decisions=Durations(), database_bytes=1)
    text = meters.text(seen, measures).decode()
    given_ = {line.split()[2].removesuffix("_total") for line in text.splitlines() if line.startswith("# TYPE")}
    given_ = {name.removesuffix("_created") for name in given_}
    told = {name.removesuffix("_total") for name in re.findall(r"`(dfrs_[a-z_]+)`", PAGE.read_text())}
    assert given_ == told


@given(seconds=st.lists(st.floats(0.0, 100.0)))
def test_classes_are_those_that_a_slow_count_finds(seconds):
    durations = Durations()
    for each in seconds:
        durations.add(each)
    expected = [sum(each <= bound for each in seconds) for bound in (*BOUNDS_S, float("inf"))]
    assert [count for _, count in durations.cumulative()] == expected
    assert [float(name.replace("+Inf", "inf")) for name, _ in durations.cumulative()] == [*BOUNDS_S, float("inf")]


def test_a_stalled_loop_is_late():
    async def story():
        meters = Meters()
        watch = asyncio.create_task(watch_loop(meters))
        await asyncio.sleep(0.01)
        time.sleep(0.6)
        await asyncio.sleep(0.05)
        watch.cancel()
        return meters.loop_lag

    assert asyncio.run(story()).total_s > 0.2


def test_a_controller_measures_its_commits_and_its_database(tmp_path):
    async def story():
        async with InMemoryCluster(directory=tmp_path) as live:
            before = live.controller.measures().commits.cumulative()[-1][1]
            await live.controller.submit(JobRequest(command=("forever",)), "ann", "ann")
            return before, live.controller.measures()

    (before, after), _ = run_virtually(0, lambda _: story())
    assert after.commits.cumulative()[-1][1] > before
    assert after.commits.total_s > 0
    assert after.database_bytes > 4096
    assert (after.database_trouble, after.retention_trouble, after.pruned_events) == (False, False, 0)
