"""Figures for Prometheus: those of a snapshot of the cluster, and counters of the API itself."""

from collections.abc import Callable, Iterable

from prometheus_client import CollectorRegistry, Counter, Gauge, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector
from prometheus_client.utils import floatToGoString

from dfrs.live.protocol.durations import Durations, Measures
from dfrs.live.protocol.ports import Instant
from dfrs.live.protocol.resources import Cluster, JobState, Node, NodeState

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"


class Meters:
    """Counters that the API keeps."""

    def __init__(self) -> None:
        self._registry = CollectorRegistry()
        self.submissions = self._counter("dfrs_submissions", "Requests that submitted jobs.")
        self.refused = self._counter("dfrs_tokens_refused", "Requests with a token that was not good.")
        self.malformed = self._counter("dfrs_agent_messages_malformed", "Messages of agents that made no sense.")
        self.slow = self._counter("dfrs_agents_too_slow", "Agents cut off because they did not take their messages.")
        self.agents = Gauge("dfrs_agents_connected", "Agents connected now.", registry=self._registry)
        self.watchers = Gauge("dfrs_watchers", "Clients that wait for changes now.", registry=self._registry)

        self.answers = Counter(
            "dfrs_answers",
            "Answers of the API.",
            labelnames=("route", "method", "status"),
            registry=self._registry,
        )
        self.answer_times: dict[tuple[str, str], Durations] = {}
        """Until answers begin, by route and method."""
        self.loop_lag = Durations()

    def answered(self, route: str, method: str, status: int, seconds: float) -> None:
        """An answer has begun."""
        self.answers.labels(route, method, str(status)).inc()
        self.answer_times.setdefault((route, method), Durations()).add(seconds)

    def _counter(self, name: str, words: str) -> Counter:
        return Counter(name, words, registry=self._registry)

    def text(self, seen: Instant, measures: Measures) -> bytes:
        """They, the figures of a snapshot, and what the controller measures, as Prometheus reads them."""
        figures = CollectorRegistry()
        figures.register(_Figures(seen))
        figures.register(_Work(self, measures))
        return generate_latest(figures) + node_figures(seen).encode() + generate_latest(self._registry)


class _Work(Collector):
    """Of the controller's own work."""

    def __init__(self, meters: Meters, measures: Measures) -> None:
        self._meters = meters
        self._measures = measures

    def describe(self) -> Iterable[Metric]:
        """Nothing: registering would collect otherwise."""
        return ()

    def collect(self) -> Iterable[Metric]:
        """All of it."""
        measures = self._measures
        answers = HistogramMetricFamily(
            "dfrs_answer_seconds", "From a request to the beginning of its answer.", labels=["route", "method"]
        )
        for (route, method), spent in sorted(self._meters.answer_times.items()):
            answers.add_metric([route, method], spent.cumulative(), spent.total_s)
        yield answers
        for name, words, spent in (
            ("dfrs_commit_seconds", "Transactions of the database, with their flush.", measures.commits),
            ("dfrs_step_decision_seconds", "Decisions of one step of the controller.", measures.decisions),
            (
                "dfrs_loop_lag_seconds",
                "How late the event loop comes round, looked at each 0.25 s.",
                self._meters.loop_lag,
            ),
        ):
            yield HistogramMetricFamily(name, words, buckets=spent.cumulative(), sum_value=spent.total_s)
        for name, words, value in (
            ("dfrs_database_bytes", "Size of the database and of its log.", measures.database_bytes),
            ("dfrs_events", "Number of the last event.", measures.events),
            ("dfrs_events_pruned", "Number of the last event that is no longer kept.", measures.pruned_events),
            ("dfrs_database_failing", "1 if the last transaction failed.", int(measures.database_trouble)),
            ("dfrs_retention_failing", "1 if what is old cannot be pruned.", int(measures.retention_trouble)),
        ):
            if value is not None:
                yield GaugeMetricFamily(name, words, value=value)


