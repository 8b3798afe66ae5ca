"""[Stillwell2010] Table 4.5 and the one-to-one comparisons of section 4.4.4."""

import numpy as np

from dfrs.model import tolerances
from dfrs.model.instance import Floats
from dfrs.report.tables import Claim, Content, Grid, TableCell
from dfrs_reproduction.exhibit import Exhibit, Needs, Results
from dfrs_reproduction.metrics import ResultTable, advantage, mean, percent, say
from dfrs_reproduction.sizes import Size
from dfrs_reproduction.studies import packing

PUBLISHED: dict[tuple[str, str], tuple[float, float]] = {
    ("VP_CPSUM", "VP_FFSUM"): (0.02, 6.93),
    ("VP_FFSUM", "VP_CPSUM"): (0.56, -1.11),
    ("VP_CPSUM", "VP_BFSUM"): (0.04, 7.28),
    ("VP_BFSUM", "VP_CPSUM"): (0.67, -1.29),
    ("VP_CPSUM", "GREEDY"): (0.01, 42.23),
    ("GREEDY", "VP_CPSUM"): (0.99, -22.34),
    ("VP_CPSUM", "GREEDYLIGHT"): (0.00, 68.61),
    ("GREEDYLIGHT", "VP_CPSUM"): (0.66, -24.05),
}
"""[Stillwell2010] Table 4.5: S and Y of the first over the second, in percent."""

OUTPERFORMED = {"VP_FFSUM": (68.97, 4.01, 27.00), "VP_BFSUM": (76.26, 3.93, 18.70)}
"""Text of 4.4.4: how often VP_CPSUM yields less, by how much then, and by how much more otherwise, in percent."""

SUBSETS = ((2, 4, 6), (2, 4), (4, 6), (2,), (4,), (6,))
"""Numbers of resources for which domination is established."""

_SUCCESS, _YIELD = 0.5, 3.0


def _yields(data: ResultTable, label: str) -> Floats:
    """The placements' own yields: with those that the searches reached, VP_FFSUM gains nothing over VP_CPSUM."""
    return data.yields(label, exact=True)


def success(data: ResultTable, a: str, b: str) -> float:
    """S: the percentage of instances that `a` solves and `b` does not."""
    return 100.0 * float((~np.isnan(_yields(data, a)) & np.isnan(_yields(data, b))).mean())


def gain(data: ResultTable, a: str, b: str) -> float | None:
    """Y: by how many percent the yield of `a` is above that of `b`, on average where both succeed."""
    return mean(advantage(_yields(data, a), _yields(data, b)))


def dominates(data: ResultTable, a: str, b: str) -> bool:
    """Whether `a` dominates `b`: clearly better in one of the two metrics, not clearly worse in the other."""
    ab, ba = gain(data, a, b), gain(data, b, a)
    if ab is None or ba is None:
        return False
    return (success(data, a, b) >= _SUCCESS and ba <= _YIELD) or (success(data, b, a) <= _SUCCESS and ab >= _YIELD)


def _needs(size: Size) -> Needs:
    return {"large": packing(size)}


def _content(results: Results) -> Content:
    data = results["large"]
    cells: list[TableCell] = []
    for (a, b), (s, y) in PUBLISHED.items():
        both = int((~np.isnan(_yields(data, a)) & ~np.isnan(_yields(data, b))).sum())
        row = f"{a} over {b}"
        cells += [
            TableCell(row=row, metric="S, %", published=s, measured=success(data, a, b), instances=len(data)),
            TableCell(row=row, metric="Y, %", published=y, measured=gain(data, a, b), instances=both),
        ]
    subsets = [_resources(data, dims) for dims in SUBSETS]
    return Content(
        grids=(Grid(title="Success and yield, one to one", heading="algorithms", cells=tuple(cells)),),
        claims=(
            *(_outperformed(data, other) for other in OUTPERFORMED),
            *_domination([s for s in subsets if s.labels]),
        ),
        notes=(
            "Y leaves out instances on which the second algorithm's yield is 0; it is ruled by those where it is "
            "nearly 0, so a few instances move it by several points.",
            "Yields are the placements' own, not those that the searches reached as in Table 4.4: so VP_FFSUM and "
            "VP_BFSUM gain what the text says.",
            "With 2 resources VP_CPSUM has one list and packs as VP_FFSUM does: they differ on no instance there.",
            "Domination is established for 2, 4 and 6 resources, for 2 and 4, for 4 and 6, and for each: six subsets.",
        ),
    )


