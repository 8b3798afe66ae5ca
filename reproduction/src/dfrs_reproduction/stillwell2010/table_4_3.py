"""[Stillwell2010] Table 4.3: the genetic algorithm against GREEDY (section 4.4.3)."""

import numpy as np

from dfrs.experiments.spec import Study
from dfrs.report.tables import Claim, Content, Grid
from dfrs_reproduction.exhibit import Exhibit, Needs, Results
from dfrs_reproduction.metrics import FAILURES, Published, advantage, distance_cells, mean, say
from dfrs_reproduction.sizes import Size, dissertation, of
from dfrs_reproduction.studies import configurations

PUBLISHED: dict[str, Published] = {
    "GREEDY": (0.16, 30.06, 0.34, 56.25, 7.82),
    "GA": (0.24, 42.46, 0.41, 68.18, 9.57),
}
"""[Stillwell2010] Table 4.3."""


def _needs(size: Size) -> Needs:
    return {
        "genetic": Study(
            name="genetic",
            sample=of(size.genetic, 72_900, "[Stillwell2010]'s large set (64 nodes; 100, 200, 500 services)"),
            sources=(dissertation(size.genetic),),
            configurations=configurations("GREEDY", "GA"),
        )
    }


def _content(results: Results) -> Content:
    data = results["genetic"]
    cells = [
        cell
        for label, published in PUBLISHED.items()
        for cell in distance_cells(data, label, data.yields(label), published)
    ]
    notes = f'"{FAILURES[2]}" means: by GREEDY or GA.'
    return Content(
        grids=(Grid(title="Distance from bound and failures", heading="algorithm", cells=tuple(cells)),),
        claims=(_wins(results, "GA", "GREEDY", 9.96, 26.64), _wins(results, "GREEDY", "GA", 79.08, 32.65)),
        notes=(notes,),
    )


def _wins(results: Results, winner: str, loser: str, often: float, by: float) -> Claim:
    """How often one yields more where both succeed, and by how much then."""
    data = results["genetic"]
    a, b = data.yields(winner), data.yields(loser)
    both = ~np.isnan(a) & ~np.isnan(b)
    wins = both & (a > b)
    share = 100.0 * float(wins.sum()) / max(1, int(both.sum()))
    more = mean(advantage(a[wins], b[wins]))
    return Claim(
        claim=f"Where both succeed, {winner} yields more than {loser} in ... of the instances, by ... then",
        published=f"{often} %; {by} %",
        measured=f"{share:.2f} %; {say(more)}",
        holds=(share > 50) == (often > 50),
        instances=int(both.sum()),
    )


EXHIBIT = Exhibit(
    name="stillwell2010-table-4.3",
    title="[Stillwell2010] Table 4.3: the genetic algorithm",
    source="[Stillwell2010] section 4.4.3, Table 4.3; [Stillwell2010b] Table 1",
    needs=_needs,
    content=_content,
)
