"""[Kumar2011] Figures 5 and 6: how often the first job may be skipped (section V-A)."""

from collections.abc import Sequence

import numpy as np

from dfrs.experiments.kinds.online import OnlineConfiguration
from dfrs.experiments.spec import Study
from dfrs.report.curves import Panel, Picture, Series
from dfrs.report.tables import Claim, Content, Grid
from dfrs_reproduction.exhibit import Exhibit, Needs, Results
from dfrs_reproduction.kumar2011 import elastic
from dfrs_reproduction.kumar2011.elastic import HOUR_S, LONG, PUBLISHED_SIZES, SKIPS, UTILISATION, WAIT
from dfrs_reproduction.metrics import ResultTable, mean, mean_cell, nan
from dfrs_reproduction.sizes import Size

COUNTS = tuple(range(1, 21))
"""The values of C_s."""
LOAD = 0.9
_TICKS = COUNTS[::2]
_OTHERS = ("EASY", "LOS")
_NEAR = 1.01
"""Within 1 % of the least mean wait counts as as good."""

_CRITERION = (
    "What a curve's knee is, the text does not define. Here: the least C_s whose mean wait is at most 1 % above the "
    "least of all 20. A curve counts as flat where it stays within 2 % of its own mean."
)
_ONE_RUN = (
    "The document's curves are of one workload each. Of one workload, the wait as a function of C_s jumps up and down "
    "by some percent, as each change of one decision changes all later ones; the mean over seeds is smoother."
)


def label_of(count: int) -> str:
    """The entry with this C_s."""
    return f"C_s = {count}"


def skips(size: Size, ps: float) -> Study:
    """EASY, LOS, and Delayed-LOS with every C_s."""
    configurations = [
        *(OnlineConfiguration(label=name, policy=name) for name in _OTHERS),
        *(OnlineConfiguration(label=label_of(count), policy=f"Delayed-LOS/CS={count}") for count in COUNTS),
    ]
    return elastic.study(f"skips-{ps:g}", configurations, ps=ps, seeds=size.elastic, loads=(LOAD,))


def waits(data: ResultTable) -> list[float]:
    """Mean wait in seconds for each of COUNTS."""
    return [nan(mean(data.column(label_of(count), WAIT))) for count in COUNTS]


def knee(data: ResultTable) -> int:
    """The least C_s whose mean wait is within 1 % of the least."""
    found = waits(data)
    return next((c for c, wait in zip(COUNTS, found, strict=True) if wait <= _NEAR * min(found)), COUNTS[0])


def best(data: ResultTable) -> int:
    """The C_s with the least mean wait."""
    return COUNTS[int(np.argmin(waits(data)))]


def flatness(data: ResultTable, above: int) -> float:
    """By how many percent the mean wait is off its own average, at most, for C_s above `above`."""
    found = np.array([wait for c, wait in zip(COUNTS, waits(data), strict=True) if c > above])
    return 100.0 * float(np.abs(found / found.mean() - 1.0).max())


def _panels(data: ResultTable) -> list[Panel]:
    parts = ((UTILISATION, "utilization, %", 0.01), (WAIT, "mean wait, hours", HOUR_S))
    panels = [
        Panel(
            title="",
            x_label="C_s",
            y_label=label,
            x_ticks=_TICKS,
            y_from_zero=False,
            series=(
                *(_level(data, name, metric, unit) for name in _OTHERS),
                _curve(data, metric, unit),
            ),
        )
        for metric, label, unit in parts
    ]
    x = [float(count) for count in COUNTS]
    found = {float(count): elastic.improvement(data, label_of(count), "EASY", WAIT) for count in COUNTS}
    los = elastic.improvement(data, "LOS", "EASY", WAIT)
    series = (
        elastic.zero(x, "EASY"),
        elastic.change_series("LOS", dict.fromkeys(x, los), elastic.style("LOS")[0]),
        elastic.change_series("Delayed-LOS", found, elastic.style("Delayed-LOS")[0]),
    )
    over = Panel(
        title="",
        x_label="C_s",
        y_label="mean wait below that of EASY, %",
        series=series,
        x_ticks=_TICKS,
        y_from_zero=False,
    )
    return [*panels, over]


