"""[Stillwell2010] Table 5.2: degradation from bound of twenty policies on three sets of traces (section 5.4)."""

from collections.abc import Iterable

from dfrs.policies.names import TABLE_5_2
from dfrs.report.tables import Claim, Content, Grid, TableCell
from dfrs.runs.metrics.statistics import paired
from dfrs_reproduction.exhibit import Exhibit, Needs, Results
from dfrs_reproduction.metrics import ResultTable, drawn_as, mean_cell
from dfrs_reproduction.sizes import Size
from dfrs_reproduction.stillwell2010.appendix_b import published
from dfrs_reproduction.stillwell2010.policies import (
    BEST,
    EASY,
    NO_WEEKS,
    PUBLISHED_SETS,
    SETS,
    STRETCH,
    TOGETHER,
    Averages,
    claim_on,
    degradation,
    order_claim,
    origins,
    table_5_2,
)

_DFRS = TABLE_5_2[2:]
_NOT_PERIODIC = TABLE_5_2[2:5]
_PERIODIC = TABLE_5_2[5:11]
_LIMITED = TABLE_5_2[11:15]
"""The groups of greedy policies in the text: without and with periodic packing, and that with limited repacking."""
_PACKING = TABLE_5_2[15:18]
_PER, _STRETCH_PER = TABLE_5_2[18:]
_PAIRED = (
    f"Against {BEST}: the degradation of a policy over that of {BEST} on the same trace, geometric mean; above 1 the "
    "policy is worse. It wins where its degradation is the smaller one; what is neither won nor lost is a tie."
)


def _needs(size: Size) -> Needs:
    return table_5_2(size)


def _content(results: Results) -> Content:
    grids = [_grid(results, "Average degradation from bound", plain=False)]
    grids.append(_grid(results, "The same by plain stretch", plain=True))
    grids.append(_against_best(results))
    notes = [STRETCH, TOGETHER, _PAIRED, EASY]
    if "weeks" not in results:
        notes.append(NO_WEEKS)
    return Content(grids=tuple(grids), claims=tuple(_claims(results)), notes=tuple(notes))


def _grid(results: Results, title: str, *, plain: bool) -> Grid:
    cells = [
        mean_cell(
            degradation(data, label, plain=plain),
            report=f"[Stillwell2010] Table 5.2, {title}",
            row=label,
            metric=SETS[part],
            decimals=1,
            published=None if plain else published(PUBLISHED_SETS[part], "mean", label),
            clusters=origins(data),
        )
        for label in TABLE_5_2
        for part, data in results.items()
    ]
    return Grid(title=title, heading="policy", cells=tuple(cells))


def _against_best(results: Results) -> Grid:
    cells = [
        cell
        for label in TABLE_5_2
        if label != BEST
        for part, data in results.items()
        for cell in _against(data, label, SETS[part])
    ]
    return Grid(title=f"Against {BEST} on the same traces", heading="policy", cells=tuple(cells))


def _against(data: ResultTable, label: str, where: str) -> list[TableCell]:
    found = paired(
        degradation(data, label),
        degradation(data, BEST),
        clusters=origins(data),
        seed=drawn_as(f"[Stillwell2010] Table 5.2, against {BEST}/{label}/{where}"),
    )
    ratio = found.ratio
    shares = {"wins": found.wins, "losses": found.losses}
    return [
        TableCell(
            row=label,
            metric=f"{where}: ratio",
            measured=None if ratio is None else ratio.mean,
            low=None if ratio is None else ratio.low,
            high=None if ratio is None else ratio.high,
            instances=found.count,
        ),
        *(
            TableCell(
                row=label,
                metric=f"{where}: {what}, %",
                decimals=0,
                instances=found.count,
                measured=100.0 * count / found.count if found.count else None,
            )
            for what, count in shares.items()
        ),
    ]


def _claims(results: Results) -> list[Claim]:
    synthetic = {part: data for part, data in results.items() if part != "weeks"}
    claims = [
        order_claim(results, TABLE_5_2),
        claim_on(results, "EASY outperforms FCFS: FCFS / EASY", lambda a: a["FCFS"] / a["EASY"], least=1.0),
        claim_on(
            results,
            "DFRS outperforms EASY by orders of magnitude: EASY / the best",
            lambda a: a["EASY"] / _least(a, _DFRS),
            least=100.0,
            form=",.0f",
        ),
        claim_on(results, "The best policy is within a factor of 7 of the bound", lambda a: _least(a, _DFRS), most=7.0),
        claim_on(
            synthetic,
            "Packing periodically improves greedy policies: the best without / the worst with it",
            lambda a: _least(a, _NOT_PERIODIC) / _most(a, _PERIODIC),
            least=1.0,
        ),
        claim_on(
            results,
            "Preemption improves Greedy: Greedy/per / GreedyP/per",
            lambda a: a["Greedy/per/OPT=MIN"] / a["GreedyP/per/OPT=MIN"],
            least=1.0,
            form=".2f",
        ),
        claim_on(
            results,
            "Migration on submission is no further improvement: GreedyP/per / GreedyPM/per, within 5 %",
            lambda a: a["GreedyP/per/OPT=MIN"] / a["GreedyPM/per/OPT=MIN"],
            least=0.95,
            most=1.05,
            form=".2f",
        ),
        claim_on(
            results,
            "MVT=600 improves all: the best greedy policy without / the worst with it",
            lambda a: _least(a, _NOT_PERIODIC + _PERIODIC) / _most(a, _LIMITED),
            least=1.0,
            form=".2f",
        ),
        claim_on(
            results,
            "With MVT=600, acting on completions improves: GreedyPM/per / GreedyPM*/per",
            lambda a: a["GreedyPM/per/OPT=MIN/MVT=600"] / a[BEST],
            least=1.0,
            form=".2f",
        ),
        claim_on(
            results,
            "Packing on submission is worse: the best MCB / the best greedy policy",
            lambda a: _least(a, _PACKING) / _least(a, _LIMITED),
            least=1.0,
            form=".2f",
        ),
        claim_on(
            results,
            "/per is more than 5 times worse than the best greedy policy",
            lambda a: a[_PER] / _least(a, _LIMITED),
            least=5.0,
        ),
        claim_on(
            results,
            "/stretch-per is more than 10 times worse than the best greedy policy",
            lambda a: a[_STRETCH_PER] / _least(a, _LIMITED),
            least=10.0,
        ),
    ]
    if "weeks" in results:
        claims.append(
            claim_on(
                {"weeks": results["weeks"]},
                "On HPC2N, packing periodically worsens GreedyP* and GreedyPM*: the best with / the worse of the two",
                lambda a: _least(a, _PERIODIC) / _most(a, _NOT_PERIODIC[1:]),
                least=1.0,
            )
        )
    return claims


def _least(averages: Averages, labels: Iterable[str]) -> float:
    return min(averages[label] for label in labels)


def _most(averages: Averages, labels: Iterable[str]) -> float:
    return max(averages[label] for label in labels)


EXHIBIT = Exhibit(
    name="stillwell2010-table-5.2",
    title="[Stillwell2010] Table 5.2: degradation from bound on three sets of traces",
    source="[Stillwell2010] section 5.4, Table 5.2",
    needs=_needs,
    content=_content,
)
