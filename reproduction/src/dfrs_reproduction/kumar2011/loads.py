"""[Kumar2011] Figures 7 to 11: utilization and wait against the load (section V)."""

from collections.abc import Mapping, Sequence

from dfrs.report.curves import Picture
from dfrs.report.tables import Claim, Content
from dfrs_reproduction.exhibit import Exhibit, Needs, Results
from dfrs_reproduction.kumar2011 import elastic
from dfrs_reproduction.kumar2011.elastic import BATCH, BATCH_E, MIXED, MIXED_E, PUBLISHED_SIZES, WAIT, Contest
from dfrs_reproduction.metrics import ResultTable, mean, nan
from dfrs_reproduction.sizes import Size

SUBTITLE = "means over seeds; bands: 95 % bootstrap confidence intervals of the mean, right of the paired difference"
_NOTES = (elastic.WORKLOADS, elastic.SKIPPED, elastic.WAITING, elastic.SATURATED)
_MIXED_SIZE = 177.7
"""Mean size that the text states for Figure 9."""


def _content(
    name: str,
    title: str,
    parts: Mapping[str, tuple[Contest, ResultTable]],
    claims: Sequence[Claim],
    notes: Sequence[str] = (),
    *,
    utilisation: bool = True,
) -> Content:
    """Curves and tables of each of `parts`."""
    panels = [
        panel
        for told, (contest, data) in parts.items()
        for panel in elastic.contest_panels(data, contest, told, utilisation=utilisation)
    ]
    picture = Picture(name=name, title=title, subtitle=SUBTITLE, panels=tuple(panels), columns=3 if utilisation else 2)
    grids = [
        grid
        for told, (contest, data) in parts.items()
        for grid in (
            elastic.means_grid(data, contest.labels, f"Means, {told}"),
            elastic.improvements_grid(data, contest, f"Improvement by {contest.new}, {told}"),
        )
    ]
    return Content(grids=tuple(grids), claims=tuple(claims), pictures=(picture,), notes=(*notes, *_NOTES))


def outperforms(data: ResultTable, contest: Contest, told: str) -> list[Claim]:
    """That the new policy has shorter waits, and uses more, than both others, at every load."""
    new = contest.new
    return [
        elastic.better_claim(f"{told}: {new} outperforms {old} at every load: {name}", data, new, old, metric)
        for old in (contest.los, contest.easy)
        for name, metric in (("mean wait", WAIT), ("utilization", elastic.UTILISATION))
    ]


def _needs_7(size: Size) -> Needs:
    return {"small": elastic.batch(size, 0.2)}


def _content_7(results: Results) -> Content:
    data = results["small"]
    worse = elastic.improvements(data, "LOS", "EASY", WAIT)
    claims = [
        elastic.size_claim(0.2, data, PUBLISHED_SIZES[0.2]),
        Claim(
            claim="LOS performs worse than EASY where the sizes of jobs vary: mean wait of LOS below that of EASY",
            published="above it, no number",
            measured=f"{elastic.say_range(worse)}; {elastic.say_sure(worse.values())}",
            holds=elastic.all_above_zero(-change.percent for change in worse.values()),
            instances=len(data),
        ),
        *outperforms(data, BATCH, "P_S = 0.2"),
    ]
    return _content(
        "kumar2011-figure-7",
        "Batch jobs, few of them small ([Kumar2011] Figure 7)",
        {"P_S = 0.2": (BATCH, data)},
        claims,
        (_LOS_NOTE,),
    )


_LOS_NOTE = (
    "LOS against EASY, which the text finds better: what may be otherwise here is that LOS looks at the whole queue, "
    "and that of several sets that use as many processors it takes the one with the earliest jobs. The document says "
    "neither how far its LOS looks nor which set it takes, and shows single runs, which differ more from each other "
    "than the two policies do."
)


def _needs_8(size: Size) -> Needs:
    return {"few": elastic.batch(size, 0.2), "half": elastic.batch(size, 0.5), "most": elastic.batch(size, 0.8)}


def _content_8(results: Results) -> Content:
    parts = {"P_S = 0.5": (BATCH, results["half"]), "P_S = 0.8": (BATCH, results["most"])}
    gains = [_overall(results[part], "Delayed-LOS", "EASY") for part in ("few", "half", "most")]
    closer = Claim(
        claim="Delayed-LOS comes closer to EASY as P_S grows from 0.2 over 0.5 to 0.8: mean wait over all loads below "
        "that of EASY",
        published="no number",
        measured=", ".join(f"{gain:.1f} %" for gain in gains),
        holds=gains[0] > gains[1] > gains[2],
        instances=sum(len(data) for data in results.values()),
    )
    close = Claim(
        claim="At P_S = 0.8 the mean wait of Delayed-LOS is close to that of EASY: within 5 % over all loads",
        published="no number",
        measured=f"{gains[2]:.1f} % below it",
        holds=abs(gains[2]) <= 5.0,
        instances=len(results["most"]),
    )
    beats = [
        elastic.better_claim(f"{told}: {new} outperforms {old} at every load: mean wait", data, new, old)
        for told, (_, data) in parts.items()
        for new, old in (("Delayed-LOS", "LOS"), ("EASY", "LOS"))
    ]
    sizes = [elastic.size_claim(ps, results[part], PUBLISHED_SIZES[ps]) for ps, part in ((0.5, "half"), (0.8, "most"))]
    return _content(
        "kumar2011-figure-8",
        "Batch jobs, half or most of them small ([Kumar2011] Figure 8)",
        parts,
        [*sizes, closer, close, *beats],
        utilisation=False,
    )