def _resources(data: ResultTable, dims: tuple[int, ...]) -> ResultTable:
    return ResultTable(data.frame.filter(data.frame["dims"].is_in(dims)))


def _outperformed(data: ResultTable, other: str) -> Claim:
    ours, theirs = _yields(data, "VP_CPSUM"), _yields(data, other)
    both = ~np.isnan(ours) & ~np.isnan(theirs)
    less = both & (ours < theirs - tolerances.CAPACITY)
    more = both & (ours > theirs + tolerances.CAPACITY)
    share, among, by = percent(less, both), percent(less, less | more), mean(advantage(theirs[less], ours[less]))
    gained = mean(advantage(ours[more], theirs[more]))
    often, published_by, published_gain = OUTPERFORMED[other]
    return Claim(
        claim=f"{other} yields more than VP_CPSUM in ... of the instances, by ... then; where less, less by ...",
        published=f"{often} %; {published_by} %; {published_gain} %",
        measured=f"{say(share)}, {say(among)} of those where they differ; {say(by)}; {say(gained)}",
        holds=None if among is None or by is None or gained is None else among > 50 and gained > by,
        instances=int(both.sum()),
    )


def _domination(subsets: list[ResultTable]) -> list[Claim]:
    total = len(subsets)
    instances = len(subsets[0])

    def count(pairs: list[tuple[str, str]]) -> int:
        return sum(dominates(s, a, b) for s in subsets for a, b in pairs)

    def neither(a: str, b: str) -> int:
        return sum(not dominates(s, a, b) and not dominates(s, b, a) for s in subsets)

    sorts = ("SUM", "MAX", "DIFF", "RATIO")
    of_lists = ("VP_CPSUM", "VP_CPMAX", "VP_CPDIFF")
    dominated = {a: count([(b, a) for b in of_lists if b != a]) for a in of_lists}
    lex = [(f"VP_{m}{s}", f"VP_{m}LEX") for m in ("FF", "BF") for s in ("SUM", "MAX")]
    equal = [("VP_CPSUM", "VP_FFSUM"), ("VP_CPSUM", "VP_BFSUM"), ("VP_FFSUM", "VP_BFSUM")]
    told = [
        (
            "Each PP algorithm is dominated by its CP counterpart, on every subset",
            4 * total,
            count([(f"VP_CP{s}", f"VP_PP{s}") for s in sorts]),
        ),
        ("VP_CPRATIO is dominated by VP_CPDIFF on every subset", total, count([("VP_CPDIFF", "VP_CPRATIO")])),
        ("LEX is dominated by SUM and by MAX, first fit and best fit, on every subset", 4 * total, count(lex)),
        (
            "VP_CPSUM, VP_FFSUM and VP_BFSUM are equivalent on every subset",
            3 * total,
            sum(neither(a, b) for a, b in equal),
        ),
    ]
    claims = [
        Claim(
            claim=text,
            published=f"{whole} of {whole}",
            measured=f"{held} of {whole}",
            holds=held == whole,
            instances=instances,
        )
        for text, whole, held in told
    ]
    claims.append(
        Claim(
            claim="Of VP_CPSUM, VP_CPMAX and VP_CPDIFF only VP_CPSUM is dominated on no subset",
            published="0 for VP_CPSUM alone",
            measured=", ".join(f"{k} {v}" for k, v in dominated.items()),
            holds=dominated["VP_CPSUM"] == 0 and min(dominated["VP_CPMAX"], dominated["VP_CPDIFF"]) > 0,
            instances=instances,
        )
    )
    return claims


EXHIBIT = Exhibit(
    name="stillwell2010-table-4.5",
    title="[Stillwell2010] Table 4.5: VP_CPSUM one to one",
    source="[Stillwell2010] section 4.4.4, Table 4.5; [Stillwell2010b] Table 5",
    needs=_needs,
    content=_content,
)
