"""[Stillwell2010] Table 4.1: the algorithms that start from the relaxed program, and GREEDY (section 4.4.2)."""

import numpy as np

from dfrs.experiments.spec import Study
from dfrs.placement.registry import Options
from dfrs.report.tables import Claim, Content, Grid
from dfrs_reproduction.exhibit import Exhibit, Needs, Results
from dfrs_reproduction.metrics import FAILURES, Published, ResultTable, distance, distance_cells, percent, say
from dfrs_reproduction.sizes import Size, dissertation, of
from dfrs_reproduction.studies import PROGRAM_LIMIT_S, configurations

PUBLISHED: dict[str, Published] = {
    "RRND": (0.58, 78.33, 0.86, 98.52, 66.56),
    "RRNDNZ": (0.58, 77.95, 0.89, 98.28, 22.02),
    "FASTDIVING": (0.60, 75.03, 0.84, 94.39, 78.02),
    "SLOWDIVING": (0.57, 72.75, 0.81, 93.60, 77.92),
    "GREEDY": (0.21, 29.17, 0.38, 51.49, 7.50),
}
"""[Stillwell2010] Table 4.1."""

_DIVING = ("FASTDIVING", "SLOWDIVING")
_SERVICES = (100, 200)


def _needs(size: Size) -> Needs:
    limit = Options(time_limit_s=PROGRAM_LIMIT_S)
    what = "[Stillwell2010]'s large set with 100 and 200 services"
    return {
        "rounding": Study(
            name="rounding",
            sample=of(size.rounding, 48_600, f"{what}, RRND, RRNDNZ and GREEDY"),
            sources=(dissertation(size.rounding, services=_SERVICES),),
            configurations=configurations("RRND", "RRNDNZ", "GREEDY", options=limit),
        ),
        "diving": Study(
            name="diving",
            sample=of(size.diving, 48_600, f"{what}, FASTDIVING and SLOWDIVING, {PROGRAM_LIMIT_S:g} s at most each"),
            sources=(dissertation(size.diving, services=_SERVICES),),
            configurations=configurations(*_DIVING, "GREEDY", options=limit),
        ),
    }


def _content(results: Results) -> Content:
    rounding, diving = results["rounding"], results["diving"]
    cells = [
        cell
        for label, published in PUBLISHED.items()
        for data in [diving if label in _DIVING else rounding]
        for cell in distance_cells(data, label, data.yields(label), published)
        if cell.metric != FAILURES[2]
    ]
    over = sum(bool((diving.column(label, "runtime_s") >= PROGRAM_LIMIT_S).any()) for label in _DIVING)
    notes = ["Which vertex of the relaxed program the solver ends in decides what rounding makes of it: here HiGHS."]
    if over:
        notes.append(f"A dive that {PROGRAM_LIMIT_S:g} s ended counts as a failure.")
    return Content(
        grids=(Grid(title="Distance from bound and failures", heading="algorithm", cells=tuple(cells)),),
        claims=(*_claims(rounding), *_diving_claims(diving)),
        notes=tuple(notes),
    )


def _claims(data: ResultTable) -> list[Claim]:
    greedy, rrnd, nonzero = (data.yields(label) for label in ("GREEDY", "RRND", "RRNDNZ"))
    only = int((np.isnan(greedy) & ~(np.isnan(rrnd) & np.isnan(nonzero))).sum())
    lost = int((np.isnan(nonzero) & ~np.isnan(rrnd)).sum())
    ours = {label: distance(data.bound, data.yields(label)).relative for label in ("GREEDY", "RRND", "RRNDNZ")}
    known = [value for value in (ours["RRND"], ours["RRNDNZ"]) if value is not None]
    return [
        Claim(
            claim="No instance that GREEDY fails on is solved by RRND or RRNDNZ",
            published="0 instances",
            measured=f"{only} instances",
            holds=only == 0,
            instances=len(data),
        ),
        Claim(
            claim="RRNDNZ always succeeds when RRND does",
            published="0 exceptions",
            measured=f"{lost} exceptions",
            holds=lost == 0,
            instances=len(data),
        ),
        Claim(
            claim="GREEDY is much nearer to the bound than rounding",
            published="29 % against 78 %",
            measured=f"{say(ours['GREEDY'])} against {', '.join(say(v) for v in known) or 'no success'}",
            holds=ours["GREEDY"] < min(known) / 2 if known and ours["GREEDY"] is not None else None,
            instances=len(data),
        ),
    ]


def _diving_claims(data: ResultTable) -> list[Claim]:
    everything = np.ones(len(data), dtype=np.bool_)
    fast, slow = (percent(np.isnan(data.yields(label)), everything) for label in _DIVING)
    return [
        Claim(
            claim="SLOWDIVING fails slightly less often than FASTDIVING",
            published="77.92 % against 78.02 %",
            measured=f"{say(slow)} against {say(fast)}",
            holds=None if slow is None or fast is None else slow <= fast,
            instances=len(data),
        )
    ]


EXHIBIT = Exhibit(
    name="stillwell2010-table-4.1",
    title="[Stillwell2010] Table 4.1: algorithms that start from the relaxed program",
    source="[Stillwell2010] section 4.4.2, Table 4.1",
    needs=_needs,
    content=_content,
)