class _Figures(Collector):
    def __init__(self, seen: Instant) -> None:
        self._seen = seen

    def describe(self) -> Iterable[Metric]:
        """Nothing: registering would collect otherwise."""
        return ()

    def collect(self) -> Iterable[Metric]:
        """The cluster as it was then."""
        now = self._seen.cluster
        yield from _counts(now)
        for name, words, value in (
            ("dfrs_snapshot", "Sequence number of the snapshot from which these figures are.", self._seen.sequence),
            ("dfrs_leader", "1 where this controller leads, 0 where it stands by.", 1),
            ("dfrs_standbys", "Controllers that wait to take over.", now.standbys),
            ("dfrs_cpu_cores", "CPU of all nodes.", now.cpus),
            ("dfrs_left_cores", "CPU that programs beside tasks leave of that.", _left(now)),
            ("dfrs_used_cores", "CPU that tasks use.", now.used_cores),
            ("dfrs_minimum_yield", "The least that a job on nodes receives.", now.minimum_yield),
            ("dfrs_median_yield", "Half of the jobs on nodes receive more.", now.median_yield),
            ("dfrs_jain_index", "Jain's index of the yields of those jobs.", now.jain),
            ("dfrs_unmeasured_yields", "How many of them count with what they were granted.", now.unmeasured),
            ("dfrs_minimum_yield_bound", "No schedule gives a higher minimum yield.", now.bound),
            ("dfrs_decision_seconds", "Time of the last decision.", now.decision_s),
            ("dfrs_start_time_seconds", "When the controller started, since 1970.", now.started_at),
        ):
            if value is not None:
                yield GaugeMetricFamily(name, words, value=value)
        yield CounterMetricFamily("dfrs_decisions", "Decisions of the policy.", value=now.decisions)
        yield CounterMetricFamily(
            "dfrs_shadow_differences",
            "Decisions that the shadow policy would have made otherwise.",
            value=now.shadow_differs,
        )


def _left(now: Cluster) -> float:
    return now.cpus if now.left_cores is None else now.left_cores


NODE_FIGURES: tuple[tuple[str, str, Callable[[Node, float], float]], ...] = (
    ("cpu_cores", "CPU of the node.", lambda node, _: node.cpus),
    ("used_cores", "CPU that its tasks use.", lambda node, _: node.used_cores),
    ("granted_cores", "CPU that its tasks were granted.", lambda node, _: node.granted_cores),
    ("memory_bytes", "Memory of the node.", lambda node, _: node.memory_bytes),
    ("memory_free_bytes", "Memory that no task of it requires.", lambda node, _: node.memory_free_bytes),
    ("tasks", "Tasks that it has.", lambda node, _: len(node.tasks)),
    ("report_age_seconds", "Since its last report.", lambda node, now: max(0.0, now - node.seen_at)),
)


def node_figures(seen: Instant) -> str:
    """Of each node, as Prometheus reads them.

    Written here, since `generate_latest` takes ten times as long, for a thousand nodes a tenth of a second: it checks
    the names of metrics and labels for each figure. Nodes' names have no character that would have to be escaped.
    """
    now, nodes = seen.cluster.now, seen.nodes
    lines = _head("dfrs_node_state", "1 for the state that the node is in.")
    for node in nodes:
        for state in NodeState:
            lines.append(f'dfrs_node_state{{node="{node.name}",state="{state.value}"}} {float(node.state is state)}')
    for name, words, figure in NODE_FIGURES:
        lines += _head(f"dfrs_node_{name}", words)
        lines += [f'dfrs_node_{name}{{node="{node.name}"}} {floatToGoString(figure(node, now))}' for node in nodes]
    return "\n".join((*lines, ""))


def _head(name: str, words: str) -> list[str]:
    return [f"# HELP {name} {words}", f"# TYPE {name} gauge"]


def _counts(now: Cluster) -> Iterable[Metric]:
    jobs = GaugeMetricFamily("dfrs_jobs", "Jobs by state.", labels=["state"])
    for state in JobState:
        jobs.add_metric([state.value], now.jobs.get(state, 0))
    nodes = GaugeMetricFamily("dfrs_nodes", "Nodes by state.", labels=["state"])
    for state in NodeState:
        nodes.add_metric([state.value], now.nodes.get(state, 0))
    info = GaugeMetricFamily("dfrs_info", "What runs here.", labels=["cluster", "version", "policy", "discovery"])
    info.add_metric([now.name, now.version, now.policy, now.discovery], 1)
    prices = GaugeMetricFamily("dfrs_price_seconds", "What one costs a job, as the policy sees it.", labels=["of"])
    samples = GaugeMetricFamily("dfrs_price_samples", "How many were measured, of the last 50.", labels=["of"])
    for verb, price in now.prices.items():
        prices.add_metric([verb], price.seconds)
        samples.add_metric([verb], price.samples)
    return jobs, nodes, info, prices, samples
