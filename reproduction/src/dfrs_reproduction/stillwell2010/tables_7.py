"""Tables 7.1 and 7.2: yields while needs are found out, and our own method beside them (section 7.4)."""

from collections.abc import Callable

from dfrs.experiments.kinds.discovery import ORACLE, DiscoveryConfiguration, DiscoverySource
from dfrs.experiments.spec import Study
from dfrs.report.tables import Claim, Content, Grid, TableCell
from dfrs.runs.metrics.statistics import Paired, paired
from dfrs_reproduction.exhibit import Exhibit, Needs, Results
from dfrs_reproduction.metrics import ResultTable, drawn_as, mean, mean_cell, say
from dfrs_reproduction.sizes import Size

XEN, DYNAMIC, MIGRATING, OBSERVE, OBSERVE_MIGRATING = (
    "Xen",
    "DYNAMIC",
    "DYNAMIC+MIGRATION",
    "OBSERVE (ours)",
    "OBSERVE+MIGRATION (ours)",
)
REMAPS, OURS_REMAPS = "MCB*/OPT=AVG/NEEDS=0.1", "MCB*/OPT=MIN/NEEDS=0.1"
"""What migrates: MCB, where the minimum yield gains more than 10 %."""
ENTRIES = (
    DiscoveryConfiguration(label=XEN, method="EQUAL"),
    DiscoveryConfiguration(label=DYNAMIC, method="DYNAMIC"),
    DiscoveryConfiguration(label=MIGRATING, method="DYNAMIC+MIGRATION", policy=REMAPS),
    DiscoveryConfiguration(label=OBSERVE, method="OBSERVE"),
    DiscoveryConfiguration(label=OBSERVE_MIGRATING, method="OBSERVE+MIGRATION", policy=OURS_REMAPS),
    DiscoveryConfiguration(label="needs known", method=ORACLE),
    DiscoveryConfiguration(label="needs known, migration", method=ORACLE, policy=OURS_REMAPS),
)
MINIMUM, AVERAGE = "average minimum yield", "minimum average yield"
COLUMNS = {MINIMUM: "average_minimum_yield", AVERAGE: "minimum_average_yield"}
Runs = dict[str, dict[str, tuple[float, float]]]
BALANCED: Runs = {
    XEN: {MINIMUM: (0.346, 0.352), AVERAGE: (0.536, 0.601)},
    DYNAMIC: {MINIMUM: (0.270, 0.246), AVERAGE: (0.619, 0.609)},
    MIGRATING: {MINIMUM: (0.216, 0.209), AVERAGE: (0.609, 0.567)},
}
UNBALANCED: Runs = {
    XEN: {MINIMUM: (0.238, 0.237), AVERAGE: (0.257, 0.259)},
    DYNAMIC: {MINIMUM: (0.124, 0.123), AVERAGE: (0.362, 0.348)},
    MIGRATING: {MINIMUM: (0.133, 0.113), AVERAGE: (0.425, 0.401)},
}
"""Two runs each."""
_SENTENCES = {
    "7.1": (
        (XEN, DYNAMIC, MINIMUM),
        (DYNAMIC, MIGRATING, MINIMUM),
        (DYNAMIC, XEN, AVERAGE),
        (DYNAMIC, MIGRATING, AVERAGE),
    ),
    "7.2": (
        (XEN, DYNAMIC, MINIMUM),
        (DYNAMIC, MIGRATING, MINIMUM),
        (MIGRATING, DYNAMIC, AVERAGE),
        (DYNAMIC, XEN, AVERAGE),
    ),
}
"""Better, worse, by which metric, as the text says."""
_OURS = tuple((ours, XEN, metric) for ours in (OBSERVE, OBSERVE_MIGRATING) for metric in COLUMNS)
_NOTES = (
    "Published numbers are the means of two runs on real nodes, given beside as they are. Ours are simulated: sharing "
    "is without friction, and a migration takes 10 s on the source and 1 s in which the task runs nowhere.",
    "*Needs known* makes yields equal by the true needs of each second: a bound of the average minimum yield where "
    "nobody migrates, and none of the minimum average yield, which equal yields do not maximise.",
)


def _study(size: Size, hogs: int) -> Study:
    name = "unbalanced" if hogs else "balanced"
    seeds = tuple(range(size.needs))
    hogging = f", and {hogs} hogs on different nodes" if hogs else ""
    sample = f"4 nodes, 3 tasks a node{hogging}; 12 hours, needs change after 20 minutes on average: {len(seeds)} runs."
    return Study(
        name=name, sample=sample, sources=(DiscoverySource(name=name, hogs=hogs, seeds=seeds),), configurations=ENTRIES
    )


