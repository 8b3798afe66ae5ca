"""Tables 7 to 9, 11 to 14, 16 and 18 to 20: single jobs that were moved, or should have been (7.5, 8.1 to 8.3)."""

import json
from collections.abc import Callable, Mapping

import numpy as np

from dfrs.experiments.kinds.farm import times_of
from dfrs.model.instance import Floats
from dfrs.report.tables import Claim, Content, Grid, TableCell
from dfrs_reproduction.atif2011.published import MIGRATIONS, TABLE_11, Moved
from dfrs_reproduction.atif2011.streams import READ, stream
from dfrs_reproduction.atif2011.studies import BASE, EXPERIMENT_OF, MIGRATING, main, only
from dfrs_reproduction.exhibit import Exhibit, Needs, Results
from dfrs_reproduction.metrics import ResultTable, mean, mean_cell
from dfrs_reproduction.sizes import Size

ALIASES = {3: {"IS.B.8.2149": "IS.B.8.2419"}}
"""Names of tables that the stream has with other digits: it is the only IS.B.8 with the expected time."""
_CLOSES = 1.0
"""Seconds by which a printed saving may differ from its entries."""
_WHERE = (
    "Measured times are means over the seeds, wherever the dispatcher put the job: on another sub-cluster it is "
    "another experiment. In how many seeds it was on the published one is beside them."
)
_READ = (
    "The stream has no FT.B.4.20: job 6, printed as ft.A.4.750 with 95 s expected, is read as it. As ft.A.4.750 it "
    "would take 1,105 s."
)


def numbers(experiment: int) -> dict[str, int]:
    """The number of each job of a stream by its name in capitals; of equal names the longest expected."""
    found: dict[str, tuple[float, int]] = {}
    for job in stream(experiment):
        name = READ.get(experiment, {}).get(job.job, job.name).upper()
        found[name] = max(found.get(name, (-1.0, 0)), (job.expected_s, job.job))
    return {name: job for name, (_, job) in found.items()}


def number_of(experiment: int, name: str) -> int | None:
    """The number of a job of Tables 11 to 20 in its stream; None where the stream has none of that name."""
    return numbers(experiment).get(ALIASES.get(experiment, {}).get(name, name))


def _times(data: ResultTable, policy: str, job: int) -> tuple[Floats, list[str]]:
    """(S,) seconds that a job ran, and where."""
    rows = [times_of({"job_times": text})[job] for text in only(data, policy)["job_times"].to_list()]
    return np.array([end - start for start, end, _ in rows]), [where for *_, where in rows]


def _moved_in(data: ResultTable, job: int) -> Floats:
    """(S,) 100 where the migration run moved the job, else 0."""
    texts = only(data, MIGRATING)["moves"].to_list()
    return np.array([100.0 * any(move["job"] == job for move in json.loads(text)) for text in texts])


def recomputed(jobs: tuple[Moved, ...]) -> float:
    """The time saved by the entries of a table."""
    return sum(job.base_s - job.migrated_s for job in jobs)


def _printed_grid(table: int) -> Grid:
    cells: list[TableCell] = []
    for job in MIGRATIONS[table].jobs:
        shown = {"base run, s": job.base_s, "migration run, s": job.migrated_s, "saved, s": job.base_s - job.migrated_s}
        cells += [TableCell(row=job.name, metric=key, measured=v, instances=1, decimals=0) for key, v in shown.items()]
    saved = TableCell(
        row="all",
        metric="saved, s",
        measured=recomputed(MIGRATIONS[table].jobs),
        published=MIGRATIONS[table].saved_s,
        instances=1,
        decimals=0,
    )
    return Grid(title="As printed, and recomputed", heading="job", cells=(*cells, saved))


def _closes(table: int) -> list[Claim]:
    entry = MIGRATIONS[table]
    if entry.saved_s is None:
        return []
    ours = recomputed(entry.jobs)
    return [
        Claim(
            claim="The time saved is that of the table's entries",
            published=f"{entry.saved_s:.0f} s",
            measured=f"{ours:.0f} s",
            holds=abs(ours - entry.saved_s) <= _CLOSES,
            instances=1,
        )
    ]


def _controlled(results: Results, table: int) -> Content:
    del results
    notes = ("Jobs were put where they started by hand: what is recomputed is the saving, from the printed times.",)
    return Content(grids=(_printed_grid(table),), claims=tuple(_closes(table)), notes=notes)


