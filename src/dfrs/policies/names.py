"""Every on-line policy under its name: what the CLI, the library, the tables and the tests all read."""

from collections.abc import Callable, Collection, Mapping
from typing import Any

from dfrs.model.decisions import Policy, traits_of
from dfrs.model.errors import InputError
from dfrs.policies.batch.backfilling import WHOLE_NODES
from dfrs.policies.batch.los import LOS
from dfrs.policies.declaration import Entry, Family, nearest
from dfrs.policies.fractional.grammar import FRACTIONAL
from dfrs.policies.heterogeneous.arrive_f import PARTITIONS
from dfrs.policies.heterogeneous.fractional import DFRS_FARM
from dfrs.policies.plugins import module_family, plugin_families, plugin_family, plugin_names

FAMILIES: tuple[Family[Any], ...] = (WHOLE_NODES, LOS, PARTITIONS, DFRS_FARM, FRACTIONAL)
"""All that are built in, in the order in which they are listed."""

_FAMILY_OF: Mapping[str, Family[Any]] = {each.name: family for family in FAMILIES for each in family.names}

TABLE_5_1 = (
    "Greedy*",
    "GreedyP*",
    "GreedyPM*",
    "Greedy/per",
    "GreedyP/per",
    "GreedyPM/per",
    "Greedy*/per",
    "GreedyP*/per",
    "GreedyPM*/per",
    "MCB*",
    "MCB/per",
    "MCB*/per",
    "/per",
    "/stretch-per",
)
"""The combinations of [Stillwell2010] Table 5.1."""

TABLE_5_2 = (
    "FCFS",
    "EASY",
    "Greedy*/OPT=MIN",
    "GreedyP*/OPT=MIN",
    "GreedyPM*/OPT=MIN",
    "Greedy/per/OPT=MIN",
    "GreedyP/per/OPT=MIN",
    "GreedyPM/per/OPT=MIN",
    "Greedy*/per/OPT=MIN",
    "GreedyP*/per/OPT=MIN",
    "GreedyPM*/per/OPT=MIN",
    "GreedyP/per/OPT=MIN/MVT=600",
    "GreedyPM/per/OPT=MIN/MVT=600",
    "GreedyP*/per/OPT=MIN/MVT=600",
    "GreedyPM*/per/OPT=MIN/MVT=600",
    "MCB*/OPT=MIN/MVT=600",
    "MCB/per/OPT=MIN/MVT=600",
    "MCB*/per/OPT=MIN/MVT=600",
    "/per/OPT=MIN/MVT=600",
    "/stretch-per/OPT=MAX/MVT=600",
)
"""The policies of [Stillwell2010] Table 5.2, in its order."""

PUBLISHED_AGES = ("", "/MFT=300", "/MFT=600", "/MVT=300", "/MVT=600")
"""Half a penalty and one penalty ([Stillwell2010] section 5.3.1)."""


def all_published() -> list[str]:
    """The 116 names of [Stillwell2010] chapter 5: Table 5.1 with both uses of remaining CPU, and ages with MCB."""
    return [
        f"{combination}/OPT={share}{age}"
        for combination in TABLE_5_1
        for share in (("AVG", "MAX") if combination == "/stretch-per" else ("AVG", "MIN"))
        for age in (PUBLISHED_AGES if "per" in combination or "MCB" in combination else ("",))
    ]


TABLE_III = (
    "EASY",
    "EASY-D",
    "EASY-E",
    "EASY-DE",
    "LOS",
    "LOS-D",
    "LOS-E",
    "LOS-DE",
    "Delayed-LOS",
    "Hybrid-LOS",
    "Delayed-LOS-E",
    "Hybrid-LOS-E",
)
"""The policies of [Kumar2011] Table III, in its order."""


SETS: Mapping[str, tuple[str, ...]] = {
    "table-5.1": TABLE_5_1,
    "table-5.2": TABLE_5_2,
    "table-III": TABLE_III,
    "appendix-b": ("FCFS", "EASY", *all_published()),
}
"""Names for many policies at once."""


def batch_names() -> list[str]:
    """The policies for whole nodes, and EQUIPARTITION."""
    return [each.name for family in (WHOLE_NODES, LOS) for each in family.names]


def find_policy(name: str) -> Policy:
    """The policy of that name: dfrs has it, a package brings it, or it is `module:class`, which is imported.

    Raises InputError with the nearest names, or the rule that the name breaks.
    """
    head = name.partition("/")[0]
    family = _FAMILY_OF.get(head) or (module_family(head) if ":" in head else plugin_family(head))
    if family is None:
        raise _unknown(name, head)
    return family.find(name)


def built_in(name: str) -> bool:
    """Whether dfrs has it, and neither a package nor a module brings it."""
    return name.partition("/")[0] in _FAMILY_OF


def find_live_policy(name: str) -> Policy:
    """`find_policy` for a cluster that runs. Raises InputError also for a policy that needs more than that can give."""
    policy = find_policy(name)
    if traits_of(policy).clustered:
        raise InputError(
            f'policy "{name}": needs partitions of calibrated hardware and profiles of all jobs, which a live cluster '
            "does not have: simulate it by dfrs farm simulate, or choose EASY or GreedyPM*/per/OPT=MIN/MVT=600"
        )
    return policy


def find_recorded(given: Collection[str]) -> Callable[[str], Policy]:
    """`find_policy` for names in a file that anybody may have made: of `module:class` only those that are `given`."""

    def find(name: str) -> Policy:
        if ":" in name and name not in given:
            raise InputError(f'policy "{name}": the file names code of a module: if you trust it, say so: -p {name}')
        return find_policy(name)

    return find


def _unknown(name: str, head: str) -> InputError:
    installed = plugin_names()
    near = nearest(head, [*filter(None, _FAMILY_OF), *installed], cutoff=0.6)
    if near:
        return InputError(f'policy "{name}": there is no such policy; did you mean {" or ".join(near)}?')
    policies = ", ".join((*(each.name for family in FAMILIES if not family.many for each in family.names), *installed))
    return InputError(
        f'policy "{name}": there is no such policy; policies are {policies}, '
        f"names such as GreedyPM*/per/OPT=MIN/MVT=600, and MODULE:CLASS of your own"
    )


def complete_policy(incomplete: str) -> list[str]:
    """Names that begin so: heads first, and after a slash the next part."""
    head, slash, _ = incomplete.partition("/")
    if not slash:
        return [each for each in (*_FAMILY_OF, *plugin_names()) if each not in {"", "*"} and each.startswith(head)]
    try:
        family = _FAMILY_OF.get(head) or plugin_family(head)
    except InputError:
        return []
    return [] if family is None else list(family.complete(incomplete))


def listed_policies() -> tuple[list[Entry], list[str]]:
    """All names and their options, built in and installed; and what is wrong with those that cannot be used."""
    found = [entry for family in FAMILIES for entry in family.entries()]
    problems: list[str] = []
    for name, family in plugin_families():
        if name in _FAMILY_OF:
            problems.append(f'policy "{name}": an installed package has one of that name, too; dfrs has its own')
        elif isinstance(family, InputError):
            problems.append(str(family))
        else:
            found += [entry for entry in family.entries() if entry not in found]
    return found, problems