def _grids(data: ResultTable, published: Runs, number: str) -> list[Grid]:
    cells: list[TableCell] = []
    others: list[TableCell] = []
    for label in data.labels:
        for metric, column in COLUMNS.items():
            runs = published.get(label, {}).get(metric)
            known = None if runs is None else sum(runs) / len(runs)
            cells.append(
                mean_cell(
                    data.column(label, column),
                    report=f"[Stillwell2010] Table {number}",
                    row=label,
                    metric=metric,
                    published=known,
                    decimals=3,
                )
            )
            if runs is not None:
                others += [
                    TableCell(row=label, metric=f"{metric}, run {k + 1}", measured=value, instances=1, decimals=3)
                    for k, value in enumerate(runs)
                ]
    extra = {"estimate's error": "estimate_error", "migrations": "migrations", "times told": "told"}
    costs = [
        mean_cell(
            data.column(label, column),
            report=f"[Stillwell2010] Table {number} costs",
            row=label,
            metric=metric,
            decimals=3 if metric == "estimate's error" else 0,
        )
        for label in data.labels
        for metric, column in extra.items()
    ]
    return [
        Grid(title="Yields", heading="method", cells=tuple(cells)),
        Grid(title="The two published runs", heading="method", cells=tuple(others)),
        Grid(title="What it takes", heading="method", cells=tuple(costs)),
    ]


def _compared(data: ResultTable, better: str, worse: str, metric: str, number: str) -> Paired:
    column = COLUMNS[metric]
    a, b = data.column(better, column), data.column(worse, column)
    seed = drawn_as(f"[Stillwell2010] Table {number}/{better}/{worse}/{metric}")
    return paired(a, b, seed=seed, lower_is_better=False)


def _claim(data: ResultTable, better: str, worse: str, metric: str, number: str, published: Runs) -> Claim:
    found = _compared(data, better, worse, metric, number)
    shown = found.difference.shown
    around = "" if shown.low is None or shown.high is None else f" [{shown.low:+.3f}, {shown.high:+.3f}]"
    runs = [published[label][metric] for label in (better, worse) if label in published]
    said = ["/".join(f"{value:.3f}" for value in both) for both in runs]
    return Claim(
        claim=f"{metric}: {better} is better than {worse}",
        published=" against ".join(said) if len(said) > 1 else "ours",
        measured=f"{say(shown.mean, '+.3f', '')}{around}, better in {found.wins} of {found.count} runs",
        holds=None if shown.mean is None else shown.mean > 0.0,
        instances=found.count,
    )


def _lost(data: ResultTable, number: str) -> Claim:
    """What is asked of OBSERVE: at most 5 % of the average minimum yield."""
    column = COLUMNS[MINIMUM]
    ours, equal = mean(data.column(OBSERVE, column)), mean(data.column(XEN, column))
    known = ours is not None and equal is not None and equal > 0
    change = 100.0 * (ours / equal - 1.0) if known and ours is not None and equal is not None else None
    return Claim(
        claim=f"{MINIMUM}: {OBSERVE} loses at most 5 % to {XEN}",
        published="ours",
        measured=say(change, "+.1f"),
        holds=None if change is None else change >= -5.0,
        instances=len(data),
    )


def _content(name: str, number: str, published: Runs) -> Callable[[Results], Content]:
    def content(results: Results) -> Content:
        data = results[name]
        claims = [_claim(data, *sentence, number, published) for sentence in (*_SENTENCES[number], *_OURS)]
        return Content(
            grids=tuple(_grids(data, published, number)), claims=(*claims, _lost(data, number)), notes=_NOTES
        )

    return content


def _item(number: str, name: str, hogs: int, published: Runs) -> Exhibit:
    def needs(size: Size) -> Needs:
        return {name: _study(size, hogs)}

    return Exhibit(
        name=f"stillwell2010-table-{number}",
        title=f"[Stillwell2010] Table {number}: yields with discovered needs, {name} workloads",
        source=f"[Stillwell2010] sections 7.3 and 7.4, Table {number}",
        needs=needs,
        content=_content(name, number, published),
    )


EXHIBITS = (_item("7.1", "balanced", 0, BALANCED), _item("7.2", "unbalanced", 2, UNBALANCED))
