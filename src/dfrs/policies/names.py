"""Every on-line policy under its name: what the CLI, the library, the tables and the tests all read."""

import difflib
import re
from collections.abc import Mapping

from dfrs.model.decisions import Policy
from dfrs.model.errors import InputError
from dfrs.policies.batch.backfilling import BATCH
from dfrs.policies.batch.los import FAMILY, find_los
from dfrs.policies.fractional.grammar import SUBMISSIONS, build, parse
from dfrs.policies.heterogeneous.fractional import NAME as DFRS_FARM
from dfrs.policies.heterogeneous.fractional import find_dfrs_farm
from dfrs.policies.heterogeneous.names import HEADS as FARM_HEADS
from dfrs.policies.heterogeneous.names import find_farm

TABLE_5_1 = (
    "Greedy*", "GreedyP*", "GreedyPM*", "Greedy/per", "GreedyP/per", "GreedyPM/per", "Greedy*/per", "GreedyP*/per",
    "GreedyPM*/per", "MCB*", "MCB/per", "MCB*/per", "/per", "/stretch-per",
)  # fmt: skip
"""The combinations of 000 Table 5.1."""

TABLE_5_2 = (
    "FCFS", "EASY",
    "Greedy*/OPT=MIN", "GreedyP*/OPT=MIN", "GreedyPM*/OPT=MIN",
    "Greedy/per/OPT=MIN", "GreedyP/per/OPT=MIN", "GreedyPM/per/OPT=MIN",
    "Greedy*/per/OPT=MIN", "GreedyP*/per/OPT=MIN", "GreedyPM*/per/OPT=MIN",
    "GreedyP/per/OPT=MIN/MVT=600", "GreedyPM/per/OPT=MIN/MVT=600",
    "GreedyP*/per/OPT=MIN/MVT=600", "GreedyPM*/per/OPT=MIN/MVT=600",
    "MCB*/OPT=MIN/MVT=600", "MCB/per/OPT=MIN/MVT=600", "MCB*/per/OPT=MIN/MVT=600",
    "/per/OPT=MIN/MVT=600", "/stretch-per/OPT=MAX/MVT=600",
)  # fmt: skip
"""The policies of 000 Table 5.2, in its order."""

PUBLISHED_AGES = ("", "/MFT=300", "/MFT=600", "/MVT=300", "/MVT=600")
"""Half a penalty and one penalty (000 section 5.3.1)."""


def all_published() -> list[str]:
    """The 116 names of 000 chapter 5: Table 5.1 with both uses of what is left, and ages where MCB is used."""
    return [
        f"{combination}/OPT={share}{age}"
        for combination in TABLE_5_1
        for share in (("AVG", "MAX") if combination == "/stretch-per" else ("AVG", "MIN"))
        for age in (PUBLISHED_AGES if "per" in combination or "MCB" in combination else ("",))
    ]


TABLE_III = (
    "EASY", "EASY-D", "EASY-E", "EASY-DE", "LOS", "LOS-D", "LOS-E", "LOS-DE", "Delayed-LOS", "Hybrid-LOS",
    "Delayed-LOS-E", "Hybrid-LOS-E",
)  # fmt: skip
"""The policies of 002 Table III, in its order."""


SETS: Mapping[str, tuple[str, ...]] = {
    "table-5.1": TABLE_5_1,
    "table-5.2": TABLE_5_2,
    "table-III": TABLE_III,
    "appendix-b": ("FCFS", "EASY", *all_published()),
}
"""Names for many policies at once."""


def find_policy(name: str) -> Policy:
    """The policy of that name. Raises InputError with the nearest names, or the rule that the name breaks."""
    if name in BATCH:
        return BATCH[name]()
    head = name.partition("/")[0]
    if head in FAMILY:
        return find_los(name)
    if head in FARM_HEADS:
        return find_farm(name)
    if head == DFRS_FARM:
        return find_dfrs_farm(name)
    known = (*BATCH, *FAMILY, *FARM_HEADS, DFRS_FARM, *TABLE_5_1)
    if (name.isalpha() and name not in SUBMISSIONS) or re.search("LOS|EASY|ARR?IVE|FARM|DFRS", head.upper()):
        upper = {k.upper(): k for k in known}
        near = [upper[k] for k in difflib.get_close_matches(head.upper(), upper, n=3, cutoff=0.6)]
        if near:
            raise InputError(f'policy "{name}": there is no such policy; did you mean {" or ".join(near)}?')
        policies = ", ".join((*BATCH, *FAMILY, *FARM_HEADS, DFRS_FARM))
        raise InputError(
            f'policy "{name}": there is no such policy; policies are {policies}, '
            f"and names such as GreedyPM*/per/OPT=MIN/MVT=600"
        )
    return build(name, parse(name))
