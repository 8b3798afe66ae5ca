"""Figure 5.1: degradation from bound against load, without and with a rescheduling penalty (section 5.4)."""

from dfrs.experiments.kinds.online import OnlineConfiguration
from dfrs.report.curves import Panel, Picture, Style
from dfrs.report.tables import Claim, Content, Grid
from dfrs_reproduction.exhibit import Exhibit, Needs, Results
from dfrs_reproduction.metrics import ResultTable, mean_cell, mean_series
from dfrs_reproduction.sizes import LOADS, Size
from dfrs_reproduction.stillwell2010.policies import (
    BATCH,
    BEST,
    PENALTY_S,
    STRETCH,
    TOGETHER,
    average,
    configurations,
    degradation,
    origins,
    studies,
    table_5_2,
)

_THRASHING = "MCB*/per/OPT=MIN"
_CURVES: dict[str, tuple[int, Style]] = {
    "FCFS": (9, "dashed"),
    "EASY": (9, "line"),
    "Greedy*/OPT=MIN": (1, "line"),
    "GreedyP*/OPT=MIN": (3, "line"),
    "GreedyPM*/OPT=MIN": (3, "dashed"),
    "/per/OPT=MIN/MVT=600": (5, "line"),
    _THRASHING: (2, "line"),
    "MCB*/per/OPT=MIN/MVT=600": (2, "dashed"),
    "GreedyPM*/per/OPT=MIN": (0, "line"),
    BEST: (0, "dashed"),
}
"""Colour and style of each curve: what differs in one respect only has one colour."""


def _needs(size: Size) -> Needs:
    free: tuple[OnlineConfiguration, ...] = configurations(
        (label for label in _CURVES if label not in BATCH), penalty_s=0.0
    )
    return {
        "penalty": table_5_2(size)["scaled"],
        "thrashing": studies("thrashing", configurations([_THRASHING]), scaled=size.scaled)["scaled"],
        "free": studies("free", free, scaled=size.scaled)["scaled"],
    }


def _content(results: Results) -> Content:
    penalised = {label: results["thrashing" if label == _THRASHING else "penalty"] for label in _CURVES}
    # Batch policies never pause or move a job, so that the penalty does not concern them.
    free = {label: results["penalty" if label in BATCH else "free"] for label in _CURVES}
    count = len(results["penalty"])
    picture = Picture(
        name="stillwell2010-figure-5.1",
        title="Degradation from bound against load ([Stillwell2010] Figure 5.1)",
        subtitle=f"{count} scaled traces; maximum bounded stretch over the bound of Theorem 1, means; "
        "bands: 95 % bootstrap confidence intervals of the mean",
        panels=(_panel("no penalty", free), _panel(f"penalty of {PENALTY_S:g} s", penalised)),
    )
    return Content(
        grids=(
            _grid("No penalty", free),
            _grid(f"Penalty of {PENALTY_S:g} s", penalised),
        ),
        claims=tuple(_claims(penalised, free, count)),
        pictures=(picture,),
        notes=(STRETCH, TOGETHER),
    )


def _at(data: ResultTable, load: float) -> ResultTable:
    return data.where(target_load=load)


def _loads(datasets: dict[str, ResultTable]) -> list[float]:
    """Those of which there are traces."""
    present = set(datasets["EASY"].parameter("target_load").tolist())
    return [load for load in LOADS if load in present]


def _short(label: str) -> str:
    return label.replace("/OPT=MIN", "")


def _panel(title: str, datasets: dict[str, ResultTable]) -> Panel:
    series = tuple(
        mean_series(
            _short(label),
            datasets[label].parameter("target_load"),
            degradation(datasets[label], label),
            style,
            colour,
            seed=f"[Stillwell2010] Figure 5.1/{title}/{label}",
            clusters=origins(datasets[label]),
        )
        for label, (colour, style) in _CURVES.items()
    )
    return Panel(
        title=title, x_label="load", y_label="degradation from bound", series=series, log_y=True, x_ticks=LOADS
    )


def _grid(title: str, datasets: dict[str, ResultTable]) -> Grid:
    cells = [
        mean_cell(
            degradation(_at(data, load), label),
            report=f"[Stillwell2010] Figure 5.1/{title}",
            row=_short(label),
            metric=f"load {load:g}",
            decimals=1,
            clusters=origins(_at(data, load)),
        )
        for label, data in datasets.items()
        for load in _loads(datasets)
    ]
    return Grid(title=title, heading="policy", cells=tuple(cells))


def _claims(penalised: dict[str, ResultTable], free: dict[str, ResultTable], count: int) -> list[Claim]:
    loads = _loads(penalised)

    def mean_at(datasets: dict[str, ResultTable], label: str, load: float) -> float:
        return average(_at(datasets[label], load), label)

    best = [mean_at(penalised, BEST, load) for load in loads]
    gain = [mean_at(penalised, "EASY", load) / b for load, b in zip(loads, best, strict=True)]
    unlimited = [mean_at(penalised, _THRASHING, load) for load in loads]
    hurt = [u / mean_at(free, _THRASHING, load) for load, u in zip(loads, unlimited, strict=True)]
    ahead = [mean_at(penalised, "EASY", load) / u for load, u in zip(loads, unlimited, strict=True)]
    return [
        Claim(
            claim=f"{_short(BEST)} is within a factor of 7 of the bound, whatever the load",
            published="below 7",
            measured=f"{min(best):.1f} to {max(best):.1f}",
            holds=max(best) < 7.0,
            instances=count,
        ),
        Claim(
            claim="It is several orders of magnitude better than EASY: the ratio",
            published="no number",
            measured=f"{min(gain):,.0f} to {max(gain):,.0f}",
            holds=min(gain) >= 100.0,
            instances=count,
        ),
        Claim(
            claim="The penalty has a large negative impact on MCB*/per: with / without",
            published="no number",
            measured=f"{min(hurt):,.0f} to {max(hurt):,.0f}",
            holds=min(hurt) > 2.0,
            instances=count,
        ),
        Claim(
            claim="MCB*/per with it is still about half an order of magnitude better than EASY: the ratio",
            published="about 3",
            measured=f"{min(ahead):,.1f} to {max(ahead):,.1f}",
            holds=min(ahead) > 1.0,
            instances=count,
        ),
    ]


EXHIBIT = Exhibit(
    name="stillwell2010-figure-5.1",
    title="[Stillwell2010] Figure 5.1: degradation from bound against load",
    source="[Stillwell2010] section 5.4, Figure 5.1",
    needs=_needs,
    content=_content,
)