def _level(data: ResultTable, label: str, metric: str, unit: float) -> Series:
    """A policy without C_s."""
    level = nan(mean(data.column(label, metric))) / unit
    colour, line = elastic.style(label)
    return Series(label=label, x=list(COUNTS), y=[level] * len(COUNTS), colour=colour, style=line)


def _curve(data: ResultTable, metric: str, unit: float) -> Series:
    """Without intervals, which are many times as wide as the differences between these policies."""
    means = [nan(mean(data.column(label_of(count), metric))) / unit for count in COUNTS]
    return Series(label="Delayed-LOS", x=list(COUNTS), y=means, colour=elastic.style("Delayed-LOS")[0])


def _grid(data: ResultTable) -> Grid:
    cells = [
        cell
        for label in data.labels
        for cell in (
            mean_cell(
                100.0 * data.column(label, UTILISATION),
                report="[Kumar2011]/skips",
                row=label,
                metric="utilization, %",
            ),
            mean_cell(data.column(label, WAIT) / HOUR_S, report="[Kumar2011]/skips", row=label, metric="wait, h"),
            elastic.change_cell(elastic.improvement(data, label, "EASY", WAIT), label, "wait below that of EASY, %"),
            elastic.change_cell(elastic.improvement(data, label, "LOS", WAIT), label, "wait below that of LOS, %"),
        )
    ]
    return Grid(title="Utilization and wait for each C_s", heading="policy", cells=tuple(cells))


def _outperforms(data: ResultTable) -> list[Claim]:
    claims: list[Claim] = []
    for old in reversed(_OTHERS):
        found = [elastic.improvement(data, label_of(count), old, WAIT) for count in COUNTS]
        percents = [change.percent for change in found]
        claims.append(
            Claim(
                claim=f"Delayed-LOS outperforms {old} with every C_s: mean wait",
                published="yes, no number",
                measured=f"by {min(percents):+.1f} % to {max(percents):+.1f} %; {elastic.say_sure(found)}",
                holds=min(percents) > 0.0,
                instances=len(data),
            )
        )
    return claims


def _knee_claim(data: ResultTable, text: str, published: str, wanted: Sequence[int]) -> Claim:
    return Claim(
        claim=text,
        published=published,
        measured=f"C_s = {knee(data)}; the least mean wait is at {best(data)}",
        holds=knee(data) in wanted,
        instances=len(data),
    )


def _flat_claim(data: ResultTable, above: int) -> Claim:
    off = flatness(data, above)
    return Claim(
        claim=f"The mean wait is stable for C_s above {above}: within 2 % of its average there",
        published="yes, no number",
        measured=f"within {off:.1f} %",
        holds=off <= 2.0,
        instances=len(data),
    )


def _rise_claim(data: ResultTable) -> Claim:
    """The slight increase that the text sees after the least wait."""
    found = waits(data)
    rise = 100.0 * (found[-1] / min(found[:8]) - 1.0)
    return Claim(
        claim="After that the mean wait increases slightly: at C_s = 20 against the least up to C_s = 8",
        published="yes, no number",
        measured=f"{rise:+.1f} %",
        holds=rise > 0.0,
        instances=len(data),
    )


def _picture(number: int, ps: float, data: ResultTable) -> Picture:
    return Picture(
        name=f"kumar2011-figure-{number}",
        title=f"How often the first job may be skipped, P_S = {ps:g}, load {LOAD:g} ([Kumar2011] Figure {number})",
        subtitle=f"means over {len(data)} seeds, whose intervals are in the table; bands on the right: 95 % bootstrap "
        "confidence intervals of the paired difference",
        panels=tuple(_panels(data)),
        columns=3,
    )


def _needs_5(size: Size) -> Needs:
    configurations = elastic.BATCH.configurations(0.5)
    long = elastic.study("long", configurations, ps=0.5, seeds=size.elastic_long, loads=(0.6, LOAD), jobs=LONG)
    return {"skips": skips(size, 0.5), "short": elastic.batch(size, 0.5), "long": long}


