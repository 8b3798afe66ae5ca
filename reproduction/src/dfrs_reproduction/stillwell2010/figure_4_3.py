"""Figure 4.3: how far VP_CPSUM is from OPT, and OPT from LPBOUND, on small instances (section 4.4.6)."""

import numpy as np

from dfrs.experiments.kinds.offline import OfflineConfiguration
from dfrs.experiments.spec import Study
from dfrs.model.allocation import Status
from dfrs.model.instance import Bools, Floats
from dfrs.placement.registry import Options
from dfrs.report.curves import Panel, Picture, Series, Style
from dfrs.report.tables import Claim, Content, Grid, TableCell
from dfrs.workloads.services import SLACKS
from dfrs_reproduction.exhibit import Exhibit, Needs, Results
from dfrs_reproduction.metrics import ResultTable, mean, nan, percent, quantile, relative_to, say
from dfrs_reproduction.sizes import Size, dissertation, of
from dfrs_reproduction.studies import PROGRAM_LIMIT_S, configurations

PUBLISHED: dict[str, float] = {
    "LPBOUND to OPT, average": 14.63,
    "LPBOUND to OPT, 90th percentile": 45.91,
    "OPT to VP_CPSUM, 90th percentile": 66.35,
}
"""Text of 4.4.6: at slack 0.1, in percent."""

_CURVES: tuple[tuple[str, float | None, Style, int], ...] = (
    ("OPT to VP_CPSUM, 90th percentile", 0.9, "line", 0),
    ("LPBOUND to OPT, 90th percentile", 0.9, "dashed", 0),
    ("OPT to VP_CPSUM, average", None, "line", 1),
    ("LPBOUND to OPT, average", None, "dashed", 1),
)


def _needs(size: Size) -> Needs:
    return {
        "small": Study(
            name="small",
            sample=of(size.small, 72_900, "[Stillwell2010]'s small set (4 nodes; 8, 10, 12 services)")
            + f" OPT has {PROGRAM_LIMIT_S:g} s for each; what it has not proven by then is left out.",
            sources=(dissertation(size.small, small=True),),
            configurations=(
                OfflineConfiguration(label="OPT", algorithm="OPT", options=Options(time_limit_s=PROGRAM_LIMIT_S)),
                *configurations("VP_CPSUM"),
            ),
        )
    }


def proven(data: ResultTable) -> Bools:
    """(I,) where OPT is the optimum, or it is proven that there is none."""
    return np.array([status in {Status.OPTIMAL, Status.INFEASIBLE} for status in data.status("OPT")])


def _content(results: Results) -> Content:
    data = results["small"]
    parts = {slack: part for slack in SLACKS for part in [data.where(slack=slack)] if part.labels}
    cells = [
        TableCell(
            row=f"slack {slack:g}",
            metric=label,
            measured=_value(part, label, q),
            instances=int((~np.isnan(_gap(part, label))).sum()),
            published=PUBLISHED.get(label) if slack == 0.1 else None,
        )
        for slack, part in parts.items()
        for label, q, _, _ in _CURVES
    ]
    series = tuple(
        Series(
            label=label,
            x=list(parts),
            y=[nan(_value(part, label, q)) for part in parts.values()],
            style=style,
            colour=colour,
        )
        for label, q, style, colour in _CURVES
    )
    picture = Picture(
        name="stillwell2010-figure-4.3",
        title="VP_CPSUM, OPT and LPBOUND on small instances ([Stillwell2010] Figure 4.3)",
        subtitle=f"{len(data):,} instances with 4 nodes; what the solver has proven in {PROGRAM_LIMIT_S:g} s",
        panels=(Panel(title="", x_label="slack", y_label="lower by, %", series=series),),
        columns=1,
    )
    return Content(
        grids=(Grid(title="Relative differences, %", heading="slack", cells=tuple(cells)),),
        claims=tuple(_claims(data)),
        pictures=(picture,),
        notes=("Instances where the larger of the two yields is 0 count as a difference of 0.",),
    )


def _gap(data: ResultTable, label: str) -> Floats:
    optimum = np.where(proven(data), data.yields("OPT"), np.nan)
    if label.startswith("LPBOUND"):
        return relative_to(data.bound, optimum)
    return relative_to(optimum, data.yields("VP_CPSUM"))


def _value(data: ResultTable, label: str, q: float | None) -> float | None:
    return mean(_gap(data, label)) if q is None else quantile(_gap(data, label), q)


def _claims(data: ResultTable) -> list[Claim]:
    known = proven(data)
    without = percent(np.isnan(data.yields("OPT")), known)
    hard = np.isnan(data.yields("OPT")) & known
    at_lowest = percent(data.parameter("slack") == 0.1, hard)
    near, far = mean(_gap(data, "OPT to VP_CPSUM")), mean(_gap(data, "LPBOUND to OPT"))
    return [
        Claim(
            claim="The solver finds no solution for ... of the instances",
            published="5.93 %",
            measured=say(without),
            holds=None if without is None else abs(without - 5.93) < 3.0,
            instances=int(known.sum()),
        ),
        Claim(
            claim="More than 80 % of these have slack 0.1",
            published="more than 80 %",
            measured=say(at_lowest),
            holds=None if at_lowest is None else at_lowest > 80.0,
            instances=int(hard.sum()),
        ),
        Claim(
            claim="VP_CPSUM is roughly as far from OPT as OPT is from LPBOUND",
            published="roughly",
            measured=f"{say(near)} and {say(far)}",
            holds=None if near is None or far is None else 0.5 <= near / max(far, 1e-9) <= 2.0,
            instances=int(known.sum()),
        ),
    ]


EXHIBIT = Exhibit(
    name="stillwell2010-figure-4.3",
    title="[Stillwell2010] Figure 4.3: VP_CPSUM, OPT and LPBOUND",
    source="[Stillwell2010] section 4.4.6, Figure 4.3; [Stillwell2010b] Figure 3",
    needs=_needs,
    content=_content,
)