def _overall(data: ResultTable, new: str, old: str) -> float:
    """By how many percent the mean wait over all loads is below that of `old`."""
    ours, theirs = (nan(mean(data.column(label, WAIT))) for label in (new, old))
    return 100.0 * (1.0 - ours / theirs)


def _needs_9(size: Size) -> Needs:
    return {"mixed": elastic.mixed(size, 0.2, 0.5)}


def _content_9(results: Results) -> Content:
    data = results["mixed"]
    told = "P_S = 0.2, P_D = 0.5"
    claims = [elastic.size_claim(0.2, data, _MIXED_SIZE), *outperforms(data, MIXED, told)]
    title = "Half of the jobs dedicated, few small ([Kumar2011] Figure 9)"
    return _content("kumar2011-figure-9", title, {told: (MIXED, data)}, claims, (delays(data, MIXED),))


def _needs_10(size: Size) -> Needs:
    return {"mixed": elastic.mixed(size, 0.5, 0.9)}


def _content_10(results: Results) -> Content:
    data = results["mixed"]
    told = "P_S = 0.5, P_D = 0.9"
    title = "Nine of ten jobs dedicated, half of them small ([Kumar2011] Figure 10)"
    claims = outperforms(data, MIXED, told)
    return _content("kumar2011-figure-10", title, {told: (MIXED, data)}, claims, (delays(data, MIXED),))


def delays(data: ResultTable, contest: Contest) -> str:
    """A sentence on how many dedicated jobs start when they are to, at the lowest and the highest load."""
    told: list[str] = []
    for load in (elastic.loads_of(data)[0], elastic.loads_of(data)[-1]):
        at = data.where(target_load=load)
        shares = [
            nan(mean(100.0 * at.column(label, "dedicated_on_time") / at.column(label, "dedicated_jobs")))
            for label in contest.labels
        ]
        shown = ", ".join(f"{label} {share:.0f} %" for label, share in zip(contest.labels, shares, strict=True))
        told.append(f"at load {load:g}: {shown}")
    return f"Dedicated jobs that start exactly when they are to, {'; '.join(told)}."


def _needs_11(size: Size) -> Needs:
    return {
        "batch-commands": elastic.batch_commands(size),
        "mixed-commands": elastic.mixed_commands(size),
        "batch": elastic.batch(size, 0.5),
    }


def _content_11(results: Results) -> Content:
    batch, heterogeneous = "batch, P_S = 0.5", "heterogeneous, P_S = 0.5, P_D = 0.5"
    parts = {
        batch: (BATCH_E, results["batch-commands"]),
        heterogeneous: (MIXED_E, results["mixed-commands"]),
    }
    claims = [claim for told, (contest, data) in parts.items() for claim in outperforms(data, contest, told)]
    with_, without = (
        [_overall(data, contest.new, old) for old in (contest.los, contest.easy)]
        for contest, data in ((BATCH_E, results["batch-commands"]), (BATCH, results["batch"]))
    )
    claims.append(
        Claim(
            claim="At the same P_S = 0.5, commands make the improvement of wait on LOS and EASY lower, over all loads",
            published="no number at the same P_S",
            measured=f"{with_[0]:.1f} % and {with_[1]:.1f} % with them, {without[0]:.1f} % and {without[1]:.1f} % "
            "without",
            holds=with_[0] < without[0] and with_[1] < without[1],
            instances=len(results["batch"]),
        )
    )
    title = "Commands for more and less time ([Kumar2011] Figure 11)"
    return _content("kumar2011-figure-11", title, parts, claims, (delays(results["mixed-commands"], MIXED_E),))


EXHIBITS = tuple(
    Exhibit(
        name=f"kumar2011-figure-{number}",
        title=f"[Kumar2011] Figure {number}: {title}",
        source=f"[Kumar2011] section {section}, Figure {number}",
        needs=needs,
        content=content,
    )
    for number, title, section, needs, content in (
        (7, "batch jobs against the load, P_S = 0.2", "V-A", _needs_7, _content_7),
        (8, "batch jobs against the load, P_S = 0.5 and 0.8", "V-A", _needs_8, _content_8),
        (9, "batch and dedicated jobs against the load, P_S = 0.2, P_D = 0.5", "V-B", _needs_9, _content_9),
        (10, "batch and dedicated jobs against the load, P_S = 0.5, P_D = 0.9", "V-B", _needs_10, _content_10),
        (11, "users' commands, P_S = 0.5", "V-C", _needs_11, _content_11),
    )
)