def _content_5(results: Results) -> Content:
    data = results["skips"]
    claims = [
        elastic.size_claim(0.5, data, PUBLISHED_SIZES[0.5]),
        *_outperforms(data),
        _knee_claim(
            data,
            "The mean wait decreases until about C_s = 7 or 8, here: its knee is from 6 to 9",
            "7 or 8",
            (6, 7, 8, 9),
        ),
        _rise_claim(data),
        _flat_claim(data, 8),
        *_long_claims(results),
    ]
    notes = (_CRITERION, _ONE_RUN, elastic.WORKLOADS, elastic.SATURATED)
    grids = (_grid(data), _long_grid(results))
    return Content(grids=grids, claims=tuple(claims), pictures=(_picture(5, 0.5, data),), notes=notes)


def _long_parts(results: Results) -> list[tuple[str, ResultTable]]:
    return [
        (f"load {load:g}, {jobs} jobs", results[part].where(target_load=load))
        for load in elastic.loads_of(results["long"])
        for part, jobs in (("short", "500"), ("long", f"{LONG:,}"))
    ]


def _long_grid(results: Results) -> Grid:
    """Both lengths beside each other."""
    cells = [
        mean_cell(at.column(label, metric) / unit, report="[Kumar2011]/long", row=row, metric=f"{label}: {name}")
        for row, at in _long_parts(results)
        for name, (metric, unit) in {"utilization, %": (UTILISATION, 0.01), "wait, h": (WAIT, HOUR_S)}.items()
        for label in elastic.BATCH.labels
    ]
    return Grid(title=f"Runs of 500 and of {LONG:,} jobs", heading="workloads", cells=tuple(cells))


def _long_claims(results: Results) -> list[Claim]:
    """Whether waits of long runs are those of short ones, within the spread of what single short runs give."""
    claims: list[Claim] = []
    for load in elastic.loads_of(results["long"]):
        short, long = (results[part].where(target_load=load) for part in ("short", "long"))
        ratio = nan(mean(long.column("EASY", WAIT))) / nan(mean(short.column("EASY", WAIT)))
        gains = [elastic.improvement(data, "Delayed-LOS", "EASY", WAIT).percent for data in (short, long)]
        claims.append(
            Claim(
                claim=f"Runs of {LONG:,} jobs differ little from those of 500, at load {load:g}: mean wait under EASY, "
                "within 10 %",
                published="no significant difference",
                measured=f"{ratio:.2f} times as long; Delayed-LOS improves on EASY by {gains[1]:.1f} % instead of "
                f"{gains[0]:.1f} %",
                holds=abs(ratio - 1.0) <= 0.1,
                instances=len(long),
            )
        )
    return claims


def _needs_6(size: Size) -> Needs:
    return {"skips": skips(size, 0.8)}


def _content_6(results: Results) -> Content:
    data = results["skips"]
    claims = (
        elastic.size_claim(0.8, data, PUBLISHED_SIZES[0.8]),
        *_outperforms(data),
        _knee_claim(data, "C_s above 3 gives no more, here: the knee is at most at 3", "3", (1, 2, 3)),
        _flat_claim(data, SKIPS[0.8]),
    )
    notes = (_CRITERION, _ONE_RUN, elastic.WORKLOADS, elastic.SATURATED)
    return Content(grids=(_grid(data),), claims=claims, pictures=(_picture(6, 0.8, data),), notes=notes)


EXHIBITS = tuple(
    Exhibit(
        name=f"kumar2011-figure-{number}",
        title=f"[Kumar2011] Figure {number}: the maximum skip count C_s, P_S = {ps:g}",
        source=f"[Kumar2011] section V-A, Figure {number}",
        needs=needs,
        content=content,
    )
    for number, ps, needs, content in ((5, 0.5, _needs_5, _content_5), (6, 0.8, _needs_6, _content_6))
)