def _job_cells(data: ResultTable, table: int, job: Moved, number: int) -> list[TableCell]:
    cells: list[TableCell] = []
    where = {BASE: job.base_cluster or job.cluster, MIGRATING: job.cluster}
    for policy, known in ((BASE, job.base_s), (MIGRATING, job.migrated_s)):
        seconds, places = _times(data, policy, number)
        title = "base run" if policy == BASE else "migration run"
        cells.append(
            mean_cell(
                seconds,
                report=f"[Atif2011] Table {table}",
                row=job.name,
                metric=f"{title}, s",
                published=known,
                decimals=0,
            )
        )
        there = np.array([100.0 * (place.rstrip("'").split(">")[0].rstrip("'") == where[policy]) for place in places])
        cells.append(
            TableCell(
                row=job.name,
                metric=f"{title}, began on {where[policy]}: % of seeds",
                measured=mean(there),
                instances=len(there),
                decimals=0,
            )
        )
    moved = _moved_in(data, number)
    cells.append(
        TableCell(
            row=job.name,
            metric="moved: % of seeds",
            measured=mean(moved),
            published=100.0,
            instances=len(moved),
            decimals=0,
        )
    )
    return cells


def _experiment(results: Results, table: int) -> Content:
    experiment = EXPERIMENT_OF[table]
    data, cells, claims, notes = results["main"], list[TableCell](), _closes(table), [_WHERE]
    moves: list[Floats] = []
    for job in MIGRATIONS[table].jobs:
        number = number_of(experiment, job.name)
        if number is None:
            notes.append(
                f"The appendix's stream of experiment {experiment} has no {job.name}: nothing can be compared."
            )
            continue
        if job.name in ALIASES.get(experiment, {}):
            notes.append(f"{job.name} is {ALIASES[experiment][job.name]} in the appendix.")
        cells += _job_cells(data, table, job, number)
        moves.append(_moved_in(data, number))
    if experiment == 1:
        notes.append(_READ)
    if moves:
        together = np.min(moves, axis=0) > 0
        names = ", ".join(job.name for job in MIGRATIONS[table].jobs)
        claims.append(
            Claim(
                claim=f"ARRIVE-F moves {names}",
                published="in every run",
                measured=f"those that the stream has: in {int(together.sum())} of {len(together)} seeds",
                holds=bool(together.mean() > 0.5) if together.size else None,
                instances=len(together),
            )
        )
    ours = Grid(title="Ours beside it", heading="job", cells=tuple(cells))
    return Content(grids=(_printed_grid(table), *([ours] if cells else [])), claims=tuple(claims), notes=tuple(notes))


def _table_11(results: Results) -> Content:
    data, cells = results["main"], list[TableCell]()
    for name, cluster, expected_s, actual_s, _ in TABLE_11:
        number = number_of(1, name)
        assert number is not None
        seconds, places = _times(data, BASE, number)
        there = np.array([100.0 * (place.rstrip("'") == cluster) for place in places])
        cells += [
            TableCell(row=name, metric="expected, s", measured=float(expected_s), instances=1, decimals=0),
            mean_cell(
                seconds,
                report="[Atif2011] Table 11",
                row=name,
                metric="base run, s",
                published=float(actual_s),
                decimals=0,
            ),
            TableCell(
                row=name,
                metric=f"on {cluster}: % of seeds",
                measured=mean(there),
                published=100.0,
                instances=len(there),
                decimals=0,
            ),
        ]
    grid = Grid(title="Jobs that slowed the base run", heading="job", cells=tuple(cells))
    return Content(grids=(grid,), notes=(_READ, _WHERE))


_TITLES: Mapping[int, tuple[str, str]] = {
    7: ("migration by computational requirement", "7.5.1"),
    8: ("migration by communication requirement", "7.5.2"),
    9: ("migration by memory requirement", "7.5.3"),
    11: ("job allocation in the base run", "8.1"),
    12: ("experiment 1, migration 1", "8.1"),
    13: ("experiment 1, migration 2", "8.1"),
    14: ("experiment 1, migration 3", "8.1"),
    16: ("experiment 2, migration 1", "8.2"),
    18: ("experiment 3, migration 1", "8.3"),
    19: ("experiment 3, migration 2", "8.3"),
    20: ("experiment 3, migration 3", "8.3"),
}


def _item(table: int) -> Exhibit:
    title, section = _TITLES[table]
    experiment = EXPERIMENT_OF.get(table)

    def needs(size: Size) -> Needs:
        return {} if experiment is None else {"main": main(size, experiment)}

    def content(results: Results) -> Content:
        if table == 11:
            return _table_11(results)
        make: Callable[[Results, int], Content] = _controlled if experiment is None else _experiment
        return make(results, table)

    return Exhibit(
        name=f"atif2011-table-{table}",
        title=f"[Atif2011] Table {table}: {title}",
        source=f"[Atif2011] section {section}, Table {table}",
        needs=needs,
        content=content,
    )


EXHIBITS = tuple(_item(table) for table in _TITLES)
